"""Sessions over REST, with the embedded agent: whole answers, every dialect, every verb."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from stagedoor.dialects import DIALECTS, encode
from stagedoor.unified.events import decode

Script = Callable[..., str]
STEPS = [{"think": "hm"}, {"say": "One"}, {"shell": "true"}, {"say": "Two"}]


async def ended(client: httpx.AsyncClient, session_id: str) -> dict[str, Any]:
    """The session once it has ended; a bound is on everything that happens in a test's server."""
    after = 0
    while True:
        polled = (await client.get(f"/api/sessions/{session_id}/poll", params={"after": after})).json()
        after = polled["lastSeq"]
        if polled["ended"]:
            found: dict[str, Any] = (await client.get(f"/api/sessions/{session_id}")).json()
            return found


def test_the_boards_request_and_answer(serve: Any, script: Script) -> None:
    async def main() -> None:
        async with serve() as server, server.client() as client:
            body = {"agentId": "understudy", "projectId": "workspace", "prompt": script([{"say": "Hello"}])}
            made = await client.post("/api/sessions", json=body)
            began = made.json()
            assert made.status_code == 201
            assert {name: began[name] for name in ("state", "agent", "projectId", "prompt", "cwd", "activity")} == {
                "state": "running",
                "agent": "understudy",
                "projectId": "workspace",
                "prompt": body["prompt"],
                "cwd": str(server.workspace),
                "activity": "starting",
            }
            over = await ended(client, began["id"])
            assert {name: over[name] for name in ("id", "state", "status", "result", "activity")} == {
                "id": began["id"],
                "state": "done",
                "status": "success",
                "result": "Hello",
                "activity": "ended",
            }
            page = (await client.get(f"/api/sessions/{began['id']}/events?offset=0&limit=2&dialect=board")).json()
            assert [event["type"] for event in page["events"]] == ["log", "log"]
            assert (page["offset"], page["limit"], page["state"]) == (0, 2, "done")

    asyncio.run(main())


def test_the_lifecycle_request_begins_and_continues(serve: Any, script: Script) -> None:
    async def main() -> None:
        async with serve() as server, server.client() as client:
            config = {"projectId": "workspace", "workingDirectory": str(server.workspace), "approvalMode": "autoEdit"}
            body = {"agentType": "understudy", "prompt": script([{"say": "Hello"}]), "config": config}
            first = (await client.post("/api/sessions", json=body)).json()
            assert (first["state"], first["agent"], first["approval"]) == ("running", "understudy", "autoEdit")
            await ended(client, first["id"])
            again = {"agentType": "understudy", "prompt": script([{"say": "More"}]), "sessionId": first["id"]}
            second = await client.post("/api/sessions", json=again)
            assert (second.status_code, second.json()["parentId"]) == (201, first["id"])
            assert (await ended(client, second.json()["id"]))["state"] == "done"
            both = await client.post("/api/sessions", json=again | {"config": config})
            assert (both.status_code, both.json()["field"]) == (400, "$.config")

    asyncio.run(main())


def test_a_session_kept_open_takes_a_follow_up_and_is_cancelled(serve: Any, script: Script) -> None:
    async def main() -> None:
        async with serve() as server, server.client() as client:
            body = {"prompt": script([{"say": "One"}]), "keepOpen": True, "title": "A talk"}
            session = (await client.post("/api/sessions", json=body)).json()
            path = f"/api/sessions/{session['id']}"
            sent = await client.post(f"{path}/messages", json={"prompt": script([{"say": "Two"}])})
            assert (sent.status_code, sent.json()["sessionId"], sent.json()["who"]) == (202, session["id"], "local")
            after = 0
            while (await client.get(path)).json()["result"] != "Two":
                after = (await client.get(f"{path}/poll", params={"after": after})).json()["lastSeq"]
            assert (await client.post(f"{path}/interrupt")).status_code == 200
            for refused in (await client.delete(path), await client.post(f"{path}/resume", json={"prompt": "on"})):
                assert (refused.status_code, refused.json()["type"]) == (409, "urn:stagedoor:problem:session-running")
            over = (await client.post(f"{path}/cancel")).json()
            assert over["activity"] == "ended"
            assert (await client.post(f"{path}/cancel")).json() == over
            late = await client.post(f"{path}/messages", json={"prompt": "more"})
            assert (late.status_code, late.json()["type"]) == (409, "urn:stagedoor:problem:session-ended")
            changed = (await client.patch(path, json={"title": "Called so", "archived": True})).json()
            assert changed == over | {"title": "Called so", "archived": True, "updatedAt": changed["updatedAt"]}
            forked = (await client.post(f"{path}/fork", json={"prompt": script([{"say": "Beside"}])})).json()
            assert (forked["parentId"], forked["forked"]) == (session["id"], True)
            resumed = await client.post(f"{path}/resume", json={"prompt": script([{"say": "Again"}])})
            assert (resumed.status_code, resumed.json()["parentId"]) == (201, session["id"])
            await client.post(f"/api/sessions/{resumed.json()['id']}/cancel")
            assert (await client.delete(path)).status_code == 204
            assert (await client.get(path)).status_code == 404

    asyncio.run(main())


