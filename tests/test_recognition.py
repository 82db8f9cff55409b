"""Which protocol a recording holds, without being told."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from stagedoor import catalog
from stagedoor.replay import Line
from stagedoor.replay.recognition import recognized, utf8_chunks
from stagedoor.wire.jsonl import LineBuffer

TRANSCRIPTS = Path(__file__).parent / "transcripts"
NOT_STREAMS = ("sessionfile", "list", "plain-json", "json-tools", "delete-uuid", "db-path", "debug-paths")
# Nothing of any protocol is in them: plain text, or a remark of the recorder alone.
WITHOUT = {
    "claude-2.1.197/134-prompt-dash",
    "claude-2.1.197/22-stream-input-eof-empty",
    "claude-2.1.197/94-output-text-error",
    "gemini-0.61.0/139-text-format",
}
PATHS = sorted(
    path
    for path in TRANSCRIPTS.rglob("*.jsonl")
    if not any(word in path.name for word in NOT_STREAMS) and f"{path.parent.name}/{path.stem}" not in WITHOUT
)


def driver_of(path: Path) -> tuple[str, str]:
    agent = path.parent.name.rsplit("-", 1)[0]
    drivers = catalog.agent(agent).drivers
    if fresh := [name for name in drivers if path.name.startswith(f"recorded-{name}-")]:
        return agent, fresh[0]
    marks = {"codex": {"-app-": "app-server", "": "exec"}, "gemini": {"-acp-": "acp", "": "stream-json"}}
    marks |= {"claude": {"": "stream"}, "opencode": {"-serve-": "serve", "-acp-": "acp", "": "run"}}
    if agent not in marks:  # they speak ACP
        return agent, "acp"
    _, _, words = path.stem.partition("-")
    return agent, next(name for mark, name in marks[agent].items() if f"-{words}-".startswith(mark))


def lines_of(content: bytes) -> list[Line]:
    buffer = LineBuffer()
    return [line for chunk in utf8_chunks([content]) for line in buffer.feed(chunk)] + buffer.finish()


def as_it_is(content: bytes) -> bytes:
    return content


def disturbed(content: bytes) -> bytes:
    """As a Windows editor leaves it, behind what a shell prints, and cut off."""
    whole = b"npm warn config\n\n> run\n" + content.replace(b"\n", b"\r\n")
    return "\ufeff".encode() + whole + content.splitlines()[-1][:40]


def in_utf16(content: bytes) -> bytes:
    return content.decode("utf-8", "replace").encode("utf-16")


@pytest.mark.parametrize("form", [as_it_is, disturbed, in_utf16])
def test_every_recording(form: Callable[[bytes], bytes]) -> None:
    wrong: dict[str, str] = {}
    for path in PATHS if form is as_it_is else PATHS[::7]:
        lines = lines_of(form(path.read_bytes()))
        recognition, rest = recognized(lines)
        assert list(rest) == lines
        agent, driver = driver_of(path)
        expected = {(agent, driver), ("acp", "acp")} if driver == "acp" else {(agent, driver)}
        if (recognition.agent, recognition.driver_name) not in expected:
            wrong[f"{path.parent.name}/{path.stem}"] = str(recognition)
        named, _ = recognized(lines, catalog.agent(agent))
        if (named.agent, named.driver_name) != (agent, driver):
            wrong[f"{agent}: {path.parent.name}/{path.stem}"] = str(named)
    assert wrong == {}


CODEX = [b'{"type":"thread.started","thread_id":"a"}', b'{"type":"turn.started"}', b'{"type":"turn.completed"}']
GEMINI = [b'{"type":"init","session_id":"x","model":"m"}']
WORDS: list[tuple[list[bytes], str | None, str]] = [
    (CODEX, None, "recognized as codex --driver exec"),
    ([b'{"type":"error","message":"401"}'], None, "recognized as codex --driver exec"),
    ([*CODEX, *GEMINI], "codex", "recognized as codex --driver exec"),
    (
        [*CODEX[:2], *GEMINI, CODEX[2]],
        None,
        "recognized as codex --driver exec; some lines look like gemini stream-json",
    ),
    ([b"hello"], None, "no protocol was recognized; read as Agent Client Protocol"),
    (
        GEMINI,
        "claude",
        "no protocol was recognized (it looks like gemini stream-json: leave the agent out); "
        "read as claude --driver stream",
    ),
    ([], "gemini", "no protocol was recognized; read as gemini --driver acp"),
]


@pytest.mark.parametrize(("lines", "agent", "words"), WORDS)
def test_it_says_which(lines: list[bytes], agent: str | None, words: str) -> None:
    recognition, rest = recognized(lines, None if agent is None else catalog.agent(agent))
    assert (str(recognition), list(rest)) == (words, lines)


def test_the_command(tmp_path: Path) -> None:
    log = [{"dir": "recv", "t": "0.1", "line": line.decode()} for line in CODEX]
    content = "\ufeff" + "".join(json.dumps(entry) + "\r\n" for entry in log)
    argv = [sys.executable, "-m", "stagedoor.cli", "translate", "--account"]
    done = subprocess.run(argv, input=content.encode(), capture_output=True, check=False, cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1].startswith(b'{"type":"done","agent":"codex"')
    assert b"recognized as codex --driver exec" in done.stderr
    assert b"3 lines: 3 translated, 0 without a unified meaning, 0 not recognized" in done.stderr


OWN = {
    "ours": (
        b'{"type":"init","agent":"codex","sessionId":"s","seq":1,"model":"m"}\n'
        b'{"type":"done","agent":"codex","sessionId":"s","seq":2,"status":"success"}\n',
        (),
        0,
        "recognized as Stagedoor's own events",
        2,
    ),
    "ours, with a mistake": (
        b'{"type":"init","agent":"codex","sessionId":"s","seq":1}\nrubbish\n',
        (),
        2,
        "line 2 is not one of Stagedoor's events",
        1,
    ),
    "rubbish": (b"hello\nthere\n", (), 2, "no protocol was recognized: is this the output of an agent?", 0),
    "other JSON": (b'{"name":"x","version":"1"}\n', (), 2, "no protocol was recognized", 0),
    "rubbish of an agent": (b"hello\n", ("claude",), 1, "nothing in this recording could be understood", None),
    "rubbish of a driver": (b"hello\n", ("codex", "--driver", "exec"), 1, "nothing in this recording", None),
    "nothing": (b"", (), 2, "there is nothing on standard input", 0),
    "a file": (b"", (__file__,), 2, f"read from standard input: stagedoor translate < {__file__}", 0),
}


@pytest.mark.parametrize("name", OWN)
def test_our_own_events_are_recognized_and_rubbish_is_refused(name: str, tmp_path: Path) -> None:
    content, words, code, message, lines = OWN[name]
    argv = [sys.executable, "-m", "stagedoor.cli", "translate", *words]
    done = subprocess.run(argv, input=content, capture_output=True, check=False, cwd=tmp_path)
    assert (done.returncode, message in done.stderr.decode()) == (code, True), done.stderr
    assert lines is None or len(done.stdout.splitlines()) == lines
