"""Config → arguments, environment, input: every row is a whole launch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stagedoor.agents.opencode import (
    AUTONOMOUS,
    READ_ONLY,
    SUPERVISED,
    McpLocal,
    McpRemote,
    OpenCodeDriver,
    OpenCodeSessionConfig,
    PermissionRule,
)
from stagedoor.agents.opencode.config import PERMISSIONS, expand_permission, permission_rules
from stagedoor.agents.opencode.launch import (
    GUARD_FILE,
    GUARD_SOURCE,
    PortInUse,
    complaint,
    configuration,
    launch,
    no_provider,
    startup_failure,
)
from stagedoor.errors import (
    LaunchError,
    LocalProtocolError,
    NotSignedIn,
    NotSupported,
    SessionNotFound,
    StagedoorError,
)
from stagedoor.transports.launch import SCRATCH, EndInput, Exited, Launch, Signal

TRANSCRIPTS = Path(__file__).parents[2] / "transcripts" / "opencode-1.18.33"
QUIET = {
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_SHARE": "1",
    "OPENCODE_SERVER_USERNAME": "opencode",
}
PLAIN = '{"autoupdate":false,"share":"disabled"}'
RUN = OpenCodeDriver.RUN


def run(*options: str, env: dict[str, str] | None = None, content: str = PLAIN, stdin: bytes = b"hi") -> Launch:
    return Launch(
        argv=("/bin/opencode", "run", "--format", "json", *options),
        cwd="/repo",
        env={**QUIET, "OPENCODE_CONFIG_CONTENT": content, **(env or {})},
        unset=("OPENCODE_PERMISSION",),
        stdin=stdin,
        stop=(Signal(15, 2.0),),
    )


@pytest.mark.parametrize(
    ("config", "resume", "expected"),
    [
        (OpenCodeSessionConfig(driver=RUN), None, run("--thinking")),
        (OpenCodeSessionConfig(driver=RUN, thinking=False, auto=True), None, run("--auto")),
        (
            OpenCodeSessionConfig(
                driver=RUN, agent="plan", variant="high", title="T", files=("a.png",), thinking=False
            ),
            None,
            run("--agent", "plan", "--variant", "high", "--title", "T", "--file", "a.png"),
        ),
        (
            OpenCodeSessionConfig(driver=RUN, model="p/m/x", thinking=False),
            "ses_1",
            run(
                "--model",
                "p/m/x",
                "--session",
                "ses_1",
                content='{"autoupdate":false,"share":"disabled","model":"p/m/x"}',
            ),
        ),
        (
            OpenCodeSessionConfig(driver=RUN, fork=True, title="ignored on resume", thinking=False, plugins=False),
            "ses_1",
            run("--session", "ses_1", "--fork", "--pure"),
        ),
        (
            OpenCodeSessionConfig(driver=RUN, thinking=False, env={"A": "b"}, extra_args=("--print-logs",)),
            None,
            run("--print-logs", env={"A": "b"}),
        ),
    ],
)
def test_run(config: OpenCodeSessionConfig, resume: str | None, expected: Launch) -> None:
    assert launch(config, cwd="/repo", executable="/bin/opencode", prompt="hi", resume=resume) == expected


def test_the_prompt_goes_to_standard_input_untouched() -> None:
    prompt = '--flag "quoted" $(x)\n\ud83d'
    plan = launch(OpenCodeSessionConfig(driver=RUN), cwd="/repo", executable="opencode", prompt=prompt)
    assert plan.stdin == b'--flag "quoted" $(x)\n?'
    assert prompt not in plan.argv


@pytest.mark.parametrize(
    ("driver", "word", "stdin", "stop"),
    [
        (OpenCodeDriver.SERVE, "serve", "null", (Signal(15, 2.0),)),
        (OpenCodeDriver.ACP, "acp", "pipe", (EndInput(3.0), Signal(15, 2.0))),
    ],
)
def test_what_opens_a_port_has_a_password(driver: OpenCodeDriver, word: str, stdin: Any, stop: Any) -> None:
    config = OpenCodeSessionConfig(driver=driver)
    plan = launch(config, cwd="/repo", executable="oc", port=4711, password="secret")
    content = (
        PLAIN
        if driver is OpenCodeDriver.SERVE
        else '{"autoupdate":false,"share":"disabled","permission":{"task":"deny"}}'
    )
    assert plan == Launch(
        argv=("oc", word, "--hostname", "127.0.0.1", "--port", "4711"),
        cwd="/repo",
        env={**QUIET, "OPENCODE_CONFIG_CONTENT": content, "OPENCODE_SERVER_PASSWORD": "secret"},
        unset=("OPENCODE_PERMISSION",),
        stdin=stdin,
        stop=stop,
    )
    with pytest.raises(LocalProtocolError, match="password"):
        launch(config, cwd="/repo", executable="oc", port=4711)


def test_the_configuration() -> None:
    config = OpenCodeSessionConfig(
        model="fake/big",
        small_model="fake/small",
        agent="plan",
        steps=7,
        enabled_providers=("fake",),
        instructions=("NOTES.md",),
        mcp_servers={"a": McpLocal(("python", "server.py"), {"K": "v"}), "b": McpRemote("http://127.0.0.1:1/mcp")},
        settings={"provider": {"fake": {}}, "agent": {"plan": {"color": "primary"}}, "instructions": ["A.md"]},
        permission={"bash": {"*": "ask", "git status*": "allow"}},
    )
    permission = {"bash": {"*": "ask", "git status*": "allow"}}
    assert json.loads(configuration(config, '{"username": "me", "model": "other/one"}')) == {
        "username": "me",
        "model": "fake/big",
        "small_model": "fake/small",
        "provider": {"fake": {}},
        "agent": {"plan": {"color": "primary", "steps": 7, "permission": permission}},
        "instructions": ["A.md", "NOTES.md"],
        "autoupdate": False,
        "share": "disabled",
        "enabled_providers": ["fake"],
        "mcp": {
            "a": {"type": "local", "command": ["python", "server.py"], "environment": {"K": "v"}},
            "b": {"type": "remote", "url": "http://127.0.0.1:1/mcp"},
        },
        "permission": permission,
    }


def test_permissions_are_spelled_out_for_every_known_name() -> None:
    assert expand_permission("ask") == {"*": "ask", **dict.fromkeys(PERMISSIONS, "ask")}
    denied = (
        "edit",
        "bash",
        "task",
        "external_directory",
        "question",
        "webfetch",
        "websearch",
        "lsp",
        "doom_loop",
        "skill",
    )
    allowed = ("read", "glob", "grep", "list", "todowrite")
    assert expand_permission(READ_ONLY) == {
        "*": "deny",
        **dict.fromkeys(denied, "deny"),
        **dict.fromkeys(allowed, "allow"),
    }
    assert expand_permission(SUPERVISED) == SUPERVISED
    assert set(expand_permission(AUTONOMOUS).values()) == {"allow"}
    assert permission_rules({"bash": {"*": "deny", "ls *": "allow"}, "edit": "ask"}) == (
        PermissionRule("bash", "*", "deny"),
        PermissionRule("bash", "ls *", "allow"),
        PermissionRule("edit", "*", "ask"),
    )


def test_over_acp_sub_agents_are_denied_last() -> None:
    config = OpenCodeSessionConfig(driver=OpenCodeDriver.ACP, permission="allow")
    permission = json.loads(configuration(config))["permission"]
    assert list(permission)[-1] == "task"
    assert permission["task"] == "deny"
    assert permission["bash"] == "allow"


BAD: list[tuple[OpenCodeSessionConfig, type[StagedoorError], str]] = [
    (OpenCodeSessionConfig(model="gpt"), LocalProtocolError, "provider/model"),
    (OpenCodeSessionConfig(small_model="/x"), LocalProtocolError, "small_model"),
    (OpenCodeSessionConfig(steps=0), LocalProtocolError, "steps"),
    (OpenCodeSessionConfig(most_empty_steps=0), LocalProtocolError, "most_empty_steps"),
    (OpenCodeSessionConfig(permission={"bash": "maybe"}), LocalProtocolError, "use allow, ask or deny"),  # type: ignore[dict-item]
    (OpenCodeSessionConfig(permission={"bash": {"rm *": "no"}}), LocalProtocolError, "bash"),  # type: ignore[dict-item]
    (OpenCodeSessionConfig(auto=True), NotSupported, "auto is not supported by OpenCode's serve driver: use run"),
    (OpenCodeSessionConfig(driver=RUN, can_use_tool=lambda _: None), NotSupported, "serve or acp"),  # type: ignore[arg-type, return-value]
    (OpenCodeSessionConfig(driver=RUN, rules=(PermissionRule("bash"),)), NotSupported, "rules is not supported"),
    (OpenCodeSessionConfig(driver=RUN, ask_every_command=True), NotSupported, "serve or acp"),
    (OpenCodeSessionConfig(driver=OpenCodeDriver.ACP, title="x"), NotSupported, "title is not supported"),
    (
        OpenCodeSessionConfig(driver=OpenCodeDriver.ACP, append_system_prompt="x"),
        NotSupported,
        "append_system_prompt is not supported",
    ),
]


@pytest.mark.parametrize(("config", "error", "says"), BAD)
def test_bad_combinations(config: OpenCodeSessionConfig, error: type[StagedoorError], says: str) -> None:
    with pytest.raises(error, match=says):
        launch(config, cwd="/repo", executable="oc", prompt="hi", port=1, password="p")


def test_run_needs_a_prompt_and_an_inherited_config_must_be_json() -> None:
    with pytest.raises(LocalProtocolError, match="the prompt is empty"):
        launch(OpenCodeSessionConfig(driver=RUN), cwd="/repo", executable="oc", prompt=" \n")
    with pytest.raises(LocalProtocolError, match="correct or unset it"):
        launch(OpenCodeSessionConfig(driver=RUN), cwd="/repo", executable="oc", prompt="x", inherited="{not json")


def test_every_command_is_asked_about_by_a_plugin() -> None:
    plan = launch(
        OpenCodeSessionConfig(ask_every_command=True, settings={"plugin": ["theirs"]}),
        cwd="/repo",
        executable="/bin/opencode",
        port=1,
        password="p",
    )
    assert plan.files == {GUARD_FILE: GUARD_SOURCE}
    assert plan.unset == ("OPENCODE_PERMISSION", "OPENCODE_PURE", "OPENCODE_DISABLE_EXTERNAL_PLUGINS")
    content = plan.env["OPENCODE_CONFIG_CONTENT"].replace(SCRATCH, "/tmp/x")
    assert json.loads(content)["plugin"] == ["theirs", f"file:///tmp/x/{GUARD_FILE}"]
    with pytest.raises(NotSupported, match="plugin"):
        launch(
            OpenCodeSessionConfig(ask_every_command=True, plugins=False), cwd="/", executable="x", port=1, password="p"
        )


def test_most_steps_must_be_some() -> None:
    with pytest.raises(LocalProtocolError, match="most_steps"):
        launch(OpenCodeSessionConfig(most_steps=0), cwd="/", executable="x", port=1, password="p")
    with pytest.raises(NotSupported, match="most_steps"):
        launch(
            OpenCodeSessionConfig(most_steps=2, driver=OpenCodeDriver.ACP),
            cwd="/",
            executable="x",
            port=1,
            password="p",
        )


# ------------------------------------------------------------------------------------------------------------ failures


@pytest.mark.parametrize(
    ("recording", "error", "says"),
    [
        ("74-resume-unknown", SessionNotFound, r"session 'ses_x' not found: list_sessions\(\) lists"),
        (
            "97-bad-config-content",
            LaunchError,
            "refused its configuration: Error: Config file at OPENCODE_CONFIG_CONTENT",
        ),
        ("80-no-prompt", LaunchError, "ended with code 1 at its start: Error: You must provide a message"),
    ],
)
def test_recorded_complaints(recording: str, error: type[StagedoorError], says: str) -> None:
    stderr = (TRANSCRIPTS / f"{recording}.stderr.txt").read_text()
    failure = startup_failure(Exited(1, stderr), "ses_x")
    assert type(failure) is error
    with pytest.raises(error, match=says):
        raise failure


def test_silence_and_unknown_options() -> None:
    assert str(startup_failure(Exited(-9))) == "opencode ended with code -9 at its start: it printed nothing"
    assert "Correct extra_args" in str(startup_failure(Exited(1, "Unknown argument: nonsense\n")))
    assert type(startup_failure(Exited(1, "Error: Failed to start server. Is port 4096 in use?"))) is PortInUse
    assert complaint("\x1b[91m\x1b[1mError: \x1b[0mOh\n") == "Error: Oh"


@pytest.mark.parametrize("provider", [None, "anthropic"])
def test_no_provider(provider: str | None) -> None:
    failure = no_provider(provider)
    assert isinstance(failure, NotSignedIn)
    assert "opencode auth login" in str(failure)
