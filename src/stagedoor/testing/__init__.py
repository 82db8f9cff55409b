"""The public test kit: a scripted model that stands in for the model APIs of the real CLIs.

from stagedoor.testing import ScriptedModel, say, shell

with ScriptedModel([[say("Running."), shell("make test")], say("Done.")]) as model:
    env = model.environment("claude", cwd=repo).env
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .clis import find_cli
    from .environment import Environment, scripted_agents
    from .model import ScriptedModel, ScriptedRequest, ScriptFailed, ScriptNotConsumed, UnscriptedRequest
    from .script import (
        Case,
        Reply,
        Script,
        ToolOutcome,
        When,
        call,
        context_overflow,
        cut,
        delete_file,
        edit_file,
        empty,
        endless,
        find_files,
        forever,
        half_emoji,
        http_error,
        mcp,
        native,
        plan,
        question,
        read_file,
        say,
        search_content,
        shell,
        stall,
        stop,
        stream_error,
        structured,
        task,
        think,
        usage,
        web_fetch,
        web_search,
        write_file,
    )
    from .script_server import serve_script
    from .yaml_script import LoadedScript, ScriptError, load_script

_HOMES = {
    "clis": ("find_cli",),
    "environment": ("scripted_agents", "Environment"),
    "model": ("UnscriptedRequest", "ScriptedRequest", "ScriptedModel", "ScriptFailed", "ScriptNotConsumed"),
    "script": (
        "Case", "Reply", "Script", "ToolOutcome", "When", "call", "context_overflow", "cut", "delete_file", "edit_file",
        "empty", "endless", "find_files", "forever", "half_emoji", "http_error", "mcp", "native", "plan", "question",
        "read_file", "say", "search_content", "shell", "stall", "stop", "stream_error", "structured", "task", "think",
        "usage", "web_fetch", "web_search", "write_file",
    ),
    "script_server": ("serve_script",),
    "yaml_script": ("LoadedScript", "ScriptError", "load_script"),
}  # fmt: skip

__all__ = [
    "Case", "Environment", "LoadedScript", "Reply", "Script", "ScriptError", "ScriptFailed", "ScriptNotConsumed",
    "ScriptedModel", "ScriptedRequest", "ToolOutcome", "UnscriptedRequest", "When", "call", "context_overflow", "cut",
    "delete_file", "edit_file", "empty", "endless", "find_cli", "find_files", "forever", "half_emoji", "http_error",
    "load_script", "mcp", "native", "plan", "question", "read_file", "say", "scripted_agents", "search_content",
    "serve_script", "shell", "stall", "stop", "stream_error", "structured", "task", "think", "usage", "web_fetch",
    "web_search", "write_file",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f".{home}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
