from __future__ import annotations

from typing import Any

import msgspec
import pytest

from stagedoor.agents.claude import (
    Allow,
    CanUseTool,
    ClaudePermissionBehavior,
    Deny,
    allow_always,
    answer_questions,
    plan_in,
    questions_in,
)
from stagedoor.agents.claude.permissions import AskedOption, AskedQuestion, decision
from stagedoor.agents.claude.requests import PermissionUpdate, Rule


def asked(tool: str, input: dict[str, Any], suggestions: list[dict[str, Any]] | None = None) -> CanUseTool:
    raws = tuple(msgspec.Raw(msgspec.json.encode(s)) for s in suggestions or [])
    return CanUseTool(tool, input, permission_suggestions=raws)


RULES = {
    "type": "addRules",
    "rules": [{"toolName": "Bash", "ruleContent": "ls:*"}],
    "behavior": "allow",
    "destination": "localSettings",
}
FOLDER = {"type": "addDirectories", "directories": ["/repo"], "destination": "session"}
MODE = {"type": "setMode", "mode": "acceptEdits", "destination": "session"}
LS = PermissionUpdate("addRules", "session", "allow", (Rule("Bash", "ls:*"),))
ANY = PermissionUpdate("addRules", "session", "allow", (Rule("Bash"),))
REPO = PermissionUpdate("addDirectories", "session", directories=("/repo",))


@pytest.mark.parametrize(
    ("suggestions", "updates"),
    [
        ([], (ANY,)),
        ([RULES], (LS,)),
        ([RULES, FOLDER, MODE], (LS, REPO)),
        ([MODE], (ANY,)),
        ([FOLDER], (ANY, REPO)),
        ([{"bogus": 1}, RULES], (LS,)),
    ],
)
def test_allow_always(suggestions: list[dict[str, Any]], updates: tuple[PermissionUpdate, ...]) -> None:
    request = asked("Bash", {"command": "ls"}, suggestions)
    assert allow_always(request) == Allow(updated_permissions=updates, remember=True)


def test_allow_always_written_down() -> None:
    (update,) = allow_always(asked("Bash", {}, [RULES]), "userSettings").updated_permissions
    assert update == msgspec.structs.replace(LS, destination="userSettings")


@pytest.mark.parametrize(
    ("behavior", "expected"),
    [
        (ClaudePermissionBehavior.allow, Allow({"command": "pwd"})),
        (ClaudePermissionBehavior.allow_always, Allow({"command": "pwd"}, (LS,), remember=True)),
        (ClaudePermissionBehavior.deny, Deny("no")),
        (ClaudePermissionBehavior.deny_always, Deny("no", remember=True)),
    ],
)
def test_the_four_answers(behavior: ClaudePermissionBehavior, expected: Allow | Deny) -> None:
    request = asked("Bash", {"command": "ls"}, [RULES])
    assert decision(request, behavior, updated_input={"command": "pwd"}, message="no") == expected


def test_questions_and_plans() -> None:
    entry = {"question": "Which?", "header": "H", "multiSelect": True, "options": [{"label": "A"}, {"label": "B"}]}
    request = asked("AskUserQuestion", {"questions": [entry]})
    assert questions_in(request) == [AskedQuestion("Which?", "H", True, (AskedOption("A"), AskedOption("B")))]
    assert answer_questions(request, {"Which?": ["A", "B"]}) == Allow(
        {"questions": [entry], "answers": {"Which?": "A, B"}}
    )
    assert questions_in(asked("AskUserQuestion", {"questions": "?"})) == []
    assert questions_in(asked("Bash", {"questions": [entry]})) == []
    assert plan_in(asked("ExitPlanMode", {"plan": "1. go"})) == "1. go"
    assert plan_in(asked("ExitPlanMode", {"plan": 1})) is None
    assert plan_in(asked("Bash", {"plan": "x"})) is None
