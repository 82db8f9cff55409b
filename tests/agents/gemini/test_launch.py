"""Config → Launch, as a table."""

import msgspec
import pytest

from stagedoor.agents.gemini import ApprovalMode, Decision, GeminiDriver, GeminiSessionConfig, PolicyRule
from stagedoor.agents.gemini.launch import LONGEST_PROMPT, launch
from stagedoor.errors import LocalProtocolError, NotSupported
from stagedoor.transports.launch import SCRATCH, EndInput, Launch, Signal

STREAM = Launch(
    argv=("/bin/gemini", "--output-format", "stream-json", "--approval-mode", "default"),
    cwd="/repo",
    env={
        "TERM": "xterm-256color",
        "COLORTERM": "truecolor",
        "NO_COLOR": "1",
        "TMPDIR": "/home/tmp",
        "GEMINI_CLI_HOME": "/home",
        "GEMINI_CLI_NO_RELAUNCH": "true",
    },
    stdin=b"hi",
    stdout="socketpair",
    folders=("/home",),
    stop=(Signal(15, 1.0),),
)
ACP = msgspec.structs.replace(
    STREAM,
    argv=("/bin/gemini", "--acp", "--approval-mode", "default"),
    stdin="pipe",
    stop=(EndInput(1.0), Signal(15, 1.0)),
)
POLICY = f"--policy={SCRATCH}/stagedoor.toml"
THEIRS = "--policy=/home/.gemini/policies"


def launched(config: GeminiSessionConfig, prompt: str = "hi", **more: str | None) -> Launch:
    return launch(config, cwd="/repo", executable="/bin/gemini", home="/home", prompt=prompt, **more)


def ask(_: object) -> None: ...


@pytest.mark.parametrize(
    ("config", "base", "argv", "env", "files"),
    [
        (GeminiSessionConfig(), STREAM, (), {}, {}),
        (GeminiSessionConfig(driver=GeminiDriver.ACP), ACP, (), {}, {}),
        (GeminiSessionConfig(can_use_tool=ask), ACP, (), {}, {}),
        (GeminiSessionConfig(model="gemini-3-pro"), STREAM, ("--model", "gemini-3-pro"), {}, {}),
        (GeminiSessionConfig(debug=True), STREAM, ("--debug",), {}, {}),
        (GeminiSessionConfig(raw_output=True), STREAM, ("--raw-output", "--accept-raw-output-risk"), {}, {}),
        (
            GeminiSessionConfig(add_dirs=("/a", "/b")),
            STREAM,
            ("--include-directories=/a", "--include-directories=/b"),
            {},
            {},
        ),
        (GeminiSessionConfig(extensions=()), STREAM, ("--extensions=none",), {}, {}),
        (GeminiSessionConfig(extensions=("x", "y")), STREAM, ("--extensions=x", "--extensions=y"), {}, {}),
        (GeminiSessionConfig(allowed_mcp_server_names=("m",)), STREAM, ("--allowed-mcp-server-names=m",), {}, {}),
        (GeminiSessionConfig(extra_args=("--screen-reader",)), STREAM, ("--screen-reader",), {}, {}),
        (
            GeminiSessionConfig(env={"A": "b", "TERM": "dumb", "GEMINI_CLI_HOME": "/x"}),
            STREAM,
            (),
            {"A": "b", "TERM": "dumb"},
            {},
        ),
        (
            GeminiSessionConfig(sandbox=True, sandbox_image="image"),
            STREAM,
            ("--sandbox",),
            {"GEMINI_SANDBOX_IMAGE": "image"},
            {},
        ),
        (
            GeminiSessionConfig(system_prompt="Be brief."),
            STREAM,
            (),
            {"GEMINI_SYSTEM_MD": f"{SCRATCH}/system.md"},
            {"system.md": b"Be brief."},
        ),
        (
            GeminiSessionConfig(policy=(PolicyRule(tool_name="*", decision=Decision.DENY, priority=1),)),
            STREAM,
            (POLICY, THEIRS),
            {},
            {"stagedoor.toml": b'[[rule]]\ntoolName = "*"\ndecision = "deny"\npriority = 1\n'},
        ),
        (
            GeminiSessionConfig(allowed_tools=("run_shell_command(git status)",), disallowed_tools=("write_file",)),
            STREAM,
            (POLICY, THEIRS),
            {},
            {
                "stagedoor.toml": b'[[rule]]\ntoolName = "run_shell_command"\ndecision = "allow"\npriority = 500\n'
                b'commandPrefix = "git status"\n\n'
                b'[[rule]]\ntoolName = "write_file"\ndecision = "deny"\npriority = 900\n'
            },
        ),
    ],
)
def test_launch(config, base, argv, env, files):
    assert launched(config) == msgspec.structs.replace(
        base, argv=(*base.argv, *argv), env={**base.env, **env}, files=files
    )


