"""A server under load is killed again and again: what it acknowledged is there, and every session ends truthfully."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from stagedoor.service.config.settings import Limits
from stagedoor.service.projection import projected
from stagedoor.service.service import Service
from stagedoor.service.store import Query
from stagedoor.service.views import SessionView
from stagedoor.transports.guard.processes import descendants
from stagedoor.unified.events import (
    Done,
    Event,
    PermissionRequest,
    PermissionResolved,
    ToolResult,
    ToolUse,
    TurnCompleted,
    TurnStarted,
    decode,
)
from tests.processes import is_running
from tools.postgres import empty_database

CHILD = Path(__file__).with_name("child.py")
KILLS = {"sqlite": 10, "postgres": 4}
SEED = 20261115


def _child() -> Any:
    spec = importlib.util.spec_from_file_location("stagedoor_test_child", CHILD)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _killed(folder: Path, database: str, lines: int) -> tuple[list[str], list[int]]:
    """Everything a server acknowledged until it was killed after ``lines`` lines, and the processes under it."""
    command = [sys.executable, str(CHILD), str(folder), "3", database]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        reply = [line.strip() for _, line in zip(range(lines), child.stdout, strict=False)]
        below = descendants(child.pid)
        os.kill(child.pid, signal.SIGKILL)
        reply += [line.strip() for line in child.stdout if line.endswith("\n")]
    return reply, below


@pytest.mark.parametrize("engine", KILLS)
def test_a_server_that_is_killed_again_and_again(tmp_path: Path, engine: str) -> None:
    chance = random.Random(SEED)
    database = empty_database() if engine == "postgres" else ""
    reply: list[str] = []
    for _ in range(KILLS[engine]):
        received, below = _killed(tmp_path, database, chance.randint(1, 40))
        assert received[0] == "ready"
        reply += received[1:]
        assert _missing(below)
    asyncio.run(_check(tmp_path, database, reply))


async def _check(folder: Path, database: str, reply: list[str]) -> None:
    quiet = replace(_child().settings(folder, database), limits=Limits(awake=0))  # nobody is woken while we look
    async with asyncio.timeout(240), Service(quiet) as service:
        while any(not one.open and not one.applied for one in await service.questions.list(open_only=False)):
            await asyncio.sleep(0.01)  # answers that were stored before the last crash are being told
        views, total = await service.sessions.page(Query(limit=10_000))
        found = {view.id: view for view in views}
        assert len(views) == total
        stored: dict[str, int] = {}
        for line in reply:
            match line.split():
                case ["created", session_id]:
                    assert session_id in found
                case ["stored", session_id, seq]:
                    stored[session_id] = max(stored.get(session_id, 0), int(seq))
                case ["answered", question_id]:
                    question = await service._store.question(question_id)
                    assert question is not None
                    assert question.decision is not None
                case ["sent", session_id, message_id]:
                    messages = await service._store.messages(session_id, queued_only=False)
                    assert message_id in [message.id for message in messages]
        assert all(found[session_id].last_seq >= seq for session_id, seq in stored.items())
        for view in views:
            records = await service._store.records(view.id, 0, 1_000_000)
            events = [decode(record.body) for record in records]
            assert [event.seq for event in events] == list(range(1, view.last_seq + 1))
            _is_whole(view, events)


def _is_whole(view: SessionView, events: list[Event]) -> None:
    ends = [type(event) for event in events].count(Done)
    assert ends == (1 if view.ended else 0)
    assert view.ended or view.activity == "asleep"
    if view.ended:
        assert isinstance(events[-1], Done)
    assert sum(isinstance(one, TurnStarted) for one in events) == sum(isinstance(one, TurnCompleted) for one in events)
    assert _ids(events, ToolUse, "tool_use_id") == _ids(events, ToolResult, "tool_use_id")
    request, closed = _ids(events, PermissionRequest, "request_id"), _ids(events, PermissionResolved, "request_id")
    assert len(request) - len(closed) == view.open_questions
    assert set(closed) <= set(request)
    again = projected(SessionView(id=view.id, agent=view.agent, cwd=view.cwd), events)
    report = ("state", "activity", "status", "turn", "turn_seq", "result", "error", "usage", "tool_uses", "messages")
    assert [getattr(again, name) for name in report] == [getattr(view, name) for name in report]


def _ids(events: list[Event], kind: type[Any], name: str) -> list[str]:
    return sorted(f"{event.turn} {getattr(event, name)}" for event in events if isinstance(event, kind))


def _missing(pids: list[int]) -> bool:
    until = time.monotonic() + 240
    while alive := [pid for pid in pids if is_running(pid)]:
        if time.monotonic() > until:
            return not alive
        time.sleep(0.02)
    return True
