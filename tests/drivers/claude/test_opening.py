"""Our options in Claude Code's words: rights, hook, tools, pictures."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest

from stagedoor.agents.claude import CanUseTool, ClaudePermissionMode, HookCallback
from stagedoor.agents.claude.commands import PermissionResultAllow
from stagedoor.drivers.claude import opening
from stagedoor.drivers.claude.dictionary import ClaudeDictionary
from stagedoor.drivers.claude.rights import NOT_IN_A_DRY_RUN, HookJudge
from stagedoor.drivers.claude.tools import TOOLS, name_of
from stagedoor.drivers.claude.trust import OFF
from stagedoor.errors import LocalProtocolError
from stagedoor.permissions.policy import Policy, built_in
from stagedoor.permissions.rules import Rule
from stagedoor.unified import decisions
from stagedoor.unified.events import PermissionRequest
from stagedoor.unified.options import McpServer, Options
from stagedoor.unified.tool_lists import tool_lists


def test_names() -> None:
    assert {tool.name: tool.kind for tool in TOOLS} == {tool.name: name_of(tool.name) for tool in TOOLS}
    assert (name_of("mcp__github__search"), name_of("CronCreate")) == ("mcp", "other")


async def nobody(request: PermissionRequest) -> decisions.Decision:
    return decisions.Deny("nobody")


def config(**options: Any) -> Any:
    return opening.config(Options(cwd="/repo", **options), nobody, ClaudeDictionary())


MODES: dict[str, tuple[dict[str, Any], str, bool]] = {
    "dry-run": ({"tier": "dry-run"}, "plan", True),
    "a dry run gives way to nothing": ({"tier": "dry-run", "approval": "autoAll"}, "plan", True),
    "readOnly": ({"sandbox": "readOnly", "tier": "autonomous"}, "plan", True),
    "supervised": ({"tier": "supervised"}, "acceptEdits", True),
    "autonomous": ({"tier": "autonomous"}, "bypassPermissions", False),
    "ask": ({"approval": "ask"}, "default", True),
    "askDangerous": ({"approval": "askDangerous"}, "default", True),
    "autoEdit": ({"approval": "autoEdit"}, "acceptEdits", True),
    "autoAll": ({"approval": "autoAll"}, "bypassPermissions", False),
}


@pytest.mark.parametrize("name", MODES)
def test_tiers_and_modes(name: str) -> None:
    options, mode, hooked = MODES[name]
    native_config = config(**options)
    assert native_config.permission_mode is ClaudePermissionMode(mode)
    assert bool(native_config.hooks) is hooked
    assert (native_config.can_use_tool is not None) is hooked


@pytest.mark.parametrize(
    ("options", "allowed"),
    [
        ({"tier": "autonomous"}, {"Bash", "Write", "WebFetch"}),
        ({"approval": "autoAll"}, {"Bash", "Write", "WebFetch"}),
        ({"tier": "autonomous", "disallowed_tools": ["Bash"]}, set()),
        ({"tier": "autonomous", "policy": Policy(default="deny")}, set()),
        ({"tier": "supervised"}, set()),
    ],
)
def test_a_session_that_asks_nobody_answers_what_a_version_asks_all_the_same(
    options: dict[str, Any], allowed: set[str]
) -> None:
    native_config = config(can_use_tool=lambda request: None, **options)
    tools = ("Bash", "Write", "WebFetch", "AskUserQuestion", "ExitPlanMode")
    answers = {name: asyncio.run(native_config.can_use_tool(CanUseTool(name, {}, "r", "t"))) for name in tools}
    assert {name for name, answer in answers.items() if isinstance(answer, PermissionResultAllow)} == allowed


VERDICTS: list[tuple[str, str, dict[str, Any], str | None]] = [
    ("deny_acts", "Read", {}, None),
    ("deny_acts", "TaskCreate", {}, None),
    ("deny_acts", "Agent", {}, None),
    ("deny_acts", "WebFetch", {}, "deny"),
    ("deny_acts", "Bash", {"command": "ls"}, "deny"),
    ("deny_acts", "Write", {}, "deny"),
    ("deny_acts", "mcp__x__y", {}, "deny"),
    ("deny_acts", "SomethingNew", {}, "deny"),
    ("deny_acts", "", {}, "deny"),
    ("ask_commands", "Edit", {}, None),
    ("ask_commands", "Bash", {"command": "ls"}, "ask"),
    ("ask_commands", "WebFetch", {}, "ask"),
    ("ask_commands", "mcp__x__y", {}, "ask"),
    ("ask_acts", "Edit", {}, "ask"),
    ("ask_acts", "Bash", {"command": "ls"}, "ask"),
    ("ask_acts", "Grep", {}, None),
    ("ask_dangerous", "Bash", {"command": "ls"}, "allow"),
    ("ask_dangerous", "Bash", {"command": "rm -rf /"}, "ask"),
]


@pytest.mark.parametrize(("hook", "tool", "arguments", "verdict"), VERDICTS)
def test_the_hook(hook: Any, tool: str, arguments: dict[str, Any], verdict: str | None) -> None:
    judge = HookJudge(hook, lambda _, words: "high" if "rm" in words.get("command", "") else "low")
    assert judge.judge(tool, arguments) == verdict


def test_the_hook_denies_what_is_in_no_list_and_grants_nothing() -> None:
    lists = tool_lists(Options(allowed_tools=("shell", "Read", "mcp__x")), TOOLS)
    tools = ("Bash", "WebFetch", "Write", "Read", "mcp__x__y", "mcp__xy__z", "ToolOfTomorrow")
    asking = HookJudge("ask_acts", lambda *_: "high", lists=lists)
    assert [asking.judge(tool, {}) for tool in tools] == ["ask", "deny", "deny", None, "ask", "deny", "deny"]
    free = HookJudge(None, lambda *_: "high", lists=lists)
    assert [free.judge(tool, {}) for tool in tools] == [None, "deny", "deny", None, None, "deny", "deny"]
    dry = HookJudge("deny_acts", lambda *_: "low", lists=lists)
    assert [dry.judge(tool, {}) for tool in ("Bash", "Read")] == ["deny", None]


def test_a_policy_of_the_callers_sees_reading_too() -> None:
    assert HookJudge("ask_dangerous", lambda *_: "low", policed=True).judge("Bash", {}) == "ask"
    judge = HookJudge("ask_acts", lambda *_: "low", policed=True)
    assert [judge.judge(tool, {}) for tool in ("Read", "Agent", "TaskCreate", "Bash")] == ["ask", "ask", None, "ask"]


def hook_says(native_config: Any, tool: str, **arguments: Any) -> Any:
    hook = native_config.hooks["PreToolUse"][0].hooks[0]
    call = HookCallback("cb", {"tool_name": tool, "tool_input": arguments, "tool_use_id": "t"}, "t")
    answer = asyncio.run(hook(call)).get("hookSpecificOutput", {})
    return answer.get("permissionDecision")


def test_the_hook_of_a_config() -> None:
    dry = config(tier="dry-run", policy=built_in(tier="dry-run"))
    assert (hook_says(dry, "Bash", command="ls"), hook_says(dry, "Read", file_path="/repo/x")) == ("deny", None)
    own = Policy(rules=(Rule(action="deny", name="secrets", tool=("read_file",)),)).stacked_on(
        built_in(tier="supervised")
    )
    ruled = config(tier="supervised", approval="ask", policy=own)
    assert hook_says(ruled, "Read", file_path="/repo/.env") == "ask"


def test_a_dry_run_says_no_even_without_its_hook() -> None:
    """The user's own settings may switch hooks off: plan mode asks, and the answer is no."""
    native_config = config(tier="dry-run")
    for tool, words in (("Write", NOT_IN_A_DRY_RUN), ("Bash", NOT_IN_A_DRY_RUN)):
        answer = asyncio.run(native_config.can_use_tool(CanUseTool(tool, {}, "r", "t")))
        assert answer.message == words
    assert (
        "plan is its result"
        in asyncio.run(native_config.can_use_tool(CanUseTool("ExitPlanMode", {}, "r", "t"))).message
    )
    assert asyncio.run(native_config.can_use_tool(CanUseTool("Read", {}, "r", "t"))).message == "nobody"


