"""Work is reviewed here: lines are commented, turns and files undone, changes staged and committed; files are read."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import axe_playwright_python
import pytest
from playwright.sync_api import expect

BEFORE = "def total(items):\n    return sum(items)\n"
AFTER = "def total(items):\n    return round(sum(items), 2)  # cents\n"
WRITE = f"printf '{AFTER}' > shop.py; mkdir -p docs; echo one > docs/note.md"


def git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def picture(page: Any, name: str) -> None:
    """For whoever wants to look at it: ``STAGEDOOR_LOOK=folder``."""
    if folder := os.environ.get("STAGEDOOR_LOOK"):
        page.screenshot(path=f"{folder}/{name}.png")


def serious(page: Any) -> list[str]:
    """What axe-core finds in the page as it stands."""
    page.evaluate((Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text())
    found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")["violations"]
    return [f"{one['id']}: {one['nodes'][0]['html']}" for one in found if one["impact"] in ("serious", "critical")]


def opened(page: Any, entry: str) -> Any:
    page.get_by_role("button", name="More").click()
    page.get_by_role("button", name=entry, exact=True).click()
    return page.get_by_role("dialog")


@pytest.mark.parametrize("size", ["phone", "desk"])
def test_changes_are_reviewed(visit: Any, stage: Any, size: str) -> None:
    folder = stage.folder(f"review-{size}")
    git(folder, "remote", "add", "origin", "git@github.com:me/shop.git")
    session = stage.start(
        [{"shell": WRITE}], [{"say": "first"}], approval="autoAll", cwd=str(folder), title="Round the total"
    )
    page = visit(f"#/s/{session}", size, theme="dark" if size == "desk" else "light")
    expect(page.locator(".reply", has_text="first")).to_be_visible()
    stage.idle(session)
    dialog = opened(page, "View diff")
    expect(dialog.locator("header")).to_contain_text("2 files+2−1")
    picture(page, f"review-{size}")

    # Lines have numbers and colours; a comment on one goes back to the agent, with all others, as one message.
    shop = dialog.locator("details", has_text="shop.py")
    expect(shop.locator(".code .k", has_text="return").first).to_be_visible()
    expect(shop.locator(".code .c")).to_have_text("# cents")
    assert shop.locator(".wide").count() == (size == "desk")
    if size == "desk":
        dialog.get_by_role("button", name="Unified").click()
        expect(shop.locator(".row.added")).to_have_count(1)
    shop.get_by_role("button", name="Comment on line 2", exact=True).click()
    dialog.get_by_label("Comment", exact=True).fill("Use Decimal.")
    dialog.get_by_role("button", name="Add comment").click()
    shop.get_by_role("button", name="Comment on line 2, removed").click()
    dialog.get_by_label("Comment", exact=True).fill("Why?")
    dialog.get_by_role("button", name="Add comment").click()
    picture(page, f"comments-{size}")
    assert serious(page) == []
    dialog.get_by_role("button", name="Send 2 comments to the agent").click()
    expect(page.locator(".prompt", has_text="Review comments:")).to_be_visible()
    stage.until(lambda: stage.session(session)["turn"] == 2)
    stage.idle(session)
    sent = [event["prompt"] for event in stage.events(session) if event["type"] == "turn_started"][1]
    assert sent == (
        "Review comments:\n\nshop.py:2\n> +    return round(sum(items), 2)  # cents\nUse Decimal.\n\n"
        "shop.py:2\n> -    return sum(items)\nWhy?"
    )

    # Undo of a file, of a turn, and of the undo.
    dialog = opened(page, "View diff")
    dialog.locator("details", has_text="shop.py").get_by_role("button", name="Undo…").click()
    choice = page.get_by_role("dialog", name="Undo")
    expect(choice.get_by_role("button", name="As before turn")).to_have_count(2)
    picture(page, f"undo-{size}")
    choice.get_by_role("button", name="As before turn 1").click()
    expect(dialog.locator("header")).to_contain_text("1 file+1−0")
    assert (folder / "shop.py").read_text() == BEFORE
    assert (folder / "docs/note.md").read_text() == "one\n"
    dialog.locator("header").get_by_role("button", name="Undo…").click()
    page.get_by_role("dialog", name="Undo").get_by_role("button", name="As before the undo of turn 1").click()
    expect(dialog.locator("header")).to_contain_text("2 files+2−1")
    assert (folder / "shop.py").read_text() == AFTER

    # Stage, unstage, commit with a proposed message; why nothing is pushed; where a pull request is opened.
    note = dialog.locator("details", has_text="docs/note.md")
    note.get_by_role("button", name="Stage", exact=True).click()
    expect(note.locator("summary")).to_contain_text("staged")
    assert git(folder, "diff", "--cached", "--name-only") == "docs/note.md"
    note.get_by_role("button", name="Unstage").click()
    expect(note.get_by_role("button", name="Stage", exact=True)).to_be_visible()
    assert git(folder, "diff", "--cached", "--name-only") == ""
    expect(dialog.get_by_label("Commit message")).to_have_value("Round the total")
    expect(dialog.get_by_role("button", name="Push")).to_be_disabled()
    expect(dialog).to_contain_text("this server pushes nothing to git@github.com:me/shop.git; add it")
    link = dialog.get_by_role("link", name="Open a pull request")
    expect(link).to_have_attribute("href", "https://github.com/me/shop/compare/main?expand=1")
    picture(page, f"commit-{size}")
    dialog.get_by_label("Commit message").fill("Round it")
    dialog.get_by_role("button", name="Commit all").click()
    expect(dialog.get_by_role("button", name="Commit all")).to_have_count(0)
    assert git(folder, "log", "-1", "--format=%s") == "Round it"
    assert git(folder, "status", "--porcelain") == ""
    dialog.get_by_role("button", name="Close").click()
    expect(page.locator(".note", has_text="1 file restored to before turn 1").first).to_be_visible()


@pytest.mark.parametrize("size", ["phone", "desk"])
def test_files_are_browsed_and_read(visit: Any, stage: Any, size: str) -> None:
    folder = stage.folder(f"files-{size}")
    (folder / "src").mkdir()
    (folder / "src/<b>odd.js").write_text("const a = 'x'; // why\nlet n = 12;\n")
    (folder / "bytes").write_bytes(b"\0\1")
    (folder / "away").symlink_to("/etc")
    session = stage.start([{"say": "hello"}], cwd=str(folder))
    page = visit(f"#/s/{session}", size)
    expect(page.locator(".reply", has_text="hello")).to_be_visible()
    files = opened(page, "Files")
    expect(files.get_by_role("button", name="away")).to_be_disabled()
    picture(page, f"files-{size}")
    files.get_by_role("button", name="bytes").click()
    expect(page.get_by_role("dialog", name="bytes")).to_contain_text("This file is not text.")
    page.keyboard.press("Escape")
    files.get_by_role("button", name="src").click()
    expect(files.get_by_role("heading")).to_have_text("src")
    files.get_by_role("button", name="<b>odd.js").click()
    text = page.get_by_role("dialog", name="<b>odd.js")
    expect(text.locator(".row")).to_have_text(["1 const a = 'x'; // why", "2 let n = 12;"])
    expect(text.locator(".k")).to_have_text(["const", "let"])
    expect(text.locator(".c")).to_have_text("// why")
    picture(page, f"file-{size}")
    text.get_by_role("button", name="Close").click()
    files.get_by_role("button", name="..").click()
    expect(files.get_by_role("button", name="shop.py")).to_be_visible()
    files.get_by_role("button", name="Close").click()
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_without_git_a_turn_is_undone_too(visit: Any, stage: Any) -> None:
    folder = stage.root.parent / "work" / "plain"
    folder.mkdir()
    session = stage.start([{"shell": "echo made > made.txt"}], [{"say": "done"}], approval="autoAll", cwd=str(folder))
    page = visit(f"#/s/{session}", "phone")
    expect(page.locator(".reply", has_text="done")).to_be_visible()
    stage.idle(session)
    dialog = opened(page, "View diff")
    expect(dialog).to_contain_text("Without a git repository")
    dialog.get_by_role("button", name="Undo…").click()
    page.get_by_role("dialog", name="Undo").get_by_role("button", name="As before turn 1").click()
    expect(dialog.get_by_role("status")).to_have_text("1 file restored")
    assert list(folder.iterdir()) == []
