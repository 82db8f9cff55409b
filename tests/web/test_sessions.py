"""What can be done with sessions on the page: interrupt, follow up, resume, fork, rename, archive, export, compare."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any

import pytest
from playwright.sync_api import expect

from stagedoor.service.views import SessionSpec

BOTH = pytest.mark.parametrize("size", ["phone", "desk"])
OPEN = ".question:not(.closed)"


@BOTH
def test_interrupt_and_messages_that_wait_their_turn(visit: Any, stage: Any, size: str) -> None:
    session = stage.start([{"shell": "sleep 600"}], [{"say": "never"}], autoApprove=["shell"])
    page = visit(f"#/s/{session}", size)
    expect(page.locator(".tool.running")).to_be_visible()
    field = page.get_by_label("Message to the agent")
    field.fill(stage.script([{"say": "The second turn."}]))
    page.get_by_role("button", name="Send", exact=True).click()
    expect(field).to_have_value("")
    expect(page.locator(".queued")).to_contain_text("waiting for its turn")
    expect(page.locator(".status")).to_contain_text("1 queued")
    for word in ("third", "fourth"):
        field.fill(stage.script([{"say": f"The {word} turn."}]))
        page.get_by_role("button", name="Send", exact=True).click()
        expect(page.locator(".queued", has_text=word)).to_be_visible()
    last = page.locator(".queued", has_text="fourth")
    last.get_by_role("button", name="Send this message earlier").click()
    expect(page.locator(".queued").nth(1)).to_contain_text("fourth")
    page.locator(".queued", has_text="third").get_by_role("button", name="Remove this message").click()
    expect(page.locator(".queued")).to_have_count(2)
    last.get_by_role("button", name="Edit this message").click()
    page.get_by_role("textbox", name="Queued message").fill(stage.script([{"say": "The edited turn."}]))
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".queued").nth(1)).to_contain_text("edited")
    page.get_by_role("button", name="Stop").click()
    expect(page.locator(".rule.interrupted")).to_be_visible()
    stage.idle(session)
    expect(page.locator(".queued")).to_have_count(2)  # Stop starts nothing
    page.get_by_role("button", name="Send now").click()
    expect(page.locator(".reply")).to_have_text(["The second turn.", "The edited turn."])
    expect(page.locator(".queued")).to_have_count(0)
    stage.idle(session)
    turns = [event["status"] for event in stage.events(session) if event["type"] == "turn_completed"]
    assert turns == ["interrupted", "success", "success"]


@BOTH
def test_the_composer_completes_attaches_and_chooses(visit: Any, stage: Any, size: str) -> None:
    folder = stage.folder(f"composed-{size}")
    steps = [{"text": "Read", "status": "completed"}, {"text": "Round", "status": "in_progress"}]
    session = stage.start([{"plan": steps}, {"shell": "sleep 600"}], cwd=str(folder), autoApprove=["shell"])
    page = visit(f"#/s/{session}", size)
    expect(page.locator(".pinned summary")).to_have_text("1/2Round")  # in sight while it is carried out
    page.locator(".pinned summary").click()
    expect(page.locator(".pinned li")).to_have_text(["☑Read", "◐Round"])
    page.get_by_role("button", name="Stop").click()
    expect(page.locator(".pinned")).to_be_hidden()
    field = page.get_by_label("Message to the agent")
    expect(field).to_have_attribute("placeholder", "Message Understudy…")
    field.press_sequentially("Read @sho")
    expect(page.get_by_role("option", name="shop.py")).to_be_visible()
    field.press("Enter")
    expect(field).to_have_value("Read @shop.py ")
    field.fill("")
    field.press_sequentially("/de")
    page.get_by_role("option", name="demo").click()
    expect(field).to_have_value("/demo ")
    expect(page.get_by_role("meter", name=re.compile(r"^Context: [\d,]+ of [\d,]+ tokens$"))).to_be_visible()
    status = page.locator(".status-line").evaluate("line => line.clientHeight")
    assert status <= (64 if size == "phone" else 40)  # words are not broken into a column
    permissions = page.get_by_label("Permissions")
    expect(permissions).to_have_value("supervised")
    permissions.select_option("Full auto")
    expect(page.locator(".toast")).to_contain_text("Full auto")
    page.get_by_label("Model").select_option("understudy-mini")
    expect(page.locator(".toast", has_text="Model")).to_be_visible()
    page.get_by_label("Files to attach").set_input_files(
        [{"name": "notes.txt", "mimeType": "text/plain", "buffer": b"Mind the cents."}]
    )
    expect(page.locator(".attachment")).to_contain_text("notes.txt")
    page.get_by_role("button", name="Remove notes.txt").click()
    expect(page.locator(".attachment")).to_have_count(0)
    field.evaluate(
        """field => {
          const clipboardData = new DataTransfer();
          clipboardData.items.add(new File(["Pasted."], "pasted.txt", { type: "text/plain" }));
          field.dispatchEvent(new ClipboardEvent("paste", { clipboardData }));
        }"""
    )
    expect(page.locator(".attachment")).to_contain_text("pasted.txt")
    field.fill("Read that.")
    page.get_by_role("button", name="Send", exact=True).click()
    expect(page.locator(".prompt .bubble").last).to_contain_text("Pasted.")
    expect(page.locator(".attachment")).to_have_count(0)
    view = stage.until(lambda: (view := stage.session(session))["turn"] == 2 and view, "the second turn")
    assert (view["tier"], view["model"]) == ("autonomous", "understudy-mini")


@BOTH
def test_resume_and_fork(visit: Any, stage: Any, size: str) -> None:
    session = stage.start([{"say": "The first part."}], keepOpen=False, title="A story")
    stage.ended(session)
    page = visit(f"#/s/{session}", size)
    for verb in ("Resume", "Fork"):
        page.goto(f"{stage.url}/#/s/{session}")
        expect(page.locator(".rule.final")).to_contain_text("Session ended")
        page.get_by_label("Message to the agent").fill(stage.script([{"say": f"{verb}d."}]))
        page.get_by_role("button", name=verb).click()
        expect(page.locator(".reply", has_text=f"{verb}d.")).to_be_visible()
        new_id = page.url.rpartition("/")[2]
        assert new_id != session
        view = stage.session(new_id)
        assert (view["parentId"], view["forked"]) == (session, verb == "Fork")


def test_rename_archive_search_export(visit: Any, stage: Any) -> None:
    session = stage.start([{"say": "Something **said**."}], keepOpen=False, title="Before")
    stage.ended(session)
    page = visit(f"#/s/{session}", accept_downloads=True)
    more = page.get_by_role("button", name="More")
    more.click()
    page.get_by_label("Title").fill("A new name")
    page.get_by_role("button", name="Rename").click()
    expect(page.get_by_role("heading", name="A new name")).to_be_visible()
    expect(page.locator(".session .title", has_text="A new name")).to_be_visible()
    exported = {}
    for name in ("Markdown", "JSON"):
        more.click()
        with page.expect_download() as waiting:
            page.get_by_role("link", name=f"Export as {name}").click()
        exported[name] = waiting.value.path().read_text()
        page.get_by_role("button", name="Close").click()
    assert "Something **said**." in exported["Markdown"]
    assert [json.loads(line) for line in exported["JSON"].splitlines()] == stage.events(session)
    search = page.get_by_label("Search sessions")
    search.fill("no such session")
    expect(page.get_by_text("No session matches")).to_be_visible()
    search.fill("a NEW name")
    expect(page.locator(".session")).to_have_count(1)
    more.click()
    page.get_by_role("button", name="Archive", exact=True).click()
    expect(page.locator(".session")).to_have_count(0)
    page.get_by_label("State").select_option("archived")
    expect(page.locator(".session")).to_have_count(1)
    assert stage.session(session)["archived"]


@BOTH
def test_compare_in_worktrees_and_keep_one(visit: Any, stage: Any, size: str) -> None:
    folder = stage.folder(f"race-{size}")
    group = f"race of {size}"
    sessions = [
        stage.start(
            [{"call": {"tool": "edit_file", "input": {"path": "shop.py", "old": "sum(items)", "new": new}}}],
            [{"say": f"Now it is {new}."}],
            cwd=str(folder), group=group, worktree=True, keepOpen=False, tier="autonomous",
        )
        for new in ("sum(sorted(items))", "math.fsum(items)")
    ]  # fmt: skip
    page = visit(f"#/compare/{group}", size)
    columns = page.locator(".column")
    expect(columns).to_have_count(2)
    chosen = columns.filter(has_text="math.fsum")
    expect(chosen.locator("dl")).to_contain_text("+1 −1")
    expect(chosen.locator("dl")).to_contain_text("done")
    if size == "phone":  # there is room for it on a desk
        chosen.locator("summary").click()
    expect(chosen.locator(".diff .added")).to_contain_text("math.fsum(items)")
    chosen.get_by_role("button", name="Keep this one").click()
    page.get_by_role("dialog").get_by_role("button", name="Keep this one").click()
    expect(page.locator(".toast")).to_contain_text("Kept")
    branch = stage.session(sessions[1])["branch"]
    result = subprocess.run(
        ["git", "show", f"{branch}:shop.py"], cwd=folder, capture_output=True, text=True, check=True
    )
    assert "math.fsum(items)" in result.stdout
    worktrees = subprocess.run(["git", "worktree", "list"], cwd=folder, capture_output=True, text=True, check=True)
    assert len(worktrees.stdout.splitlines()) == 1
    assert (folder / "shop.py").read_text() == "def total(items):\n    return sum(items)\n"


def test_what_was_typed_before_the_page_had_loaded_stays(visit: Any) -> None:
    page = visit("#/", "phone")
    routes: list[Any] = []
    page.route("**/api/me", lambda route: routes.append(route))
    page.reload(wait_until="domcontentloaded")
    page.get_by_role("link", name="New").last.click()
    page.get_by_label("Prompt").fill("Typed early.")
    with page.expect_response("**/api/permissions?*"):  # the last it asks for, when it knows who it is
        routes[0].continue_()
    page.wait_for_load_state("networkidle")
    expect(page.get_by_label("Prompt")).to_have_value("Typed early.")


def test_the_newcomers_first_minute(visit: Any, stage: Any) -> None:
    """What the page suggests: a plan, a question, an edit, a diff; one obvious file is left."""
    folder = stage.folder("newcomer")
    page = visit("#/", "phone")
    page.get_by_role("link", name="New").last.click()
    page.get_by_label("Prompt").fill("Show me what you can do.")
    page.get_by_label("Project folder").fill(str(folder))
    page.get_by_text("Ask", exact=True).click()
    page.get_by_role("button", name="Start").click()
    expect(page.locator(OPEN)).to_contain_text("wants to change a file")
    expect(page.locator(".plan")).to_be_visible()
    visit.answer(page, "Allow once")
    expect(page.locator(".diff .added").first).to_be_visible()
    expect(page.locator(OPEN)).to_contain_text("wants to run a command")
    visit.answer(page, "Allow once")
    expect(page.locator(".rule")).to_contain_text("Done")
    assert sorted(path.name for path in folder.iterdir()) == [".git", "hello-from-stagedoor.md", "shop.py"]


def test_sessions_that_a_model_started_nest_under_its_own(visit: Any, stage: Any) -> None:
    """Also when they work in another folder; what waits for somebody stands on top, on its own."""
    asks = [[{"shell": "rm -rf build"}], [{"say": "Gone."}]]
    lead = stage.start([{"say": "I lead."}], title="Kinfolk Lead")
    stage.start([{"say": "Beside."}], title="Kinfolk Beside")
    for title, folder, replies in (("Near", stage.root, [[{"say": "Here."}]]), ("Far", stage.folder("far"), asks)):
        spec = SessionSpec(
            agent="understudy", prompt=stage.script(*replies), title=f"Kinfolk {title}", cwd=str(folder), keep_open=True
        )
        far = stage.run(stage.service.sessions.create_for_model(spec, caller="a test", parent=lead)).id
    stage.start([{"say": "Apart."}], title="Kinfolk Apart", cwd=str(stage.folder("apart")))
    page = visit("", "desk")
    page.get_by_label("Search sessions").fill("kinfolk")  # other tests have left theirs
    rows = page.locator("session-list .session")
    waiting = page.locator("session-list .session.waiting")
    expect(waiting).to_contain_text("Far")
    expect(waiting).not_to_contain_class("child")
    expect(page.locator("session-list .session.child .title")).to_have_text(["Kinfolk Near"])
    [question] = [one for one in stage.questions() if one["sessionId"] == far]
    stage.http.post(f"/api/permissions/{question['id']}", json={"decision": "deny"})
    expect(page.locator("session-list .session.child .title")).to_have_text(["Kinfolk Far", "Kinfolk Near"])
    expect(page.locator("session-list .group")).to_have_text(["apart", stage.root.name])
    expect(rows.locator(".title")).to_have_text(
        [f"Kinfolk {title}" for title in ("Apart", "Beside", "Lead", "Far", "Near")]
    )
