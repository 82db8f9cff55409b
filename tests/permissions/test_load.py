"""Policy files: what is written is what counts, and what is wrong is said with its line."""

from __future__ import annotations

import textwrap
from contextlib import suppress
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagedoor.errors import PolicyError
from stagedoor.permissions.policy import Policy
from stagedoor.permissions.policy_file import add_rule, format_policy, load_policy, parse_policy, remember_rule
from stagedoor.permissions.rules import Rule

YAML = textwrap.dedent("""\
    # what we agreed on
    name: ours
    default: ask
    autoApprove: [read_file, find_files]
    deny_patterns:
      - rm -rf *
    rules:
      # tests are fine
      - action: allow
        name: tests
        command: [npm test *, pytest *]
      - action: deny
        path: ["~/.ssh/**", "**/.env"]
        message: keys stay where they are
      - {action: ask, risk: high, agent: claude, operation: execute, tool: shell, outside: true}
    """)
TOML = textwrap.dedent("""\
    name = "ours"
    default = "ask"
    auto_approve = ["read_file", "find_files"]
    deny_patterns = ["rm -rf *"]

    [[rules]]
    action = "allow"
    name = "tests"
    command = ["npm test *", "pytest *"]

    [[rules]]
    action = "deny"
    path = ["~/.ssh/**", "**/.env"]
    message = "keys stay where they are"

    [[rules]]
    action = "ask"
    risk = "high"
    agent = "claude"
    operation = "execute"
    tool = "shell"
    outside = true
    """)
POLICY = Policy(
    name="ours",
    default="ask",
    auto_approve=("read_file", "find_files"),
    deny_patterns=("rm -rf *",),
    rules=(
        Rule(action="allow", name="tests", command=("npm test *", "pytest *")),
        Rule(action="deny", path=("~/.ssh/**", "**/.env"), message="keys stay where they are"),
        Rule(action="ask", risk=("high",), agent=("claude",), operation=("execute",), tool=("shell",), outside=True),
    ),
)


@pytest.mark.parametrize(("text", "format"), [(YAML, "yaml"), (TOML, "toml")])
def test_the_same_policy_in_both_languages(text: str, format: Literal["yaml", "toml"]) -> None:
    assert parse_policy(text, format=format) == POLICY


@pytest.mark.parametrize(("name", "text"), [("p.yaml", YAML), ("p.yml", YAML), ("p.toml", TOML)])
def test_from_a_file(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert load_policy(tmp_path / name) == POLICY


BAD: list[tuple[Literal["yaml", "toml"], str, str]] = [
    ("yaml", "rules:\n  - action: allow\n    comand: x\n",
     "p: unknown key 'comand' on line 3; did you mean 'command'?"),
    ("yaml", "rulez: []\n", "p: unknown key 'rulez' on line 1; did you mean 'rules'?"),
    ("yaml", "default: alow\n", "p: unknown default 'alow' on line 1; did you mean 'allow'?"),
    ("yaml", "rules:\n  - action: permit\n", "p: unknown action 'permit' on line 2; use one of allow, deny, ask"),
    ("yaml", "rules:\n  - action: deny\n    risk: [low, hihg]\n",
     "p: unknown risk 'hihg' on line 3; did you mean 'high'?"),
    ("yaml", "rules:\n  - tool: shell\n", "p: a rule without 'action' on line 2; write allow, deny or ask"),
    ("yaml", "rules:\n  - allow\n",
     "p: a rule must be a table with an action on line 2; begin it with 'action: allow', 'deny' or 'ask'"),
    ("yaml", "rules: {a: 1}\n", "p: 'rules' must be a list on line 1"),
    ("yaml", "rules:\n  - action: deny\n    tool: shel\n", "p: unknown tool 'shel' on line 3; did you mean 'shell'?"),
    ("yaml", "auto_approve: [read_fil]\n", "p: unknown tool 'read_fil' on line 1; did you mean 'read_file'?"),
    ("yaml", "rules:\n  - action: deny\n    command: []\n",
     "p: 'command' is an empty list, which would match nothing on line 3"),
    ("yaml", "rules:\n  - action: deny\n    command: 3\n", "p: 'command' must be text, not 3 on line 3"),
    ("yaml", "rules:\n  - action: deny\n    command: ''\n", "p: 'command' must be text, not '' on line 3"),
    ("yaml", "rules:\n  - action: deny\n    outside: maybe\n", "p: 'outside' must be true or false on line 3"),
    ("yaml", "default: ask\ndefault: allow\n", "p: 'default' is set twice on line 2"),
    ("yaml", "auto_approve: [shell]\nautoApprove: [shell]\n", "p: 'autoApprove' is set twice on line 2"),
    ("yaml", "version: 2\n", "p: unknown version on line 1; this Stagedoor reads version 1"),
    ("yaml", "- action: allow\n", "p: a policy must be a table of settings and rules on line 1"),
    ("yaml", "", "p: a policy must be a table of settings and rules on line 1"),
    ("yaml", "rules:\n  - action: [\n",
     "p: not valid YAML: expected the node content, but found '<stream end>' on line 3"),
    ("yaml", "a: 1\nb: 2\n", "p: unknown key 'a' on line 1\np: unknown key 'b' on line 2"),
    ("toml", "x = 1\n[[rules]]\naction = 'deny'\n\n[[rules]]\naction = 'deny'\ncomand = 'x'\n",
     "p: unknown key 'x' on line 1\np: unknown key 'comand' on line 7; did you mean 'command'?"),
    ("toml", "[[rules]]\nrisk = 'high'\n", "p: a rule without 'action' on line 1; write allow, deny or ask"),
    ("toml", "a = \n", "p: not valid TOML: Invalid value (at line 1, column 5)"),
]  # fmt: skip


@pytest.mark.parametrize(("format", "text", "message"), BAD)
def test_a_mistake_is_an_error_with_its_line(format: Literal["yaml", "toml"], text: str, message: str) -> None:
    with pytest.raises(PolicyError) as caught:
        parse_policy(text, format=format, source="p")
    assert str(caught.value) == message


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=r"policy file .* not found"):
        load_policy(tmp_path / "missing.yaml")
    (tmp_path / "p.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(PolicyError, match="cannot read the policy"):
        load_policy(tmp_path / "p.yaml")
    with pytest.raises(PolicyError, match="ends in"):
        load_policy(tmp_path / "policy.json")


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=80), st.sampled_from(["yaml", "toml"]))
def test_any_text_is_a_policy_or_an_error(text: str, format: Literal["yaml", "toml"]) -> None:
    with suppress(PolicyError):
        assert isinstance(parse_policy(text, format=format), Policy)


