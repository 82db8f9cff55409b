from __future__ import annotations

from typing import Any

import msgspec
import pytest

from stagedoor.agents.claude import (
    CanUseTool,
    ClaudePermissionBehavior,
    PermissionResultAllow,
    PermissionResultDeny,
    allow_always,
    answer_questions,
    plan_in,
    questions_in,
)
from stagedoor.agents.claude.commands import UserQuestion, UserQuestionOption, decision
from stagedoor.agents.claude.events import PermissionRuleValue, PermissionUpdate


def question(tool: str, input: dict[str, Any], suggestions: list[dict[str, Any]] | None = None) -> CanUseTool:
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
LS = PermissionUpdate("addRules", "session", "allow", (PermissionRuleValue("Bash", "ls:*"),))
ANY = PermissionUpdate("addRules", "session", "allow", (PermissionRuleValue("Bash"),))
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
    request = question("Bash", {"command": "ls"}, suggestions)
    assert allow_always(request) == PermissionResultAllow(updated_permissions=updates, remember=True)


def test_allow_always_written_down() -> None:
    (update,) = allow_always(question("Bash", {}, [RULES]), "userSettings").updated_permissions
    assert update == msgspec.structs.replace(LS, destination="userSettings")


@pytest.mark.parametrize(
    ("behavior", "expected"),
    [
        (ClaudePermissionBehavior.allow, PermissionResultAllow({"command": "pwd"})),
        (ClaudePermissionBehavior.allow_always, PermissionResultAllow({"command": "pwd"}, (LS,), remember=True)),
        (ClaudePermissionBehavior.deny, PermissionResultDeny("no")),
        (ClaudePermissionBehavior.deny_always, PermissionResultDeny("no", remember=True)),
    ],
)
def test_the_four_answers(
    behavior: ClaudePermissionBehavior, expected: PermissionResultAllow | PermissionResultDeny
) -> None:
    request = question("Bash", {"command": "ls"}, [RULES])
    assert decision(request, behavior, updated_input={"command": "pwd"}, message="no") == expected


def test_questions_and_plans() -> None:
    entry = {"question": "Which?", "header": "H", "multiSelect": True, "options": [{"label": "A"}, {"label": "B"}]}
    request = question("AskUserQuestion", {"questions": [entry]})
    assert questions_in(request) == [
        UserQuestion("Which?", "H", True, (UserQuestionOption("A"), UserQuestionOption("B")))
    ]
    assert answer_questions(request, {"Which?": ["A", "B"]}) == PermissionResultAllow(
        {"questions": [entry], "answers": {"Which?": "A, B"}}
    )
    assert questions_in(question("AskUserQuestion", {"questions": "?"})) == []
    assert questions_in(question("Bash", {"questions": [entry]})) == []
    assert plan_in(question("ExitPlanMode", {"plan": "1. go"})) == "1. go"
    assert plan_in(question("ExitPlanMode", {"plan": 1})) is None
    assert plan_in(question("Bash", {"plan": "x"})) is None
