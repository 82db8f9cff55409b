"""REST: what clients change with git in a session's workspace."""

from __future__ import annotations

from typing import Annotated

import msgspec

from stagedoor.service.workspaces.git import GitStatus
from stagedoor.service.workspaces.git_changes import GitBranches, GitCommit, GitPush

from .operations import Operation, PathText, RestCall, Words

_Paths = Annotated[tuple[PathText, ...], msgspec.Meta(max_length=1000)]
_Branch = Annotated[str, msgspec.Meta(min_length=1, max_length=250)]


class PathsBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Files and folders of the workspace; none: all of it."""

    paths: _Paths = ()


class DiscardBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Files and folders of the workspace. What is not tracked is left alone."""

    paths: Annotated[tuple[PathText, ...], msgspec.Meta(min_length=1, max_length=1000)]


class CommitBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``all``: everything that has changed in the workspace, new files too; else what is staged."""

    message: Annotated[str, msgspec.Meta(min_length=1, max_length=100_000)]
    all: bool = False


class CheckoutBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``create``: a new branch, which begins at the commit that is checked out."""

    branch: _Branch
    create: bool = False


class PushBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Left out: the branch that is checked out, to the remote it follows, else ``origin``."""

    branch: Words = ""
    remote: Words = ""


async def stage(call: RestCall[None, PathsBody]) -> GitStatus:
    changes = await call.service.workspaces.changes(call.session_id, who=call.who)
    await changes.stage(call.body.paths)
    return await call.service.workspaces.git_status(call.session_id)


async def unstage(call: RestCall[None, PathsBody]) -> GitStatus:
    changes = await call.service.workspaces.changes(call.session_id, who=call.who)
    await changes.unstage(call.body.paths)
    return await call.service.workspaces.git_status(call.session_id)


async def discard(call: RestCall[None, DiscardBody]) -> GitStatus:
    changes = await call.service.workspaces.changes(call.session_id, who=call.who)
    await changes.discard(call.body.paths)
    return await call.service.workspaces.git_status(call.session_id)


async def commit(call: RestCall[None, CommitBody]) -> GitCommit:
    changes = await call.service.workspaces.changes(call.session_id, who=call.who)
    return await changes.commit(call.body.message, everything=call.body.all)


async def branches(call: RestCall[None, None]) -> GitBranches:
    return await (await call.service.workspaces.changes(call.session_id)).branches()


async def checkout(call: RestCall[None, CheckoutBody]) -> GitStatus:
    changes = await call.service.workspaces.changes(call.session_id, who=call.who)
    await changes.checkout(call.body.branch, create=call.body.create)
    return await call.service.workspaces.git_status(call.session_id)


async def push(call: RestCall[None, PushBody]) -> GitPush:
    changes = await call.service.workspaces.changes(call.session_id, who=call.who)
    return await changes.push(remote=call.body.remote, branch=call.body.branch)


_GIT = "/api/sessions/{sessionId}/git"
OPERATIONS: tuple[Operation, ...] = (
    Operation(
        name="gitBranches", method="GET", path=_GIT + "/branches", tag="workspaces", scope="watch", verb=branches,
        summary="The branches of a session's repository", answer=GitBranches, faults=(403, 404),
    ),
    Operation(
        name="gitStage", method="POST", path=_GIT + "/stage", tag="workspaces", scope="run", verb=stage,
        summary="Stage changes of the workspace", bodies=(PathsBody,), answer=GitStatus, faults=(403, 404),
    ),
    Operation(
        name="gitUnstage", method="POST", path=_GIT + "/unstage", tag="workspaces", scope="run", verb=unstage,
        summary="Unstage changes of the workspace", bodies=(PathsBody,), answer=GitStatus, faults=(403, 404),
    ),
    Operation(
        name="gitDiscard", method="POST", path=_GIT + "/discard", tag="workspaces", scope="run", verb=discard,
        summary="Discard changes that are not staged; they are gone", bodies=(DiscardBody,), answer=GitStatus,
        faults=(403, 404),
    ),
    Operation(
        name="gitCommit", method="POST", path=_GIT + "/commit", tag="workspaces", scope="run", verb=commit,
        summary="Commit what is staged, or all changes of the workspace", bodies=(CommitBody,), answer=GitCommit,
        faults=(403, 404),
    ),
    Operation(
        name="gitCheckout", method="POST", path=_GIT + "/checkout", tag="workspaces", scope="run", verb=checkout,
        summary="Check out a branch, or create one; refused where it would overwrite changes", bodies=(CheckoutBody,),
        answer=GitStatus, faults=(403, 404),
    ),
    Operation(
        name="gitPush", method="POST", path=_GIT + "/push", tag="workspaces", scope="run", verb=push,
        summary="Push a branch to an address that the configuration allows", bodies=(PushBody,), answer=GitPush,
        faults=(403, 404),
    ),
)  # fmt: skip
