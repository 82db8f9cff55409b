"""What the page has beside the stream: forms, stored sessions, meters, files by drop, comments in a file, discard and
push, changes in a row, and the settings of an agent that the configuration added."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from stagedoor import AcpAgent, catalog
from stagedoor.service.config.settings import AgentSettings
from stagedoor.understudy import command

BOTH = pytest.mark.parametrize("size", ["phone", "desk"])
OPEN = ".question:not(.closed)"
DROP = """(composer, [name, content]) => {
  const dataTransfer = new DataTransfer();
  const bytes = Uint8Array.from(atob(content), (letter) => letter.charCodeAt(0));
  dataTransfer.items.add(new File([bytes], name, { type: "image/png" }));
  composer.dispatchEvent(new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true }));
}"""
DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@pytest.fixture(scope="module")
def origins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("origins")


@pytest.fixture(scope="module")
def more_settings(origins: Path) -> dict[str, Any]:
    return {"push": (f"file://{origins}/",)}


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, AgentSettings]]:
    modes: Any = {"supervised": "ask", "autonomous": "auto"}
    home = str(tmp_path_factory.mktemp("mine"))
    mine = AcpAgent(command=command(home=home), modes=modes, name="mine", title="Mine")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(catalog, "_configured", None)  # put back at the end
        yield {"mine": AgentSettings(acp=mine)}


def git(folder: Path, *words: str) -> str:
    answer = subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True)
    return answer.stdout.strip()


@BOTH
def test_a_form_is_filled_in(visit: Any, stage: Any, size: str) -> None:
    session = stage.start([{"question": {"text": "Which colour?", "options": ["red", "green"]}}], [{"say": "Thanks."}])
    page = visit(f"#/s/{session}", size)
    card = page.locator(OPEN)
    expect(card).to_contain_text("Which colour?")
    card.locator("select").select_option("green")
    visit.in_reach(page, "Answer")
    visit.answer(page, "Answer")
    expect(page.locator(".reply", has_text="Thanks.")).to_be_visible()
    results = [event["output"] for event in stage.events(session) if event["type"] == "tool_result"]
    assert results == ["green"]
    expect(page.locator(".status")).to_contain_text(re.compile(r"\d tokens"))
    expect(page.locator(".gauge").first).to_contain_text(re.compile(r"\d+%"))


@BOTH
def test_what_a_program_stored_is_found_and_goes_on(visit: Any, stage: Any, size: str) -> None:
    folder = stage.folder(f"stored-{size}")
    stage.idle(stage.start([{"say": "Here."}], cwd=str(folder)))  # a folder that sessions run in
    gone = stage.start([{"say": f"Stored {size}."}], cwd=str(folder), title=f"Stored on {size}")
    stage.idle(gone)
    stage.http.post(f"/api/sessions/{gone}/cancel")
    stage.ended(gone)
    assert stage.http.delete(f"/api/sessions/{gone}").status_code == 204  # the agent's own program still has it
    page = visit("#/history", size)
    page.get_by_label("Search stored sessions").fill(f"stored-{size}")
    rows = page.locator("history-view button.session")
    expect(rows).to_have_count(1)
    rows.click()
    expect(page.locator(".reply", has_text=f"Stored {size}.")).to_be_visible()
    page.get_by_label("Message to the agent").fill(stage.script([{"say": "It goes on."}]))
    page.get_by_role("button", name="Resume").click()
    expect(page.locator(".reply", has_text="It goes on.")).to_be_visible()


def test_a_dropped_picture_is_seen_before_and_after_it_is_sent(visit: Any, stage: Any) -> None:
    session = stage.start([{"say": "Hello."}])
    stage.idle(session)
    page = visit(f"#/s/{session}")
    composer = page.locator("message-composer")
    expect(page.get_by_label("Message to the agent")).to_be_visible()
    composer.evaluate(DROP, ["dot.png", DOT])
    expect(page.locator(".attachment img")).to_have_js_property("naturalWidth", 1)
    page.get_by_role("button", name="Remove dot.png").click()
    expect(page.locator(".attachment")).to_have_count(0)
    composer.evaluate(DROP, ["broken.png", "bm8="])
    expect(page.locator(".toast.error")).to_have_text("broken.png cannot be read as a picture")


@BOTH
def test_a_file_is_commented_on_discarded_and_pushed(visit: Any, stage: Any, origins: Path, size: str) -> None:
    folder, origin = stage.folder(f"pushed-{size}"), origins / f"{size}.git"
    git(origins, "init", "-q", "--bare", str(origin))
    git(folder, "remote", "add", "origin", f"file://{origin}")
    write = "printf 'def total(items):\\n    return 1\\n' > shop.py; printf 'a\\nb\\n' > new.txt"
    session = stage.start([{"shell": write}], [{"say": "Done."}], cwd=str(folder), approval="autoAll", title="Push it")
    stage.idle(session)
    page = visit("#/", size)
    row = page.locator(f'li[data-id="{session}"]')
    expect(row.locator(".plus")).to_have_text("+3")
    expect(row.locator(".minus")).to_have_text("−1")
    row.locator("a.session").click()
    page.get_by_role("button", name="More").click()
    page.get_by_role("button", name="View diff").click()
    changes = page.get_by_role("dialog", name="Changes")
    shop = changes.locator("details", has_text="shop.py")
    shop.get_by_role("button", name="Open").click()
    file = page.get_by_role("dialog", name="shop.py")
    file.get_by_role("button", name="Comment on line 2").click()
    file.get_by_label("Comment", exact=True).fill("Why one?")
    file.get_by_role("button", name="Add comment").click()
    file.get_by_role("button", name="Send 1 comment to the agent").click()
    expect(file).to_have_count(0)
    stage.until(lambda: stage.session(session)["turn"] == 2, "the second turn")
    stage.idle(session)
    sent = [event["prompt"] for event in stage.events(session) if event["type"] == "turn_started"][1]
    assert sent == "Review comments:\n\nshop.py:2\n>      return 1\nWhy one?"
    shop.get_by_role("button", name="Discard…").click()
    page.get_by_role("dialog", name="Discard the changes").get_by_role("button", name="Discard", exact=True).click()
    expect(shop).to_have_count(0)
    assert git(folder, "status", "--porcelain") == "?? new.txt"
    changes.get_by_role("button", name="Commit all").click()
    expect(changes.locator(".report")).to_contain_text("Committed")
    changes.get_by_role("button", name="Push", exact=True).click()
    expect(changes.locator(".report")).to_have_text("Pushed main")
    assert git(origin, "log", "-1", "--format=%s", "main") == "Push it"


def test_the_settings_of_an_agent_that_the_configuration_added(visit: Any, stage: Any) -> None:
    session = stage.start([{"say": "Hello."}], agent="mine")
    stage.idle(session)
    page = visit(f"#/s/{session}")
    expect(page.get_by_label("Message to the agent")).to_have_attribute("placeholder", "Message Mine…")
    page.get_by_label("Model").select_option("understudy-mini")
    expect(page.locator(".toast", has_text="Model")).to_be_visible()
    settings = {
        one["id"]: one["value"] for one in stage.http.get(f"/api/sessions/{session}/settings").json()["settings"]
    }
    assert settings["model"] == "understudy-mini"
    page.goto(f"{stage.url}/#/new")
    expect(page.get_by_label("Mine")).to_be_visible()
