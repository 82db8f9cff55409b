"""Where each verb is carried out when several machines share a log: every one is on exactly one of two lists, so that
a new verb cannot be forgotten at a door that has neither the agent nor its folder."""

from __future__ import annotations

import inspect

import pytest

from stagedoor.service.machines import routing
from stagedoor.service.machines.ground import MachineGround
from stagedoor.service.questions import Questions
from stagedoor.service.sessions import Sessions
from stagedoor.service.stored import Past
from stagedoor.service.workspaces import Workspaces
from stagedoor.service.workspaces.git_changes import GitChanges
from stagedoor.service.workspaces.undoing import Undoing

ABOUT_THE_LOG = {
    Sessions: {"bell", "find", "get", "list", "messages", "open_sessions", "page", "reserve_id", "watch_openings"},
    Questions: {"count", "find", "get", "list"},
    Workspaces: {"changes", "watch"},  # routed verb by verb, and step by step
    Undoing: set[str](),
    GitChanges: set[str](),
    MachineGround: set[str](),
    Past: {"sessions", "only_on_disk", "named", "find", "to_continue", "continued_by_id"},  # ``Histories`` has them too
}
"""Any door does these by itself."""
OF_THE_OWNER = {
    Sessions: {"continued", "folder_of", "lend"},
    Questions: set[str](),
    Workspaces: {"folder", "forget", "keep_diff", "standing"},
    Undoing: {"before_turn", "forget", "restore", "sweep"},
    GitChanges: set[str](),
    MachineGround: {"trust_folder", "distrust_folder"},
    Past: set[str](),
}
"""Only the process that has the session calls these."""
ROUTED = {
    Sessions: {*routing.BY_SESSION["sessions"], *routing.PLACED},
    Questions: {*routing.BY_QUESTION},
    Workspaces: {*routing.BY_SESSION["workspaces"]},
    Undoing: {*routing.BY_SESSION["undoing"]},
    GitChanges: {*routing.GIT},
    MachineGround: {*routing.GROUND},
    Past: {*routing.STORED},
}


CHANGES = {
    "sessions": {
        "send", "change_setting", "interrupt", "rewrite", "withdraw", "cancel", "undo", "change", "reconfigure",
        "delete", "finish_worktree", "resume", "create", "create_for_model",
    },
    "questions": {"answer", "respond"},
    "workspaces": set[str](),
    "undoing": set[str](),
    "git": {"stage", "unstage", "discard", "commit", "checkout", "push"},
    "ground": set[str](),
    "stored": {"import_session"},
    "watching": set[str](),
}  # fmt: skip
"""The answers of all others are removed as soon as they are read: they may be long, and of files."""


def test_every_routed_verb_looks_or_changes() -> None:
    names = ("sessions", "questions", "workspaces", "undoing", "git", "ground", "stored", "watching")
    routed = {
        "sessions": ROUTED[Sessions], "questions": ROUTED[Questions], "workspaces": ROUTED[Workspaces],
        "undoing": ROUTED[Undoing], "git": ROUTED[GitChanges], "ground": {*routing.GROUND},
        "stored": {*routing.STORED}, "watching": {"touched"},
    }  # fmt: skip
    assert {f"{name}.{verb}" for name in names for verb in routed[name] - CHANGES[name]} == routing.LOOKS


@pytest.mark.parametrize("group", ROUTED, ids=lambda group: group.__name__)
def test_every_verb_has_its_place(group: type) -> None:
    public = {name for name, value in vars(group).items() if not name.startswith("_") and inspect.isfunction(value)}
    lists = (ROUTED[group], ABOUT_THE_LOG[group], OF_THE_OWNER[group])
    assert sorted(name for names in lists for name in names) == sorted(public)
