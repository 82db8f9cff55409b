"""Codex CLI, complete: ``codex exec --json`` and ``codex app-server``, in its own words.

The events and items of ``exec`` are in ``events``; those of the app-server in ``notifications`` and ``threads``, its
questions in ``questions``, and what answers them in ``commands``.
"""

from stagedoor.wire.permission import PermissionBehavior

from .app_server import CodexAppServer
from .client import CodexClient, CodexSession, Event
from .commands import (
    Accept,
    AcceptForSession,
    AcceptWithExecpolicyAmendment,
    Answers,
    ApplyNetworkPolicyAmendment,
    CancelTurn,
    Decision,
    Decline,
    ToolOutput,
)
from .config import ApprovalPolicy, CanUseTool, CodexSessionConfig, GranularApproval, SandboxMode
from .events import CodexUsage, ExecEvent
from .history import CodexHistory, CodexStoredSession, list_sessions
from .launch import launch
from .locate import VERSIONS
from .notifications import AppEvent
from .protocol import AppServerProtocol, ExecProtocol
from .questions import Question
from .sessions import CodexExecSession, CodexThread

__all__ = [
    "VERSIONS",
    "Accept",
    "AcceptForSession",
    "AcceptWithExecpolicyAmendment",
    "Answers",
    "AppEvent",
    "AppServerProtocol",
    "ApplyNetworkPolicyAmendment",
    "ApprovalPolicy",
    "CanUseTool",
    "CancelTurn",
    "CodexAppServer",
    "CodexClient",
    "CodexExecSession",
    "CodexHistory",
    "CodexSession",
    "CodexSessionConfig",
    "CodexStoredSession",
    "CodexThread",
    "CodexUsage",
    "Decision",
    "Decline",
    "Event",
    "ExecEvent",
    "ExecProtocol",
    "GranularApproval",
    "PermissionBehavior",
    "Question",
    "SandboxMode",
    "ToolOutput",
    "launch",
    "list_sessions",
]  # fmt: skip