def test_sessions_are_listed_by_pages_and_filters(serve: Any, script: Script) -> None:
    async def main() -> None:
        async with serve() as server, server.client() as client:
            ids = []
            for number in range(3):
                body = {"prompt": script([{"say": "x"}]), "title": f"Number {number}", "group": f"g{number % 2}"}
                ids.append((await client.post("/api/sessions", json=body)).json()["id"])
            for one in ids:
                await ended(client, one)
            whole = (await client.get("/api/sessions")).json()
            assert sorted(one["id"] for one in whole["sessions"]) == sorted(ids)
            assert {name: whole[name] for name in ("total", "offset", "limit")} == {
                "total": 3,
                "offset": 0,
                "limit": 50,
            }
            pages = [(await client.get(f"/api/sessions?offset={at}&limit=1")).json()["sessions"] for at in range(4)]
            assert [one for page in pages for one in page] == whole["sessions"]
            cursor, read = "", []
            for _ in range(2):
                page = (await client.get(f"/api/sessions?cursor={cursor}&limit=2")).json()
                read += page["sessions"]
                assert page["total"] == 3
                cursor = page["nextCursor"]
            assert (read, cursor) == (whole["sessions"], "")
            for wrong in ("cursor=x", f"cursor={whole['sessions'][0]['createdAt']}.{ids[0]}&offset=1"):
                assert (await client.get(f"/api/sessions?{wrong}")).status_code == 400
            for query, titles in [
                ("group=g0", {"Number 0", "Number 2"}),
                ("search=number+1", {"Number 1"}),
                ("state=done&ended=true&archived=false&agent=understudy", {"Number 0", "Number 1", "Number 2"}),
                ("state=failed", set()),
                ("projectId=nothing", set()),
            ]:
                found = (await client.get(f"/api/sessions?{query}")).json()
                assert ({one["title"] for one in found["sessions"]}, found["total"]) == (titles, len(titles)), query

    asyncio.run(main())


def test_pages_join_to_the_whole_in_every_dialect(serve: Any, script: Script) -> None:
    async def main() -> None:
        async with serve() as server, server.client() as client:
            body = {"prompt": script(STEPS, [{"say": "ok"}]), "approval": "autoAll"}
            session_id = (await client.post("/api/sessions", json=body)).json()["id"]
            last = (await ended(client, session_id))["lastSeq"]
            records = await server.service.events.read(session_id, limit=10_000)
            path = f"/api/sessions/{session_id}/events"
            for dialect, make in DIALECTS.items():
                projection = make()
                whole = [msgspec.json.decode(line) for one in records for line in encode(projection, decode(one.body))]
                for by in ("offset", "after"):
                    for limit in (1, 3, 500):
                        read_events: list[Any] = []
                        at = 0
                        while True:
                            answer = await client.get(path, params={by: at, "limit": limit, "dialect": dialect})
                            page = answer.json()
                            read_events += page["events"]
                            if page["nextOffset"] == at:
                                break
                            at = page["nextOffset"]
                        assert read_events == whole, (dialect, by, limit)
                        assert (page["firstSeq"], page["lastSeq"]) == (1, last)
                # Not in order, nothing is remembered: the same.
                answer = await client.get(path, params={"offset": 5, "limit": 2, "dialect": dialect})
                assert answer.json()["events"] == whole[5:7]
            total = (await client.get(path, params={"limit": 1})).json()["total"]
            assert total == len(records) == last

    asyncio.run(main())


