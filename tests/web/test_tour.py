"""The page from the first visit to the end of a session, on a phone and on a desk."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import expect

BOTH = pytest.mark.parametrize("size", ["phone", "desk"])
OPEN = ".question:not(.closed)"
EDIT = {"call": {"tool": "edit_file", "input": {"path": "shop.py", "old": "sum(items)", "new": "round(sum(items), 2)"}}}


@BOTH
def test_first_visit_and_pairing(visit: Any, stage: Any, size: str) -> None:
    page = visit("", size, paired=False)
    visit.forgiven = ("401", "400")
    code = page.get_by_label("Pairing code")
    expect(code).to_be_focused()
    code.fill("nonsense")
    page.get_by_role("button", name="Pair").click()
    expect(page.get_by_role("alert")).to_be_visible()
    code.fill(stage.pairing_code())
    page.get_by_label("Name of this device").fill(f"my {size}")
    page.get_by_role("button", name="Pair").click()
    expect(page.locator("session-list")).to_be_visible()
    names = [device["name"] for device in stage.http.get("/api/devices").json()["devices"]]
    assert f"my {size}" in names
    page.reload()
    expect(page.locator("session-list")).to_be_visible()


def test_a_pairing_link_lets_in_at_once(visit: Any, stage: Any) -> None:
    visit.forgiven = ("401",)
    # Behind the code: the fingerprint that a server with a certificate of its own puts there.
    page = visit(f"#pair={stage.pairing_code()}&sha256={'0a' * 32}", paired=False)
    expect(page.locator("session-list")).to_be_visible()
    assert "pair=" not in page.url


def test_a_server_that_phones_cannot_reach_says_so_and_shows_no_qr_code(visit: Any) -> None:
    page = visit("#/overview")
    page.get_by_role("button", name="Pair a device").click()
    pairing = page.locator(".pairing")
    expect(pairing).to_contain_text("Phones cannot reach this server. Start it with: stagedoor serve --lan")
    expect(pairing.locator(".code-big")).to_have_text(re.compile(r"^\w{4}-\w{4}$"))
    expect(pairing.locator("img")).to_have_count(0)


@BOTH
def test_start_stream_approve_diff_done(visit: Any, stage: Any, size: str) -> None:
    folder = stage.folder(f"tour-{size}")
    page = visit("#/new", size)
    prompt = page.get_by_label("Prompt")
    prompt.fill(
        stage.script(
            [
                {"think": "Cents get lost."},
                {"say": "I will **round** it."},
                {"plan": [{"text": "Round", "status": "in_progress"}]},
                EDIT,
            ],
            [{"shell": "python3 -B -c 'import shop; print(shop.total([0.1, 0.2]))'"}],
            [{"say": "Rounded."}],
        )
    )
    page.get_by_label("Project folder").fill(str(folder))
    page.get_by_text("Ask", exact=True).click()
    page.get_by_role("button", name="Start").click()
    card = page.locator(OPEN)
    expect(card).to_contain_text("wants to change a file")
    expect(page.locator(".prose strong")).to_have_text("round")
    expect(page.locator(".plan li")).to_have_text("◐Round")
    assert page.evaluate("document.activeElement.closest('.question')") is None
    visit.answer(page, "Allow once")
    expect(page.locator(".diff .added").first).to_contain_text("round(sum(items), 2)")
    expect(card).to_contain_text("python3 -B -c")
    expect(page).to_have_title("(1) Stagedoor")
    visit.answer(page, "Allow once")
    expect(page.locator(".reply", has_text="Rounded.")).to_be_visible()
    expect(page.locator(".rule")).to_contain_text("Done")
    expect(page).to_have_title("Stagedoor")
    page.locator(".tool summary", has_text="python3").click()
    expect(page.locator("pre.output")).to_have_text("0.3\n")
    assert "round(sum(items), 2)" in (folder / "shop.py").read_text()
    page.get_by_role("button", name="More").click()
    page.get_by_role("button", name="View diff").click()
    expect(page.get_by_role("dialog")).to_contain_text("round(sum(items), 2)")
    page.get_by_role("button", name="Close").click()


def test_a_sub_agents_work_stands_inside_its_call(visit: Any, stage: Any) -> None:
    inner = {"prompt": "look", "script": [[{"say": "From inside."}, {"shell": "echo inner"}], [{"say": "Looked."}]]}
    session = stage.start([{"task": inner}], [{"say": "All looked at."}], autoApprove=["shell"])
    page = visit(f"#/s/{session}", "phone")
    expect(page.locator(".reply", has_text="All looked at.")).to_be_visible()
    expect(page.locator(".tool > .inner .reply").first).to_have_text("From inside.")
    expect(page.locator(".tool > .inner .tool")).to_contain_text("echo inner")
    expect(page.locator("virtual-list .reply")).to_have_count(3)
