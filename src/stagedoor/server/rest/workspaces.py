"""REST: the workspace of a session: git, files, and its worktree."""

from __future__ import annotations

from typing import Annotated

import msgspec

from stagedoor.service.views import SessionView
from stagedoor.service.workspaces.files import FileText, Listing
from stagedoor.service.workspaces.git import GitStatus, WorkspaceDiff

from .operations import LARGEST, Operation, PathText, RestCall
from .sessions import public_view

_LINE = Annotated[int, msgspec.Meta(ge=1, le=LARGEST)]


class PathQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Relative to the workspace; empty: all of it."""

    path: PathText = ""


class FileQuery(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    path: Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]
    first_line: _LINE | None = None
    last_line: _LINE | None = None


class WorktreeBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``keep``: the changes stay as a commit on the session's branch; else the branch is deleted too."""

    keep: bool


async def git(call: RestCall[None, None]) -> GitStatus:
    return await call.service.workspaces.git_status(call.session_id)


async def diff(call: RestCall[PathQuery, None]) -> WorkspaceDiff:
    return await call.service.workspaces.diff(call.session_id, path=call.query.path)


async def files(call: RestCall[PathQuery, None]) -> Listing:
    return await call.service.workspaces.files(call.session_id, call.query.path)


async def file(call: RestCall[FileQuery, None]) -> FileText:
    query = call.query
    return await call.service.workspaces.read(
        call.session_id, query.path, first_line=query.first_line, last_line=query.last_line
    )


async def finish_worktree(call: RestCall[None, WorktreeBody]) -> SessionView:
    return public_view(await call.service.sessions.finish_worktree(call.session_id, keep=call.body.keep))


_SESSION = "/api/sessions/{sessionId}"
OPERATIONS: tuple[Operation, ...] = (
    Operation(
        name="sessionGit", method="GET", path=_SESSION + "/git", tag="workspaces", scope="watch", verb=git,
        summary="The git status of a session's workspace", answer=GitStatus, faults=(404,),
    ),
    Operation(
        name="sessionDiff", method="GET", path=_SESSION + "/diff", tag="workspaces", scope="watch", verb=diff,
        summary="What has changed since the session started", query=PathQuery, answer=WorkspaceDiff, faults=(404,),
    ),
    Operation(
        name="listFiles", method="GET", path=_SESSION + "/files", tag="workspaces", scope="watch", verb=files,
        summary="A folder of the workspace", query=PathQuery, answer=Listing, faults=(404,),
    ),
    Operation(
        name="readFile", method="GET", path=_SESSION + "/file", tag="workspaces", scope="watch", verb=file,
        summary="A file of the workspace, or some of its lines", query=FileQuery, answer=FileText, faults=(404,),
    ),
    Operation(
        name="finishWorktree", method="POST", path="/api/sessions/{sessionId}/worktree", tag="workspaces", scope="run",
        summary="Keep or discard what a session changed in its worktree", verb=finish_worktree, bodies=(WorktreeBody,),
        answer=SessionView, faults=(404, 409),
    ),
)  # fmt: skip
