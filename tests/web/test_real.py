"""The same tour with a real CLI: Claude Code on the scripted model, which takes edited input and asks its user."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import expect

from podium.service.settings import AgentSettings
from podium.testing import ScriptedModel, edit_file, find_cli, question, read_file, say, shell

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(find_cli("claude") is None, reason="Claude Code is not installed"),
]
OPEN = ".question:not(.over)"
SCRIPT = [
    [say("I will **round** it."), shell("touch asked-for")],
    question("Which rounding?", ["Half even", "Half up"]),
    shell("touch refused"),
    read_file("shop.py"),
    edit_file("shop.py", "sum(items)", "round(sum(items), 2)"),
    say("Rounded."),
    say("And again."),
]


@pytest.fixture(scope="module")
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel(SCRIPT) as one:
        yield one


@pytest.fixture(scope="module")
def agents(model: ScriptedModel, tmp_path_factory: pytest.TempPathFactory) -> dict[str, AgentSettings]:
    folder = tmp_path_factory.mktemp("claude")
    env = model.environment("claude", cwd=folder, home=folder / "home").env
    return {"claude": AgentSettings(command=str(find_cli("claude")), env=env)}


def test_the_tour_with_claude_code(visit: Any, stage: Any, model: ScriptedModel) -> None:
    folder = stage.folder("real")
    page = visit("#/new", "phone")
    page.get_by_label("Prompt").fill("Totals lose cents; repair that.")
    page.get_by_label("Project folder").fill(str(folder))
    page.get_by_text("Claude Code").click()
    page.get_by_text("Ask for everything").click()
    page.get_by_role("button", name="Start").click()

    expect(page.locator(OPEN)).to_contain_text("touch asked-for")
    expect(page.locator(".prose strong")).to_have_text("round")
    page.locator(OPEN).get_by_role("button", name="More").click()
    page.get_by_role("button", name="Edit, then allow").click()
    page.get_by_label("The input to use instead").fill("touch edited")
    visit.answer(page, "Allow as edited")

    expect(page.locator(OPEN)).to_contain_text("wants to know")
    page.get_by_text("Half up").click()
    visit.answer(page, "Answer")

    expect(page.locator(OPEN)).to_contain_text("touch refused")
    page.locator(OPEN).get_by_role("button", name="More").click()
    page.get_by_role("button", name="Deny with a message").click()
    page.get_by_label("What the agent is told").fill("not that file")
    visit.answer(page, "Deny")

    expect(page.locator(OPEN)).to_contain_text("round(sum(items), 2)")
    visit.answer(page, "Allow once")
    expect(page.locator(".diff .added").last).to_contain_text("round(sum(items), 2)")
    expect(page.locator(".said", has_text="Rounded.")).to_be_visible()
    page.get_by_label("Message to the agent").fill("And again")
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".said", has_text="And again.")).to_be_visible()

    assert sorted(path.name for path in folder.iterdir()) == [".git", "edited", "shop.py"]
    assert "round(sum(items), 2)" in (folder / "shop.py").read_text()
    heard = " ".join(str(outcome) for request in model.requests for outcome in request.outcomes)
    assert "Half up" in heard
    assert "not that file" in heard
    model.assert_consumed()
