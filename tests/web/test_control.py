"""The control room around the sessions: rows with their menu, groups, unread marks, the palette, the keys, the new
session's pickers, what the agents' own programs have stored, forms, and who decided."""

from __future__ import annotations

import re
import subprocess
from typing import Any

import pytest
from playwright.sync_api import expect

from stagedoor.server.rest.rendering import rendered

BOTH = pytest.mark.parametrize("size", ["phone", "desk"])
OPEN = ".question:not(.closed)"


@BOTH
def test_rows_tell_what_came_last_and_carry_their_menu(visit: Any, stage: Any, size: str) -> None:
    visit.forgiven = ("404",)  # of what was deleted while it was read
    one, other = (stage.folder(f"{name}-{size}") for name in ("shop", "bakery"))
    read = stage.start([{"say": "First line.\n\nThe last line."}], cwd=str(one), title=f"Read {size}")
    gone = stage.start([{"say": "Nothing."}], cwd=str(other), title=f"Gone {size}")
    stage.idle(read)
    stage.idle(gone)
    page = visit(f"#/s/{read}", size)
    expect(page.locator(".reply")).to_contain_text("The last line.")
    page.goto(f"{stage.url}/#/")
    row = page.locator(f'li[data-id="{read}"]')
    expect(row.locator(".last")).to_have_text("The last line.")
    expect(row).to_contain_text("Idle")
    expect(row.get_by_role("img", name="unread")).to_have_count(0)
    stage.http.post(f"/api/sessions/{read}/messages", json={"prompt": stage.script([{"say": "News."}])})
    expect(row.get_by_role("img", name="unread")).to_be_visible()
    expect(row.locator(".last")).to_have_text("News.")
    headings = page.locator(".group h2")
    expect(headings.filter(has_text=f"shop-{size}")).to_be_visible()
    expect(headings.filter(has_text=f"bakery-{size}")).to_be_visible()
    page.get_by_role("button", name=f"Actions for Read {size}").click()
    page.get_by_label("New title").fill(f"Renamed {size}")
    page.get_by_role("button", name="Rename", exact=True).click()
    expect(row.locator(".title")).to_have_text(f"Renamed {size}")
    page.get_by_role("button", name=f"Actions for Gone {size}").click()
    page.get_by_role("button", name="Delete…").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()
    expect(page.locator(f'li[data-id="{gone}"]')).to_have_count(0)
    assert stage.http.get(f"/api/sessions/{gone}").status_code == 404
    page.get_by_role("button", name=f"Actions for Renamed {size}").click()
    page.get_by_role("button", name="Archive", exact=True).click()
    expect(row).to_have_count(0)
    page.get_by_label("State").select_option("archived")
    page.get_by_role("button", name=f"Actions for Renamed {size}").click()
    page.get_by_role("button", name="Unarchive").click()
    expect(row).to_have_count(0)
    assert not stage.session(read)["archived"]


def test_the_palette_and_the_keys(visit: Any, stage: Any) -> None:
    session = stage.start([{"say": "Here."}], title="The one that is looked for")
    page = visit()
    expect(page.locator(".session").first).to_be_visible()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_contain_text("Ctrl+K")
    page.keyboard.press("Escape")
    page.keyboard.press("Control+k")
    page.keyboard.type("looked for")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(session))
    expect(page.locator("dialog")).to_have_count(0)
    page.keyboard.press("Control+k")
    page.keyboard.type("new ses")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.get_by_label("Prompt")).to_be_focused()


@BOTH
def test_a_new_session_is_there_at_once_and_chosen_with_a_thumb(visit: Any, stage: Any, size: str) -> None:
    folder = stage.folder(f"picked-{size}")
    (folder / "inner").mkdir()
    page = visit("#/new", size)
    expect(page.get_by_role("button", name="Start")).to_be_in_viewport()
    # The second time it is there though nobody answers.
    page.goto(f"{stage.url}/#/")
    routes: list[Any] = []
    page.route("**/api/agents", lambda route: routes.append(route))
    page.goto(f"{stage.url}/#/new")
    expect(page.get_by_label("Understudy")).to_be_visible()
    stage.until(lambda: routes or page.wait_for_timeout(20), "the look at the agents")
    routes[0].continue_()
    page.unroute("**/api/agents")
    page.get_by_label("Understudy").check()
    page.get_by_role("button", name="Browse").click()
    dialog = page.get_by_role("dialog", name="Choose a folder")
    dialog.get_by_role("button", name=f"picked-{size}", exact=True).click()
    expect(dialog.locator(".path")).to_contain_text(f"picked-{size} · main")
    dialog.get_by_role("button", name="Use this folder").click()
    expect(page.get_by_label("Project folder")).to_have_value(str(folder))
    expect(page.get_by_label("Git branch").locator("option")).to_have_text(["main"])
    page.get_by_label("Model").fill("understudy-mini")
    page.get_by_text("Full auto").click()
    prompt = page.get_by_label("Prompt")
    prompt.fill(stage.script([{"shell": "touch done"}], [{"say": "It is done."}]))
    prompt.press("Control+Enter")
    expect(page.locator(".reply")).to_contain_text("It is done.")
    view = stage.session(page.url.rpartition("/")[2])
    assert (view["cwd"], view["tier"], view["wanted"]["model"]) == (str(folder), "autonomous", "understudy-mini")
    assert (folder / "done").exists()
    page.goto(f"{stage.url}/#/new")
    page.locator(".recent").get_by_role("button", name=f"picked-{size}").click()
    expect(page.get_by_label("Project folder")).to_have_value(str(folder))


