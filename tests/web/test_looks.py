"""How the page looks and can be used: accessibility, both themes, narrow and wide, and how much it weighs."""

from __future__ import annotations

import os
import re
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import expect

from stagedoor.server.page import BUNDLE, STYLES, files
from stagedoor.service.views import TurnUsage
from stagedoor.unified.events import Usage
from tools.browser import FLAGS, find_browser

OPEN = ".question:not(.closed)"
EDIT = {"call": {"tool": "edit_file", "input": {"path": "shop.py", "old": "sum(items)", "new": "round(sum(items), 2)"}}}
SEEN = [
    [
        {"think": "Cents get lost."},
        {"say": "I **will**:\n\n```python\nround(1)  # so\n```\n\n| a | b |\n|:-:|--:|\n| 1 | [x](http://x.test) |\n"},
        {"plan": [{"text": "Read", "status": "completed"}, {"text": "Round", "status": "in_progress"}]},
        EDIT,
    ],
    [{"shell": "python3 -c 'import sys; print(1); sys.exit(3)'"}],
    [{"say": "Rounded."}],
]
WIDTHS = (320, 390, 1360, 1920)


@pytest.fixture(scope="module")
def scene(stage: Any) -> dict[str, str]:
    """The address of each main view, with something in it."""
    folder = stage.folder("scene")
    session = stage.start(*SEEN, cwd=str(folder), title="A session that has been", autoApprove=["shell"])
    stage.idle(session)
    where = {"cwd": str(stage.folder("race")), "group": "two", "worktree": True, "keepOpen": False}
    pair = [stage.start([EDIT], [{"say": "Done."}], tier="autonomous", **where) for _ in range(2)]
    for session_id in pair:
        stage.ended(session_id)
    long = "a_very_long_word_without_any_place_to_break_" * 4
    question = stage.start([{"shell": f"echo {long}"}], [{"say": "ok"}], cwd=str(folder), title=f"שלום {long} مرحبا")
    stage.until(lambda: stage.session(question)["openQuestions"], "a question")
    return {
        "list": "#/",
        "new": "#/new",
        "session": f"#/s/{session}",
        "question": f"#/s/{question}",
        "inbox": "#/inbox",
        "compare": "#/compare/two",
        "overview": "#/overview",
        "missing": "#/s/no-such-session",
    }


READY = {
    "list": "session-list .session",
    "new": "new-session form",
    "session": ".rule",
    "question": OPEN,
    "inbox": f"inbox-view {OPEN}",
    "compare": ".column dl:has-text('+1')",
    "overview": ".card .rows.audit",
    "missing": ".empty",
}


@pytest.fixture
def scene_stays(monkeypatch: pytest.MonkeyPatch, visits: Any) -> None:
    """The scene is for all tests here: what runs in it goes on."""
    monkeypatch.setattr(visits, "tidy", lambda self: None)


@pytest.mark.parametrize(("size", "theme"), [("phone", "light"), ("desk", "dark")])
def test_everybody_can_use_every_view(
    visit: Any, scene_stays: None, scene: dict[str, str], stage: Any, size: str, theme: str
) -> None:
    """axe-core finds nothing serious; nothing is wider than the screen, whatever its width."""
    import axe_playwright_python

    axe = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()
    visit.forgiven = ("404",)
    page = visit("", size, theme=theme)
    page.evaluate(axe)
    problems: dict[str, list[str]] = {}
    for name, where in scene.items():
        page.goto(f"{stage.url}/{where}")
        page.locator(READY[name]).first.wait_for()
        expect(page.locator(".skeleton")).to_have_count(0)
        expect(page.locator(".settling")).to_have_count(0)
        report = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
        for violation in [*report["violations"], *contrast_in_the_other_theme(page, theme)]:
            if is_serious(violation):
                problems.setdefault(name, []).append(
                    f"{violation['id']}: {violation['nodes'][0]['html'][:160]} {violation['nodes'][0]['any']}"
                )
        before = page.viewport_size
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 800})
            if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
                problems.setdefault(name, []).append(f"wider than {width}")
        page.set_viewport_size(before)
    assert problems == {}


DIALOGS: dict[str, tuple[str, tuple[str, ...]]] = {
    # name of the dialog: where it is opened, and the buttons that lead to it
    "Session": ("session", ("More",)),
    "Changes": ("session", ("More", "View diff")),
    "Undo": ("session", ("More", "View diff", "Undo…")),
    "Files": ("session", ("More", "Files")),
    "shop.py": ("session", ("More", "Files", "shop.py")),
    "Choose a folder": ("new", ("Browse",)),
    "Keyboard shortcuts": ("list", ()),
    "Commands": ("list", ()),
}


