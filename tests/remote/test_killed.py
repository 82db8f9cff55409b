"""The server is killed in the middle; its clients go on with the one that is started after it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import stagedoor

BOUND = 240.0


class Servers:
    """``stagedoor serve`` with one home, on another port each time."""

    def __init__(self, folder: Path) -> None:
        self._env = {**os.environ, "STAGEDOOR_HOME": str(folder / "stagedoor"), "HOME": str(folder)}
        self._workspace = folder / "workspace"
        self._workspace.mkdir()
        self._log = folder / "errors"
        self._errors = self._log.open("w")
        self._process: subprocess.Popen[str] | None = None

    async def start(self) -> None:
        await asyncio.to_thread(self._start)

    def _start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "stagedoor.cli", "serve", "--port", "0", "--root", str(self._workspace)],
            env=self._env,
            cwd=self._workspace,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        assert self._process.stdout is not None
        while "Ctrl-C stops it." not in (line := self._process.stdout.readline()):
            assert line, self._log.read_text()

    def end(self, signal_number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(signal_number)
            self._process.communicate(timeout=BOUND)
            self._process = None


@pytest.fixture
def servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Servers]:
    monkeypatch.setenv("STAGEDOOR_HOME", str(tmp_path / "stagedoor"))
    servers = Servers(tmp_path)
    yield servers
    servers.end(signal.SIGTERM)
    servers._errors.close()


def test_clients_go_on_after_the_server_was_killed(servers: Servers, script: Any) -> None:
    talk = script([{"say": {"text": ["w "] * 3000, "pause": 0.01}}])
    asking = script([{"say": "I ask."}, {"shell": "touch made"}], [{"say": "Done."}])
    restarted = asyncio.Event()

    async def patient(_: stagedoor.PermissionRequest) -> stagedoor.Deny:
        """Decides after the server has died and come back."""
        await restarted.wait()
        return stagedoor.Deny("no")

    async def talking(remote: stagedoor.Remote, received: asyncio.Event) -> list[stagedoor.Event]:
        events: list[stagedoor.Event] = []
        async for event in remote.run("understudy", talk):
            events.append(event)
            if isinstance(event, stagedoor.TextDelta):
                received.set()
        return events

    async def answer_questions(session: stagedoor.RemoteSession, received: asyncio.Event) -> list[stagedoor.Event]:
        events: list[stagedoor.Event] = []
        async for event in session.events:
            events.append(event)
            if isinstance(event, stagedoor.PermissionRequest):
                received.set()
            elif isinstance(event, stagedoor.PermissionResolved):
                break
        return events

    async def main() -> None:
        await servers.start()
        remote = stagedoor.connect()
        first = remote.url
        spoke, asks = asyncio.Event(), asyncio.Event()
        async with remote.open("understudy") as idle, remote.open("understudy", can_use_tool=patient) as open_question:
            before = [event async for event in idle.send(script([{"say": "one"}]))]
            talks = asyncio.create_task(talking(remote, spoke))
            await open_question.post(asking)
            waits = asyncio.create_task(answer_questions(open_question, asks))
            await spoke.wait()
            await asks.wait()
            servers.end(signal.SIGKILL)
            await servers.start()
            after = [event async for event in idle.send(script([{"say": "two"}]))]
            assert remote.url != first
            restarted.set()
            cut, decided = await talks, await waits

        for story in (cut, decided, [*before, *after]):
            assert [event.seq for event in story] == list(range(1, len(story) + 1))
        assert isinstance(cut[-1], stagedoor.Done)
        assert cut[-1].status == "interrupted"
        assert isinstance(after[-1], stagedoor.TurnCompleted)
        assert after[-1].status == "success"
        assert isinstance(decided[-1], stagedoor.PermissionResolved)
        assert (decided[-1].decision, decided[-1].message) == ("deny", "no")
        assert [view.state for view in await remote.sessions(ended=False)] == []

    asyncio.run(asyncio.wait_for(main(), BOUND))