def test_another_branch_has_a_folder_or_gets_one(visit: Any, stage: Any) -> None:
    folder = stage.folder("branches")
    for words in (["branch", "old"], ["worktree", "add", "-q", "-b", "near", str(stage.root / "near")]):
        subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)
    page = visit("#/new", "phone")
    page.get_by_label("Understudy").check()
    page.get_by_label("Project folder").fill(str(folder))
    page.get_by_label("Project folder").press("Tab")
    branch, own = page.get_by_label("Git branch"), page.get_by_label("Work in a git worktree of its own")
    expect(branch.locator("option")).to_have_text(["main", "near (in near)", "old"])
    branch.select_option("near")
    expect(page.get_by_label("Project folder")).to_have_value(str(stage.root / "near"))
    expect(branch.locator("option")).to_have_text(["near", "main (in branches)", "old"])
    expect(own).not_to_be_checked()
    branch.select_option("old")
    expect(own).to_be_checked()
    expect(own).to_be_disabled()
    page.get_by_label("Prompt").fill(stage.script([{"say": "Here."}]))
    page.get_by_role("button", name="Start").click()
    expect(page.locator(".reply")).to_contain_text("Here.")
    view = stage.session(page.url.rpartition("/")[2])
    assert (view["worktree"], view["wanted"]["fromBranch"]) == ("open", "old")


def test_who_decided_is_named_and_what_is_remembered_is_shown(visit: Any, stage: Any) -> None:
    session = stage.start([{"shell": "ls -la"}], [{"shell": "ls -la"}], [{"shell": "pwd"}], [{"say": "Done."}])
    page = visit(f"#/s/{session}")
    page.locator(OPEN).get_by_role("button", name="More").click()
    expect(page.locator(".remembered")).to_contain_text("ls -la")
    visit.answer(page, "Allow in this session")
    expect(page.locator(".verdict").first).to_contain_text("Allowed in this session by you")
    expect(page.locator(OPEN)).to_contain_text("pwd")
    [question] = [entry for entry in stage.questions() if entry["sessionId"] == session]
    stage.http.post(f"/api/permissions/{question['id']}", json={"decision": "allow"})
    expect(page.locator(".verdict").last).to_contain_text("Allowed by local")


def test_links_and_tasks_in_text_and_nothing_else() -> None:
    html = rendered(
        "- [ ] open https://a.test/x?y=1&z, `https://code.test`\n- [x] <b>done</b>\n\n"
        '[l](javascript:alert(1)) https://e.test/"><script>alert(1)</script> [m](https://ok.test)'
    )
    out = 'target="_blank" rel="noopener noreferrer nofollow"'
    assert html == (
        f'<ul>\n<li>☐ open <a href="https://a.test/x?y=1&amp;z" {out}>https://a.test/x?y=1&amp;z</a>, '
        "<code>https://code.test</code></li>\n<li>☑ &lt;b&gt;done&lt;/b&gt;</li>\n</ul>\n"
        f'<p>[l](javascript:alert(1)) <a href="https://e.test/" {out}>https://e.test/</a>&quot;&gt;&lt;script&gt;alert(1)'
        f'&lt;/script&gt; <a href="https://ok.test" {out}>m</a></p>\n'
    )


def test_code_is_copied_with_a_tap(visit: Any, stage: Any) -> None:
    session = stage.start([{"say": "Run:\n\n```sh\nmake test\n```\n"}])
    page = visit(f"#/s/{session}", permissions=["clipboard-read", "clipboard-write"])
    page.locator(".prose .copyable").hover()
    page.locator(".prose .copyable").get_by_role("button", name="Copy").click()
    expect(page.locator(".toast")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == "make test\n"


def test_what_is_drawn_anew_under_a_hand_keeps_its_click_and_its_focus(visit: Any, stage: Any) -> None:
    session = stage.start([{"say": "Here."}], title="Before the press")
    stage.idle(session)
    page = visit(f"#/s/{session}")
    heading = page.locator("session-view h1")
    expect(heading).to_have_text("Before the press")
    more = page.get_by_role("button", name="More")
    rename = f"/api/sessions/{session}"

    more.focus()
    stage.http.patch(rename, json={"title": "While it has the focus"})
    expect(heading).to_have_text("While it has the focus")
    expect(more).to_be_focused()

    more.hover()
    page.mouse.down()
    stage.http.patch(rename, json={"title": "While it is pressed"})
    expect(page.locator(f'li[data-id="{session}"] .title')).to_have_text("While it is pressed")  # the page knows it
    expect(heading).to_have_text("While it has the focus")
    page.mouse.up()
    expect(page.get_by_role("dialog", name="Session")).to_be_visible()
    expect(heading).to_have_text("While it is pressed")
