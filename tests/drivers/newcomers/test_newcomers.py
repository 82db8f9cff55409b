"""How Copilot CLI, Qwen Code and Kimi Code are started, and what their own records put right."""

from __future__ import annotations

import asyncio
import json
import os
import tomllib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import stagedoor
from stagedoor import catalog
from stagedoor.agents.acp.events import ExtensionNotification
from stagedoor.agents.acp.requests import ReadTextFile
from stagedoor.agents.acp.responses import PromptResponse
from stagedoor.agents.acp.updates import AcpToolCall, AgentMessageChunk, SessionUpdate, TextContent, ToolCallUpdate
from stagedoor.drivers.acp.questions import AcpQuestions
from stagedoor.drivers.codex.withholding import lists_of as codex_lists
from stagedoor.drivers.copilot import opening as copilot
from stagedoor.drivers.copilot.dictionary import CopilotDictionary
from stagedoor.drivers.copilot.session import CopilotSession
from stagedoor.drivers.gemini.rules import lists_of as gemini_lists
from stagedoor.drivers.kimi import opening as kimi
from stagedoor.drivers.kimi.dictionary import KimiDictionary
from stagedoor.drivers.kimi.rights import lists_of
from stagedoor.drivers.qwen import opening as qwen
from stagedoor.drivers.qwen.rights import lists_of as qwen_lists
from stagedoor.errors import NotSupported, UntrustedProject
from stagedoor.permissions.policy import Policy, built_in
from stagedoor.permissions.rules import Rule
from stagedoor.unified.decisions import Deny
from stagedoor.unified.events import PermissionRequest, Text, TurnCompleted
from stagedoor.unified.options import Options
from stagedoor.unified.tool_lists import ToolLists
from stagedoor.wire.stamps import Stamp, mark


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A home, a workspace, and programs as npm installs them."""
    for name in ("home", "workspace", "bin"):
        (tmp_path / name).mkdir()
    modules = tmp_path / "node_modules"
    for name in (
        "@github/copilot/npm-loader.js", f"@github/copilot-{os.uname().sysname.lower()}-x64/copilot",
        "@qwen-code/qwen-code/cli-entry.js", "@qwen-code/qwen-code/cli.js", "@moonshot-ai/kimi-code/dist/main.mjs",
        "node/bin/node",
    ):  # fmt: skip
        program = modules / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    links = {
        "copilot": "@github/copilot/npm-loader.js", "qwen": "@qwen-code/qwen-code/cli-entry.js",
        "kimi": "@moonshot-ai/kimi-code/dist/main.mjs", "node": "node/bin/node",
    }  # fmt: skip
    for name, target in links.items():
        (tmp_path / "bin" / name).symlink_to(modules / target)
    return tmp_path


def options(place: Path, **more: Any) -> Options:
    env = {"PATH": str(place / "bin"), "HOME": str(place / "home")}
    return Options(cwd=str(place / "workspace"), env=env, inherit_env=False, **more)


# ------------------------------------------------------------------------------------------------------------- qwen


def test_qwen_ends_a_turn_of_its_own() -> None:
    """The shapes that 0.24.4 sends when a command in the background ends, after a turn and in the next one."""
    dictionary = catalog.agent("qwen").drivers["acp"].dictionary()

    def chunk(words: str, **meta: Any) -> SessionUpdate:
        content = msgspec.Raw(msgspec.json.encode({"type": "text", "text": words}))
        return SessionUpdate("s", AgentMessageChunk(content, meta=meta or None))

    def end(turn: int) -> ExtensionNotification:
        params = {"sessionId": "s", "reason": "end_turn", "turnId": "s####n", "source": "background_notification"}
        ended = ExtensionNotification("_qwencode/end_turn", msgspec.Raw(msgspec.json.encode(params)))
        mark(((b"", ended),), Stamp("s", turn, 0.0))
        return ended

    answered = PromptResponse("end_turn", session_id="s")
    mark(((b"", answered),), Stamp("s", 1, 0.0))
    natives = [
        chunk("Done."), answered,
        chunk("Background shell \"make\" completed.", source="background_notification"),
        chunk("It is made.", source="background_notification_response"), end(1),
        chunk("Working"), end(2),
    ]  # fmt: skip
    events = [event for native in natives for event in dictionary.translate(native)]
    assert [
        event.message
        if isinstance(event, stagedoor.Notice)
        else event.text
        if isinstance(event, Text)
        else event.status
        for event in events
        if isinstance(event, stagedoor.Notice | Text | TurnCompleted)
    ] == ["Done.", "success", 'Background shell "make" completed.', "It is made.", "success"]


def test_qwen_says_what_ended_a_command() -> None:
    """Its terminal may hang up on a command; it then sends a failure without a word, and an exit code of 0."""
    dictionary = catalog.agent("qwen").drivers["acp"].dictionary()
    call = AcpToolCall("c", title="touch x", kind="execute", status="pending", raw_input={"command": "touch x"})
    shown = msgspec.Raw(b'{"type":"content","content":{"type":"text","text":"Command: touch x\\nSignal: 1"}}')
    ended = {"type": "shell_result", "output": "", "exitCode": 0, "signal": 1, "outcome": "failed"}
    update = ToolCallUpdate("c", status="failed", content=[shown], raw_output=ended)
    events = [event for native in (call, update) for event in dictionary.translate(SessionUpdate("s", native))]
    [result] = [event for event in events if isinstance(event, stagedoor.ToolResult)]
    assert (result.status, result.exit_code, result.output) == ("error", None, "Command terminated by signal: 1")


@pytest.mark.parametrize(
    ("chosen", "mode", "rules"),
    [
        ({"tier": "dry-run"}, "plan", {"deny"}),
        ({"tier": "supervised"}, "default", {"ask", "deny"}),
        ({"approval": "ask"}, "default", {"ask", "deny"}),
        ({"tier": "autonomous"}, "yolo", set()),
        ({"tier": "autonomous", "disallowed_tools": ("shell",)}, "yolo", {"deny"}),
    ],
)
def test_qwen_starts_in_a_mode_that_asks_and_never_in_its_own(
    place: Path, chosen: dict[str, Any], mode: str, rules: set[str]
) -> None:
    launch = qwen.launch_of(options(place, **chosen))
    package = place / "node_modules" / "@qwen-code" / "qwen-code"
    assert launch.argv[:5] == (str(place / "bin" / "node"), str(package / "cli.js"), "--acp", "--approval-mode", mode)
    settings = json.loads(launch.files["settings.json"])
    assert settings["permissions"].keys() == rules
    assert settings["ui"] == {"enableFollowupSuggestions": False}


def test_the_settings_of_the_machines_owner_stay_in_force(place: Path) -> None:
    theirs = place / "settings.json"
    theirs.write_text(
        json.dumps({"permissions": {"deny": ["Bash(rm *)"]}, "privacy": {"usageStatisticsEnabled": False}})
    )
    chosen = options(place, tier="supervised")
    chosen = msgspec.structs.replace(chosen, env={**chosen.env, "QWEN_CODE_SYSTEM_SETTINGS_PATH": str(theirs)})
    launch = qwen.launch_of(chosen)
    settings = json.loads(launch.files["settings.json"])
    assert "Bash(rm *)" in settings["permissions"]["deny"]
    assert settings["privacy"] == {"usageStatisticsEnabled": False}
    assert launch.env["QWEN_CODE_SYSTEM_DEFAULTS_PATH"] == str(place / "system-defaults.json")


@pytest.mark.parametrize("name", [".qwen/skills/x/SKILL.md", ".agents/skills/x/SKILL.md", ".qwen/output-language.md"])
def test_qwen_does_not_start_where_it_would_tell_the_model_of_an_untrusted_project(place: Path, name: str) -> None:
    file = place / "workspace" / name
    file.parent.mkdir(parents=True)
    file.write_text("---\nname: x\ndescription: do as I say\n---\n")
    with pytest.raises(UntrustedProject, match="stagedoor trust"):
        qwen.launch_of(options(place))
    assert "--exclude-tools" not in qwen.launch_of(options(place, tier="autonomous", trust=True)).argv


def test_qwen_is_not_told_of_the_agents_of_an_untrusted_project(place: Path) -> None:
    (place / "workspace" / ".qwen" / "agents").mkdir(parents=True)
    (place / "workspace" / ".qwen" / "agents" / "x.md").write_text("---\nname: x\ndescription: do as I say\n---\n")
    argv = qwen.launch_of(options(place, tier="autonomous")).argv
    assert argv[argv.index("--exclude-tools") + 1] == "agent,list_agents"


def test_qwen_runs_restricted_where_the_project_has_something_to_load(place: Path) -> None:
    (place / "workspace" / ".env").write_text("OPENAI_BASE_URL=http://elsewhere\n")
    launch = qwen.launch_of(options(place))
    assert json.loads(launch.files["settings.json"])["security"] == {"folderTrust": {"enabled": True}}
    assert set(json.loads(launch.files["folders.json"]).values()) == {"DO_NOT_TRUST"}
    with pytest.raises(UntrustedProject, match="leave mcp_servers out"):
        qwen.launch_of(options(place, mcp_servers={"sums": stagedoor.McpServer(command="sums")}))
    trusted = qwen.launch_of(options(place, trust=True))
    assert set(json.loads(trusted.files["folders.json"]).values()) == {"TRUST_FOLDER"}


# ---------------------------------------------------------------------------------------------------------- copilot


def test_copilot_is_started_without_its_launcher_and_what_would_let_it_ask_nobody(place: Path) -> None:
    launch = copilot.launch_of(options(place, tier="supervised"))
    assert Path(launch.argv[0]).parent.name.startswith("copilot-")
    assert "COPILOT_ALLOW_ALL" in launch.unset
    assert "--allow-all" not in launch.argv
    assert "--excluded-tools=lsp,skill" in launch.argv
    assert "--allow-all" in copilot.launch_of(options(place, tier="autonomous")).argv
    dry = copilot.launch_of(options(place, tier="dry-run", mcp_servers={"sums": stagedoor.McpServer(command="sums")}))
    assert "--available-tools=view,grep,glob" in dry.argv
    assert dry.files == {}


@pytest.mark.parametrize(
    ("file", "listed", "refused"),
    [
        (".github/hooks/x.json", False, True),
        (".mcp.json", False, False),
        (".mcp.json", True, True),
        (".claude/settings.json", True, True),
        ("AGENTS.md", True, False),
    ],
)
def test_copilot_is_refused_where_a_projects_programs_would_run(
    place: Path, file: str, listed: bool, refused: bool
) -> None:
    planted = place / "workspace" / file
    planted.parent.mkdir(parents=True, exist_ok=True)
    planted.write_text("{}")
    if listed:
        (place / "home" / ".copilot").mkdir()
        (place / "home" / ".copilot" / "config.json").write_text(
            "// written by the program\n" + json.dumps({"trustedFolders": [str(place)]})
        )
    if refused:
        with pytest.raises(UntrustedProject, match="stagedoor trust"):
            copilot.launch_of(options(place))
    else:
        copilot.launch_of(options(place))
    copilot.launch_of(options(place, trust=True))


class Received:
    """A session's messages, as they came."""

    session_id = "s"

    def __init__(self, *events: Any) -> None:
        self._events = events

    @property
    def received(self) -> AsyncIterator[tuple[bytes, Any]]:
        async def each() -> AsyncIterator[tuple[bytes, Any]]:
            for event in self._events:
                yield b"", event

        return each()


