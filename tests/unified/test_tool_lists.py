"""The lists of tools: one meaning, whatever the agent calls its tools."""

from __future__ import annotations

from typing import Any

import pytest

from stagedoor import catalog
from stagedoor.errors import BadRequest, NotSupported
from stagedoor.unified.events import PermissionRequest
from stagedoor.unified.options import Options

AGENTS = ("claude", "codex", "gemini", "opencode")
SHELL = {"claude": "Bash", "codex": "exec_command", "gemini": "run_shell_command", "opencode": "bash"}
EDIT = {"claude": "Edit", "codex": "apply_patch", "gemini": "replace", "opencode": "edit"}
SERVED = {
    "claude": "mcp__sums__add",
    "codex": "mcp__sums__add",
    "gemini": "mcp_sums_add",
    "opencode": "sums_add",
}


def permitted(agent: str, **options: Any) -> set[str]:
    """Which of four tools the session has, by our words; ``new`` is a tool that nobody has heard of."""
    lists = catalog.agent(agent).tool_lists(Options(**options))
    calls = {
        "shell": lists.permits(SHELL[agent], "shell"),
        "edit": lists.permits(EDIT[agent], "edit_file"),
        "mcp": lists.permits(SERVED[agent], "mcp"),
        "new": lists.permits("tool-of-tomorrow", "other"),
    }
    return {word for word, has in calls.items() if has}


MEANINGS: list[tuple[dict[str, Any], set[str]]] = [
    ({}, {"shell", "edit", "mcp", "new"}),
    ({"allowed_tools": ()}, set()),
    ({"allowed_tools": ("read",)}, set()),
    ({"allowed_tools": ("shell",)}, {"shell"}),
    ({"allowed_tools": ("bash", "mcp")}, {"shell", "mcp"}),
    ({"allowed_tools": ("mcp__sums",)}, {"mcp"}),
    ({"allowed_tools": ("mcp__sums__*", "edit")}, {"mcp", "edit"}),
    ({"allowed_tools": ("mcp__sums__add",)}, {"mcp"}),
    ({"allowed_tools": ("mcp__sums__mul", "mcp__other")}, set()),
    ({"allowed_tools": ("shell", "edit"), "disallowed_tools": ("shell",)}, {"edit"}),
    ({"disallowed_tools": ("shell",)}, {"edit", "mcp", "new"}),
    ({"disallowed_tools": ("mcp", "edit_file")}, {"shell", "new"}),
    ({"disallowed_tools": ("mcp__sums__add",)}, {"shell", "edit", "new"}),
    ({"allowed_tools": ("mcp",), "disallowed_tools": ("mcp__sums",)}, set()),
    ({"allowed_tools": ("other",)}, set()),
]


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize(("options", "words"), MEANINGS)
def test_one_meaning(agent: str, options: dict[str, Any], words: set[str]) -> None:
    assert permitted(agent, **options) == words


@pytest.mark.parametrize("agent", AGENTS)
def test_own_names(agent: str) -> None:
    assert permitted(agent, allowed_tools=(SHELL[agent], SERVED[agent])) == {"shell", "mcp"}
    assert permitted(agent, allowed_tools=(EDIT[agent].upper(),)) == {"edit"}


@pytest.mark.parametrize(
    ("agent", "name", "hint"),
    [
        ("claude", "Bsh", "did you mean 'Bash'?"),
        ("codex", "exec_comand", "did you mean 'exec_command'?"),
        ("gemini", "shel", "did you mean 'shell'?"),
        ("opencode", "todo_write", "did you mean 'todowrite'?"),
        ("claude", "Bash(git status:*)", "a list names whole tools: write 'Bash'"),
        ("codex", "zzz", "its own names"),
        ("claude", "", "its own names"),
        ("gemini", "mcp__", "did you mean 'mcp'?"),
    ],
)
def test_an_unknown_name_is_refused(agent: str, name: str, hint: str) -> None:
    for option in ("allowed_tools", "disallowed_tools"):
        with pytest.raises(BadRequest, match=option) as refused:
            catalog.agent(agent).tool_lists(Options(**{option: (name,)}))
        assert hint in str(refused.value)


def test_what_a_question_is_told() -> None:
    lists = catalog.agent("claude").tool_lists(
        Options(allowed_tools=("read", "web_fetch"), disallowed_tools=("fetch",))
    )

    def refusal(native: str, kind: Any) -> str:
        return lists.refusal(PermissionRequest(request_id="q", tool_name=kind, native_name=native))

    assert refusal("Read", "read_file") == ""
    assert refusal("Bash", "shell") == "Bash is not in allowed_tools of this session"
    assert refusal("WebFetch", "web_fetch") == "WebFetch is in disallowed_tools of this session"


@pytest.mark.parametrize(
    ("agent", "driver", "options"),
    [
        ("codex", "exec", {"tier": "autonomous", "disallowed_tools": ("edit",)}),
        ("opencode", "run", {"disallowed_tools": ("write",)}),
        ("understudy", "acp", {"allowed_tools": ("mcp__sums__add",)}),
    ],
)
def test_what_a_driver_cannot_withhold_is_refused(agent: str, driver: str, options: dict[str, Any]) -> None:
    with pytest.raises(NotSupported):
        catalog.driver(catalog.agent(agent), Options(driver=driver, **options))


@pytest.mark.parametrize("agent", [*AGENTS, "understudy"])
def test_tables(agent: str) -> None:
    """A tool is written down once, and one that reaches something is not taken for plumbing."""
    tools = catalog.agent(agent).tools
    assert len({tool.name for tool in tools}) == len(tools)
    assert [tool.name for tool in tools if tool.control == "plumbing" and tool.reaches] == []
    reading = ("read_file", "search_content", "find_files", "other")
    unasked = {tool.name: tool.kind for tool in tools if tool.control == "free" and tool.reaches}
    assert {name: kind for name, kind in unasked.items() if kind not in reading} == {}
