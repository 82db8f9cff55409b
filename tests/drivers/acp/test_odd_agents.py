"""Agents that speak the protocol in ways that nobody expects: all is told, nothing hangs, nothing is let through."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

import stagedoor
from stagedoor import AcpAgent
from stagedoor.agents.acp import AcpClient
from stagedoor.errors import AgentRefused, LaunchError, UnsupportedVersion
from stagedoor.unified.events import Event

BOUND = 240.0
ODD = [sys.executable, "-S", str(Path(__file__).with_name("odd_agent.py"))]
NO_RESULT = "the turn ended (success) before a result was reported"
NEITHER = "the answer has neither a result nor an error"
UNREADABLE = "unreadable answer to session/prompt: Expected `object`, got `str`"
SAME_ID = "session/request_permission: the agent asked under the id of a question that was still open"
CANCELLED = '{"outcome": "cancelled"}'
SILENT = ("notice", "no_answer", "the model ended its turn without a word")


def attachment(words: str) -> tuple[str, str, str]:
    return ("notice", "attachment", f"the agent sent {words}")


TURNS: dict[str, list[tuple[Any, ...]]] = {
    "placeholder": [("use", "shell", "ls x"), ("result", "error", 2, "no"), SILENT, ("end", "success", "")],
    "told_again": [
        ("use", "shell", "ls"),
        ("result", "success", None, "a"),
        ("use", "shell", "ls"),
        ("result", "success", None, "a"),
        ("notice", "late", "c b"),
        SILENT,
        ("end", "success", ""),
    ],
    "question_first": [
        ("use", "shell", "make"),
        ("text", '{"outcome": "selected", "optionId": "yes"}'),
        ("result", "success", None, ""),
        ("end", "success", '{"outcome": "selected", "optionId": "yes"}'),
    ],
    "one_id_for_two": [
        ("use", "shell", "ls"),
        ("unrecognized", SAME_ID),
        ("text", CANCELLED),
        ("result", "error", None, NO_RESULT),
        ("end", "success", CANCELLED),
    ],
    "only_for_ever": [
        ("use", "shell", "ls"),
        ("text", CANCELLED),
        ("result", "error", None, NO_RESULT),
        ("end", "success", CANCELLED),
    ],
    "unknown_option": [
        ("use", "shell", "ls"),
        ("text", CANCELLED),
        ("result", "error", None, NO_RESULT),
        ("end", "success", CANCELLED),
    ],
    "taken_back": [
        ("use", "shell", "ls"),
        ("text", "-32800"),
        ("result", "error", None, NO_RESULT),
        ("end", "success", "-32800"),
    ],
    "unfinished": [("use", "shell", "ls"), SILENT, ("result", "error", None, NO_RESULT), ("end", "success", "")],
    "late": [SILENT, ("end", "success", "")],
    "pieces": [
        ("notice", "late", "a word"),
        ("notice", "late", "ls pending"),
        ("notice", "late", "rest (pending)"),
        ("notice", "request_declined", "the agent asked for session/request_permission while no turn was running"),
        attachment("an image: image/png, 3 bytes"),
        attachment("a sound: audio/wav, 3 bytes"),
        attachment("a file: file:///b"),
        attachment("a link: file:///c"),
        attachment("content of an unknown kind"),
        attachment("content of an unknown kind"),
        ("end", "success", ""),
    ],
    "news": [
        ("unrecognized", "session/update: unknown sessionUpdate 'brand_new'"),
        ("unrecognized", "unknown notification 'totally/new'"),
        ("unrecognized", "unknown request 'fs/delete'"),
        ("text", "-32601"),
        ("end", "success", "-32601"),
    ],
    "noise": [
        ("unrecognized", "Expecting value: line 1 column 1 (char 0)"),
        ("unrecognized", "Expecting value: line 1 column 1 (char 0)"),
        ("unrecognized", "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        SILENT,
        ("end", "success", ""),
    ],
    "batch": [("text", "batch"), ("end", "success", "batch")],
    "id_as_text": [SILENT, ("end", "success", "")],
    "id_as_float": [SILENT, ("end", "success", "")],
    "nothing": [("error", "unknown", NEITHER), ("end", "error", NEITHER)],
    "error_null": [("error", "unknown", NEITHER), ("end", "error", NEITHER)],
    "error_text": [("error", "unknown", "it broke"), ("end", "error", "it broke")],
    "error_object": [("error", "unknown", '{"a":1}'), ("end", "error", '{"a":1}')],
    "error_for_nobody": [("error", "protocol_error", "Parse error"), ("end", "error", "Parse error")],
    "result_text": [("unrecognized", UNREADABLE), ("error", "unknown", UNREADABLE), ("end", "error", UNREADABLE)],
    "odd_stop": [("error", "unknown", "the turn ended with 'tired'"), ("end", "error", "the turn ended with 'tired'")],
    "dies": [
        ("notice", "exited", "the agent ended with code 3: fatal: no disk"),
        ("error", "connection_failed", "the agent ended before it finished its turn"),
        ("end", "error", "the agent ended before it finished its turn"),
    ],
}
"""In this order, in one session: what comes after the end of a turn is read with the next one."""


def told(events: list[Event]) -> list[tuple[Any, ...]]:
    words: list[tuple[Any, ...]] = []
    for event in events:
        match event:
            case stagedoor.ToolUse():
                words.append(("use", event.name, event.target))
            case stagedoor.ToolResult():
                words.append(("result", event.status, event.exit_code, event.output))
            case stagedoor.Text():
                words.append(("text", event.text))
            case stagedoor.Notice():
                words.append(("notice", event.code, event.message))
            case stagedoor.Unrecognized():
                words.append(("unrecognized", event.why))
            case stagedoor.Error():
                words.append(("error", event.kind, event.message))
            case stagedoor.TurnCompleted():
                words.append(("end", event.status, event.result))
            case _:
                pass
    return words


def test_every_turn_is_told_and_ends(tmp_path: Path) -> None:
    async def main() -> dict[str, list[tuple[Any, ...]]]:
        turns: dict[str, list[tuple[Any, ...]]] = {}
        agent = AcpAgent(command=ODD, name="odd")
        options: dict[str, Any] = {"cwd": tmp_path, "tier": "autonomous", "watch_files": False}
        async with asyncio.timeout(BOUND), stagedoor.open(agent, **options) as session:
            for how in TURNS:
                turns[how] = told([event async for event in session.send(how)])
        return turns

    assert asyncio.run(main()) == TURNS


@pytest.mark.parametrize(
    ("how", "error", "words"),
    [
        ("old", UnsupportedVersion, "uses version 0"),
        ("empty", AgentRefused, NEITHER),
        ("mute", LaunchError, r"did not answer session/new within 0\.2 s"),
    ],
)
def test_an_agent_that_opens_no_session_says_why(tmp_path: Path, how: str, error: type[Exception], words: str) -> None:
    async def main() -> None:
        async with asyncio.timeout(BOUND):
            with pytest.raises(error, match=words):
                await AcpClient([*ODD, how], tmp_path, open_timeout=0.2 if how == "mute" else 600.0).create_session()

    asyncio.run(main())


def test_a_handshake_in_a_batch(tmp_path: Path) -> None:
    async def main() -> None:
        async with asyncio.timeout(BOUND), await AcpClient([*ODD, "batch"], tmp_path).create_session() as session:
            assert session.session_id == "s"

    asyncio.run(main())