# ------------------------------------------------------------------------------------------------------- options


def test_every_option_has_its_place() -> None:
    servers = {
        "local": McpServer(command="serve", args=("-x",), env={"A": "1"}),
        "far": McpServer(url="http://127.0.0.1:9/mcp", headers={"K": "v"}, transport="http"),
    }
    native_config = config(
        model="m", max_turns=3, max_budget_usd=0.5, system_prompt="s", append_system_prompt="a", fork=True,
        output_schema={"type": "object"}, allowed_tools=("shell", "web_fetch", "mcp"),
        disallowed_tools=("web_fetch", "mcp__far__x"),
        mcp_servers=servers, env={"E": "1"}, extra_args=("--bare",), stall_after=7.0,
    )  # fmt: skip
    assert (
        native_config.model,
        native_config.max_turns,
        native_config.max_budget_usd,
        native_config.system_prompt,
    ) == ("m", 3, 0.5, "s")
    assert (native_config.append_system_prompt, native_config.fork_session, native_config.output_schema) == (
        "a",
        True,
        {"type": "object"},
    )
    offered = {"Bash", "BashOutput", "KillShell", "TaskOutput", "TaskStop", "SandboxNetworkAccess", "Monitor"}
    plumbing = {
        "DeferredToolPlaceholder",
        "StructuredOutput",
        "ToolSearch",
        "ListMcpResourcesTool",
        "ReadMcpResourceTool",
    }
    assert set(native_config.tools or ()) == offered | plumbing
    assert (native_config.allowed_tools, native_config.disallowed_tools) == ((), ("mcp__far__x",))
    assert native_config.mcp_servers == {
        "local": {"type": "stdio", "command": "serve", "args": ["-x"], "env": {"A": "1"}},
        "far": {"type": "http", "url": "http://127.0.0.1:9/mcp", "headers": {"K": "v"}},
    }
    assert (native_config.extra_args, native_config.stall_after) == (("--bare",), 7.0)
    assert native_config.env == {"E": "1", **OFF}
    assert config(env={"E": "1"}, inherit_env=False, trust=True).env == {}
    only = config(tier="autonomous", allowed_tools=("shell",), mcp_servers=servers)
    assert (only.mcp_servers, only.strict_mcp_config, list(only.hooks)) == ({}, True, ["PreToolUse"])
    less = config(disallowed_tools=("shell", "mcp__far"), mcp_servers=servers)
    assert (less.tools, list(less.mcp_servers), less.strict_mcp_config) == (None, ["local"], False)
    assert {"Bash", "TaskStop", "mcp__far"} < set(less.disallowed_tools)


def test_pictures(tmp_path: Path) -> None:
    picture = tmp_path / "dot.png"
    picture.write_bytes(b"\x89PNG")
    encoded = base64.b64encode(b"\x89PNG").decode()
    source = {"type": "base64", "media_type": "image/png", "data": encoded}
    block = {"type": "image", "source": source}
    assert opening.content_of("look", ()) == "look"
    assert opening.content_of("look", (str(picture), f"data:image/png;base64,{encoded}")) == [
        block,
        block,
        {"type": "text", "text": "look"},
    ]
    with pytest.raises(LocalProtocolError, match="not a picture by its name"):
        opening.content_of("look", ("a.txt",))
    with pytest.raises(LocalProtocolError, match="cannot read the picture"):
        opening.content_of("look", (str(tmp_path / "none.png"),))
