"""``stagedoor run --server``: the same command, somewhere else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def command(*words: str, cwd: Path, verb: str = "run", **env: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "stagedoor.cli", verb, *words],
        cwd=cwd, env=os.environ | env, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def test_a_prompt_runs_on_a_server(server: Any, script: Any, tmp_path: Path, stagedoor_home: Path) -> None:
    inside = server.workspace / "inside"
    inside.mkdir()
    (stagedoor_home / "token").write_text(server.token)
    (stagedoor_home / "server.json").write_text(json.dumps({"url": server.url}))
    prompt = script([{"say": "I look."}, {"read_file": "note"}], [{"say": "Done."}])
    (inside / "note").write_text("hello")

    code, output, error = command("understudy", prompt, "--server", "local", "--json", cwd=inside)
    events = [json.loads(line) for line in output.splitlines()]
    assert (code, error) == (0, "")
    assert (events[0]["type"], events[0]["cwd"], events[-1]["type"]) == ("init", str(inside), "done")
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))

    code, output, error = command(
        "understudy",
        prompt,
        "--server",
        server.url,
        "--cwd",
        "inside",
        "--quiet",
        cwd=tmp_path,
        STAGEDOOR_TOKEN=server.token,
    )
    assert (code, output, error) == (0, "Done.\n", "")

    code, output, error = command("understudy", prompt, "--server", "local", "--json", cwd=tmp_path)
    assert (code, output) == (2, "")
    assert "outside the folders this server works in" in error
    code, output, error = command("understudy", prompt, "--server", "local", "--executable", "x", cwd=inside)
    assert (code, output) == (2, "")
    assert "--server" not in error
    assert "--executable does not work with a server" in error


def test_a_sessions_files_are_restored(server: Any, script: Any, tmp_path: Path, stagedoor_home: Path) -> None:
    (stagedoor_home / "token").write_text(server.token)
    (stagedoor_home / "server.json").write_text(json.dumps({"url": server.url}))
    made = server.workspace / "made"
    prompt = script([{"shell": "echo 1 > made"}], [{"say": "ok"}])
    ran = command(
        "understudy", prompt, "--server", "local", "--json", "--tier", "autonomous", cwd=server.workspace
    )  # fmt: skip
    session = json.loads(ran[1].splitlines()[0])["sessionId"]
    undo = ("undo", session[:13])
    code, output, error = command(*undo, "--list", cwd=tmp_path, verb="sessions")
    assert (code, error, output.splitlines()[2].split()[:4]) == (0, "", ["000001", "before", "turn", "1"])
    code, output, error = command(*undo, "made", "--turn", "1", cwd=tmp_path, verb="sessions")
    assert (code, output, made.exists()) == (0, "restored made\n", False)
    redo = error.strip().removeprefix("undo this: stagedoor sessions ").split()
    assert (redo[:2], redo[2:]) == (["undo", session], ["--checkpoint", "000002"])
    assert command(*redo, cwd=tmp_path, verb="sessions")[:2] == (0, "restored made\n")
    assert made.read_text() == "1\n"
    code, output, error = command(*undo, "--turn", "7", cwd=tmp_path, verb="sessions")
    assert (code, output) == (2, "")
    assert "no checkpoint of turn 7" in error
