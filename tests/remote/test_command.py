"""``stagedoor run --server``: the same command, somewhere else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def command(*words: str, cwd: Path, **env: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "stagedoor.cli", "run", *words],
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
    assert "executable= does not work with a server" in error
