"""OpenCode as a library: ``run``, ``serve`` and ``acp``."""

from stagedoor.wire.permission import PermissionBehavior

from .client import OpenCodeClient
from .commands import Action, Attachment, ModelName, PermissionReply, PermissionRule
from .config import (
    AUTONOMOUS,
    READ_ONLY,
    SUPERVISED,
    AnswerQuestion,
    CanUseTool,
    McpLocal,
    McpRemote,
    OpenCodeAllow,
    OpenCodeDecision,
    OpenCodeDriver,
    OpenCodeReject,
    OpenCodeSessionConfig,
    Permission,
)
from .events import Event, RunEvent, ServerEvent
from .history import OpenCodeHistory, OpenCodeStoredSession, list_sessions
from .protocol import RunProtocol, ServeProtocol
from .sessions import OpenCodeRunSession, OpenCodeSession

__all__ = [
    "AUTONOMOUS",
    "READ_ONLY",
    "SUPERVISED",
    "Action",
    "AnswerQuestion",
    "Attachment",
    "CanUseTool",
    "Event",
    "McpLocal",
    "McpRemote",
    "ModelName",
    "OpenCodeAllow",
    "OpenCodeClient",
    "OpenCodeDecision",
    "OpenCodeDriver",
    "OpenCodeHistory",
    "OpenCodeReject",
    "OpenCodeRunSession",
    "OpenCodeSession",
    "OpenCodeSessionConfig",
    "OpenCodeStoredSession",
    "Permission",
    "PermissionBehavior",
    "PermissionReply",
    "PermissionRule",
    "RunEvent",
    "RunProtocol",
    "ServeProtocol",
    "ServerEvent",
    "list_sessions",
]  # fmt: skip