def test_secrets_of_tool_servers_are_not_shown(serve: Any) -> None:
    from stagedoor.server.rest.sessions import public_view
    from stagedoor.service.views import SessionSpec, SessionView
    from stagedoor.unified.options import McpServer

    server = McpServer(command="x", env={"KEY": "secret"}, headers={"Authorization": "secret"})
    view = SessionView(id="1", agent="a", cwd="/", spec=SessionSpec(prompt="p", mcp_servers={"s": server}))
    assert b"secret" not in msgspec.json.encode(public_view(view))


PROBLEMS: list[tuple[str, str, Any, int, str, str]] = [
    # method, path, body, status, detail, field
    ("GET", "/api/sessions/none", None, 404, "session 'none' not found", ""),
    ("GET", "/api/nothing", None, 404, "Not Found", ""),
    ("PUT", "/api/sessions", None, 405, "PUT is not allowed here; use POST, GET, HEAD", ""),
    ("POST", "/api/sessions", {}, 400, "object missing required field `prompt`", "$"),
    ("POST", "/api/sessions", [], 400, "expected an object with a prompt", "$"),
    ("POST", "/api/sessions", {"prompt": 1}, 400, "prompt: expected `str`, got `int`", "$.prompt"),
    ("POST", "/api/sessions", {"promt": "x"}, 400, "unknown field 'promt': did you mean 'prompt'?", "$.promt"),
    ("POST", "/api/sessions", {"prompt": "  "}, 400, "the prompt is empty; write what the agent should do", ""),
    (
        "POST",
        "/api/sessions",
        {"prompt": "a\0b"},
        400,
        "the body contains the character NUL; leave it out",
        "$",
    ),
    (
        "POST",
        "/api/sessions",
        {"prompt": "", "maxTurns": 10**30},
        400,
        "the body contains a number of more than 64 bits",
        "$",
    ),
    ("GET", "/api/sessions?limt=1", None, 400, "unknown query name 'limt': did you mean 'limit'?", "limt"),
    ("GET", "/api/sessions?limit=1&limit=2", None, 400, "limit was sent twice; send it once", "limit"),
    ("GET", "/api/sessions?limit=x", None, 400, "limit: expected a whole number, got 'x'", "limit"),
    (
        "GET",
        "/api/sessions?state=bogus",
        None,
        400,
        "state: invalid enum value 'bogus'; choose one of cancelled, done, failed, running",
        "state",
    ),
    ("GET", "/api/sessions?limit=0", None, 400, "limit: expected `int` >= 1", "limit"),
    ("GET", "/api/sessions?ended=1", None, 400, "ended: expected true or false, got '1'", "ended"),
    ("GET", "/api/sessions?search=%00", None, 400, "the query contains the character NUL; leave it out", "query"),
    ("GET", "/api/agents?x=1", None, 400, "unknown query name 'x'", "x"),
    ("PATCH", "/api/sessions/none", {"title": "x"}, 404, "session 'none' not found", ""),
    ("POST", "/api/permissions/none", {"decision": "allow"}, 404, "question 'none' not found", ""),
    (
        "POST",
        "/api/permissions/none",
        {"decision": "maybe"},
        400,
        "decision: invalid value 'maybe'",
        "$.decision",
    ),
]


def test_problems_say_what_is_wrong(serve: Any) -> None:
    async def main() -> None:
        async with serve() as server, server.client() as client:
            for method, path, body, status, detail, field in PROBLEMS:
                answer = await client.request(method, path, json=body)
                problem = answer.json()
                expected = {"status": status, "detail": detail, "instance": path.partition("?")[0]}
                if field:
                    expected["field"] = field
                assert answer.headers["content-type"] == "application/problem+json", path
                assert {name: problem[name] for name in problem if name not in ("type", "title")} == expected, path
                assert (answer.status_code, problem["type"][:22]) == (status, "urn:stagedoor:problem:")

    asyncio.run(main())


