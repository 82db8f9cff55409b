"""The table: every method with its params, its result, and the scope it takes. The reference page is made from it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from stagedoor.service.views import Scope
from stagedoor.service.workspaces.files import FileText, Listing
from stagedoor.service.workspaces.git import Diff, GitStatus

from . import agents, params, permissions, results, sessions, workspaces
from .peer import Call


@dataclass(frozen=True)
class Method:
    name: str
    about: str
    scope: Scope
    params: type[params.Params]
    result: Any
    call: Callable[[Call, Any], Awaitable[Any]]


_TABLE = (
    Method("agent/discover", "List the agents of this server and what they can do.",
           "watch", params.Nothing, results.Discovered, agents.discover),
    Method("agent/select", "Choose the agent that counts where a call names none. It is this client's own default.",
           "run", params.Select, results.Selected, agents.select),
    Method("agent/configure", "Set options for the selected agent; they count for the sessions this client begins.",
           "run", params.Configure, results.Configured, agents.configure),
    Method("agent/run", "Begin a session, or go on with one, and follow it.",
           "run", params.Run, results.Ran, agents.run),
    Method("agent/stop", "End a session, or only its running turn.",
           "run", params.Stop, results.Stopped, agents.stop),
    Method("agent/respond", "Answer the open question of a tool use.",
           "answer", params.Respond, results.Responded, agents.respond),
    Method("agent/status", "Say what the selected agent, or a session, does now.",
           "watch", params.Status, results.AgentStatus, agents.status),
    Method("session/list", "List sessions, newest first.",
           "watch", params.SessionList, results.SessionPage, sessions.listed),
    Method("session/get", "Show one session.",
           "watch", params.SessionNamed, results.UnifiedSession, sessions.get),
    Method("session/events", "Read a page of a session's events, in any dialect.",
           "watch", params.SessionEvents, results.EventPage, sessions.events),
    Method("session/send", "Send a follow-up; it waits until the turns before it are over.",
           "run", params.SessionSend, results.Sent, sessions.send),
    Method("session/subscribe", "Follow a session from any place on, or the changes of all sessions and questions.",
           "watch", params.Subscribe, results.Subscribed, sessions.subscribe),
    Method("session/unsubscribe", "Follow it no more.",
           "watch", params.Unsubscribe, results.Unsubscribed, sessions.unsubscribe),
    Method("session/resume", "Go on with an ended session in a new one, or beside any with `fork`.",
           "run", params.Resume, results.Ran, sessions.resume),
    Method("git/status", "Say where a session's workspace stands in git, and which files have changed.",
           "watch", params.GitState, GitStatus, workspaces.git_status),
    Method("git/diff", "Show all that has changed in the workspace since the session began, new files included.",
           "watch", params.GitDiff, Diff, workspaces.git_diff),
    Method("file/list", "List a folder of the workspace.",
           "watch", params.FileList, Listing, workspaces.file_list),
    Method("file/read", "Read a file of the workspace, or some of its lines.",
           "watch", params.FileRead, FileText, workspaces.file_read),
    Method("permission/list", "List questions that wait for an answer, or all.",
           "watch", params.PermissionList, results.Questions, permissions.listed),
    Method("permission/answer", "Answer a question, once.",
           "answer", params.PermissionAnswer, results.Answered, permissions.answer),
)  # fmt: skip

METHODS: dict[str, Method] = {method.name: method for method in _TABLE}
