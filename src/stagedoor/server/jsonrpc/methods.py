"""The table: every method with its params, its result, and the scope it needs. The reference page is made from it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from stagedoor.service.views import Scope
from stagedoor.service.workspaces.files import FileText, Listing
from stagedoor.service.workspaces.git import GitStatus, WorkspaceDiff
from stagedoor.service.workspaces.git_changes import GitBranches, GitCommit, GitPush
from stagedoor.service.workspaces.undoing import CheckpointList
from stagedoor.shadow_git.checkpoints import UndoResult

from . import agents, git, params, results, sessions
from .client import RpcCall


@dataclass(frozen=True)
class RpcMethod:
    name: str
    about: str
    scope: Scope
    params: type[params.RpcParams]
    result: Any
    call: Callable[[RpcCall, Any], Awaitable[Any]]


_TABLE = (
    RpcMethod("agent/discover", "List the agents of this server and what they can do.",
           "watch", params.NoParams, results.DiscoverResult, agents.discover),
    RpcMethod("agent/select", "Choose the agent for calls that name none. It is the default of this client only.",
           "run", params.SelectParams, results.SelectResult, agents.select),
    RpcMethod("agent/configure", "Set options for the selected agent; they apply to the sessions this client starts.",
           "run", params.ConfigureParams, results.AgentConfiguration, agents.configure),
    RpcMethod("agent/settings", "List what a session of an agent lets you choose; it may be started once to see.",
           "run", params.SelectParams, results.SettingsResult, agents.settings),
    RpcMethod("agent/run", "Start a session, or continue one, and follow it.",
           "run", params.RunParams, results.RunResult, agents.run),
    RpcMethod("agent/stop", "End a session, or only its running turn.",
           "run", params.StopParams, results.StopResult, agents.stop),
    RpcMethod("agent/respond", "Answer the open question of a tool use.",
           "answer", params.RespondParams, results.RespondResult, agents.respond),
    RpcMethod("agent/status", "Show what the selected agent, or a session, is doing now.",
           "watch", params.StatusParams, results.AgentStatusResult, agents.status),
    RpcMethod("session/list", "List sessions, newest first.",
           "watch", params.SessionListParams, results.SessionListResult, sessions.list_sessions),
    RpcMethod("session/get", "Show one session.",
           "watch", params.SessionGetParams, results.UnifiedSession, sessions.get),
    RpcMethod("session/events", "Read a page of a session's events, in any dialect.",
           "watch", params.EventsParams, results.EventsResult, sessions.events),
    RpcMethod("session/send", "Send a follow-up; it waits until the turns before it are over.",
           "run", params.SendParams, results.SendResult, sessions.send),
    RpcMethod("session/settings", "List what can be chosen in a session: mode, model, effort and more.",
           "watch", params.SettingsParams, results.SettingsResult, sessions.settings),
    RpcMethod("session/set", "Choose a mode, a model, an effort or another setting of a session.",
           "run", params.SetParams, results.SettingsResult, sessions.change_setting),
    RpcMethod("session/subscribe", "Follow a session from any event on, or the changes of all sessions and questions.",
           "watch", params.SubscribeParams, results.SubscribeResult, sessions.subscribe),
    RpcMethod("session/unsubscribe", "Stop following it.",
           "watch", params.UnsubscribeParams, results.UnsubscribeResult, sessions.unsubscribe),
    RpcMethod("session/listen", "Choose which sessions' events come without a subscription: all that run, or none.",
           "watch", params.ListenParams, results.ListenResult, sessions.listen),
    RpcMethod("session/resume", "Continue an ended session in a new one, or any session with `fork`.",
           "run", params.ResumeParams, results.RunResult, sessions.resume),
    RpcMethod("session/checkpoints", "List the states of the workspace that can be restored.",
           "watch", params.GitStatusParams, CheckpointList, sessions.checkpoints),
    RpcMethod("session/undo", "Restore files as they were before a turn; refused while a turn runs.",
           "run", params.UndoParams, UndoResult, sessions.undo),
    RpcMethod("git/status", "Show the git status of a session's workspace, and which files have changed.",
           "watch", params.GitStatusParams, GitStatus, git.status),
    RpcMethod("git/diff", "Show all changes in the workspace since the session started, new files included.",
           "watch", params.GitDiffParams, WorkspaceDiff, git.diff),
    RpcMethod("git/stage", "Stage changes of the workspace.",
           "run", params.GitPathsParams, GitStatus, git.stage),
    RpcMethod("git/unstage", "Unstage changes of the workspace.",
           "run", params.GitPathsParams, GitStatus, git.unstage),
    RpcMethod("git/discard", "Discard changes that are not staged; they are gone.",
           "run", params.GitDiscardParams, GitStatus, git.discard),
    RpcMethod("git/commit", "Commit what is staged, or all changes of the workspace.",
           "run", params.GitCommitParams, GitCommit, git.commit),
    RpcMethod("git/branches", "List the branches of the repository.",
           "watch", params.GitStatusParams, GitBranches, git.branches),
    RpcMethod("git/checkout", "Check out a branch, or create one; refused where it would overwrite changes.",
           "run", params.GitCheckoutParams, GitStatus, git.checkout),
    RpcMethod("git/push", "Push a branch to an address that the configuration allows (`workspaces.push`).",
           "run", params.GitPushParams, GitPush, git.push),
    RpcMethod("file/list", "List a folder of the workspace.",
           "watch", params.FileListParams, Listing, sessions.file_list),
    RpcMethod("file/read", "Read a file of the workspace, or some of its lines.",
           "watch", params.FileReadParams, FileText, sessions.file_read),
    RpcMethod("permission/list", "List the open questions, or all.",
           "watch", params.PermissionListParams, results.PermissionListResult, sessions.list_permissions),
    RpcMethod("permission/answer", "Answer a question, once.",
           "answer", params.PermissionAnswerParams, results.PermissionAnswerResult, sessions.answer_permission),
)  # fmt: skip

METHODS: dict[str, RpcMethod] = {method.name: method for method in _TABLE}
