"""The same tour with a real CLI: Claude Code on the scripted model, which takes edited input and asks its user.

Then one prompt on it and on the embedded agent at once, from the first tap to what is left in the repository.
"""

from __future__ import annotations

import base64
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from stagedoor.service.config.settings import AgentSettings
from stagedoor.testing import ScriptedModel, edit_file, find_cli, native, question, read_file, say, shell

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(find_cli("claude") is None, reason="Claude Code is not installed"),
]
OPEN = ".question:not(.closed)"
SCRIPT = [
    [say("I will **round** it."), shell("touch asked-for")],
    question("Which rounding?", ["Half even", "Half up"]),
    shell("touch refused"),
    read_file("shop.py"),
    edit_file("shop.py", "sum(items)", "round(sum(items), 2)"),
    say("Rounded."),
    native("EnterPlanMode"),
    native("ExitPlanMode", plan="# Rounding\n\n1. Write the **test**\n2. Round"),
    say("And again."),
]
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
WAIT = "Wait for me"
RACE = "Sum without loss of cents"
EXACT, ROUNDED = "math.fsum(items)", "round(sum(items), 2)"


def race(fresh: str) -> list[object]:
    return [read_file("shop.py"), edit_file("shop.py", "sum(items)", fresh), say(f"It is {fresh} now.")]


@pytest.fixture(scope="module")
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel(
        SCRIPT, routes={RACE: race(EXACT), WAIT: [shell("until [ -e go ]; do sleep 0.05; done"), say("Done.")]}
    ) as model:
        yield model


@pytest.fixture(scope="module")
def agents(model: ScriptedModel, tmp_path_factory: pytest.TempPathFactory) -> dict[str, AgentSettings]:
    folder = tmp_path_factory.mktemp("claude")
    env = model.environment("claude", cwd=folder, home=folder / "home").env
    codex = model.environment("codex", cwd=folder, home=folder / "codex").env
    steps = [{"read_file": "shop.py"}, {"edit_file": {"path": "shop.py", "old": "sum(items)", "new": ROUNDED}}]
    plays = folder / "plays.json"
    plays.write_text(json.dumps({"script": [], "routes": {RACE: [*steps, {"say": f"It is {ROUNDED} now."}]}}))
    own = {"STAGEDOOR_UNDERSTUDY_HOME": str(folder / "understudy")}
    return {
        "claude": AgentSettings(command=str(find_cli("claude")), env=env),
        "codex": AgentSettings(command=str(find_cli("codex")), env=codex),
        "understudy": AgentSettings(args=("--script", str(plays)), env=own),
    }


def test_the_tour_with_claude_code(visit: Any, stage: Any, model: ScriptedModel) -> None:
    folder = stage.folder("real")
    page = visit("#/new", "phone")
    page.get_by_label("Prompt").fill("Totals lose cents; repair that.")
    page.get_by_label("Project folder").fill(str(folder))
    page.get_by_text("Claude Code").click()
    page.get_by_text("Ask", exact=True).click()
    page.get_by_role("button", name="Start").click()

    expect(page.locator(OPEN)).to_contain_text("touch asked-for")
    expect(page.locator(".prose strong")).to_have_text("round")
    page.locator(OPEN).get_by_role("button", name="More").click()
    page.get_by_role("button", name="Edit, then allow").click()
    page.get_by_label("Edited input").fill("touch edited")
    visit.answer(page, "Allow as edited")

    expect(page.locator(OPEN)).to_contain_text("has a question")
    visit.in_reach(page, "Answer")
    page.get_by_text("Half up").click()
    visit.answer(page, "Answer")

    expect(page.locator(OPEN)).to_contain_text("touch refused")
    page.locator(OPEN).get_by_role("button", name="More").click()
    page.get_by_role("button", name="Deny with a message").click()
    page.get_by_label("Reason for the agent").fill("not that file")
    visit.answer(page, "Deny")

    expect(page.locator(OPEN)).to_contain_text("round(sum(items), 2)")
    visit.answer(page, "Allow once")
    expect(page.locator(".diff .added").last).to_contain_text("round(sum(items), 2)")
    expect(page.locator(".reply", has_text="Rounded.")).to_be_visible()
    picture = {"name": "shot.png", "mimeType": "image/png", "buffer": PNG}
    page.get_by_label("Files to attach").set_input_files([picture])
    expect(page.locator(".attachment img")).to_be_visible()
    page.get_by_label("Message to the agent").fill("And again")
    page.get_by_role("button", name="Send", exact=True).click()
    expect(page.locator(".thumbnail img")).to_have_js_property("naturalWidth", 1)
    page.locator(".thumbnail").click()
    expect(page.get_by_role("dialog", name="1-shot.png").get_by_role("img")).to_be_visible()
    page.get_by_role("button", name="Close").click()
    expect(page.locator(f"{OPEN} h3").first).to_have_text("claude has a plan")
    expect(page.locator(f"{OPEN} .proposal li")).to_have_text(["Write the test", "Round"])
    visit.in_reach(page, "Carry it out")
    visit.answer(page, "Carry it out")
    expect(page.locator(".reply", has_text="And again.")).to_be_visible()

    assert sorted(path.name for path in folder.iterdir()) == [".git", "edited", "shop.py"]
    assert "round(sum(items), 2)" in (folder / "shop.py").read_text()
    outcomes = " ".join(str(outcome) for request in model.requests for outcome in request.outcomes)
    assert "Half up" in outcomes
    assert "not that file" in outcomes
    assert base64.b64encode(PNG).decode() in str([request.body for request in model.requests])
    assert [request.prompt for request in model.requests if request.beyond] == []


