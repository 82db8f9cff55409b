"""The configuration: the file of the seed, every mistake at once with its line, variables over it, flags over those."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from stagedoor import AcpAgent
from stagedoor.errors import ConfigError
from stagedoor.service.config.keys import KEYS, as_written, table, template
from stagedoor.service.config.load import Loaded, Value, find, load, parse
from stagedoor.service.config.settings import AgentSettings, Limits, Settings

PAGE = (Path(__file__).parent.parent.parent / "docs" / "configuration.md").read_text()

EVERYTHING = """\
server: {host: 0.0.0.0, port: 0, hosts: stagedoor.example.org}
workspaces:
  roots: [here, /]
  projects: {site: here/site}
agents:
  default: claude-code
  claude-code: {command: /opt/claude, args: [-p, --foo, bar], env: {A: 1}, driver: stream, tier: dry-run}
  codex: {skip_permissions: true, sandbox: workspaceWrite}
  opencode: {approval: askDangerous, sandbox: custom, profile: profile.yaml}
hooks:
  beforeToolCall: ./approve-tool.sh --quick
  onEvent: {turn_completed: ./notify.sh, error: [mail, -s, it failed]}
sessions:
  tier: autonomous
  sleep_after: never
  answer_within: 1.5h
  keep_days: 30
  limits: {awake: 2, queued: 3, prompt: 4, body: 5, connections: 6, subscriptions: 7}
log: {durable: power}
"""


def test_every_key_becomes_a_setting(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    for name in ("cert.pem", "key.pem"):
        (tmp_path / name).touch()
    (tmp_path / "rules.yaml").write_text("rules: []\n")
    (tmp_path / "profile.yaml").write_text("workspace: write\nwrite: [cache]\nhide: [~/.ssh]\n")
    text = EVERYTHING + "policy: {file: rules.yaml}\n"
    text = text.replace("hosts:", "tls_cert: cert.pem, tls_key: key.pem, hosts:")
    file = tmp_path / "config.yaml"
    file.write_text(text)
    assert load(file, env={}).settings == Settings(
        host="0.0.0.0",
        port=0,
        hosts=("stagedoor.example.org",),
        tls_cert=str(tmp_path / "cert.pem"),
        tls_key=str(tmp_path / "key.pem"),
        roots=(str(tmp_path / "here"), "/"),
        projects={"site": str(tmp_path / "here" / "site")},
        default_agent="claude",
        agents={
            "claude": AgentSettings(
                command="/opt/claude", args=("--foo", "bar"), env={"A": "1"}, driver="stream", tier="dry-run"
            ),
            "codex": AgentSettings(tier="autonomous", sandbox="workspaceWrite"),
            "opencode": AgentSettings(
                approval="askDangerous",
                confine="workspace",
                confine_write=(str(tmp_path / "cache"),),
                confine_hide=(str(Path("~/.ssh").expanduser()),),
            ),
        },
        before_tool_call=(str(tmp_path / "approve-tool.sh"), "--quick"),
        on_event={"turn_completed": (str(tmp_path / "notify.sh"),), "error": ("mail", "-s", "it failed")},
        policy=str(tmp_path / "rules.yaml"),
        tier="autonomous",
        sleep_after=None,
        answer_within=5400.0,
        keep_days=30.0,
        durable="power",
        limits=Limits(awake=2, queued=3, prompt=4, body=5, connections=6, subscriptions=7),
    )


def test_an_agent_of_the_users_own() -> None:
    text = """
agents:
  default: mine
  mine:
    acp: my-agent --acp "two words"
    env: {A: 1}
    modes: {supervised: ask}
    options: {effort: high, fast: true}
    install: npm i -g my-agent
    tier: supervised
    model: large
