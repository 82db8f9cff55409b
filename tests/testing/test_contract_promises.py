"""The judgement of the permission contract: what it lets pass, and that it does not let pass what it is there for."""

from __future__ import annotations

import pytest

from stagedoor.testing.contract.deeds import DEEDS, MEANING
from stagedoor.testing.contract.promises import OUTCOMES, broken, promised
from stagedoor.testing.contract.stances import SCENES
from stagedoor.testing.contract.trial import outcome_of
from stagedoor.unified.capabilities import Capabilities

ASKS, SILENT = Capabilities(permissions="all"), Capabilities(permissions="none")
STANCES = {stance.name: stance for scene in SCENES for stance in scene.stances}
ACTS = tuple(deed for deed in DEEDS if deed not in ("read", "read outside", "harmless"))


def test_every_stance_has_a_name_of_its_own_and_every_deed_a_meaning() -> None:
    assert len(STANCES) == sum(len(scene.stances) for scene in SCENES)
    assert tuple(MEANING) == DEEDS


@pytest.mark.parametrize("capabilities", [ASKS, SILENT], ids=["asks", "asks nobody"])
@pytest.mark.parametrize("name", STANCES)
def test_every_promise_can_be_kept(name: str, capabilities: Capabilities) -> None:
    for deed in DEEDS:
        assert promised(STANCES[name].promise, deed, capabilities) <= set(OUTCOMES)
        assert promised(STANCES[name].promise, deed, capabilities) != set()


@pytest.mark.parametrize(
    ("name", "outcome", "free"),
    [
        ("tier dry-run", "runs", ()),
        ("tier supervised", "runs", ("write", "edit")),
        ("approval ask", "runs", ()),
        ("callback denies", "runs", ()),
        ("callback is late", "ran although it was denied", ()),
        ("policy denies", "runs", ()),
        ("policy denies", "asked", ()),
        ("policy allows", "asked", ()),
        ("allowed_tools read_file", "runs", ()),
        ("supervised, resumed", "runs", ("write", "edit")),
        ("one command remembered", "runs", ("command",)),
    ],
)
def test_what_must_not_happen_is_told(name: str, outcome: str, free: tuple[str, ...]) -> None:
    complaints = broken(STANCES[name].promise, dict.fromkeys(ACTS, outcome), ASKS)
    assert [line.partition(":")[0] for line in complaints] == [deed for deed in ACTS if deed not in free]


@pytest.mark.parametrize(
    ("done", "asked", "allowed", "offered", "outcome"),
    [
        (True, False, True, True, "runs"),
        (True, True, True, True, "asked"),
        (True, True, False, True, "ran although it was denied"),
        (False, True, True, True, "stopped"),
        (False, True, False, True, "denied"),
        (False, False, True, True, "refused"),
        (False, False, False, False, "withheld"),
    ],
)
def test_outcomes(done: bool, asked: bool, allowed: bool, offered: bool, outcome: str) -> None:
    assert outcome_of(done=done, questioned=asked, allowed=allowed, offered=offered) == outcome
