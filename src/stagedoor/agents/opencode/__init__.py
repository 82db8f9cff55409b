"""OpenCode, as a library of its own: ``run``, ``serve`` and ``acp``."""

from .client import OpenCodeClient
from .commands import Action, Attachment, Model, Reply, Rule
from .config import (
    Allow,
    AnswerQuestion,
    CanUseTool,
    Decision,
    Driver,
    McpLocal,
    McpRemote,
    OpenCodeConfig,
    Reject,
)
from .events import Event, RunEvent, ServerEvent
from .history import History, StoredSession, list_sessions
from .permissions import AUTONOMOUS, READ_ONLY, SUPERVISED, Permission
from .protocol import RunProtocol, ServeProtocol
from .run_session import OpenCodeRunSession
from .serve_session import OpenCodeSession

__all__ = [
    "AUTONOMOUS",
    "READ_ONLY",
    "SUPERVISED",
    "Action",
    "Allow",
    "AnswerQuestion",
    "Attachment",
    "CanUseTool",
    "Decision",
    "Driver",
    "Event",
    "History",
    "McpLocal",
    "McpRemote",
    "Model",
    "OpenCodeClient",
    "OpenCodeConfig",
    "OpenCodeRunSession",
    "OpenCodeSession",
    "Permission",
    "Reject",
    "Reply",
    "Rule",
    "RunEvent",
    "RunProtocol",
    "ServeProtocol",
    "ServerEvent",
    "StoredSession",
    "list_sessions",
]