"""
    mine = AcpAgent(
        command=("my-agent", "--acp", "two words"), env={"A": "1"}, modes={"supervised": "ask"}, name="mine",
        options={"effort": "high", "fast": True}, install="npm i -g my-agent",
    )  # fmt: skip
    settings = parse(text, env={"STAGEDOOR_AGENTS__MINE__MODEL": "small"}).settings
    assert settings == Settings(
        default_agent="mine",
        agents={"mine": AgentSettings(acp=mine, env={"A": "1"}, tier="supervised", model="small")},
    )
    assert settings.added_agents() == {"mine": mine}


MISTAKES: dict[str, list[str]] = {
    "- a list": ["config.yaml: a configuration must be a table with sections such as 'server:' on line 1"],
    "server: [": ["config.yaml: not valid YAML: expected the node content, but found '<stream end>' on line 1"],
    "server:\n  port: 1\n  port: 2": ["config.yaml: 'port' is set twice on line 3"],
    "server: 1": ["config.yaml: 'server' is a section and must be a table on line 1; indent its keys under it"],
    "server:\n  prot: 1\nsesions: {}": [
        "config.yaml: unknown key 'server.prot' on line 2; did you mean 'server.port'?",
        "config.yaml: unknown key 'sesions' on line 3; did you mean 'sessions'?",
    ],
    "server: {port: 99999, host: 5, hosts: [1]}": [
        "config.yaml: 'port' must be at least 0 and at most 65535, not 99999 on line 1",
        "config.yaml: 'host' must be text, not 5 on line 1",
        "config.yaml: 'hosts' must be a list of texts, not [1] on line 1",
    ],
    "agents:\n  cluade: {}\n  codex:\n    modle: x": [
        "config.yaml: unknown agent 'cluade' on line 2; did you mean 'claude'?",
        "config.yaml: unknown key 'agents.codex.modle' on line 4; did you mean 'agents.codex.model'?",
    ],
    "agents:\n  default: codex\n  codex: {enabled: false, args: [--yolo], driver: appserver}": [
        "config.yaml: '--yolo' cannot be set in 'args' on line 3; use the key 'skip_permissions: true' instead",
        "config.yaml: codex has no driver 'appserver' on line 3; did you mean 'app-server'?",
        "config.yaml: codex is the default agent but is switched off (enabled: false) on line 2",
    ],
    "agents:\n  zork: {model: x}\n  codex: {modes: {supervised: ask}, install: x}": [
        "config.yaml: unknown agent 'zork' on line 2; one of yours needs its command (acp: [my-agent, --acp])",
        "config.yaml: 'modes' describes an agent of yours on line 3; codex needs 'acp' to be one",
        "config.yaml: 'install' describes an agent of yours on line 3; codex needs 'acp' to be one",
    ],
    "agents:\n  claude: {acp: [x]}\n  mine: {acp: [x], modes: {careful: y}}\n  yours: {acp: ''}": [
        "config.yaml: 'acp' must be a command line, or a list of its words, not '' on line 4",
        "config.yaml: claude is an agent of its own on line 2; give yours another name",
        "config.yaml: agents.mine: Invalid enum value 'careful' - at `key` in `$.modes` on line 3",
    ],
    "agents:\n  default: mine\n  mine: {acp: my-agent --acp, tier: supervised}": [
        "config.yaml: mine (acp) may act without asking (over the protocol an agent decides itself what it asks "
        "about), so tier='supervised' cannot be promised: use tier='autonomous' with confine='workspace', or "
        "tier='dry-run' with confine='read-only' on line 3",
    ],
    "agents: {default: cluade}": ["config.yaml: unknown agent 'cluade' on line 1; did you mean 'claude'?"],
    "agents:\n  claude: {auto_accept: [Grpe, read_fil, Read, mcp__x__y, 'Web*']}": [
        "config.yaml: claude has no tool 'Grpe' on line 2; did you mean 'Grep'?",
        "config.yaml: claude has no tool 'read_fil' on line 2; did you mean 'read_file'?",
    ],
    "agents:\n  codex: {sandbox: fullAccess, confine: workspace}": [
        "config.yaml: sandbox='fullAccess' and confine='workspace' contradict each other: leave one of them out "
        "on line 2",
    ],
    "agents:\n  gemini: {sandbox: dokcer}\n  claude: {sandbox: docker}": [
        "config.yaml: gemini has no sandbox 'dokcer' on line 2; did you mean 'docker'?",
        "config.yaml: claude has no sandbox 'docker' on line 3; use one of none, readOnly, workspaceWrite, fullAccess, "
        "custom",
    ],
    "agents:\n  codex: {sandbox: custom}\n  claude: {profile: /x.yaml}": [
        "config.yaml: 'sandbox: custom' needs 'profile' on line 2; give the path of its file",
        "config.yaml: 'profile' works only with 'sandbox: custom' on line 3; set that too",
    ],
    "agents: {codex: {sandbox: custom, profile: /nowhere.yaml, confine: 'off'}}": [
        "config.yaml: 'confine' contradicts 'sandbox: custom' on line 1; write it into the profile",
        "config.yaml: the profile /nowhere.yaml cannot be read: [Errno 2] No such file or directory: '/nowhere.yaml' "
        "on line 1",
    ],
    "hooks: {onEvent: {turn_complete: x, text_delta: y}}": [
        "config.yaml: 'onEvent' knows no event 'turn_complete' on line 1; did you mean 'turn_completed'?",
    ],
    "agents: {claude: {skip_permissions: true, tier: dry-run, env: [secret]}}": [
        "config.yaml: 'env' must be a table of texts, not a secret on line 1",
        "config.yaml: 'skip_permissions' contradicts tier or approval on line 1; keep one",
    ],
    "sessions: {sleep_after: 15x, answer_within: 0, tier: supervise, limits: {awake: 0}}": [
        "config.yaml: 'sleep_after' must be seconds, a time like 15m or 24h, or never, not '15x' on line 1",
        "config.yaml: 'answer_within' must be seconds, a time like 15m or 24h, or never, not 0 on line 1",
        "config.yaml: unknown tier 'supervise' on line 1; did you mean 'supervised'?",
        "config.yaml: 'awake' must be at least 1, not 0 on line 1",
    ],
    "server:\n  tls_cert: /nowhere.pem": [
        "config.yaml: 'server.tls_cert' needs 'server.tls_key' too on line 2",
        "config.yaml: file /nowhere.pem not found on line 2",
    ],
    "policy: {file: /nowhere.yaml}": ["policy file /nowhere.yaml not found"],
}


@pytest.mark.parametrize("text", MISTAKES, ids=lambda text: re.sub(r"\s+", " ", text)[:40])
def test_all_mistakes_are_told_with_their_lines(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text)
    assert str(caught.value).splitlines() == MISTAKES[text]


def test_a_tool_that_is_like_no_other_is_answered_with_what_there_is() -> None:
    with pytest.raises(
        ConfigError, match=r"claude has no tool 'no_such_tool' on line 2; use our words \(shell, read_file"
    ):
        parse("agents:\n  claude: {auto_accept: [no_such_tool]}")


VARIABLES: list[tuple[dict[str, str], dict[str, Any]]] = [
    ({"STAGEDOOR_SERVER__PORT": "8000"}, {"port": 8000}),
    ({"STAGEDOOR_SERVER__HOSTS": "a, b"}, {"hosts": ("a", "b")}),
    ({"STAGEDOOR_SERVER__HOST": "0"}, {"host": "0"}),
    ({"STAGEDOOR_WORKSPACES__PROJECTS": "{a: /b}"}, {"projects": {"a": "/b"}}),
    ({"STAGEDOOR_SESSIONS__LIMITS__AWAKE": "4"}, {"limits": Limits(awake=4)}),
    ({"STAGEDOOR_SESSIONS__SLEEP_AFTER": "never"}, {"sleep_after": None}),
    ({"STAGEDOOR_AGENTS__CODEX__ENABLED": "false"}, {"agents": {"codex": AgentSettings(enabled=False)}}),
    ({"STAGEDOOR_HOME": "/x", "STAGEDOOR_DEBUG": "1", "OTHER__THING": "1"}, {}),
]


@pytest.mark.parametrize(("env", "arguments"), VARIABLES, ids=lambda item: next(iter(item), ""))
def test_variables_say_what_the_file_could(env: dict[str, str], arguments: dict[str, Any]) -> None:
    assert parse("", env=env).settings == Settings(**arguments)


def test_flags_win_over_variables_and_those_over_the_file() -> None:
    text = "server: {host: file, port: 1}\nlog: {durable: power}"
    env = {"STAGEDOOR_SERVER__HOST": "variable", "STAGEDOOR_SERVER__PORT": "2"}
    loaded = parse(text, env=env, flags={"server.port": 3, "server.hosts": None, "workspaces.roots": ("/",)})
    assert loaded.settings == Settings(host="variable", port=3, durable="power", roots=("/",))
    message = [value for value in loaded.values if value.origin != "default"]
    assert message == [
        Value("server.host", "variable", "STAGEDOOR_SERVER__HOST"),
        Value("server.port", 3, "--port"),
        Value("workspaces.roots", ("/",), "--roots"),
        Value("log.durable", "power", "config.yaml line 2"),
    ]
    assert [value.path for value in loaded.values] == [key.path for key in KEYS if "*" not in key.path]


def test_a_wrong_variable_is_named() -> None:
    with pytest.raises(ConfigError) as caught:
        parse("", env={"STAGEDOOR_SERVER__PROT": "1", "STAGEDOOR_SERVER__PORT": "x"})
    assert str(caught.value).splitlines() == [
        "STAGEDOOR_SERVER__PORT: 'port' must be a whole number, not 'x'",
        "STAGEDOOR_SERVER__PROT: unknown key; did you mean 'server.port'?",
    ]


def test_the_file_is_found_in_its_order(tmp_path: Path) -> None:
    own, named, arguments = tmp_path / "config" / "stagedoor", tmp_path / "named.yaml", tmp_path / "given.yaml"
    env = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    assert find(env=env) is None
    assert load(env=env) == Loaded(settings=Settings(), file=None, values=parse("").values)
    own.mkdir(parents=True)
    (own / "config.yaml").touch()
    assert find(env=env) == own / "config.yaml"
    env["STAGEDOOR_HOME"] = str(tmp_path)
    (tmp_path / "config.yaml").touch()
    assert find(env=env) == tmp_path / "config.yaml"
    env["STAGEDOOR_CONFIG"] = str(named)
    with pytest.raises(ConfigError, match=r"named\.yaml: file not found; create it with stagedoor config edit"):
        find(env=env)
    named.touch()
    assert find(env=env) == named
    arguments.touch()
    assert find(arguments, env=env) == arguments


def test_the_page_and_the_template_know_every_key() -> None:
    assert table() in PAGE
    assert parse(template()).settings == Settings()
    uncommented = yaml.safe_load(re.sub(r"^#(?= *\w+:)", "", template(), flags=re.MULTILINE))
    paths = {key.path.replace("*", "understudy") for key in KEYS}
    assert {path for path in paths if _at(uncommented, path) is None} == set()
    assert [key.path for key in KEYS if as_written(key.path, None) == "never"] == [
        "sessions.sleep_after", "sessions.answer_within", "sessions.keep_days",
    ]  # fmt: skip


def test_the_example_of_the_page_is_fine(tmp_path: Path) -> None:
    example = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)[0]
    (tmp_path / "policy.yaml").write_text("rules: []\n")
    assert parse(example, file=tmp_path / "config.yaml").settings.default_agent == "claude"


def _at(tree: Any, path: str) -> Any:
    for name in path.split("."):
        tree = (tree or {}).get(name)
    return tree
