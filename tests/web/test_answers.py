"""Answering agents on the page: the right question, once, and never by accident."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import expect

OPEN = ".question:not(.closed)"
BOTH = pytest.mark.parametrize("size", ["phone", "desk"])


def resolved(stage: Any, session_id: str) -> list[tuple[str, str, str]]:
    """What the log says was decided."""
    return [
        (event["decision"], event.get("by", ""), event.get("message", ""))
        for event in stage.events(session_id)
        if event["type"] == "permission_resolved"
    ]


@BOTH
def test_deny_with_a_message(visit: Any, stage: Any, size: str) -> None:
    session = stage.start([{"shell": f"touch never-{size}"}], [{"say": "Then I leave it."}])
    page = visit(f"#/s/{session}", size)
    expect(page.locator(OPEN).locator(".chip")).to_have_text("Medium risk")
    expect(page.locator(OPEN).locator(".why")).to_have_text(f"writes never-{size}, in the workspace")
    page.locator(OPEN).get_by_role("button", name="More").click()
    expect(page.get_by_role("button", name="Allow in this session")).to_be_visible()
    assert page.evaluate("document.activeElement.textContent") == "Back"
    expect(page.get_by_role("button", name="Edit, then allow")).to_have_count(0)  # this agent cannot take it
    page.get_by_role("button", name="Deny with a message").click()
    page.get_by_label("Reason for the agent").fill("use the other file")
    visit.answer(page, "Deny")
    expect(page.locator(".verdict.deny")).to_contain_text("use the other file")
    expect(page.locator(".reply", has_text="Then I leave it.")).to_be_visible()
    expect(page.locator(".tool.denied")).to_be_visible()
    assert resolved(stage, session) == [("deny", "client", "use the other file")]
    assert not (stage.root / f"never-{size}").exists()


def test_a_rule_is_shown_before_it_is_made(visit: Any, stage: Any) -> None:
    session = stage.start([{"shell": "ls -la"}], [{"shell": "ls -la"}], [{"say": "Listed twice."}])
    page = visit(f"#/s/{session}")
    page.locator(OPEN).get_by_role("button", name="More").click()
    page.get_by_role("button", name="Always allow").click()
    expect(page.locator(f"{OPEN} .answers pre")).to_contain_text("ls -la")
    visit.answer(page, "Add the rule and allow")
    expect(page.locator(".reply", has_text="Listed twice.")).to_be_visible()
    # The second time nobody was asked.
    assert resolved(stage, session) == [
        ("allow", "client", ""),
        ("allow", "policy", "the same call was allowed before"),
    ]
    page.goto(f"{stage.url}/#/overview")
    expect(page.get_by_label("Policy")).to_contain_text("ls -la")


def test_nothing_lies_over_a_question(visit: Any, stage: Any) -> None:
    lines = [{"say": f"Line {number}.\n\n"} for number in range(40)]
    session = stage.start([*lines, {"shell": "echo asked"}], [{"say": "ok"}])
    page = visit(f"#/s/{session}", "phone")
    expect(page.locator(f"{OPEN}:not(.settling)")).to_be_visible()
    expect(page.locator(".prose.raw")).to_have_count(0)
    latest = page.get_by_role("button", name="Latest")
    scroll = "by => { document.querySelector('virtual-list').scrollTop -= by }"
    page.evaluate(scroll, 60)
    expect(page.locator("virtual-list")).to_have_js_property("atEnd", False)
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    card, button = page.locator(OPEN).bounding_box(), latest.bounding_box()
    assert button["y"] + button["height"] <= card["y"]
    page.evaluate(scroll, 900)
    expect(page.locator(".jump.aside")).to_have_count(0)
    expect(latest).to_be_visible()


def test_a_notification_leads_to_the_question(visit: Any, stage: Any) -> None:
    """Shown by the service worker, as phones want it, and only when the page is not seen."""
    page = visit("", service_workers="allow", permissions=["notifications"])
    page.evaluate("navigator.serviceWorker.ready.then(() => true)")
    expect(page.locator(".session, .empty").first).to_be_visible()
    notifications = (
        "navigator.serviceWorker.ready.then(w => w.getNotifications()).then(all => all.map(n => [n.body, n.data]))"
    )
    stage.start([{"shell": "echo seen"}], [{"say": "ok"}])
    expect(page).to_have_title("(1) Stagedoor")
    assert page.evaluate(notifications) == []
    page.evaluate("Object.defineProperty(document, 'hidden', { get: () => true })")
    session = stage.start([{"shell": "echo unseen"}], [{"say": "ok"}])
    expect(page).to_have_title("(2) Stagedoor")
    bodies = stage.until(lambda: page.evaluate(notifications), "a notification")
    assert bodies == [["understudy asks: echo unseen", f"#/s/{session}"]]
    [worker] = page.context.service_workers
    worker.evaluate(
        """async () => {
          const [notification] = await registration.getNotifications();
          dispatchEvent(new NotificationEvent("notificationclick", { notification }));
        }"""
    )
    expect(page).to_have_url(re.compile(session))


def test_who_reads_one_session_on_a_phone_sees_that_another_waits(visit: Any, stage: Any) -> None:
    read = stage.start([{"say": "Ready."}])
    page = visit(f"#/s/{read}", "phone")
    expect(page.get_by_role("link", name="All sessions", exact=True)).to_be_visible()
    stage.start([{"shell": "echo asked"}], [{"say": "ok"}])
    expect(page.get_by_role("link", name="All sessions, 1 waiting").locator(".badge")).to_have_text("1")


@BOTH
def test_two_questions_at_once_and_a_double_tap(visit: Any, stage: Any, size: str) -> None:
    pair = [
        stage.start([{"shell": f"echo {name}"}], [{"say": "ok"}], title=f"The {name}") for name in ("first", "second")
    ]
    page = visit("#/inbox", size)
    cards = page.locator(f"inbox-view {OPEN}")
    expect(cards).to_have_count(2)
    expect(page.get_by_role("link", name="Inbox, 2 waiting")).to_be_visible()
    first = page.locator(f"inbox-view {OPEN}:not(.settling)").first
    first.wait_for()
    sessions = {question["id"]: question["sessionId"] for question in stage.questions()}
    tapped, other = pair if sessions[first.get_attribute("data-question")] == pair[0] else pair[::-1]
    place = first.get_by_role("button", name="Allow once").bounding_box()
    x, y = place["x"] + place["width"] / 2, place["y"] + place["height"] / 2
    for _ in range(4):  # the second card moves up under the finger
        page.touchscreen.tap(x, y) if size == "phone" else page.mouse.click(x, y)
    expect(cards).to_have_count(1)
    stage.idle(tapped)
    assert [resolved(stage, session) for session in (tapped, other)] == [[("allow", "client", "")], []]
    visit.answer(page, "Deny", card=f"inbox-view {OPEN}")
    expect(page.get_by_text("Nothing to answer")).to_be_visible()
    stage.idle(other)
    assert resolved(stage, other) == [("deny", "client", "")]


def test_a_card_stands_still_while_somebody_types_in_it(visit: Any, stage: Any) -> None:
    session = stage.start([{"shell": "echo hello"}], [{"say": "ok"}])
    page = visit(f"#/s/{session}")
    page.locator(OPEN).get_by_role("button", name="More").click()
    page.get_by_role("button", name="Deny with a message").click()
    page.get_by_label("Reason for the agent").fill("half a sen")
    page.locator(OPEN).evaluate("card => (window.card = card)")
    stage.http.patch(f"/api/sessions/{session}", json={"title": "Renamed meanwhile"})
    stage.http.post(f"/api/sessions/{session}/messages", json={"prompt": "and then?"})
    other = stage.start([{"shell": "echo other"}], [{"say": "ok"}])
    expect(page.get_by_role("heading", name="Renamed meanwhile")).to_be_visible()
    expect(page.locator(".status")).to_contain_text("1 queued")
    expect(page.get_by_role("link", name="Inbox, 2 waiting")).to_be_visible()
    field = page.get_by_label("Reason for the agent")
    expect(field).to_be_focused()
    expect(field).to_have_value("half a sen")
    assert page.evaluate("window.card.isConnected")
    visit.answer(page, "Deny")
    stage.http.post(f"/api/sessions/{other}/cancel")


def test_the_answer_of_another_device_settles_the_card(visit: Any, stage: Any) -> None:
    session = stage.start([{"shell": "echo hello"}], [{"say": "ok"}])
    phone, desk = visit(f"#/s/{session}", "phone"), visit("#/inbox")
    expect(phone.locator(OPEN)).to_be_visible()
    visit.answer(desk, "Allow once", card=f"inbox-view {OPEN}")
    expect(phone.locator(".verdict.allow")).to_be_visible()
    expect(phone.locator(OPEN)).to_have_count(0)


def test_with_the_keyboard_only(visit: Any, stage: Any) -> None:
    old = stage.start([{"shell": "echo old"}], [{"say": "ok"}], title="Older")
    new = stage.start([{"shell": "echo new"}], [{"say": "ok"}], title="Newer")
    page = visit()
    expect(page.locator(".session.waiting")).to_have_text([re.compile("Newer"), re.compile("Older")])
    page.keyboard.press("j")
    expect(page.get_by_role("heading", name="Newer")).to_be_visible()
    page.keyboard.press("j")
    expect(page.get_by_role("heading", name="Older")).to_be_visible()
    expect(page.locator(f"{OPEN}:not(.settling)")).to_be_visible()
    page.keyboard.press("y")
    expect(page.locator(f"{OPEN}.aimed")).to_be_visible()  # the first press only says which
    assert resolved(stage, old) == []
    page.keyboard.press("y")
    expect(page.locator(".verdict.allow")).to_be_visible()
    page.keyboard.press("k")
    expect(page.get_by_role("heading", name="Newer")).to_be_visible()
    page.locator(f"{OPEN}:not(.settling)").wait_for()
    page.keyboard.press("a")
    expect(page.get_by_role("button", name="Always allow")).to_be_visible()
    page.keyboard.press("Enter")  # the focus is on "Back"
    page.keyboard.press("n")
    page.keyboard.press("n")
    expect(page.locator(".verdict.deny")).to_be_visible()
    page.keyboard.press("/")
    expect(page.get_by_label("Search sessions")).to_be_focused()
    page.keyboard.type("ynj older")
    assert resolved(stage, new) == [("deny", "client", "")]
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    page.keyboard.type("older")
    expect(page.locator(".session")).to_have_count(1)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Older")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("m")
    expect(page.get_by_label("Message to the agent")).to_be_focused()


def test_the_tab_key_goes_through_everything_in_order(visit: Any, stage: Any) -> None:
    session = stage.start([{"shell": "echo hello"}], [{"say": "ok"}], title="Tabbed")
    page = visit(f"#/s/{session}")
    page.locator(f"{OPEN}:not(.settling)").wait_for()  # until then its buttons take nothing
    labels: list[str] = []
    for _ in range(400):  # two for each session that the tests before have left in the list
        page.keyboard.press("Tab")
        words = page.evaluate(
            "(e => e.getAttribute('aria-label') || e.textContent.trim().slice(0, 40))(document.activeElement)"
        )
        if labels or words == "Skip to the content":  # it begins where the focus was
            labels.append(words)
        if labels and words == "Overview":
            break
    order = [
        "Skip to the content",
        "Search sessions",
        "More",
        "Agent activity",
        "Allow once",
        "Deny",
        "Message to the agent",
        "Send",
        "Sessions",
        "Overview",
    ]
    places = [labels.index(label) for label in order]
    assert places == sorted(places), labels
    stage.http.post(f"/api/sessions/{session}/cancel")
