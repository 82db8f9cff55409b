"""``stagedoor rpc``: the same methods on stdin and stdout, here and across a bridge."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stagedoor.transports.guard.processes import descendants
from tests.processes import is_running

BOUND = 240.0
Json = dict[str, Any]
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts ``stagedoor rpc`` in a home and a folder of its own."""
    started: list[subprocess.Popen[str]] = []
    folder = tmp_path / "folder"
    folder.mkdir()

    def run(*words: str, stdin: Any = subprocess.PIPE, **env: str) -> subprocess.Popen[str]:
        around = os.environ | {
            "STAGEDOOR_HOME": str(tmp_path / "rpc-home"),
            "HOME": str(tmp_path),
            "STAGEDOOR_AGENTS__DEFAULT": "understudy",
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "stagedoor.cli", "rpc", *words],
            stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder, env=around | env,
        )  # fmt: skip
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def call(number: int, method: str, **params: Any) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}) + "\n"


def say(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdin is not None
    process.stdin.write(text)
    process.stdin.flush()


def hear(process: subprocess.Popen[str], until: Callable[[Json], bool]) -> list[Json]:
    assert process.stdout is not None
    messages: list[Json] = []
    for line in process.stdout:
        messages.append(json.loads(line))
        if until(messages[-1]):
            return messages
    raise AssertionError(f"it ended after {messages}")


def end(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=BOUND)
    return process.returncode, out, err


def test_a_whole_conversation(start: Start, script: Any, tmp_path: Path) -> None:
    process = start()
    prompt = script([{"shell": "touch made"}], [{"say": "ok"}])
    say(process, call(1, "agent/run", prompt=prompt))
    [ran, *_, question] = hear(process, lambda message: message.get("method") == "agent_permission")
    assert (ran["id"], ran["result"]["status"]) == (1, "started")
    say(process, call(2, "agent/respond", toolUseId=question["params"]["payload"]["tool_id"], response="yes"))
    hear(process, lambda message: message.get("method") == "agent_complete")
    assert (tmp_path / "folder" / "made").exists()
    say(process, call(3, "agent/stop"))
    hear(process, lambda message: message.get("method") == "subscription_ended")
    assert end(process)[0] == 0


def test_a_signal_ends_it_and_what_it_runs(start: Start, script: Any, tmp_path: Path) -> None:
    process = start()
    say(process, call(1, "agent/run", prompt=script([{"shell": "true"}], [{"say": "ok"}])))
    hear(process, lambda message: message.get("method") == "agent_permission")
    left = descendants(process.pid)
    assert left
    process.terminate()
    assert end(process)[0] == 130
    until = time.monotonic() + BOUND
    while any(map(is_running, left)):  # a guard ends a moment after what it stands over
        assert time.monotonic() < until
        time.sleep(0.02)


def test_what_was_asked_before_the_end_is_answered(start: Start, tmp_path: Path) -> None:
    calls_file = tmp_path / "calls.jsonl"
    calls_file.write_text(call(1, "session/list") + "\nnot json\n" + call(2, "agent/select", type="codex").rstrip())
    with calls_file.open() as file:
        code, out, err = end(start(stdin=file))
    answers = [json.loads(line) for line in out.splitlines()]
    assert (code, err) == (0, "")
    assert sorted(message.get("id") or 0 for message in answers) == [0, 1, 2]
    assert {message["id"]: message.get("result", message.get("error")) for message in answers}[2] == {
        "status": "selected", "type": "codex", "name": "Codex CLI",
    }  # fmt: skip


def test_a_line_that_is_too_long_is_refused_and_the_next_one_read(start: Start) -> None:
    process = start(STAGEDOOR_SESSIONS__LIMITS__BODY="1000")
    say(process, call(1, "session/list", search="x" * 2000) + call(2, "session/list"))
    refused, answered = hear(process, lambda message: message.get("id") == 2)
    assert (refused["id"], refused["error"]["code"]) == (None, -32012)
    assert answered["result"]["total"] == 0
    assert end(process)[0] == 0


def test_a_bridge_carries_everything(start: Start, server: Any, script: Any, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(server.token + "\n")
    process = start("--url", server.url, "--token-file", str(token))
    say(process, call(1, "agent/run", prompt=script([{"say": "Hello"}]), keepOpen=False))
    messages = hear(process, lambda message: message.get("method") == "subscription_ended")
    assert "agent_message" in [message.get("method") for message in messages]
    say(process, call(2, "session/list") + '{"jsonrpc":"2.0","method":"agent/status"}\n')
    code, out, err = end(process)
    assert (code, json.loads(out)["result"]["total"], err) == (0, 1, "")


@pytest.mark.parametrize(
    ("words", "env", "code", "reason"),
    [
        (["--url", "http://127.0.0.1:9"], {"STAGEDOOR_TOKEN": "x"}, 1, "could not connect to ws://127.0.0.1:9/ws"),
        (["--url", "ftp://x"], {"STAGEDOOR_TOKEN": "x"}, 2, "http"),
        (["--url", "http://127.0.0.1:9"], {}, 4, "no token for http://127.0.0.1:9"),
        (["--token-file", "x"], {}, 2, "--token-file needs --server"),
        (["--config", "nowhere.yaml"], {}, 2, "nowhere.yaml"),
    ],
)
def test_what_cannot_begin_says_why(
    start: Start, words: list[str], env: dict[str, str], code: int, reason: str
) -> None:
    ended, out, err = end(start(*words, stdin=subprocess.DEVNULL, **env))
    assert (ended, out) == (code, "")
    assert reason in err
    assert "Traceback" not in err


def test_a_bridge_with_the_wrong_token_is_told_so(start: Start, server: Any) -> None:
    ended, _, err = end(start("--url", server.url, stdin=subprocess.DEVNULL, STAGEDOOR_TOKEN="stagedoor_wrong"))
    assert ended == 1
    assert "401" in err


def test_two_at_once_on_one_home_do_not_mix(start: Start) -> None:
    first = start()
    say(first, call(1, "session/list"))
    hear(first, lambda message: message.get("id") == 1)
    ended, out, err = end(start(stdin=subprocess.DEVNULL))
    assert (ended, out) == (1, "")
    assert "in use by another Stagedoor" in err
    assert end(first)[0] == 0
