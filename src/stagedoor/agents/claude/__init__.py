"""Claude Code: a complete native library over ``stream-json`` and the control channel.

client = ClaudeClient(cwd=".")
async with await client.create_session("Fix the login bug", ClaudeSessionConfig(can_use_tool=ask)) as session:
    async for event in session.events:
        ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...mcp.functions import Tool, tool
from ...mcp.protocol import ToolServer
from . import blocks, commands, events
from .commands import (
    ClaudeInterrupt,
    ClaudePermissionBehavior,
    ClaudePrompt,
    Decision,
    PermissionResultAllow,
    PermissionResultDeny,
    allow_always,
    answer_questions,
    image,
    plan_in,
    questions_in,
)
from .config import ClaudePermissionMode, ClaudeSessionConfig, HookMatcher
from .events import (
    Assistant,
    CanUseTool,
    ClaudeResult,
    Event,
    HookCallback,
    PermissionRuleValue,
    PermissionUpdate,
    StreamEvent,
    SystemInit,
    TurnSettled,
    User,
)
from .protocol import ClaudeProtocol

if TYPE_CHECKING:
    from .client import VERSIONS, ClaudeClient, Credentials
    from .history import ClaudeHistory, ClaudeStoredSession, list_sessions
    from .session import ClaudeSession

__all__ = [
    "VERSIONS", "Assistant", "CanUseTool", "ClaudeClient", "ClaudeHistory", "ClaudeInterrupt",
    "ClaudePermissionBehavior", "ClaudePermissionMode", "ClaudePrompt", "ClaudeProtocol", "ClaudeResult",
    "ClaudeSession", "ClaudeSessionConfig", "ClaudeStoredSession", "Credentials", "Decision", "Event", "HookCallback",
    "HookMatcher", "PermissionResultAllow", "PermissionResultDeny", "PermissionRuleValue", "PermissionUpdate",
    "StreamEvent", "SystemInit", "Tool", "ToolServer", "TurnSettled", "User", "allow_always", "answer_questions",
    "blocks", "commands", "events", "image", "list_sessions", "plan_in", "questions_in", "tool",
]  # fmt: skip

_DOES_IO = {
    "ClaudeClient": "client",
    "Credentials": "client",
    "VERSIONS": "client",
    "ClaudeSession": "session",
    "ClaudeStoredSession": "history",
    "ClaudeHistory": "history",
    "list_sessions": "history",
}


def __getattr__(name: str) -> Any:
    """What does I/O is imported on first use: reading a transcript needs no event loop."""
    if name not in _DOES_IO:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_DOES_IO[name]}", __name__), name)