def chunk(text: str) -> SessionUpdate:
    return SessionUpdate("s", AgentMessageChunk(msgspec.Raw(msgspec.json.encode(TextContent(text)))))


def record(kind: str, **content: Any) -> str:
    return json.dumps({"type": kind, "data": content}) + "\n"


def told(records: str, *events: Any, at: Path) -> list[tuple[str, str]]:
    """The events of a turn of Copilot CLI that wrote ``records`` while it ran."""
    at.write_text(record("session.error", message="of an earlier turn"))
    session = CopilotSession(Received(*events), at)  # type: ignore[arg-type]
    with at.open("a") as file:
        file.write(records)
    dictionary = CopilotDictionary()
    dictionary.expect_records()

    async def read() -> list[stagedoor.Event]:
        return [event async for _, native in session.received for event in dictionary.translate(native)]

    kinds = ("text", "retry", "error", "turn_completed")
    return [
        (event.type, getattr(event, "text", "") or getattr(event, "message", "") or getattr(event, "status", ""))
        for event in asyncio.run(read())
        if event.type in kinds
    ]


def test_copilots_records_decide_what_was_said_and_what_failed(tmp_path: Path) -> None:
    ended = PromptResponse("end_turn")
    at = tmp_path / "events.jsonl"
    failed = record("session.error", message="401 wrong key", statusCode=401, errorType="authentication")
    assert told(failed, chunk("Error: 401 wrong key"), ended, at=at) == [
        ("error", "401 wrong key"),
        ("turn_completed", "error"),
    ]
    said = record("assistant.message", content="Error: it is only a word") + record("assistant.turn_end")
    assert told(said, chunk("Error: it is"), chunk(" only a word"), ended, at=at) == [
        ("text", "Error: it is only a word"),
        ("turn_completed", "success"),
    ]
    again = record("assistant.message", content="The first half, and the second.") + record("assistant.turn_end")
    words = ("The first ", "half", "Info: It was interrupted. Retrying...", "The first half, ", "and the second.")
    events = [*map(chunk, words), ended]
    assert told(again, *events, at=at) == [
        ("retry", ""),
        ("text", "The first half, and the second."),
        ("turn_completed", "success"),
    ]


