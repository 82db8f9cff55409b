"""What people came for is in view when they arrive: the buttons of a question, the end of an output, the way back."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import expect

OPEN = ".question:not(.closed)"
LONG_TEXT = "\n\n".join(
    f"Paragraph {number}. " + "Some words that fill a line or two on a phone. " * 3 for number in range(30)
)
LONG_COMMAND = "echo " + " ".join(f"word{number}" for number in range(400))
CARDS: dict[str, list[dict[str, Any]]] = {
    "a command": [{"shell": "touch new"}],
    "a long command": [{"shell": LONG_COMMAND}],
    "an edit": [{"call": {"tool": "write_file", "input": {"path": "new.txt", "content": "line\n" * 200}}}],
    "two at once": [{"shell": "touch first"}, {"shell": "touch second"}],
}
KEYBOARD = {"width": 390, "height": 420}


@pytest.mark.parametrize("name", CARDS)
@pytest.mark.parametrize("text", ["Short.", LONG_TEXT], ids=["short", "long"])
def test_an_open_question_has_its_buttons_in_reach(visit: Any, stage: Any, name: str, text: str) -> None:
    session = stage.start([{"say": text}, *CARDS[name]], [{"say": "ok"}], approval="ask")
    stage.until(lambda: stage.http.get(f"/api/sessions/{session}").json()["openQuestions"] == len(CARDS[name]))
    page = visit(f"#/s/{session}", "phone")
    expect(page.locator(OPEN).last).to_be_visible()
    visit.in_reach(page, "Allow once")
    expect(page.get_by_role("button", name="Latest")).to_be_hidden()
    page.set_viewport_size(KEYBOARD)
    visit.in_reach(page, "Allow once")


def test_a_slow_phone_arrives_at_the_end_too(visit: Any, stage: Any) -> None:
    session = stage.start([{"say": "Short."}, *CARDS["an edit"]], [{"say": "ok"}], approval="ask")
    stage.until(lambda: stage.http.get(f"/api/sessions/{session}").json()["openQuestions"] == 1)
    page = visit("#/", "phone")
    page.context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": 10})
    page.goto(f"{stage.url}/#/s/{session}")
    visit.in_reach(page, "Allow once")
    expect(page.get_by_role("button", name="Latest")).to_be_hidden()
    page.locator("virtual-list").evaluate("list => { list.scrollTop = 0 }")
    expect(page.get_by_role("button", name="Latest")).to_be_visible()


def test_the_end_of_a_long_output_is_shown_and_the_rest_on_request(visit: Any, stage: Any) -> None:
    session = stage.start([{"shell": "seq 1 20000; echo boom >&2; exit 3"}], [{"say": "ok"}], approval="autoAll")
    page = visit(f"#/s/{session}", "phone")
    page.locator(".tool summary", has_text="seq").click()
    output = page.locator(".tool-body pre.output")
    expect(output).to_contain_text("boom")
    assert output.evaluate("box => Math.abs(box.scrollTop) < 2 && box.scrollHeight > box.clientHeight")
    assert not output.evaluate("box => box.textContent.startsWith('1\\n')")
    more = page.get_by_role("button", name="Show earlier output")
    while more.is_visible():
        more.click()
    assert output.evaluate("box => box.textContent.startsWith('1\\n2\\n')")
    expect(page.get_by_text("export the session")).to_have_count(0)


LEFT_OUT: dict[str, tuple[list[dict[str, Any]], str]] = {
    # what is long, and where it is shown
    "a reply": ([{"say": "word " * 9000 + "the last word"}], ".reply"),
    "a plan of steps": ([{"call": {"tool": "read_file", "input": {"path": "a" * 50000 + "the last word"}}}], ".input"),
    "an edit": ([{"write_file": {"path": "a", "content": "line\n" * 900 + "the last word"}}], f"{OPEN} .diff"),
    "a line": ([{"write_file": {"path": "a", "content": "line " * 900 + "the last word"}}], f"{OPEN} .code"),
}


@pytest.mark.parametrize("name", LEFT_OUT)
def test_what_is_long_is_shown_to_its_end(visit: Any, stage: Any, name: str) -> None:
    replies, where = LEFT_OUT[name]
    session = stage.start(replies, [{"say": "ok"}], approval="ask")
    page = visit(f"#/s/{session}", "phone")
    if where == ".input":
        page.locator(".tool summary").click()
    place = page.locator(where).first
    more = place.get_by_role("button", name="Show more")
    expect(more).to_be_visible()
    while more.is_visible():
        more.click()
    expect(place).to_contain_text("the last word")


def test_output_is_followed_while_it_runs(visit: Any, stage: Any) -> None:
    release = stage.root / "release-follow"
    command = f"seq 1 400; while [ ! -e {release} ]; do sleep 0.05; done; echo last"
    session = stage.start([{"shell": command}], [{"say": "ok"}], approval="autoAll")
    page = visit(f"#/s/{session}", "phone")
    live = page.locator("pre.output.live")
    expect(live).to_contain_text("400")
    assert live.evaluate("box => Math.abs(box.scrollTop) < 2 && box.scrollHeight > box.clientHeight")
    release.touch()
    expect(page.locator(".rule")).to_contain_text("Done")


@pytest.mark.parametrize("size", ["phone", "desk"])
def test_changes_open_at_their_head_and_close_from_anywhere(visit: Any, stage: Any, size: str) -> None:
    folder = stage.folder(f"changes-{size}")
    lines = "\n".join(f"line {number}" for number in range(500))
    session = stage.start(
        [{"shell": f"printf '{lines}\n' > long.txt; echo short > short.txt; rm shop.py"}],
        [{"say": "ok"}],
        approval="autoAll",
        cwd=str(folder),
    )
    page = visit(f"#/s/{session}", size)
    expect(page.locator(".reply")).to_have_text("ok")
    expect(page.locator("virtual-list")).to_have_js_property("atEnd", True)
    for close in ("button", "beside", "key"):
        page.get_by_role("button", name="More").click()
        page.get_by_role("button", name="View diff").click()
        dialog = page.get_by_role("dialog")
        expect(dialog.locator("header")).to_contain_text("3 files+501−2")
        assert dialog.evaluate("box => box.scrollTop") == 0
        expect(dialog.get_by_role("navigation").get_by_role("button")).to_have_text(
            ["long.txt", "shop.py", "short.txt"]
        )
        dialog.get_by_role("navigation").get_by_role("button", name="long.txt").click()
        expect(dialog.locator("details[open]", has_text="long.txt").locator(".added").first).to_be_visible()
        dialog.evaluate("box => { box.scrollTop = box.scrollHeight }")
        if close == "button":
            dialog.get_by_role("button", name="Close").click()
        elif close == "beside":
            page.mouse.click(5, 5)
        else:
            page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.locator("virtual-list")).to_have_js_property("atEnd", True)


def test_a_turn_that_failed_reads_failed_and_is_found_as_such(visit: Any, stage: Any) -> None:
    failed = stage.start([{"http_error": 500}], keepOpen=True)
    fine = stage.start([{"say": "fine"}], keepOpen=True)
    stage.until(lambda: stage.http.get(f"/api/sessions/{failed}").json().get("status") == "error")
    page = visit("#/", "phone")
    expect(page.locator(f'li[data-id="{failed}"]')).to_contain_text("Failed")
    expect(page.locator(f'li[data-id="{fine}"]')).to_contain_text("Idle")
    page.get_by_label("State").select_option("failed")
    expect(page.locator(f'li[data-id="{failed}"]')).to_be_visible()
    expect(page.locator(f'li[data-id="{fine}"]')).to_have_count(0)
    page.goto(f"{stage.url}/#/s/{failed}")
    expect(page.locator(".note.error b")).not_to_have_text("unknown")