@pytest.mark.parametrize("mode", ApprovalMode)
def test_approval_modes(mode: ApprovalMode):
    argv = launched(GeminiSessionConfig(approval_mode=mode)).argv
    assert argv[argv.index("--approval-mode") + 1] == mode.value


@pytest.mark.parametrize(
    ("more", "argv"),
    [
        ({"session_id": "u1"}, ("--session-id=u1",)),
        ({"resume": "u1", "session_id": "u1"}, ("--resume=u1",)),
    ],
)
def test_sessions(more, argv):
    assert launched(GeminiSessionConfig(), **more).argv == (*STREAM.argv, *argv)


def test_without_a_home_of_its_own():
    built = launch(
        GeminiSessionConfig(disallowed_tools=("glob",)), cwd="/r", executable="g", user_folder="/u/.gemini", prompt="hi"
    )
    assert built.argv[-1] == "--policy=/u/.gemini/policies"
    assert {"GEMINI_CLI_HOME", "TMPDIR"}.isdisjoint(built.env)


def test_trust():
    """Never by ``--skip-trust``, and over whatever the environment says."""
    for trust, expected in ((True, "true"), (False, "false"), (None, "maybe")):
        built = launched(GeminiSessionConfig(trust_workspace=trust, env={"GEMINI_CLI_TRUST_WORKSPACE": "maybe"}))
        assert (built.env["GEMINI_CLI_TRUST_WORKSPACE"], "--skip-trust" in built.argv) == (expected, False)


def test_the_sandbox_sees_where_the_links_lead():
    env = launched(GeminiSessionConfig(sandbox=True), user_folder="/u/.gemini").env
    assert env["SANDBOX_MOUNTS"] == "/u/.gemini:/u/.gemini:rw"


@pytest.mark.parametrize(
    ("prompt", "config", "stdin"),
    [
        ("-x --yolo", GeminiSessionConfig(), b"-x --yolo"),
        ("/help", GeminiSessionConfig(), b" /help"),
        ("/help @a", GeminiSessionConfig(expand_prompt=True), b"/help @a"),
        ("é\ud83d", GeminiSessionConfig(), "é?".encode()),
        ("x" * 200_000, GeminiSessionConfig(), b"x" * 200_000),
    ],
)
def test_prompts_go_through_stdin(prompt, config, stdin):
    built = launched(config, prompt)
    assert built.stdin == stdin
    assert built.argv == STREAM.argv


@pytest.mark.parametrize(
    ("config", "error", "says"),
    [
        (GeminiSessionConfig(driver=GeminiDriver.STREAM_JSON, can_use_tool=ask), NotSupported, "Driver.ACP"),
        (GeminiSessionConfig(driver=GeminiDriver.ACP, session_id="x"), NotSupported, "session_id"),
        (GeminiSessionConfig(driver=GeminiDriver.ACP, sandbox=True), NotSupported, "use driver stream-json"),
        (GeminiSessionConfig(sandbox_image="x"), LocalProtocolError, "sandbox=True"),
        (GeminiSessionConfig(max_attempts=0), LocalProtocolError, "at least 1"),
        (GeminiSessionConfig(add_dirs=("/a,b",)), LocalProtocolError, "comma"),
        (GeminiSessionConfig(extra_args=("--auto-edit",)), LocalProtocolError, "AUTO_EDIT"),
        (GeminiSessionConfig(extra_args=("--sandbox-image=x",)), LocalProtocolError, "sandbox_image"),
        (GeminiSessionConfig(extra_args=("--output-format=json",)), LocalProtocolError, "Stagedoor sets it"),
        (GeminiSessionConfig(extra_args=("-p", "hi")), LocalProtocolError, "Stagedoor sets it"),
        (GeminiSessionConfig(disallowed_tools=("write_fil",)), LocalProtocolError, "write_file"),
    ],
)
def test_bad_options(config, error, says):
    with pytest.raises(error, match=says):
        launched(config)


@pytest.mark.parametrize(("prompt", "says"), [(" \n", "empty"), ("x" * (LONGEST_PROMPT + 1), "too long")])
def test_bad_prompts(prompt, says):
    with pytest.raises(LocalProtocolError, match=says):
        launched(GeminiSessionConfig(), prompt)
