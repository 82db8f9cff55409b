"""``git/*`` and ``file/*``: a session's workspace, by default that of the session this client ran last."""

from __future__ import annotations

from stagedoor.service.workspaces.files import FileText, Listing
from stagedoor.service.workspaces.git import Diff, GitStatus

from .params import FileList, FileRead, GitDiff, GitState
from .peer import Call


async def git_status(call: Call, wish: GitState) -> GitStatus:
    return await call.service.workspaces.git_status(call.session(wish.session_id))


async def git_diff(call: Call, wish: GitDiff) -> Diff:
    return await call.service.workspaces.diff(call.session(wish.session_id), path=wish.path)


async def file_list(call: Call, wish: FileList) -> Listing:
    return await call.service.workspaces.files(call.session(wish.session_id), wish.path)


async def file_read(call: Call, wish: FileRead) -> FileText:
    return await call.service.workspaces.read(
        call.session(wish.session_id), wish.path, first_line=wish.first_line, last_line=wish.last_line
    )