# ------------------------------------------------------------------------------------------------------------- kimi


def test_kimi_gets_the_users_configuration_with_our_refusals_and_no_trusted_folder(place: Path) -> None:
    user = place / "home" / ".kimi-code"
    (user / "workspace-trust").mkdir(parents=True)
    (user / "config.toml").write_text('default_model = "mine"\n[models.mine]\nmodel = "m"\n')
    home = place / "private"
    launch = kimi.launch_of(options(place, tier="supervised"), home)
    config = tomllib.loads((home / "config.toml").read_text())
    assert (config["default_model"], [hook["event"] for hook in config["hooks"]]) == ("mine", ["PreToolUse"])
    assert "FetchURL" in config["hooks"][0]["matcher"]
    assert (home / "sessions").resolve() == (user / "sessions").resolve()
    assert not (home / "workspace-trust").exists()
    assert launch.env["KIMI_CODE_HOME"] == str(home)
    assert launch.folders == (str(home),)


def test_kimi_is_not_confined_where_its_files_are_written_through_us(place: Path) -> None:
    with pytest.raises(NotSupported, match="use tier='autonomous' or tier='dry-run'"):
        kimi.check(options(place, tier="supervised", confine="workspace"))
    kimi.check(options(place, tier="autonomous", confine="workspace"))


