"""A session goes on where and as it was, and never with more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stagedoor.errors import NotAllowed, SessionNotFound
from stagedoor.permissions.policy import Policy
from stagedoor.register import NAME, Register, RegisterEntry, entry_of, resumed
from stagedoor.unified.options import Options

ENTRY = RegisterEntry(
    session_id="ours", native_id="theirs", agent="claude", driver="stream", cwd="/repo", tier="supervised"
)


def test_found_by_either_id_the_latest_first(tmp_path: Path) -> None:
    register = Register(tmp_path)
    assert register.find("ours") is None
    register.add(ENTRY)
    later = RegisterEntry(session_id="other", native_id="theirs", agent="claude", tier="dry-run")
    register.add(later)
    with (tmp_path / NAME).open("ab") as file:
        file.write(b'{"broken": "ours\n')
    assert register.find("ours") == ENTRY
    assert register.find("theirs") == later
    assert register.find("their") is None


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {"resume": "theirs", "cwd": "/repo", "driver": "stream", "tier": "supervised"}),
        ({"cwd": "/elsewhere"}, {"resume": "theirs", "cwd": "/elsewhere", "driver": "stream", "tier": "supervised"}),
        ({"tier": "dry-run"}, {"resume": "theirs", "cwd": "/repo", "driver": "stream", "tier": "dry-run"}),
        ({"approval": "ask"}, {"resume": "theirs", "cwd": "/repo", "driver": "stream", "approval": "ask"}),
    ],
)
def test_what_is_not_named_is_as_it_was(changes: dict[str, Any], expected: dict[str, Any]) -> None:
    options = resumed(Options(resume="ours", **changes), frozenset({"resume", *changes}), "claude", ENTRY)
    assert options == Options(**expected)


WIDER: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"tier": "supervised"}, {"tier": "autonomous"}),
    ({"tier": "dry-run"}, {"tier": "supervised"}),
    ({"tier": "supervised", "approval": "ask"}, {"approval": "autoEdit"}),
    ({"tier": "supervised", "approval": "ask"}, {"tier": "supervised"}),
    ({"tier": "autonomous", "sandbox": "readOnly"}, {"sandbox": "fullAccess"}),
    ({"tier": "supervised", "allowed_tools": ("read_file",)}, {"allowed_tools": ("read_file", "shell")}),
    ({"tier": "supervised", "policy": "/rules.yaml"}, {"policy": "/other.yaml"}),
]


@pytest.mark.parametrize(("had", "changes"), WIDER)
def test_nothing_gets_wider(had: dict[str, Any], changes: dict[str, Any]) -> None:
    entry = RegisterEntry(session_id="ours", native_id="theirs", agent="claude", **had)
    with pytest.raises(NotAllowed, match="it cannot be resumed with"):
        resumed(Options(resume="ours", **changes), frozenset({"resume", *changes}), "claude", entry)
    assert resumed(Options(resume="ours"), frozenset({"resume"}), "claude", entry).tier == had["tier"]


RULES = Policy(default="deny")
RULED: list[tuple[dict[str, Any], dict[str, Any], str | None]] = [
    ({}, {"policy": RULES}, None),
    ({}, {"policy": RULES, "tier": "supervised", "approval": None}, None),
    ({"approval": "autoEdit"}, {"policy": RULES}, "autoEdit"),
    ({"approval": "ask"}, {"policy": RULES}, "ask"),
    ({}, {}, "ask"),
    ({"approval": "autoEdit"}, {"tier": "supervised", "approval": "autoEdit"}, "ask"),
    ({"tier": "dry-run"}, {}, None),
]


@pytest.mark.parametrize(("had", "changes", "approval"), RULED)
def test_rules_over_a_tier_change_nothing_of_it_and_without_them_all_is_asked(
    had: dict[str, Any], changes: dict[str, Any], approval: str | None
) -> None:
    entry = RegisterEntry(session_id="ours", native_id="theirs", agent="claude", ruled=True, **had)
    options = resumed(Options(resume="ours", **changes), frozenset({"resume", *changes}), "claude", entry)
    assert (options.tier, options.approval) == (had.get("tier", "supervised"), approval)


def test_tools_and_rules_hold_on() -> None:
    rules: dict[str, Any] = {"allowed_tools": ("read_file", "shell"), "disallowed_tools": ("web_fetch",)}
    ran = Options(policy="/rules.yaml", cwd="/repo", **rules)
    entry = entry_of(ran, session_id="ours", native_id="theirs", agent="claude", driver="stream")

    def again(**changes: Any) -> Options:
        return resumed(Options(resume="ours", **changes), frozenset({"resume", *changes}), "claude", entry)

    assert again() == Options(resume="theirs", policy="/rules.yaml", cwd="/repo", driver="stream", **rules)
    assert again(allowed_tools=("shell",)).allowed_tools == ("shell",)
    assert again(disallowed_tools=("shell",)).disallowed_tools == ("shell", "web_fetch")
    first = RegisterEntry(session_id="ours", native_id="theirs", agent="claude", tier="supervised")
    narrower = resumed(Options(resume="ours", allowed_tools=("shell",)), frozenset({"resume"}), "claude", first)
    assert narrower.allowed_tools == ("shell",)
    assert again(policy="/rules.yaml").policy == "/rules.yaml"


def test_another_agents_session() -> None:
    with pytest.raises(SessionNotFound, match="belongs to claude, not to codex"):
        resumed(Options(resume="ours"), frozenset({"resume"}), "codex", ENTRY)


def test_an_unwritable_register_does_not_stop_a_session(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    Register(tmp_path / "file").add(ENTRY)
    assert Register(tmp_path / "file").find("ours") is None