@pytest.mark.skipif(find_cli("codex") is None, reason="the codex CLI is not installed")
def test_a_message_is_said_into_the_running_turn_where_the_agent_can_take_it(
    visit: Any, stage: Any, model: ScriptedModel
) -> None:
    folder = stage.folder("steered")
    page = visit("#/new", "phone")
    page.get_by_label("Prompt").fill(WAIT)
    page.get_by_label("Project folder").fill(str(folder))
    page.get_by_text("Codex CLI").click()
    page.get_by_text("Full auto").click()
    page.get_by_role("button", name="Start").click()
    expect(page.locator(".tool")).to_contain_text("until")
    page.get_by_label("Message to the agent").fill("Mind the tests")
    page.get_by_role("button", name="Send", exact=True).click()
    expect(page.locator(".prompt:not(.queued) .bubble")).to_have_text([WAIT, "Mind the tests"])
    (folder / "go").touch()
    expect(page.locator(".reply", has_text="Done.")).to_be_visible()
    assert any("Mind the tests" in str(request.body) for request in model.requests)


def git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True).stdout


def test_one_prompt_on_two_agents_and_one_is_kept(visit: Any, stage: Any) -> None:
    folder = stage.folder("race")
    page = visit("#/new", "phone")
    page.get_by_label("Prompt").fill(RACE)
    page.get_by_label("Project folder").fill(str(folder))
    page.get_by_text("Compare several agents").click()
    for title in ("Claude Code", "Understudy"):
        page.get_by_label(title).check()
    page.get_by_text("Full auto").click()
    page.get_by_role("button", name="Start").click()

    expect(page).to_have_url(re.compile("#/compare/"))
    both = {name: page.get_by_role("region", name=name) for name in ("claude", "understudy")}
    facts: dict[str, dict[str, str]] = {}
    for name, column in both.items():
        column.get_by_role("button", name="Keep this one").wait_for()
        words = zip(column.locator("dt").all_inner_texts(), column.locator("dd").all_inner_texts(), strict=True)
        facts[name] = dict(words)
        column.locator("summary").click()
    expect(both["claude"].locator(".diff .added")).to_contain_text(EXACT)
    expect(both["understudy"].locator(".diff .added")).to_contain_text(ROUNDED)
    shapes = {
        "Status": "done", "Changes": r"\+1 −1", "Tokens": r"[\d,]+",
        "Time": r"[\d.]+ (ms|s)|\d+ min \d+ s", "Branch": r"stagedoor/\w{8}",
    }  # fmt: skip
    wrong = [(name, fact) for name in both for fact in shapes if not re.fullmatch(shapes[fact], facts[name][fact])]
    assert wrong == [], facts
    assert [bool(re.fullmatch(r"\$\d\.\d+", facts[name]["Cost"])) for name in both] == [True, False]
    both["claude"].get_by_role("button", name="Keep this one").click()
    page.get_by_role("dialog").get_by_role("button", name="Keep this one").click()
    expect(both["claude"]).to_contain_text(f"git merge {facts['claude']['Branch']}")
    expect(both["understudy"].locator(".chip")).to_have_text("removed")
    assert git(folder, "branch", "--format=%(refname:short)").split() == ["main", facts["claude"]["Branch"]]
    assert EXACT in git(folder, "show", f"{facts['claude']['Branch']}:shop.py")
    assert len(git(folder, "worktree", "list").splitlines()) == 1
    assert (folder / "shop.py").read_text() == "def total(items):\n    return sum(items)\n"

    page.reload()
    for column, fresh in ((both["claude"], EXACT), (both["understudy"], ROUNDED)):
        column.locator("summary").click()
        expect(column.locator(".diff .added")).to_contain_text(fresh)
    expect(page.get_by_role("button", name="Keep this one")).to_have_count(0)
    both["claude"].get_by_role("link", name="Open").click()
    expect(page.locator(".composer")).to_have_text(
        f"This session has ended. Its work is on branch {facts['claude']['Branch']}."
    )


def test_trust_is_offered_where_a_project_brings_something(visit: Any, stage: Any) -> None:
    folder = stage.folder("untrusted")
    page = visit("#/new", "phone")
    page.get_by_label("Project folder").fill(str(folder))
    page.get_by_text("Claude Code").click()
    offer = page.get_by_label("Trust this project")
    expect(offer).to_be_hidden()
    (folder / ".mcp.json").write_text("{}")
    page.get_by_text("Codex CLI").click()
    page.get_by_text("Claude Code").click()
    expect(page.get_by_text(".mcp.json")).to_be_visible()
    expect(offer).not_to_be_checked()
    with page.expect_request(lambda request: request.method == "POST" and "/api/sessions" in request.url) as sent:
        offer.check()
        page.get_by_label("Prompt").fill(WAIT)
        page.get_by_role("button", name="Start").click()
    assert sent.value.post_data_json["trust"] is True
    expect(page.locator("session-view")).to_contain_text("the folder is trusted")
    (folder / "go").touch()
