"""``git/*``: the workspace of a session, by default that of the session this client ran last."""

from __future__ import annotations

from stagedoor.service.workspaces.git import GitStatus, WorkspaceDiff
from stagedoor.service.workspaces.git_changes import GitBranches, GitChanges, GitCommit, GitPush

from .client import RpcCall
from .params import (
    GitCheckoutParams,
    GitCommitParams,
    GitDiffParams,
    GitDiscardParams,
    GitPathsParams,
    GitPushParams,
    GitStatusParams,
)


async def status(call: RpcCall, params: GitStatusParams) -> GitStatus:
    return await call.service.workspaces.git_status(call.session(params.session_id))


async def diff(call: RpcCall, params: GitDiffParams) -> WorkspaceDiff:
    return await call.service.workspaces.diff(call.session(params.session_id), path=params.path)


async def stage(call: RpcCall, params: GitPathsParams) -> GitStatus:
    await (await _changes(call, params.session_id)).stage(params.paths)
    return await call.service.workspaces.git_status(call.session(params.session_id))


async def unstage(call: RpcCall, params: GitPathsParams) -> GitStatus:
    await (await _changes(call, params.session_id)).unstage(params.paths)
    return await call.service.workspaces.git_status(call.session(params.session_id))


async def discard(call: RpcCall, params: GitDiscardParams) -> GitStatus:
    await (await _changes(call, params.session_id)).discard(params.paths)
    return await call.service.workspaces.git_status(call.session(params.session_id))


async def commit(call: RpcCall, params: GitCommitParams) -> GitCommit:
    return await (await _changes(call, params.session_id)).commit(params.message, everything=params.all)


async def branches(call: RpcCall, params: GitStatusParams) -> GitBranches:
    return await (await _changes(call, params.session_id)).branches()


async def checkout(call: RpcCall, params: GitCheckoutParams) -> GitStatus:
    await (await _changes(call, params.session_id)).checkout(params.branch, create=params.create)
    return await call.service.workspaces.git_status(call.session(params.session_id))


async def push(call: RpcCall, params: GitPushParams) -> GitPush:
    return await (await _changes(call, params.session_id)).push(remote=params.remote, branch=params.branch)


async def _changes(call: RpcCall, session_id: str) -> GitChanges:
    return await call.service.workspaces.changes(call.session(session_id), who=call.caller.name)
