"""Calls of the model that an agent repeats without a word, told from its records."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from stagedoor.agents.acp import AcpClient, AcpSessionConfig, RequestPermission
from stagedoor.agents.acp.events import ModelFailed
from stagedoor.agents.acp.responses import PromptResponse
from stagedoor.drivers.acp.dictionary import AcpDictionary
from stagedoor.drivers.acp.retries import FailedCall, watch_retries
from stagedoor.drivers.kimi import records as kimi
from stagedoor.drivers.qwen.stored import failed_call
from stagedoor.drivers.stored import NewLines
from stagedoor.understudy import command
from stagedoor.unified.events import Retry

BOUND = 120.0
PROMPT = json.dumps({"script": [[{"shell": "true"}], [{"say": "Done"}]]})


def record(message: str) -> str:
    """As Qwen Code 0.24.4 writes it."""
    event = {"event.name": "qwen-code.api_error", "error_message": message, "status_code": 429}
    return json.dumps({"type": "system", "subtype": "ui_telemetry", "systemPayload": {"uiEvent": event}}) + "\n"


def test_they_are_told_while_the_turn_runs(tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    file.write_text(record("of an earlier turn"))

    async def main() -> list[ModelFailed]:
        seen = asyncio.Event()
        failures: list[ModelFailed] = []

        async def decide(question: RequestPermission) -> None:
            with file.open("a") as more:
                more.write('{"type": "user"}\n' + record("429 slow down") + record("429 again") + '{"type": "half')
            await seen.wait()

        client = AcpClient(command(home=str(tmp_path / "agent")), tmp_path)
        config = AcpSessionConfig(can_use_tool=decide)
        async with asyncio.timeout(BOUND), await client.create_session(None, config) as session:
            watch_retries(session, lambda: file, failed_call, start=file.stat().st_size)
            events = session.events
            await session.send(PROMPT)
            async for event in events:
                if isinstance(event, ModelFailed):
                    failures.append(event)
                    if len(failures) == 2:
                        seen.set()
                if isinstance(event, PromptResponse):
                    break
        return failures

    failures = asyncio.run(main())
    assert [(one.attempt, one.message, one.code) for one in failures] == [
        (1, "429 slow down", 429),
        (2, "429 again", 429),
    ]
    [retry] = AcpDictionary().translate(failures[0])
    assert retry == Retry(attempt=1, reason="429 slow down")


def test_only_whole_lines_count(tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    lines = NewLines(lambda: file if file.exists() else None, 0)
    assert lines.read() == []
    file.write_text('{"a": 1}\nno json\n{"b": ')
    assert lines.read() == [{"a": 1}]
    assert lines.read() == []
    with file.open("a") as more:
        more.write("2}\n")
    assert lines.read() == [{"b": 2}]


def test_what_kimi_code_writes_of_an_attempt() -> None:
    """As 2.1.0 writes it, shortened."""
    record = {
        "type": "turn.step.retrying", "failedAttempt": 1, "nextAttempt": 2, "maxAttempts": 10, "delayMs": 609.6,
        "errorMessage": "500 The server had an error", "statusCode": 500,
    }  # fmt: skip
    assert kimi.failed_call(record) == FailedCall("500 The server had an error", 500)
    assert kimi.failed_call({**record, "type": "turn.step.interrupted"}) is None
