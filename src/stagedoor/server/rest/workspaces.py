"""REST: the workspace of a session: git, files, and its worktree."""

from __future__ import annotations

from typing import Annotated

import msgspec

from stagedoor.service.machines.ground import TrustedFolders
from stagedoor.service.views import SessionView
from stagedoor.service.workspaces.files import FileText, Folders, FoundFiles, Listing
from stagedoor.service.workspaces.git import GitStatus, WorkspaceDiff
from stagedoor.service.workspaces.trust import FolderTrust
from stagedoor.service.workspaces.undoing import CheckpointList
from stagedoor.shadow_git.checkpoints import UndoResult
from stagedoor.trust.record import TrustedFolder

from .operations import LARGEST, Operation, PathText, PlaceQuery, RestCall, Words
from .sessions import public_view

_LINE = Annotated[int, msgspec.Meta(ge=1, le=LARGEST)]


class PathQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Relative to the workspace; empty: all of it."""

    path: PathText = ""


class FolderQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Empty: those that sessions may run in. ``place``: of which machine (``host:NAME``)."""

    path: PathText = ""
    place: Words = ""


class FindQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``text``: letters of the path, in that order."""

    text: Words = ""


class FileQuery(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    path: Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]
    first_line: _LINE | None = None
    last_line: _LINE | None = None


class TrustQuery(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Where a session would start, as in its body."""

    cwd: PathText = ""
    project_id: Words = ""
    agent: Words = ""
    place: Words = ""


class TrustBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the folder belongs to is trusted: its whole repository. ``place``: of which machine (``host:NAME``)."""

    folder: Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]
    place: Words = ""


class WorktreeBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``keep``: the changes stay as a commit on the session's branch; else the branch is deleted too."""

    keep: bool


class UndoBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The state before ``turn`` (left out: the last one), or any ``checkpoint``, of all files or of ``paths`` alone."""

    turn: _LINE | None = None
    checkpoint: Words = ""
    paths: Annotated[tuple[PathText, ...], msgspec.Meta(max_length=1000)] = ()


async def git(call: RestCall[None, None]) -> GitStatus:
    return await call.service.workspaces.git_status(call.session_id)


async def diff(call: RestCall[PathQuery, None]) -> WorkspaceDiff:
    return await call.service.workspaces.diff(call.session_id, path=call.query.path)


async def checkpoints(call: RestCall[None, None]) -> CheckpointList:
    return await call.service.sessions.undoing.list(call.session_id)


async def undo(call: RestCall[None, UndoBody]) -> UndoResult:
    body = call.body
    return await call.service.sessions.undo(
        call.session_id, turn=body.turn, checkpoint=body.checkpoint, paths=body.paths, who=call.who
    )


async def files(call: RestCall[PathQuery, None]) -> Listing:
    return await call.service.workspaces.files(call.session_id, call.query.path)


async def find_files(call: RestCall[FindQuery, None]) -> FoundFiles:
    return await call.service.workspaces.find(call.session_id, call.query.text)


async def folders(call: RestCall[FolderQuery, None]) -> Folders:
    found: Folders = await call.service.ground.folders(call.query.path, place=call.query.place)
    return found


async def file(call: RestCall[FileQuery, None]) -> FileText:
    query = call.query
    return await call.service.workspaces.read(
        call.session_id, query.path, first_line=query.first_line, last_line=query.last_line
    )


async def folder_trust(call: RestCall[TrustQuery, None]) -> FolderTrust:
    query = call.query
    found: FolderTrust = await call.service.ground.trust(
        cwd=query.cwd, project_id=query.project_id, agent=query.agent, place=query.place
    )
    return found


async def trusted_folders(call: RestCall[PlaceQuery, None]) -> TrustedFolders:
    found: TrustedFolders = await call.service.ground.trusted(place=call.query.place)
    return found


async def trust_folder(call: RestCall[None, TrustBody]) -> TrustedFolder:
    body = call.body
    trusted: TrustedFolder = await call.service.ground.trust_folder(body.folder, who=call.who, place=body.place)
    return trusted


async def distrust_folder(call: RestCall[None, TrustBody]) -> None:
    await call.service.ground.distrust_folder(call.body.folder, place=call.body.place)


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
        name="listCheckpoints", method="GET", path=_SESSION + "/checkpoints", tag="workspaces", scope="watch",
        verb=checkpoints, summary="The states of the workspace that can be restored", answer=CheckpointList,
        faults=(403, 404),
    ),
    Operation(
        name="undo", method="POST", path=_SESSION + "/undo", tag="workspaces", scope="run", verb=undo,
        summary="Restore files as they were before a turn; refused while a turn runs", bodies=(UndoBody,),
        answer=UndoResult, faults=(403, 404, 409),
    ),
    Operation(
        name="listFiles", method="GET", path=_SESSION + "/files", tag="workspaces", scope="watch", verb=files,
        summary="A folder of the workspace", query=PathQuery, answer=Listing, faults=(404,),
    ),
    Operation(
        name="findFiles", method="GET", path=_SESSION + "/find", tag="workspaces", scope="watch", verb=find_files,
        summary="Files of the workspace by some letters of their path", query=FindQuery, answer=FoundFiles,
        faults=(404,),
    ),
    Operation(
        name="listFolders", method="GET", path="/api/folders", tag="workspaces", scope="watch", verb=folders,
        summary="The folders that a session can run in", query=FolderQuery, answer=Folders, faults=(403, 404),
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
    Operation(
        name="folderTrust", method="GET", path="/api/trust", tag="workspaces", scope="watch", verb=folder_trust,
        summary="Whether a folder is trusted, and what the agent would load from it", query=TrustQuery,
        answer=FolderTrust, faults=(403, 404),
    ),
    Operation(
        name="listTrusted", method="GET", path="/api/trusted", tag="workspaces", scope="watch", verb=trusted_folders,
        summary="The folders that a person has trusted", query=PlaceQuery, answer=TrustedFolders, faults=(404,),
    ),
    Operation(
        name="trustFolder", method="POST", path="/api/trusted", tag="workspaces", scope="admin", verb=trust_folder,
        summary="Trust a folder permanently: what the project contains may run when an agent starts there",
        bodies=(TrustBody,), answer=TrustedFolder, status=201, faults=(403, 404),
    ),
    Operation(
        name="distrustFolder", method="DELETE", path="/api/trusted", tag="workspaces", scope="admin",
        verb=distrust_folder, summary="Trust a folder no more, from the next start on", bodies=(TrustBody,), status=204,
        faults=(404,),
    ),
)  # fmt: skip
