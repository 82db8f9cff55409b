"""The same key with the same request: one answer, carried out once; also at the same time, and after a crash."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from stagedoor.server.rest.idempotency import IdempotencyKeys, RestReply
from stagedoor.service.identity import first_id, fresh_id, ids_from
from stagedoor.service.ledger import ReplyRows
from stagedoor.service.sqlite import SqliteStore
from stagedoor.service.views import IdempotentReply

Script = Callable[..., str]
KEY = {"Idempotency-Key": "order-1"}
FAST = {"keepOpen": True}


def test_the_same_request_is_carried_out_once(serve: Any, script: Script) -> None:
    body = {"prompt": script([{"say": "Hello"}])} | FAST

    async def main() -> None:
        async with serve() as server, server.client() as client:
            answers = await asyncio.gather(*(client.post("/api/sessions", json=body, headers=KEY) for _ in range(5)))
            assert [answer.status_code for answer in answers] == [201] * 5
            assert len({answer.content for answer in answers}) == 1
            replays = sorted(answer.headers.get("idempotent-replayed", "false") for answer in answers)
            assert replays == ["false", "true", "true", "true", "true"]
            # The same request, written otherwise.
            same_body = b'{ "keepOpen":true , "prompt": ' + _quoted(body["prompt"]) + b"}"
            typed = KEY | {"content-type": "application/json"}
            again = await client.post("/api/sessions", content=same_body, headers=typed)
            assert again.content == answers[0].content
            for path, other in [
                ("/api/sessions", body | {"title": "another"}),
                (f"/api/sessions/{answers[0].json()['id']}/cancel", None),
            ]:
                refused = await client.post(path, json=other, headers=KEY)
                assert (refused.status_code, refused.json()["type"]) == (422, "urn:stagedoor:problem:key-reused")
            for bad in (("",), ("a b",), ("x" * 256,), ("one", "two")):
                headers = [*server.headers.items(), *(("Idempotency-Key", key) for key in bad)]
                refused = await client.post("/api/sessions", json=body, headers=headers)
                assert (refused.status_code, refused.json()["field"]) == (400, "idempotency-key")
            assert (await client.get("/api/sessions")).json()["total"] == 1
            first = answers[0].content
        async with serve() as server, server.client() as client:
            assert (await client.post("/api/sessions", json=body, headers=KEY)).content == first
            assert (await client.get("/api/sessions")).json()["total"] == 1

    asyncio.run(main())


def _quoted(text: str) -> bytes:
    import json

    return json.dumps(text).encode()


def test_what_a_crash_left_unanswered_is_found_again(serve: Any, script: Script) -> None:
    """The row says *begun*, as a crash between the verb and its answer leaves it."""
    body = {"prompt": script([{"say": "Hello"}])} | FAST

    async def main() -> None:
        async with serve() as server, server.client() as client:
            made = (await client.post("/api/sessions", json=body, headers=KEY)).json()
            sent_body, sent_key = {"prompt": script([{"say": "more"}])}, {"Idempotency-Key": "order-2"}
            path = f"/api/sessions/{made['id']}/messages"
            sent = (await client.post(path, json=sent_body, headers=sent_key)).json()
            for key in ("order-1", "order-2"):
                done = await server.service._store.done(f"local:{key}")
                await server.service._store.write(replace(done, status=0, body=b""))
            again = await client.post("/api/sessions", json=body, headers=KEY)
            assert (again.status_code, again.json()["id"]) == (201, made["id"])
            assert (await client.post(path, json=sent_body, headers=sent_key)).json()["id"] == sent["id"]
            assert len(await server.service._store.messages(made["id"], queued_only=False)) == 2
            # Begun, and nothing made: it never happened, so it happens now.
            done = await server.service._store.done("local:order-1")
            await server.service._store.write(replace(done, key="local:order-3", status=0, body=b""))
            new = await client.post("/api/sessions", json=body, headers={"Idempotency-Key": "order-3"})
            assert (new.status_code, new.json()["id"] == made["id"]) == (201, False)
            assert (await client.get("/api/sessions")).json()["total"] == 2

    asyncio.run(main())


def test_refusals_that_pass_are_not_kept(serve: Any, script: Script) -> None:
    from stagedoor.service.config.settings import Limits

    body = {"prompt": script([{"say": "Hello"}])}

    async def main() -> None:
        async with serve(limits=Limits(awake=0)) as server, server.client() as client:
            assert (await client.post("/api/sessions", json=body, headers=KEY)).status_code == 429
            missing = await client.post("/api/sessions/none/cancel", headers={"Idempotency-Key": "c"})
            again = await client.post("/api/sessions/none/cancel", headers={"Idempotency-Key": "c"})
            assert (missing.status_code, missing.content) == (404, again.content)
            assert again.headers["idempotent-replayed"] == "true"
        async with serve() as server, server.client() as client:
            assert (await client.post("/api/sessions", json=body, headers=KEY)).status_code == 201

    asyncio.run(main())


def test_where_nothing_can_be_recalled_nobody_guesses(tmp_path: Any) -> None:
    async def main() -> None:
        store = SqliteStore(tmp_path / "log.db")
        await store.open()
        try:
            keys = IdempotencyKeys(ReplyRows(store), lambda: 1)
            await store.write(IdempotentReply(key="k", fingerprint="f", status=0, body=b"", at=1))

            async def work() -> RestReply:
                raise AssertionError

            with pytest.raises(Exception, match="the server stopped during this request"):
                await keys.carry_out("k", "f", work, None)
        finally:
            await store.close()

    asyncio.run(main())


def test_ids_follow_from_the_key_only_inside() -> None:
    with ids_from("a"):
        first, second = fresh_id(), fresh_id()
        assert first_id() == first
    with ids_from("a"):
        assert [fresh_id(), fresh_id()] == [first, second]
    with ids_from("b"):
        assert fresh_id() not in (first, second)
    assert len({first, second, fresh_id(), fresh_id()}) == 4


def test_a_task_that_outlives_its_request_gets_ids_of_its_own() -> None:
    async def main() -> None:
        go = asyncio.Event()

        async def later() -> str:
            await go.wait()
            return fresh_id()

        with ids_from("a"):
            task = asyncio.create_task(later())
            await asyncio.sleep(0)
        go.set()
        with ids_from("a"):
            assert await task != first_id()

    asyncio.run(main())
