"""Sessions run only under the configured roots, whatever a client writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def test_no_session_runs_outside_the_roots(server: Any, tmp_path: Path, script: Any) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (server.workspace / "inside").mkdir()
    (server.workspace / "link").symlink_to(outside)
    sibling = tmp_path / f"{server.workspace.name}-sibling"
    sibling.mkdir()
    tries: list[tuple[dict[str, str], int]] = [
        ({"cwd": str(outside)}, 403),
        ({"cwd": "/"}, 403),
        ({"cwd": "~"}, 403),
        ({"cwd": "link"}, 403),
        ({"cwd": str(server.workspace / "link")}, 403),
        ({"cwd": ".."}, 403),
        ({"cwd": f"{server.workspace}/../outside"}, 403),
        ({"cwd": str(sibling)}, 403),
        ({"cwd": str(server.home)}, 403),
        ({"projectId": ".."}, 400),
        ({"projectId": "../outside"}, 400),
        ({"projectId": "link"}, 403),
        ({"cwd": "inside"}, 201),
        ({"projectId": "inside"}, 201),
    ]
    prompt = script([{"say": "here"}])
    got = [
        (where, server.http.post("/api/sessions", json={"prompt": prompt, "agent": "understudy", **where}).status_code)
        for where, _ in tries
    ]
    assert got == tries


def test_a_session_that_was_made_under_a_root_reads_no_file_outside_it(server: Any, script: Any) -> None:
    (server.home / "planted").write_text("secret")
    (server.workspace / "leak").symlink_to(server.home / "planted")
    made = server.http.post("/api/sessions", json={"prompt": script([{"say": "here"}]), "agent": "understudy"}).json()
    for path in ("leak", str(server.home / "planted"), "../stagedoor-home/planted", "/etc/passwd"):
        answer = server.http.get(f"/api/sessions/{made['id']}/file", params={"path": path})
        assert (path, answer.status_code) == (path, 403)
        assert "secret" not in answer.text
