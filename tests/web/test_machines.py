"""Several machines on the page: which one has a session, which one a new one goes to, and when one is away."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from stagedoor.service.config.settings import AgentSettings, Settings
from stagedoor.service.service import Service
from tools.postgres import NoPostgres, empty_database


@pytest.fixture(scope="module")
def more_settings() -> dict[str, Any]:
    try:
        with ThreadPoolExecutor(1) as thread:  # in this one Playwright has its loop
            return {"database": thread.submit(empty_database).result(), "machine_name": "one"}
    except NoPostgres as fault:
        if sys.platform == "linux":
            raise
        pytest.skip(str(fault))


@pytest.fixture
def second(stage: Any, tmp_path: Path, size: str) -> Iterator[Callable[[], Service]]:
    """Starts a machine called like ``size``, again each time it was stopped; at the end it is stopped."""
    root = tmp_path / "elsewhere"
    root.mkdir()
    env = {"STAGEDOOR_UNDERSTUDY_HOME": str(tmp_path / "understudy")}
    settings = Settings(
        home=str(tmp_path / "two"), database=stage.service.settings.database, machine_name=size, labels=("gpu",),
        roots=(str(root),), default_agent="understudy", agents={"understudy": AgentSettings(env=env)},
        clone=(f"file://{tmp_path}/",),
    )  # fmt: skip
    (tmp_path / "two").mkdir()
    started: list[Service] = []

    async def begin() -> Service:
        started.append(Service(settings, role="worker"))
        await started[-1].start()
        return started[-1]

    try:
        yield lambda: stage.run(begin())
    finally:
        for service in started:
            stage.run(service.stop())


@pytest.mark.parametrize("size", ["phone", "desk"])
def test_a_session_on_another_machine(visit: Any, stage: Any, second: Any, size: str, tmp_path: Path) -> None:
    here = stage.start([{"say": "Before."}], title="Earlier")
    page = visit("", size)
    page.clock.install()
    page.reload()
    expect(page.locator(f"[data-id='{here}'] .place")).to_be_visible()
    other = second()
    page.clock.fast_forward(30_000)
    expect(page.locator(f"[data-id='{here}'] .place")).to_have_text("one: work")
    page = visit("#/new", size)
    page.get_by_label("Machine").select_option(f"host:{size}")
    expect(page.get_by_label("Project folder")).to_have_value(str(tmp_path / "elsewhere"))
    page.get_by_label("Prompt").fill(stage.script([{"say": "From elsewhere."}]))
    page.get_by_role("button", name="Start", exact=True).click()
    expect(page.locator(".reply")).to_have_text("From elsewhere.")
    expect(page.locator(".heading")).to_contain_text(f"{size}: elsewhere")
    session = page.url.rpartition("/")[2]
    stage.idle(session)
    local = stage.start([{"say": "Here."}], place="host:one")
    stage.idle(local)
    page.goto(f"{stage.url}/#/")
    expect(page.locator(f"[data-id='{session}'] .place")).to_have_text(f"{size}: elsewhere")
    expect(page.locator(f"[data-id='{local}'] .place")).to_have_text("one: work")

    page.goto(f"{stage.url}/#/overview")
    card = page.get_by_role("region", name="Machines")
    row = card.locator("li", has_text=size)
    expect(row).to_contain_text("1/32 sessions")
    row.get_by_role("button", name="Drain", exact=True).click()
    expect(row).to_contain_text("takes nothing new")
    row.get_by_role("button", name="Undrain").click()
    expect(row.get_by_role("button", name="Drain", exact=True)).to_be_visible()

    stage.run(other.stop())
    page = visit(f"#/s/{session}", size)
    field = page.get_by_label("Message to the agent")
    expect(field).to_be_disabled()
    expect(field).to_have_attribute("placeholder", f"{size} is away: write when it is back")
    expect(page.locator(".status")).to_contain_text(f"{size} is away")
    second()
    page.reload()
    expect(page.get_by_label("Message to the agent")).to_be_enabled()
    visit.tidy()


@pytest.mark.parametrize("size", ["phone", "desk"])
def test_a_session_in_a_repository_and_a_code_for_a_machine(
    visit: Any, stage: Any, second: Any, size: str, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    source.mkdir()
    for words in (("init", "-q", "-b", "main"), (*who, "commit", "-q", "--allow-empty", "-m", "first")):
        subprocess.run(["git", *words], cwd=source, check=True)
    second()
    page = visit("#/new", size)
    expect(page.get_by_label("Project folder")).to_be_visible()
    field = page.get_by_label("Git repository")
    expect(page.locator(f"#repositories option[value='file://{tmp_path}/']")).to_have_count(1)
    field.fill(f"file://{source}@main")
    expect(page.get_by_label("Project folder")).to_be_hidden()
    page.get_by_label("Prompt").fill(stage.script([{"say": "In a clone."}]))
    page.get_by_role("button", name="Start", exact=True).click()
    expect(page.locator(".reply")).to_have_text("In a clone.")
    session = page.url.rpartition("/")[2]
    stage.idle(session)
    assert stage.run(stage.service.sessions.get(session)).place == f"git:file://{source}@main"

    page.goto(f"{stage.url}/#/overview")
    card = page.get_by_role("region", name="Machines")
    card.get_by_role("button", name="Enrol a machine").click()
    expect(card.locator("code")).to_have_text(re.compile(r"stagedoor worker --enrol [A-Z0-9]{4}(-[A-Z0-9]{4}){3}$"))
    visit.tidy()
