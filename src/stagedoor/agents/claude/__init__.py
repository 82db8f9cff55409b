"""Claude Code: a complete native library over ``stream-json`` and the control channel.

client = ClaudeClient(cwd=".")
async with await client.create_session("Fix the login bug", ClaudeSessionConfig(can_use_tool=ask)) as session:
    async for event in session.events:
        ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import blocks, commands, events, notices, requests
from .commands import Allow, Decision, Deny, Interrupt, Prompt, image
from .config import ClaudePermissionMode, ClaudeSessionConfig, HookMatcher
from .events import Assistant, Event, Result, StreamEvent, SystemInit, TurnSettled, User
from .permissions import ClaudePermissionBehavior, allow_always, answer_questions, plan_in, questions_in
from .protocol import ClaudeProtocol
from .requests import CanUseTool, HookCallback, PermissionUpdate, Rule
from .tools import Tool, ToolServer, tool

if TYPE_CHECKING:
    from .client import MINIMUM_VERSION, ClaudeClient, Credentials
    from .history import History, StoredSession, list_sessions
    from .session import ClaudeSession

__all__ = [
    "MINIMUM_VERSION",
    "Allow",
    "Assistant",
    "CanUseTool",
    "ClaudeClient",
    "ClaudePermissionBehavior",
    "ClaudePermissionMode",
    "ClaudeProtocol",
    "ClaudeSession",
    "ClaudeSessionConfig",
    "Credentials",
    "Decision",
    "Deny",
    "Event",
    "History",
    "HookCallback",
    "HookMatcher",
    "Interrupt",
    "PermissionUpdate",
    "Prompt",
    "Result",
    "Rule",
    "StoredSession",
    "StreamEvent",
    "SystemInit",
    "Tool",
    "ToolServer",
    "TurnSettled",
    "User",
    "allow_always",
    "answer_questions",
    "blocks",
    "commands",
    "events",
    "image",
    "list_sessions",
    "notices",
    "plan_in",
    "questions_in",
    "requests",
    "tool",
]

_DOES_IO = {
    "ClaudeClient": "client",
    "Credentials": "client",
    "MINIMUM_VERSION": "client",
    "ClaudeSession": "session",
    "StoredSession": "history",
    "History": "history",
    "list_sessions": "history",
}


def __getattr__(name: str) -> Any:
    """What does I/O is imported when it is asked for: reading a transcript needs no event loop."""
    if name not in _DOES_IO:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_DOES_IO[name]}", __name__), name)
