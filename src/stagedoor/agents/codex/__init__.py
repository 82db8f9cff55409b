"""Codex CLI, complete: ``codex exec --json`` and ``codex app-server``, in its own words.

The items and events of ``exec`` are in ``items`` and ``events``; those of the app-server in ``thread_items`` and
``notifications``, its questions in ``questions``, and what answers them in ``commands``.
"""

from .app_server import CodexAppServer
from .client import CodexClient, CodexSession
from .commands import (
    Accept,
    AcceptForSession,
    AcceptWithExecpolicyAmendment,
    Answers,
    ApplyNetworkPolicyAmendment,
    Cancel,
    Decision,
    Decline,
    ToolOutput,
)
from .config import ApprovalPolicy, CanUseTool, CodexConfig, GranularApproval, SandboxMode
from .events import Event, ExecEvent
from .exec_session import CodexExecSession
from .history import History, StoredSession, list_sessions
from .launch import launch
from .locate import MINIMUM_VERSION
from .notifications import AppEvent
from .protocol import AppServerProtocol, ExecProtocol
from .questions import Question
from .thread_session import CodexThread
from .usage import Usage

__all__ = [
    "MINIMUM_VERSION",
    "Accept",
    "AcceptForSession",
    "AcceptWithExecpolicyAmendment",
    "Answers",
    "AppEvent",
    "AppServerProtocol",
    "ApplyNetworkPolicyAmendment",
    "ApprovalPolicy",
    "CanUseTool",
    "Cancel",
    "CodexAppServer",
    "CodexClient",
    "CodexConfig",
    "CodexExecSession",
    "CodexSession",
    "CodexThread",
    "Decision",
    "Decline",
    "Event",
    "ExecEvent",
    "ExecProtocol",
    "GranularApproval",
    "History",
    "Question",
    "SandboxMode",
    "StoredSession",
    "ToolOutput",
    "Usage",
    "launch",
    "list_sessions",
]
