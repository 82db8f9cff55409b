"""Trust over the server: who may give it, what is shown, and what a session gets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stagedoor.trust.record import TrustRecord

pytestmark = pytest.mark.usefixtures("no_repository_above")


def test_a_folder_is_shown_trusted_and_forgotten(server: Any, tmp_path: Path) -> None:
    project = server.workspace / "project"
    (project / ".claude").mkdir(parents=True)
    (project / ".claude" / "settings.json").write_text("{}")
    where = {"cwd": "project", "agent": "claude"}
    files = [{"path": str(project / ".claude/settings.json"), "kind": "settings: hooks, helpers, environment"}]
    seen = server.http.get("/api/trust", params=where).json()
    assert seen == {"folder": str(project), "trusted": False, "files": files}
    assert server.http.get("/api/trust", params={**where, "cwd": str(tmp_path)}).status_code == 403
    assert server.http.post("/api/trusted", json={"folder": str(tmp_path)}).status_code == 403
    made = server.http.post("/api/trusted", json={"folder": str(project)})
    assert (made.status_code, made.json()["folder"]) == (201, str(project))
    assert [entry.folder for entry in TrustRecord(server.home).folders()] == [str(project)]
    assert server.http.get("/api/trust", params=where).json()["trusted"] is True
    assert [entry["folder"] for entry in server.http.get("/api/trusted").json()["folders"]] == [str(project)]
    assert server.http.request("DELETE", "/api/trusted", json={"folder": str(project)}).status_code == 204
    assert server.http.get("/api/trust", params=where).json()["trusted"] is False


def test_a_session_may_be_created_with_it(server: Any, script: Any) -> None:
    body = {"prompt": script([{"say": "here"}]), "agent": "understudy", "trust": True}
    made = server.http.post("/api/sessions", json=body)
    assert (made.status_code, made.json()["wanted"]["trust"]) == (201, True)
    assert server.http.post("/api/sessions", json={**body, "trust": "yes"}).status_code == 400
