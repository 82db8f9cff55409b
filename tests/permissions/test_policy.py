"""Policies: which rule decides, for every part of a call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagedoor.permissions.explain import Step, explain, simulate
from stagedoor.permissions.globs import literal, match_command, match_path
from stagedoor.permissions.paths import Ground
from stagedoor.permissions.policy import APPROVALS, SANDBOXES, TIERS, Policy, Ruling, built_in
from stagedoor.permissions.rules import Rule
from stagedoor.unified.events import (
    Init,
    Operation,
    PermissionRequest,
    PermissionResolved,
    ToolName,
    ToolResult,
    ToolUse,
)
from stagedoor.unified.tools import operation_of, target_of

WORKSPACE = "/home/me/work"


def call(
    name: ToolName, agent: str = "", native: str = "", operation: Operation | None = None, **arguments: Any
) -> ToolUse:
    return ToolUse(
        tool_use_id="1",
        name=name,
        native_name=native,
        agent=agent,
        input=arguments,
        operation=operation or operation_of(name),
        target=target_of(name, arguments),
    )


def shell(command: str) -> ToolUse:
    return call("shell", command=command)


ALLOW_STATUS = Policy(rules=(Rule(action="allow", name="status", command=("git status*",)),))
ALLOWED_LINES = [
    ("git status", "allow"),
    ("git status --short", "allow"),
    ("/usr/bin/git status", "allow"),
    ("./git status", "ask"),
    ("git status && git status -s", "allow"),
    ("git status && rm x", "ask"),
    ("git status; ls", "ask"),
    ("git status | sh", "ask"),
    ("git status > out.txt", "ask"),
    ("git status > /dev/null 2>&1", "allow"),
    ("git status $(rm x)", "ask"),
    ("git status `rm x`", "ask"),
    ("git status\nrm x", "ask"),
    ("git status & rm x", "ask"),
    ("git status <(rm x)", "ask"),
    ("PATH=/tmp git status", "ask"),
    ("PATH=/tmp; git status", "ask"),
    ("x=1; git status", "allow"),
    ("cd src && git status", "allow"),
    ("cd / && git status", "ask"),
    ("timeout 5 git status", "allow"),
    ("env A=1 git status", "ask"),
    ("sudo git status", "ask"),
    ("sh -c 'git status'", "allow"),
    ("sh -c 'git status; rm x'", "ask"),
    ("sh -c \"$CMD\"", "ask"),
    ("eval 'git status'", "ask"),
    ("'git status'", "ask"),
    ("echo git status", "ask"),
    ("git statusx", "allow"),
    ("git() { rm x; }; git status", "ask"),
    ("alias git=rm; git status", "ask"),
    ("xargs git status", "ask"),
    ("if true; then git status; fi", "allow"),
    ("if git status; then rm x; fi", "ask"),
    ("git status \"unterminated", "ask"),
    ("git sta$X", "ask"),
    ("git status $X", "ask"),
    ("git status \"$(cat <<'EOF'\nrm x\nEOF\n)\"", "allow"),
    ("git status <<EOF\n`rm x`\nEOF", "ask"),
    ("", "ask"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "action"), ALLOWED_LINES)
def test_an_allowed_pattern_must_hold_for_every_simple_command(line: str, action: str) -> None:
    assert ALLOW_STATUS.decide(shell(line), WORKSPACE).action == action


DENY = Policy(
    rules=(
        Rule(action="allow", name="all shell", tool=("shell",)),
        Rule(action="deny", name="no push", command=("git push *",), message="ask a person to push"),
        Rule(action="deny", name="no keys", path=("~/.ssh/**", "*.pem")),
        Rule(action="ask", name="careful", risk=("high",)),
    ),
    default="allow",
)
DENIED: list[tuple[ToolUse, str, str | None]] = [
    (shell("git push"), "deny", "no push"),
    (shell("git push origin main"), "deny", "no push"),
    (shell("ls && git push"), "deny", "no push"),
    (shell("sudo /usr/bin/git push"), "deny", "no push"),
    (shell("A=1 git push"), "deny", "no push"),
    (shell("timeout 5 git push"), "deny", "no push"),
    (shell("bash -c 'git push'"), "deny", "no push"),
    (shell("g=git; $g push"), "deny", "no push"),
    (shell("$TOOL push"), "deny", "no push"),
    (shell("git $VERB"), "deny", "no push"),
    (shell("eval \"$X\""), "deny", "no push"),
    (shell("cat <<X\n`git push`\nX"), "deny", "no push"),
    (shell("echo ${x:-y}"), "deny", "no push"),
    (shell("git pull"), "allow", "all shell"),
    (shell("cat ~/.ssh/id_rsa"), "deny", "no keys"),
    (shell("cat /home/you/.ssh/config"), "deny", "no keys"),
    (shell("tool --key=certs/site.pem"), "deny", "no keys"),
    (shell("cat < certs/site.PEM"), "deny", "no keys"),
    (call("read_file", file_path="/home/me/.ssh/config"), "deny", "no keys"),
    (call("read_file", file_path="a/b/site.pem"), "deny", "no keys"),
    (call("read_file", file_path="a.py"), "allow", None),
    (call("write_file", file_path="/etc/passwd"), "ask", "careful"),
    (shell("rm -rf /"), "allow", "all shell"),
]  # fmt: skip


@pytest.mark.parametrize(("request_", "action", "rule"), DENIED)
def test_deny_wins_wherever_it_stands(request_: ToolUse, action: str, rule: str | None) -> None:
    ruling = DENY.decide(request_, WORKSPACE)
    assert (ruling.action, ruling.rule.name if ruling.rule else None) == (action, rule)


def test_a_ruling_says_everything() -> None:
    policy = Policy(
        rules=(
            Rule(action="ask", name="careful", risk=("medium", "high")),
            Rule(action="deny", name="no push", command=("git push *",), message="ask a person to push"),
        )
    )
    ruling = policy.decide(shell("git push"), WORKSPACE)
    assert ruling == Ruling(
        action="deny",
        rule=policy.rules[1],
        why="rule “no push” denies `git push`",
        risk="medium",
        reasons=("git push changes the repository",),
        matched=ruling.matched,
    )
    assert ruling.message == "ask a person to push"
    assert [(match.rule.name, match.part, match.certain) for match in ruling.matched] == [
        ("careful", "git push", True),
        ("no push", "git push", True),
    ]


MATCHING: list[tuple[Rule, ToolUse, str]] = [
    (Rule(action="allow", tool=("read_file",)), call("read_file", file_path="a"), "allow"),
    (Rule(action="allow", tool=("Read",)), call("read_file", native="Read", file_path="a"), "allow"),
    (Rule(action="allow", tool=("mcp__docs__*",)), call("mcp", native="mcp__docs__find"), "allow"),
    (Rule(action="allow", tool=("mcp__docs__*",)), call("mcp", native="mcp__other__find"), "ask"),
    (Rule(action="allow", operation=("read",)), call("search_content", pattern="x"), "allow"),
    (Rule(action="allow", operation=("read",)), call("write_file", file_path="a"), "ask"),
    (Rule(action="allow", risk=("low",)), call("read_file", file_path="a"), "allow"),
    (Rule(action="allow", risk=("low",)), call("read_file", file_path="/etc/hosts"), "ask"),
    (Rule(action="allow", agent=("claude",)), call("plan", agent="claude"), "allow"),
    (Rule(action="allow", agent=("claude",)), call("plan", agent="codex"), "ask"),
    (Rule(action="allow", path=("src/**",)), call("write_file", file_path="src/a/b.py"), "allow"),
    (Rule(action="allow", path=("src/**",)), call("write_file", file_path="src/../a.py"), "ask"),
    (Rule(action="allow", path=("src/**",)), call("write_file", file_path="/home/me/work/src/a.py"), "allow"),
    (Rule(action="allow", path=("src/**",)), call("edit_file", changes={"src/a": {}, "b": {}}), "ask"),
    (Rule(action="allow", path=("src/*.py",)), call("write_file", file_path="src/a/b.py"), "ask"),
    (Rule(action="allow", path=("src/**",)), shell("cat src/a.py"), "ask"),
    (Rule(action="allow", path=("src/**",), command=("cat *",)), shell("cat src/a.py"), "allow"),
    (Rule(action="allow", path=("src/**",), command=("cat *",)), shell("cat src/a.py /etc/hosts"), "ask"),
    (Rule(action="allow", tool=("shell",), path=("out/**",)), shell("> out/a"), "allow"),
    (Rule(action="allow", outside=False), call("read_file", file_path="a"), "allow"),
    (Rule(action="allow", outside=False), call("read_file", file_path="../a"), "ask"),
    (Rule(action="allow", command=("git *",)), call("web_fetch", url="https://example.com"), "ask"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "request_", "action"), MATCHING)
def test_what_a_rule_speaks_of(rule: Rule, request_: ToolUse, action: str) -> None:
    assert Policy(rules=(rule,)).decide(request_, WORKSPACE).action == action


def test_the_short_lists() -> None:
    policy = Policy(auto_approve=("read_file", "shell"), deny_patterns=("rm -rf *",), default="deny")
    decided = [
        (ruling.action, ruling.why)
        for each in (call("read_file", file_path="a"), shell("ls"), shell("sudo rm -rf x"), call("plan"))
        for ruling in (policy.decide(each, WORKSPACE),)
    ]
    assert decided == [
        ("allow", "rule “always allow read_file” allows read of a"),
        ("allow", "rule “always allow shell” allows `ls`"),
        ("deny", "rule “never run rm -rf *” denies `rm -rf x`"),
        ("deny", "no rule matches “plan”, and the default is to deny"),
    ]


def test_one_policy_over_another() -> None:
    mine = Policy(name="mine", rules=(Rule(action="allow", command=("npm test *",)),))
    both = mine.stacked_on(TIERS["supervised"])
    assert both.decide(shell("npm test"), WORKSPACE).action == "allow"
    assert both.decide(shell("npm install"), WORKSPACE).action == "ask"
    assert mine.stacked_on(TIERS["dry-run"]).decide(shell("npm test"), WORKSPACE).action == "deny"


CALLS: dict[str, ToolUse] = {
    "read": call("read_file", file_path="a.py"),
    "read outside": call("read_file", file_path="/etc/hosts"),
    "read secret": call("read_file", file_path=".env"),
    "edit": call("edit_file", file_path="a.py"),
    "edit outside": call("edit_file", file_path="../a.py"),
    "ls": shell("ls"),
    "redirect": shell("ls > a.txt"),
    "test": shell("npm test"),
    "rm -rf /": shell("rm -rf /"),
    "commit": shell("git commit -m x"),
    "fetch": call("web_fetch", url="https://example.com"),
    "mcp": call("mcp", native="mcp__a__b"),
    "plan": call("plan"),
}
A, Q, D = "allow", "ask", "deny"
#                     read  out secret edit out  ls  redir test rm commit fetch mcp plan
MODES: list[tuple[Policy, list[str]]] = [
    (TIERS["dry-run"],          [A, A, D, D, D, A, D, D, D, D, D, D, A]),
    (TIERS["supervised"],       [A, A, Q, A, Q, Q, Q, Q, Q, Q, Q, Q, A]),
    (TIERS["autonomous"],       [A, A, A, A, A, A, A, A, A, A, A, A, A]),
    (APPROVALS["ask"],          [Q, Q, Q, Q, Q, Q, Q, Q, Q, Q, Q, Q, A]),
    (APPROVALS["askDangerous"], [A, A, Q, A, Q, A, A, A, Q, A, A, A, A]),
    (APPROVALS["autoEdit"],     [A, A, Q, A, Q, Q, Q, Q, Q, Q, Q, Q, A]),
    (APPROVALS["autoAll"],      [A, A, A, A, A, A, A, A, A, A, A, A, A]),
    (built_in(tier="autonomous", sandbox="readOnly"),       [A, A, A, D, D, A, D, D, D, D, A, A, A]),
    (built_in(tier="autonomous", sandbox="workspaceWrite"), [A, A, A, A, D, A, A, A, D, A, A, A, A]),
    (built_in(tier="autonomous", sandbox="none"),           [A, A, A, A, A, A, A, A, A, A, A, A, A]),
    (built_in(tier="autonomous", sandbox="fullAccess"),     [A, A, A, A, A, A, A, A, A, A, A, A, A]),
    (built_in(tier="dry-run", approval="autoAll"),          [A, A, D, D, D, A, D, D, D, D, D, D, A]),
    (built_in(approval="askDangerous"),                     [A, A, Q, A, Q, A, A, A, Q, A, A, A, A]),
]  # fmt: skip


@pytest.mark.parametrize(("policy", "actions"), MODES)
def test_tiers_and_modes(policy: Policy, actions: list[str]) -> None:
    decided = {name: policy.decide(each, WORKSPACE).action for name, each in CALLS.items()}
    assert decided == dict(zip(CALLS, actions, strict=True))


def test_every_mode_has_a_policy() -> None:
    assert (list(TIERS), list(APPROVALS), list(SANDBOXES)) == (
        ["dry-run", "supervised", "autonomous"],
        ["ask", "askDangerous", "autoEdit", "autoAll"],
        ["none", "readOnly", "workspaceWrite", "fullAccess"],
    )


PATTERNS = [
    ("git *", "git", "yes"), ("git *", "git x", "yes"), ("git *", "gitk", "no"), ("git*", "gitk", "yes"),
    ("rm ?", "rm x", "yes"), ("rm ?", "rm xy", "no"), (r"rm \*", "rm *", "yes"), (r"rm \*", "rm x", "no"),
    ("rm -rf *", "rm -rf \0", "yes"), ("rm -rf /", "rm -rf \0", "maybe"), ("rm -rf /", "\0 -rf /", "maybe"),
    ("rm -rf /", "ls \0", "no"), ("* --force", "git push\0", "maybe"), ("git push", "git \0", "maybe"),
]  # fmt: skip


@pytest.mark.parametrize(("pattern", "text", "matched"), PATTERNS)
def test_patterns_for_commands(pattern: str, text: str, matched: str) -> None:
    assert match_command(pattern, text) == matched


@settings(deadline=None)
@given(st.text(), st.text())
def test_a_literal_pattern_matches_its_text_only(text: str, other: str) -> None:
    assert match_command(literal(text), text) == "yes"
    if "\0" not in other and not (text.endswith(" ") or other == text):
        assert match_command(literal(text), other) == "no"


PATHS = [
    ("*.pem", "/x/y/a.pem", True), ("src/**", "/w/src", True), ("src/**", "/w/src/a/b", True),
    ("src/**", "/w/srcx", False),
    ("./a", "/w/a", True), ("**/.env", "/w/a/b/.env", True), ("**/.env", "/w/.env", True), ("/etc/**", "/etc/a", True),
    ("~/.ssh/**", "/home/x/.ssh/id", True), ("~/.ssh/**", "~/.ssh/id", True), ("**", "/w/a", True), ("**", "/x", False),
    ("/**", "/x/y", True), ("src/?.py", "/w/src/a.py", True), ("src/*/c", "/w/src/a/b/c", False),
]  # fmt: skip


@pytest.mark.parametrize(("pattern", "path", "matched"), PATHS)
def test_patterns_for_paths(pattern: str, path: str, matched: bool) -> None:
    assert match_path(pattern, path, "/w") is matched


def test_explaining_a_command() -> None:
    policy = Policy(
        rules=(
            Rule(action="allow", name="status", command=("git status*",)),
            Rule(action="deny", name="no deleting", command=("rm *",)),
        )
    )
    explanation = explain(policy, "git status && sudo rm -rf /", WORKSPACE)
    assert (explanation.action, explanation.risk, explanation.rule) == ("deny", "high", policy.rules[1])
    assert explanation.why == "rule “no deleting” denies `rm -rf /`"
    assert explanation.also_matched == (policy.rules[0],)
    assert explanation.steps == (
        Step(command="git status", rules=(policy.rules[0],)),
        Step(command="sudo rm -rf /"),
        Step(command="rm -rf /", rules=(policy.rules[1],)),
    )
    assert explanation.text.splitlines()[:3] == [
        "deny: rule “no deleting” denies `rm -rf /`",
        "risk: high",
        "  - sudo runs as another user",
    ]


def test_simulating_a_past_session() -> None:
    def use(number: str, command: str) -> ToolUse:
        return ToolUse(
            tool_use_id=number,
            name="shell",
            operation="execute",
            target=command,
            input={"command": command},
            session_id="s",
        )

    events = [
        Init(cwd=WORKSPACE, session_id="s"),
        use("1", "ls"),
        ToolResult(tool_use_id="1", name="shell", status="success", session_id="s"),
        use("2", "rm -rf /"),
        PermissionRequest(request_id="r", tool_use_id="2", tool_name="shell", session_id="s"),
        PermissionResolved(request_id="r", decision="allow", session_id="s"),
        use("3", "npm test"),
        ToolResult(tool_use_id="3", name="shell", status="denied", session_id="s"),
        PermissionRequest(request_id="q", tool_name="web_fetch", operation="network", session_id="s"),
    ]
    simulated = simulate(Policy(rules=(Rule(action="deny", risk=("high",)),), default="allow"), events)
    assert [(each.tool_use_id, each.tool, each.ruling.action, each.then, each.changed) for each in simulated] == [
        ("1", "shell", "allow", "ran", False),
        ("2", "shell", "deny", "allow", True),
        ("3", "shell", "allow", "deny", True),
        ("q", "web_fetch", "allow", "unknown", False),
    ]


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=40))
def test_no_command_opens_a_closed_policy(text: str) -> None:
    policy = Policy(rules=(Rule(action="allow", command=("git status",)),), default="deny")
    assert policy.decide(shell(f"git status; rm x {text}"), WORKSPACE).action in ("deny", "ask")


@pytest.mark.parametrize("action", ["deny", "ask", "allow"])
def test_a_rule_about_a_path_is_one_about_what_a_link_leads_to(action: Any, tmp_path: Path) -> None:
    workspace = tmp_path / "work"
    (workspace / "secret").mkdir(parents=True)
    (workspace / "open").mkdir()
    (workspace / "way").symlink_to("secret")
    (workspace / "open" / "out").symlink_to(tmp_path)
    ground = Ground(str(workspace), None, on_disk=True)
    folder = "open" if action == "allow" else "secret"
    policy = Policy(rules=(Rule(action=action, name="rule", path=(f"{folder}/**",), operation=("write",)),))
    rows = {
        "deny": {"secret/a": "deny", "way/a": "deny", "way/new/a": "deny", "open/a": "ask", "WAY/a": "ask"},
        "ask": {"secret/a": "ask", "way/a": "ask"},
        "allow": {"open/a": "allow", "open/out/a": "ask", "secret/a": "ask"},
    }[action]
    rulings = {path: policy.decide(call("write_file", path=path, content=""), ground) for path in rows}
    assert {path: ruling.action for path, ruling in rulings.items()} == rows
    by_shell = policy.decide(shell("cp x way/a"), ground)
    if action == "deny":
        assert policy.decide(shell("echo x > way/a"), ground).action == "deny"
    assert by_shell.action == "ask"


@pytest.mark.parametrize(
    ("policy", "denied"),
    [
        (Policy(), []),
        (Policy(default="deny"), ["task", "read_file", "find_files"]),
        (Policy(default="deny", auto_approve=("read_file",)), ["task", "find_files"]),
        (Policy(default="deny", rules=(Rule(action="ask", operation=("read",)),)), ["task"]),
        (Policy(default="deny", rules=(Rule(action="allow", path=("docs/**",)),)), []),
        (Policy(default="deny", rules=(Rule(action="allow", command=("ls *",)),)), ["task", "read_file", "find_files"]),
        (Policy(default="deny", rules=(Rule(action="ask", folder=("/x",)),)), ["task", "read_file", "find_files"]),
        (Policy(rules=(Rule(action="deny", tool=("task",)),)), ["task"]),
        (Policy(rules=(Rule(action="deny", tool=("Native_task",)), Rule(action="allow", tool=("task",)))), ["task"]),
        (Policy(rules=(Rule(action="deny", operation=("read",)),)), ["read_file", "find_files"]),
        (Policy(rules=(Rule(action="deny", tool=("read_file",), path=("~/.ssh/**",)),)), []),
        (Policy(rules=(Rule(action="deny", tool=("task",), agent=("other",)),)), []),
        (TIERS["supervised"], []),
    ],
)
def test_tools_of_which_every_call_is_denied(policy: Policy, denied: list[str]) -> None:
    tools: tuple[ToolName, ...] = ("task", "read_file", "find_files")
    assert [tool for tool in tools if policy.denies_every(tool, f"Native_{tool}", "codex")] == denied