WORDS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12).filter(
    lambda word: bool(word.strip())
)
RULES = st.builds(
    Rule,
    action=st.sampled_from(["allow", "deny", "ask"]),
    name=WORDS,
    command=st.lists(WORDS, max_size=2).map(tuple),
    path=st.lists(WORDS, max_size=2).map(tuple),
    risk=st.lists(st.sampled_from(["low", "high"]), max_size=2, unique=True).map(tuple),
    tool=st.sampled_from([(), ("shell",), ("Bash", "mcp__a__*")]),
    outside=st.sampled_from([None, True, False]),
    message=WORDS,
)
POLICIES = st.builds(Policy, rules=st.lists(RULES, max_size=3).map(tuple), default=st.sampled_from([None, "deny"]))


@settings(max_examples=100, deadline=None)
@given(POLICIES, RULES, st.sampled_from(["yaml", "toml"]))
def test_text_and_back(policy: Policy, rule: Rule, format: Literal["yaml", "toml"]) -> None:
    text = format_policy(policy, format=format)
    if policy != Policy():
        assert parse_policy(text, format=format) == policy
    assert parse_policy(add_rule(text, rule, format=format), format=format) == policy.with_rule(rule)


NEW = Rule(action="allow", tool=("shell",), command=("make check *",), risk=("low", "medium"))


def test_a_rule_put_into_a_file_leaves_the_rest_as_it_was() -> None:
    added = add_rule(YAML, NEW)
    block = "  - action: allow\n    tool: shell\n    command: make check *\n    risk:\n    - low\n    - medium\n"
    assert added == YAML.replace("rules:\n", "rules:\n" + block)
    assert parse_policy(added) == POLICY.with_rule(NEW)
    toml = add_rule(TOML, NEW, format="toml")
    assert (
        toml.replace(
            '[[rules]]\naction = "allow"\ntool = "shell"\ncommand = "make check *"\nrisk = ["low", "medium"]\n\n', ""
        )
        == TOML
    )


def test_remembering_a_rule_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "policy.yaml"
    remember_rule(path, NEW)
    remember_rule(path, NEW)
    assert load_policy(path) == Policy(rules=(NEW,))
    other = Rule(action="allow", tool=("mcp__a__b",))
    remember_rule(path, other)
    assert load_policy(path) == Policy(rules=(other, NEW))
    assert [entry.name for entry in path.parent.iterdir()] == ["policy.yaml"]


def test_a_broken_file_is_not_written_over(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("rulez: []\n")
    with pytest.raises(PolicyError):
        remember_rule(path, NEW)
    assert path.read_text() == "rulez: []\n"


def test_the_policy_of_the_documentation_is_one() -> None:
    page = (Path(__file__).parents[2] / "docs" / "permissions.md").read_text()
    example = page.split("```yaml\n", 1)[1].split("```", 1)[0]
    assert [rule.name for rule in parse_policy(example).rules] == [
        "tests",
        "keys stay where they are",
        "documentation may be edited",
        "one server is trusted",
        "think twice",
    ]