@pytest.mark.parametrize(("size", "theme"), [("phone", "dark"), ("desk", "light")])
def test_everybody_can_use_every_dialog(
    visit: Any, scene_stays: None, scene: dict[str, str], stage: Any, size: str, theme: str
) -> None:
    """axe-core finds nothing serious; each is closed with Escape, and one sees where one is."""
    import axe_playwright_python

    page = visit("", size, theme=theme)
    page.evaluate((Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text())
    problems: dict[str, list[str]] = {}
    for name, (where, buttons) in DIALOGS.items():
        page.goto(f"{stage.url}/{scene[where]}")
        page.locator(READY[where]).first.wait_for()
        if name == "Keyboard shortcuts":
            page.keyboard.press("?")
        elif name == "Commands":
            page.keyboard.press("Control+k")
        for label in buttons:
            page.get_by_role("button", name=label, exact=True).last.click()
        dialog = page.get_by_role("dialog", name=name, exact=True)
        expect(dialog).to_be_visible()
        report = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
        violations = [*report["violations"], *contrast_in_the_other_theme(page, theme)]
        found = [f"{one['id']}: {one['nodes'][0]['html'][:160]}" for one in violations if is_serious(one)]
        if found:
            problems[name] = found
        if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
            problems.setdefault(name, []).append("wider than the screen")
        page.keyboard.press("Escape")
        expect(dialog).to_be_hidden()
        for _ in range(page.locator("dialog[open]").count()):
            page.keyboard.press("Escape")
    assert problems == {}


def contrast_in_the_other_theme(page: Any, theme: str) -> list[Any]:
    """All else that axe-core looks at is the same in both."""
    page.emulate_media(color_scheme="light" if theme == "dark" else "dark")
    report = page.evaluate("axe.run(document, { resultTypes: ['violations'], runOnly: ['color-contrast'] })")
    page.emulate_media(color_scheme=theme)
    return list(report["violations"])


def is_serious(violation: Any) -> bool:
    return violation["impact"] in ("serious", "critical")


def test_the_pairing_view_can_be_used_by_everybody(visit: Any, scene_stays: None, scene: object) -> None:
    import axe_playwright_python

    visit.forgiven = ("401",)
    page = visit("", "phone", paired=False)
    page.get_by_label("Pairing code").wait_for()
    page.evaluate((Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text())
    report = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    assert [violation["id"] for violation in report["violations"] if is_serious(violation)] == []


def test_dark_and_light_and_a_choice_that_stays(visit: Any, scene_stays: None, scene: object) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    page = visit("#/overview", theme="dark")
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    dark = page.evaluate(ground)
    page.emulate_media(color_scheme="light")
    light = page.evaluate(ground)
    assert dark != light
    page.get_by_role("button", name="Dark or light").click()
    assert page.evaluate(ground) == dark
    page.reload()
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    assert page.evaluate(ground) == dark


def test_a_day_is_one_of_whoever_looks(visit: Any, scene_stays: None, scene: object, stage: Any) -> None:
    """Tokens and cost by day: somebody east of the server is in the next one already."""
    now = datetime.now(ZoneInfo("Pacific/Kiritimati"))
    used = Usage(input_tokens=7_000_000, total_tokens=7_000_000, cost_usd=1.25)
    at = int(now.timestamp() * 1000)
    spent = TurnUsage(session_id="s", turn=1, at=at, agent="understudy", project="p", usage=used)
    stage.run(stage.service._journal.write(spent))
    page = visit("#/overview", timezone_id="Pacific/Kiritimati")
    for unit, figure in (("tokens", r"7,\d{3},\d{3}"), ("cost", r"\$1\.25")):
        expect(page.get_by_role("img", name=re.compile(f"^{unit} per day.*{now:%Y-%m-%d}: {figure}$"))).to_be_visible()


def test_nothing_moves_for_who_does_not_want_it(visit: Any, scene_stays: None, scene: dict[str, str]) -> None:
    page = visit(scene["question"])
    page.locator(OPEN).wait_for()
    assert page.evaluate("document.getAnimations().length") == 0


def test_a_question_is_announced(visit: Any, scene_stays: None, scene: object, stage: Any) -> None:
    page = visit()
    expect(page.locator("session-list .session").first).to_be_visible()
    question = stage.start([{"shell": "echo announced"}], [{"say": "ok"}])
    expect(page.locator("#announcer")).to_contain_text("understudy asks: echo announced")
    stage.http.post(f"/api/sessions/{question}/cancel")


def test_a_phone_can_install_it(browser: Any, stage: Any, short_folder: Path) -> None:
    """In a browser with a profile of its own: a private window can install nothing."""
    places = {name: str(short_folder) for name in ("HOME", "TMPDIR", "XDG_CONFIG_HOME")}
    own = browser.browser_type.launch_persistent_context(
        short_folder / "profile", executable_path=find_browser(), args=list(FLAGS), env={**os.environ, **places}
    )
    with own:
        page = own.new_page()
        page.goto(stage.url)
        page.evaluate("navigator.serviceWorker.ready.then(() => true)")
        devtools = own.new_cdp_session(page)
        assert devtools.send("Page.getInstallabilityErrors") == {"installabilityErrors": []}
        assert devtools.send("Page.getAppManifest")["errors"] == []


def test_the_service_worker_stores_every_file_that_the_page_loads() -> None:
    """All but the PNG icons: only a system that installs the page, or shows a notification, loads those."""
    worker = files()["/sw.js"].read_text()
    loaded = {BUNDLE, STYLES, *(path for path in files() if not path.endswith((".js", ".css", ".png")))}
    stored = worker.partition("FILES = [")[2].partition("]")[0]
    assert {path for path in (*files(), BUNDLE, STYLES) if f'"{path}"' in stored} == loaded