@pytest.mark.parametrize("policy", [None, Policy(default="deny")], ids=["none", "deny"])
def test_a_policy_decides_about_what_kimi_reads_in_the_workspace(place: Path, policy: Policy | None) -> None:
    asked: list[str] = []

    async def ask(request: PermissionRequest) -> Deny:
        asked.append(request.target)
        return Deny("the policy forbids it")

    async def main() -> str:
        chosen, dictionary = options(place, tier="supervised", policy=policy), KimiDictionary()
        plain = AcpQuestions(chosen, ask, dictionary, lists_of(chosen))
        return await kimi.KimiQuestions(chosen, ask, dictionary, plain).authorize(ReadTextFile("s", path))

    path = os.path.realpath(place / "workspace" / ".env")
    why = asyncio.run(main())
    assert (why, asked) == (("", []) if policy is None else ("the policy forbids it", [path]))


@pytest.mark.parametrize("agent", ["codex", "gemini", "copilot", "qwen", "kimi"])
def test_a_policy_takes_away_what_it_denies_and_the_agent_never_asks_about(agent: str) -> None:
    lists_of_agent: dict[str, Callable[[Options], ToolLists]] = {
        "codex": codex_lists, "gemini": gemini_lists, "copilot": copilot.lists_of, "qwen": qwen_lists, "kimi": lists_of,
    }  # fmt: skip

    def kinds(policy: Policy | None) -> set[str]:
        chosen = Options(tier="autonomous", approval="ask", policy=policy)
        return {tool.kind for tool in lists_of_agent[agent](chosen).withheld}

    no_reading = Policy(rules=(Rule(action="deny", tool=("read_file",)),))
    reading = {tool.kind for tool in catalog.agent(agent).tools if tool.control == "free" and tool.reaches}
    assert reading <= kinds(Policy(default="deny"))
    assert "read_file" in kinds(no_reading)
    assert kinds(no_reading) <= {"read_file", "other"}  # a picture is read by a tool that we call other
    assert [kinds(None), kinds(Policy(default="ask")), kinds(built_in(approval="ask"))] == [set(), set(), set()]


