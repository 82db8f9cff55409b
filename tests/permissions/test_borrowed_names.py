"""A file that only has the name of a wrapper or a shell, and a shell whose grammar is not the one that is read."""

from __future__ import annotations

import pytest

from stagedoor.permissions.paths import Ground
from stagedoor.permissions.policy import Policy
from stagedoor.permissions.remember import rules_for
from stagedoor.permissions.risk.judge import judge_command
from stagedoor.permissions.rules import Rule
from stagedoor.permissions.shell.wrappers import FOLLOWED_SHELLS, SHELLS, WRAPPERS
from stagedoor.unified.events import PermissionRequest

WORKSPACE = "/home/me/work"
FOLDERS = ("./", "bin/", "node_modules/.bin/", "../", "~/", "/tmp/x/", f"{WORKSPACE}/", "/usr/bin/../../tmp/")
NAMES = sorted({*WRAPPERS, *SHELLS, "eval", "trap", "source"})
ENDS = ("", " ls", " -c ls", " 5 ls", " run ls", " exec ls", " exec c ls", " --version", " -- ls")


def line(command: str) -> PermissionRequest:
    return PermissionRequest(request_id="q", tool_name="shell", operation="execute", input={"command": command})


def decided(command: str, *rules: Rule, default: str = "deny") -> str:
    policy = Policy(rules=rules, default="allow" if default == "allow" else "deny")
    return policy.decide(line(command), Ground(WORKSPACE)).action


def remembered(first: str, later: str) -> bool:
    rules = rules_for(line(first), Ground(WORKSPACE))
    return bool(rules) and Policy(rules=rules).decide(line(later), Ground(WORKSPACE)).action == "allow"


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_file_with_the_name_of_a_wrapper_is_never_low(folder: str) -> None:
    lines = [f"{folder}{name}{end}" for name in NAMES for end in ENDS]
    assert [one for one in lines if judge_command(one, cwd=WORKSPACE).risk == "low"] == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_what_it_is_said_to_run_does_not_allow_it(folder: str) -> None:
    rules = Rule(action="allow", command=("ls", "ls *", "make *"))
    calls = [f"{folder}{name} {inner}" for name in NAMES for inner in ("ls", "-c ls", "-c 'make test'", "make test")]
    assert [one for one in calls if decided(one, rules) == "allow"] == []
    assert [one for one in calls if remembered("make test", one) or remembered("ls", one)] == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_rules_that_deny_look_inside(folder: str) -> None:
    rule = Rule(action="deny", command=("rm *",))
    calls = [f"{folder}{name} -c 'rm x'" for name in sorted(SHELLS)] + [
        f"{folder}{name} rm x" for name in ("env", "nice")
    ]
    assert [one for one in calls if decided(one, rule, default="allow") == "allow"] == []


@pytest.mark.parametrize(
    "command", ["env ls", "/usr/bin/env ls", "nice ls", "/bin/bash -c ls", "zsh -c ls", "sh -c ls"]
)
def test_the_programs_of_the_system_are_followed(command: str) -> None:
    assert judge_command(command, cwd=WORKSPACE).risk == "low"
    assert decided(command, Rule(action="allow", command=("ls",))) == "allow"


def test_what_a_file_called_echo_prints_is_not_known() -> None:
    rules = Rule(action="allow", command=("./echo *", "ls"))
    assert decided("./echo ls | bash", rules) != "allow"


@pytest.mark.parametrize("shell", sorted(SHELLS - FOLLOWED_SHELLS))
@pytest.mark.parametrize(
    "form",
    ["{} -c ls", "/bin/{} -c ls", "env {} -c ls", "echo ls | {}", '{} -c \'echo "a\\"; touch x #"\'', "{} <<< ls"],
)
def test_another_grammar_is_not_understood(shell: str, form: str) -> None:
    command = form.format(shell)
    verdict = judge_command(command, cwd=WORKSPACE)
    assert (verdict.understood, verdict.risk == "low") == (False, False)
    assert decided(command, Rule(action="allow", command=("*",))) != "allow"
    assert rules_for(line(command), Ground(WORKSPACE)) == ()
    assert decided(command, Rule(action="deny", command=("rm *",)), default="allow") != "allow"


DOCUMENT = "<<'EOF'\n{}\nEOF"


@pytest.mark.parametrize(
    "form",
    [
        "cat > run.sh " + DOCUMENT,
        "cat >> run.sh " + DOCUMENT,
        "head -5 > run.sh " + DOCUMENT,
        "cat <<< '{}' > run.sh",
        "env cat > run.sh " + DOCUMENT,
        "bash -c 'cat > run.sh' " + DOCUMENT,
        "bash -c cat > run.sh " + DOCUMENT,
        "{{ cat; }} > run.sh " + DOCUMENT,
        "( cat ) > run.sh " + DOCUMENT,
        "if true; then cat; fi > run.sh " + DOCUMENT,
        "cat " + DOCUMENT.replace("'EOF'", "'EOF' | cat > run.sh"),
        "cat > run.sh " + DOCUMENT.replace("'EOF'", "'EOF' && bash run.sh"),
    ],
)
@pytest.mark.parametrize("first", [None, "make > run.sh"])
def test_a_remembered_file_has_no_other_content(form: str, first: str | None) -> None:
    assert not remembered(first or form.format("echo hello"), form.format("touch x"))


@pytest.mark.parametrize(
    ("first", "later", "same"),
    [
        ("make > out", "make 2> out", False),
        ("make 2> out", "make > out", False),
        ("make < in", "make 3< in", False),
        ("make 2> out", "make 2> out", True),
        ("make > out", "make 1> out", True),
        ("make 2>/dev/null", "make", True),
    ],
)
def test_the_number_that_is_opened_counts(first: str, later: str, same: bool) -> None:
    assert remembered(first, later) is same