RAW: list[tuple[bytes, str, int]] = [
    (b"{", "application/json", 400),
    (b"", "application/json", 400),
    (b'{"prompt": "\\ud800"}', "application/json", 400),
    (b'{"prompt": "\xff"}', "application/json", 400),
    (b'{"prompt": 1e999}', "application/json", 400),
    (b"[" * 5000 + b"]" * 5000, "application/json", 400),
    (b'{"prompt":' + b'{"a":' * 80 + b"1" + b"}" * 81, "application/json", 400),
    (b'{"prompt": ' + b"9" * 5000 + b"}", "application/json", 400),
    (b'{"prompt": "x"}', "text/plain", 415),
    (b'{"prompt": "x"}', "", 415),
    (b"prompt=x", "application/x-www-form-urlencoded", 415),
    (b'"' + b"x" * 3000 + b'"', "application/json", 413),
]


def test_bad_bytes_are_refused(serve: Any) -> None:
    from stagedoor.service.config.settings import Limits

    async def main() -> None:
        async with serve(limits=Limits(body=12_000)) as server, server.client() as client:
            for body, media, status in RAW:
                sent = body * 5 if status == 413 else body
                headers = {"content-type": media} if media else {}
                answer = await client.post("/api/sessions", content=sent, headers=headers)
                assert answer.status_code == status, (body[:40], answer.text)
                assert answer.json()["status"] == status

    asyncio.run(main())


def test_surroundings_are_shown(serve: Any, script: Script) -> None:
    async def main() -> None:
        async with serve() as server, server.client() as client:
            Path(server.workspace, "note.txt").write_text("one\ntwo\nthree\n")
            session_id = (await client.post("/api/sessions", json={"prompt": script([{"say": "x"}])})).json()["id"]
            await ended(client, session_id)
            path = f"/api/sessions/{session_id}"
            assert [one["name"] for one in (await client.get(f"{path}/files")).json()["entries"]] == ["note.txt"]
            lines = (await client.get(f"{path}/file?path=note.txt&firstLine=2&lastLine=2")).json()
            assert (lines["content"], lines["firstLine"], lines["lastLine"]) == ("two\n", 2, 2)
            assert (await client.get(f"{path}/file?path=../../etc/passwd")).status_code == 403
            assert (await client.get(f"{path}/git")).json()["repository"] is False
            assert "is not in a git repository" in (await client.get(f"{path}/diff")).json()["detail"]
            agents = (await client.get("/api/agents")).json()["agents"]
            assert [one["agent"] for one in agents if one["default"]] == ["understudy"]
            projects = (await client.get("/api/projects")).json()
            assert projects == {"projects": [], "roots": [str(server.workspace)]}
            usage = (await client.get("/api/usage?by=session")).json()
            assert [(row["key"], row["turns"]) for row in usage["rows"]] == [(session_id, 1)]
            assert (await client.get("/api/audit")).json() == {"entries": [], "total": 0, "offset": 0, "limit": 100}
            history = (await client.get("/api/history?agent=understudy")).json()["sessions"]
            assert [one["sessionId"] for one in history] == [session_id]
            fields = {name: history[0][name] for name in ("agent", "nativeId", "cwd")}
            unknown = await client.post("/api/history/import", json=fields | {"nativeId": "none"})
            assert unknown.status_code == 404
            assert (await client.delete(path)).status_code == 204
            taken = [(await client.post("/api/history/import", json=fields)).json() for _ in "ab"]
            assert [(one["imported"], one["nativeId"]) for one in taken] == [(True, fields["nativeId"])] * 2
            assert taken[0]["id"] == taken[1]["id"] != session_id

    asyncio.run(main())


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_reading_needs_no_body_and_head_has_none(serve: Any, method: str) -> None:
    async def main() -> None:
        async with serve() as server, server.client() as client:
            answer = await client.request(method, "/api/sessions")
            assert (answer.status_code, bool(answer.content)) == (200, method == "GET")

    asyncio.run(main())