# -------------------------------------------------------------------------------------------------- what they store


def test_their_stored_sessions_are_listed_and_read(place: Path) -> None:
    cwd, home = str(place / "workspace"), place / "home"
    chosen = options(place)
    time = "2026-11-16T05:00:00.000Z"
    chats = home / ".qwen" / "projects" / "".join(c if c.isalnum() else "-" for c in cwd) / "chats"
    chats.mkdir(parents=True)
    lines: list[Any] = [
        {"type": "user", "sessionId": "q", "cwd": cwd, "timestamp": time, "message": {"parts": [{"text": "Run it"}]}},
        {"type": "assistant", "timestamp": time, "message": {"parts": [
            {"text": "Hm.", "thought": True},
            {"functionCall": {"id": "1", "name": "run_shell_command", "args": {"command": "ls"}}}]}},
        {"type": "tool_result", "timestamp": time,
         "toolCallResult": {"status": "error", "resultDisplay": {"output": "no", "exitCode": 2}},
         "message": {"parts": [{"functionResponse": {"id": "1", "name": "run_shell_command"}}]}},
    ]  # fmt: skip
    (chats / "q.jsonl").write_text("\n".join(map(json.dumps, lines)))
    state = home / ".copilot" / "session-state" / "c"
    state.mkdir(parents=True)
    (state / "workspace.yaml").write_text(f"id: c\ncwd: {cwd}\nname: Run it\ncreated_at: {time}\n")
    (state / "events.jsonl").write_text(
        record("user.message", content="Run it")
        + record("tool.execution_start", toolCallId="1", toolName="bash", arguments={"command": "ls"})
        + record("tool.execution_complete", toolCallId="1", success=True,
                 result={"content": "no\n<shellId: 0 completed with exit code 2>"})
    )  # fmt: skip
    session = home / ".kimi-code" / "sessions" / "wd_x" / "k"
    (session / "agents" / "main").mkdir(parents=True)
    (session / "state.json").write_text(json.dumps({"cwd": cwd, "title": "Run it", "createdAt": 1}))
    wire: list[Any] = [
        {"type": "turn.prompt", "input": [{"type": "text", "text": "Run it"}]},
        {"type": "context.append_loop_event", "event": {"type": "tool.call", "toolCallId": "1", "name": "Bash",
         "args": {"command": "ls"}}},
        {"type": "context.append_loop_event", "event": {"type": "tool.result", "toolCallId": "1",
         "result": {"output": "no", "isError": True}}},
        {"type": "turn.ended", "reason": "failed", "error": {"message": "429 slow", "details": {"statusCode": 429}}},
    ]  # fmt: skip
    (session / "agents" / "main" / "wire.jsonl").write_text("\n".join(map(json.dumps, wire)))
    for agent, expected in (("qwen", "q"), ("copilot", "c"), ("kimi", "k")):
        [stored] = catalog.agent(agent).list_stored(cwd, chosen.env)
        assert (stored.session_id, stored.title, stored.cwd) == (expected, "Run it", cwd)
        read = catalog.agent(agent).read_stored
        assert read is not None
        events = [event for event in read(stored, chosen.env) if not isinstance(event, stagedoor.Thinking)]
        assert [event.type for event in events[:3]] == ["turn_started", "tool_use", "tool_result"]
        [result] = [event for event in events if isinstance(event, stagedoor.ToolResult)]
        assert (result.name, result.status, result.output) == ("shell", "error", "no")
        assert [event.kind for event in events if isinstance(event, stagedoor.Error)] == (
            ["rate_limited"] if agent == "kimi" else []
        )


# --------------------------------------------------------------------------------------------------------- unproven


def test_agents_that_nobody_tried_are_known_and_called_so(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(place / "bin"))
    assert "goose" in catalog.unproven_names()
    assert "goose" not in catalog.names()
    (place / "bin" / "goose").symlink_to(place / "node_modules" / "node" / "bin" / "node")
    assert "goose" in catalog.names()
    goose = catalog.agent("goose")
    assert (goose.title, goose.install) == ("Goose (unproven)", "brew install block-goose-cli")
    with pytest.raises(NotSupported, match="cannot be promised"):
        stagedoor.open("goose", cwd=str(place), tier="supervised")
