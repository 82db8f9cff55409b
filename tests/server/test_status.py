"""Alive, ready, in numbers; and what is logged."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stagedoor import __version__
from stagedoor.server import logs
from stagedoor.server.status import METRICS, Readiness, prometheus, readiness
from stagedoor.service.views import SessionSpec

SAMPLE = re.compile(r"stagedoor_[a-z_]+(\{[a-z]+=\"[^\"]*\"(,[a-z]+=\"[^\"]*\")*\})? \d+(\.\d+)?")


def test_alive_and_ready(server: Any) -> None:
    assert server.http.get("/healthz").json() == {"status": "ok"}
    answer = server.http.get("/readyz")
    assert (answer.status_code, answer.json()) == (
        200, {"status": "ready", "log": "ok", "policy": "ok", "stopping": False},
    )  # fmt: skip


def test_a_wrong_policy_and_stopping_make_it_unready(serve: Any, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("rules: []\n")

    async def main() -> list[Readiness]:
        async with serve(policy=str(policy)) as server:
            service = server.service
            found = [await readiness(service, stopping=False), await readiness(service, stopping=True)]
            policy.write_text("rulez: no\n")
            found.append(await readiness(service, stopping=False))
            async with server.client() as client:
                assert (await client.get("/readyz")).status_code == 503
            policy.write_text("rules: []\n")
            found.append(await readiness(service, stopping=False))
            return found

    assert asyncio.run(main()) == [
        Readiness(status="ready", log="ok", policy="ok", stopping=False),
        Readiness(status="not ready", log="ok", policy="ok", stopping=True),
        Readiness(status="not ready", log="ok", policy="broken", stopping=False),
        Readiness(status="ready", log="ok", policy="ok", stopping=False),
    ]


def test_numbers_of_a_server_that_worked(serve: Any, script: Any) -> None:
    async def main() -> str:
        async with serve() as server, server.client() as client:
            view = await server.service.sessions.create(
                SessionSpec(prompt=script([{"say": "Hello"}]), agent="understudy")
            )
            async for _ in server.service.events.follow(view.id, 0):
                pass
            return str((await client.get("/metrics")).text)

    text = asyncio.run(main())
    assert 'stagedoor_sessions_created_total{agent="understudy"} 1\n' in text
    assert 'stagedoor_sessions_ended_total{agent="understudy",state="done"} 1\n' in text
    assert f'stagedoor_build_info{{version="{__version__}"}} 1\n' in text
    lines = text.splitlines()
    assert all(line.startswith(("# HELP", "# TYPE")) or SAMPLE.fullmatch(line) for line in lines)
    assert {line.split()[2] for line in lines if line.startswith("# TYPE")} >= {
        metric.name for metric in METRICS.values() if not metric.labels
    }


def test_prometheus_says_every_number_once() -> None:
    metrics_text = prometheus({"events": 3, "ended an-agent done": 2, "ended an-agent failed": 1, "unheard of": 9})
    assert "unheard" not in metrics_text
    assert metrics_text.count("# TYPE stagedoor_sessions_ended_total counter") == 1
    assert [line for line in metrics_text.splitlines() if line.startswith("stagedoor_sessions_ended")] == [
        'stagedoor_sessions_ended_total{agent="an-agent",state="done"} 2',
        'stagedoor_sessions_ended_total{agent="an-agent",state="failed"} 1',
    ]


@pytest.fixture
def stderr(capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[[], str]]:
    """What was logged so far; afterwards logging is as it was."""
    root = logging.getLogger()
    kept, level = root.handlers[:], root.level
    yield lambda: capsys.readouterr().err
    root.handlers[:] = kept
    root.setLevel(level)


def test_json_lines_tell_the_session_and_never_a_token(serve: Any, stderr: Callable[[], str]) -> None:
    async def main() -> str:
        logs.set_up("json", "debug")
        async with serve() as server, server.client() as client:
            await client.get("/api/sessions/no-such-session?token=stagedoor_secret-that-somebody-put-there")
            await client.post("/api/pairing", json={})
            await client.get("/api/me", headers={"Authorization": "Bearer stagedoor_wrong-but-long-enough-to-be-one"})
            logging.getLogger("anything").warning("said %s", server.token)
            return str(server.token)

    token = asyncio.run(main())
    text = stderr()
    entries = [json.loads(line) for line in text.splitlines()]
    assert token not in text
    assert "stagedoor_secret" not in text
    assert "stagedoor_wrong" not in text
    requests = [
        (line["level"], line["message"], line["status"], line["device"], line["session"])
        for line in entries
        if line["logger"] == "stagedoor.server.access"
    ]
    assert requests == [
        ("debug", "GET /api/sessions/no-such-session", 400, "local", "no-such-session"),
        ("info", "POST /api/pairing", 201, "local", ""),
        ("info", "GET /api/me", 401, "", ""),
    ]


def test_text_lines_are_for_people(stderr: Callable[[], str]) -> None:
    logs.set_up("text", "info")
    logging.getLogger("stagedoor.service").info("began", extra={"session": "abc", "nothing": ""})
    logging.getLogger("stagedoor.service").debug("unsaid")
    logging.getLogger("stagedoor.service").info("GET %s", "/a\n2026 forged\x1b[2J", extra={"session": "x\ny"})
    try:
        raise ValueError("stagedoor_a-token-inside-a-traceback")
    except ValueError:
        logging.getLogger("stagedoor.service").exception("failed")
    first, forged, second, *rest = stderr().splitlines()
    assert forged.endswith(r"GET /a\n2026 forged\x1b[2J session=x\ny")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z info    began session=abc", first)
    assert second.endswith("error   failed")
    assert rest[-1] == "ValueError: stagedoor_…"
