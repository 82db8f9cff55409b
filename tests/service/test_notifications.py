"""Webhooks and ntfy with a real receiver on loopback: what arrives, how it is signed, and that nobody waits for it."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Collection, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from stagedoor.cli.config import main as config_command
from stagedoor.errors import ConfigError, StoreError
from stagedoor.service.config.load import load, parse
from stagedoor.service.config.settings import Settings
from stagedoor.service.journal import Journal, LocalHub
from stagedoor.service.ledger import flat_settings
from stagedoor.service.notify import delivery
from stagedoor.service.notify.delivery import Destination, Notifications, Patience, TargetQueue
from stagedoor.service.notify.notices import NtfyTarget, OutgoingNotice, WebhookTarget, occasion_of
from stagedoor.service.sqlite import SqliteStore
from stagedoor.service.store import Sweep
from stagedoor.service.views import NoticeRow, SessionView
from stagedoor.transports.posting import address_problem, post
from stagedoor.unified.decisions import Allow
from stagedoor.unified.events import Done, Event, PermissionRequest, TurnCompleted

KEY = bytes(range(32))
SECRET = f"whsec_{base64.b64encode(KEY).decode()}"
QUICK = Patience(answer=60.0, first=0.001, factor=1.0, tries=4)


class Receiver:
    """An HTTP server of the test's own. ``answers``: the status for each request, the last one for all others; a
    negative one hangs until the receiver ends."""

    def __init__(self, *answers: int) -> None:
        self.answers = list(answers)
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.arrived = asyncio.Condition()
        self.over = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:-2])}
            body = await reader.readexactly(int(headers["content-length"]))
            async with self.arrived:
                self.requests.append((head[0], headers, body))
                status = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                self.arrived.notify_all()
            if status < 0:
                await self.over.wait()
            elif 300 <= status < 400:
                writer.write(f"HTTP/1.1 {status} Elsewhere\r\nLocation: {self.elsewhere}\r\n\r\n".encode())
            else:
                writer.write(f"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 {status} \r\n\r\n".encode())
            await writer.drain()
        except (OSError, EOFError):
            pass
        finally:
            writer.close()

    elsewhere = ""

    async def wait_for(self, count: int) -> list[tuple[str, dict[str, str], bytes]]:
        async with self.arrived:
            await self.arrived.wait_for(lambda: len(self.requests) >= count)
        return self.requests

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[str]:
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        try:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/a/path?token=very-private"
        finally:
            self.over.set()
            server.close()
            await server.wait_closed()


def verified(request: tuple[str, dict[str, str], bytes]) -> dict[str, Any]:
    """The payload, checked as a receiver would that has read only docs/notifications.md."""
    line, headers, body = request
    assert line == "POST /a/path?token=very-private HTTP/1.1"
    signed = b".".join([headers["webhook-id"].encode(), headers["webhook-timestamp"].encode(), body])
    expected = base64.b64encode(hmac.digest(KEY, signed, hashlib.sha256)).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"
    payload: dict[str, Any] = json.loads(body)
    assert payload["id"] == headers["webhook-id"]
    return payload


@pytest.mark.parametrize("content", [False, True])
def test_a_question_and_an_end_are_told_to_every_receiver(kit: Any, content: bool) -> None:
    async def main() -> None:
        hook, ntfy = Receiver(200), Receiver(200)
        async with hook.open() as hook_url, ntfy.open() as ntfy_url:
            settings = {
                "webhooks": (hook_url,),
                "webhook_secret": SECRET,
                "ntfy": (ntfy_url,),
                "ntfy_token": "tk_1",
                "notify_content": content,
            }
            async with kit.house.service(**settings) as service:
                service.notifications.page = "https://box:16180"
                view, watch = await kit.start_session(
                    service,
                    kit.play([{"shell": "touch private-file"}], [{"say": "a private result"}]),
                    title="private title",
                )
                question = await watch.question()
                await hook.wait_for(1)
                await service.questions.answer(question.id, Allow(), who="tester")
                await watch.rest()
                first, second = map(verified, await hook.wait_for(2))
                pushed = await ntfy.wait_for(2)
            assert [first["kind"], second["kind"]] == ["question", "done"]
            assert {one["url"] for one in (first, second)} == {f"https://box:16180/#/s/{view.id}"}
            allowed = {"id", "kind", "at", "url", *(["content"] if content else [])}
            assert set(first) == set(second) == allowed
            if content:
                about = {"session": view.id, "agent": "understudy", "title": "private title"}
                assert second["content"] == {**about, "text": "a private result"}
                assert "touch private-file" in first["content"]["text"]
            for (_, headers, body), title in zip(pushed, ("Needs approval", "Done"), strict=True):
                assert headers["title"] == title
                assert headers["click"] == f"https://box:16180/#/s/{view.id}"
                assert headers["authorization"] == "Bearer tk_1"
                assert (b"private" in body) is content
            everything = [str(request) for request in (*hook.requests, *ntfy.requests)]
            assert content or not any("private title" in one or "private-file" in one for one in everything)

    kit.run(main())


def test_a_receiver_that_hangs_delays_no_session_and_no_other_receiver(kit: Any) -> None:
    async def main() -> None:
        hanging, good = Receiver(-1), Receiver(204)
        async with hanging.open() as hanging_url, good.open() as good_url:
            settings = {"webhooks": (hanging_url, good_url), "webhook_secret": SECRET, "notify_on": ("done",)}
            async with kit.house.service(**settings) as service:
                for number in range(3):
                    _, watch = await kit.start_session(service, kit.play([{"say": str(number)}]))
                    await watch.rest()
                assert [verified(one)["kind"] for one in await good.wait_for(3)] == ["done"] * 3
                assert len(await hanging.wait_for(1)) == 1  # still in its first try
            assert service.counters()["notices sent"] == 3

    kit.run(main())


NOTICE = OutgoingNotice(id="msg_1", kind="done", at=1, url="https://box/#/s/1")


@pytest.mark.parametrize(
    ("answers", "requests", "counts"),
    [
        ((500, 503, 204), 3, {"notices sent": 1}),
        ((500,), 4, {"notices failed": 1}),  # as many tries as its patience allows
        ((404,), 1, {"notices failed": 1}),
        ((401,), 1, {"notices failed": 1}),
        ((302,), 1, {"notices failed": 1}),  # followed nowhere
        ((307,), 1, {"notices failed": 1}),
    ],
)
def test_tries_are_bounded(
    kit: Any, answers: tuple[int, ...], requests: int, counts: dict[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        receiver, other = Receiver(*answers), Receiver(200)
        counted: Counter[str] = Counter()
        async with receiver.open() as url, other.open() as elsewhere:
            receiver.elsewhere = elsewhere
            queue = TargetQueue(WebhookTarget("webhook 1", url, SECRET), counted, QUICK)
            queue.put(NOTICE)
            running = asyncio.ensure_future(queue.run())
            await queue.emptied()
            running.cancel()
        assert counted == counts
        assert [verified(one)["id"] for one in receiver.requests] == ["msg_1"] * requests
        assert other.requests == []

    with caplog.at_level(logging.DEBUG):
        kit.run(main())
    text = "\n".join(str(vars(record)) for record in caplog.records)
    assert "very-private" not in text
    assert SECRET not in text
    assert ("webhook 1" in text) is ("notices failed" in counts)


def test_what_finds_no_room_is_dropped_and_counted(kit: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        receiver = Receiver(200)
        counted: Counter[str] = Counter()
        async with receiver.open() as url:
            queue = TargetQueue(NtfyTarget("ntfy 1", url, ""), counted, QUICK)
            for _ in range(delivery.MOST_WAITING + 7):
                queue.put(NOTICE)
            running = asyncio.ensure_future(queue.run())
            await queue.emptied()
            running.cancel()
        assert counted == {"notices dropped": 7, "notices sent": delivery.MOST_WAITING}

    kit.run(main())
    assert [record.getMessage() for record in caplog.records] == ["too many notifications wait; the oldest are dropped"]


def test_old_notices_are_given_up_without_a_receiver(kit: Any) -> None:
    async def main() -> None:
        counted: Counter[str] = Counter()
        async with Receiver(200).open() as url:
            pass  # nobody listens there any more
        patience = Patience(answer=60.0, first=0.001, tries=1_000_000, oldest=0.01, factor=1.0)
        queue = TargetQueue(WebhookTarget("webhook 1", url, SECRET), counted, patience)
        queue.put(NOTICE)
        running = asyncio.ensure_future(queue.run())
        await queue.emptied()
        running.cancel()
        assert counted == {"notices failed": 1}

    kit.run(main())


def asks(automatic: bool = False) -> PermissionRequest:
    return PermissionRequest(request_id="r", tool_name="run_command", automatic=automatic)


@pytest.mark.parametrize(
    ("event", "view", "expected"),
    [
        (asks(), {}, "question"),
        (asks(automatic=True), {}, None),
        (asks(), {"parent": "p"}, "question"),
        (TurnCompleted(status="success"), {}, "done"),
        (TurnCompleted(status="success"), {"queued": 1}, None),
        (TurnCompleted(status="success"), {"parent": "p"}, None),
        (TurnCompleted(status="interrupted"), {}, None),
        (TurnCompleted(status="error"), {}, "failed"),
        (TurnCompleted(status="max_turns"), {}, "failed"),
        (Done(status="success"), {"state": "done"}, None),
        (Done(status="interrupted"), {"state": "cancelled"}, None),
        (Done(status="interrupted"), {"state": "failed"}, "failed"),
        (Done(status="error"), {"state": "failed", "parent": "p"}, None),
    ],
)
def test_what_is_worth_telling(event: Any, view: dict[str, Any], expected: str | None) -> None:
    assert occasion_of(SessionView(id="s", agent="understudy", cwd="/", **view), event) == expected


def test_a_failure_is_told_once(kit: Any, tmp_path: Path) -> None:
    async def main() -> None:
        settings = Settings(webhooks=("http://127.0.0.1:1/",), webhook_secret=SECRET)
        journal = Journal(SqliteStore(tmp_path / "log.db"), LocalHub())
        notifications = Notifications(journal, settings, Counter(), now=lambda: 1)
        view = SessionView(id="s", agent="understudy", cwd="/", state="failed", turn=2)
        turn, end = TurnCompleted(status="error", turn=2), Done(status="error", turn=2)
        tables: list[tuple[list[Event], int]] = [([turn, end], 1), ([turn], 1), ([end], 0)]
        tables.append(([end], 1))  # it began anew and failed before its first turn
        for events, count in tables:
            rows = notifications.notices_of(view, events)
            assert [json.loads(row.body)["kind"] for row in rows] == ["failed"] * count

    kit.run(main())


def test_what_was_not_told_before_a_restart_is_told_after_it(kit: Any) -> None:
    async def main() -> None:
        hook = Receiver(-1, 200)
        async with hook.open() as url:
            settings = {"webhooks": (url,), "webhook_secret": SECRET, "notify_on": ("done",)}
            async with kit.house.service(**settings) as service:
                _, watch = await kit.start_session(service, kit.play([{"say": "hello"}]))
                await watch.rest()
                await hook.wait_for(1)  # it hangs when the server stops
            async with kit.house.service(**settings):
                first, second = map(verified, await hook.wait_for(2))
            assert (first["id"], first["kind"]) == (second["id"], "done")

    kit.run(main())


@asynccontextmanager
async def notifying(path: Path) -> AsyncGenerator[tuple[Notifications, SqliteStore]]:
    store = SqliteStore(path / "log.db")
    await store.open()
    notifications = Notifications(Journal(store, LocalHub()), Settings(), Counter(), now=lambda: NOW, patience=QUICK)
    try:
        yield notifications, store
    finally:
        await notifications._tasks.close()
        await store.close()


NOW = 5
KINDS = ("question", "done", "failed")


def rows_of(*names: str) -> list[NoticeRow]:
    """One of each kind, in turn."""
    return [
        NoticeRow(
            id=name,
            session_id="s",
            at=NOW,
            body=json.dumps(
                {"id": name, "kind": KINDS[number % 3], "at": NOW, "content": dict.fromkeys(CONTENT, name)}
            ).encode(),
        )
        for number, name in enumerate(names)
    ]


CONTENT = ("session", "agent", "title", "text")


def phone(url: str, **more: Any) -> Destination:
    target = WebhookTarget("webhook 1", url, SECRET)
    return Destination(**{"id": "phone", "target": target, "on": frozenset(KINDS), "content": True, **more})


async def settled(notifications: Notifications, store: SqliteStore) -> list[tuple[str, ...]]:
    """Who needs not be told any more, of each notice, when all of this process is done or free again."""
    while notifications._under_way:
        await asyncio.sleep(0.01)
    await notifications.look()
    assert (notifications._under_way, notifications._finished) == (set(), set())
    await store.claim_deliveries(notifications._me, (), 0.0)
    return [row.taken for row in await store.notices(0)]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, [("n1", True), ("n2", True), ("n3", True), ("n4", True)]),
        ({"content": False}, [("n1", False), ("n2", False), ("n3", False), ("n4", False)]),
        ({"on": frozenset({"done", "failed"})}, [("n2", True), ("n3", True)]),  # the others are not for it any more
        ({"since": NOW + 1}, [("n1", True), ("n2", True), ("n3", True), ("n4", True)]),  # they were for it before
        (None, []),
    ],
)
@pytest.mark.parametrize("when", ["one is in delivery", "they are being taken"])
def test_what_waits_for_a_receiver_goes_with_it(
    kit: Any, tmp_path: Path, when: str, changes: dict[str, Any] | None, told: list[tuple[str, bool]]
) -> None:
    """To the one that takes its place, as that wants it; nowhere, where it was removed (``None``)."""

    async def main() -> None:
        old, new = Receiver(-1), Receiver(200)
        async with old.open() as old_url, new.open() as new_url, notifying(tmp_path) as (notifications, store):
            notifications.add(phone(old_url))
            notifications._running = True
            for place, (_, queue) in notifications._places.items():
                notifications._tasks.start(queue.run(), key=place)
            await store.write(*rows_of("n1", "n2", "n3", "n4"))

            def change() -> None:
                if changes is None:
                    notifications.remove("phone")
                else:
                    notifications.add(phone(new_url, **changes))

            if when == "one is in delivery":
                await notifications.look()
                await old.wait_for(1)
                change()
            else:
                claim_deliveries = store.claim_deliveries

                async def claim(holder: str, wanted: Collection[tuple[str, str]], lease: float) -> Any:
                    claimed = await claim_deliveries(holder, wanted, lease)
                    change()
                    return claimed

                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(store, "claim_deliveries", claim)
                    await notifications.look()
            assert await settled(notifications, store) == [("phone",)] * 4
            assert [(verified(one)["id"], "content" in verified(one)) for one in new.requests] == told

    kit.run(main())


def test_what_waits_behind_one_that_found_nobody_is_done_with_it(kit: Any, tmp_path: Path) -> None:
    async def main() -> None:
        gone = Receiver(410)
        async with gone.open() as url, notifying(tmp_path) as (notifications, store):
            for name, on_closed in (("phone", lambda: notifications.remove("phone")), ("other", lambda: None)):
                notifications.add(phone(url, id=name), on_closed)
            await store.write(*rows_of("n1", "n2", "n3"))
            await notifications.look()
            notifications.start()
            assert await settled(notifications, store) == [("other", "phone")] * 3
            assert len(gone.requests) == 2

    kit.run(main())


def test_what_was_told_is_not_told_again_although_the_log_was_away(kit: Any, tmp_path: Path) -> None:
    async def main() -> None:
        receiver = Receiver(200)
        async with receiver.open() as url, notifying(tmp_path) as (notifications, store):
            notifications.add(phone(url))
            await store.write(*rows_of("n1"))
            notifications.start()
            with pytest.MonkeyPatch.context() as patch:

                async def away(deliveries: Collection[tuple[str, str]]) -> None:
                    raise StoreError("away")

                patch.setattr(store, "finish_deliveries", away)
                while not notifications._finished:
                    await asyncio.sleep(0.01)
            notifications.remove("phone")  # nothing is left to look for
            await notifications.stop()
            await store.claim_deliveries(notifications._me, (), 0.0)  # what it only holds is free from now on
            assert [row.taken for row in await store.notices(0)] == [("phone",)]

    kit.run(main())


@pytest.mark.parametrize("body", [b'{"id":"n0","kind":"of a newer version","at":5}', b"nonsense", b"\xff", b"[]"])
def test_what_a_newer_version_tells_is_left_to_it(
    kit: Any, tmp_path: Path, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        receiver = Receiver(200)
        async with receiver.open() as url, notifying(tmp_path) as (notifications, store):
            notifications.add(phone(url))
            unknown = NoticeRow(id="n0", session_id="s", at=NOW, body=body)
            await store.write(unknown, *rows_of("n1"))
            notifications.start()
            await receiver.wait_for(1)
            await store.write(*rows_of("n2"))
            await notifications.look()
            assert [verified(one)["id"] for one in await receiver.wait_for(2)] == ["n1", "n2"]
            assert await settled(notifications, store) == [(), ("phone",), ("phone",)]
            await store.write(Sweep(NOW + 1))
            await notifications.look()
            assert notifications._unreadable == set()

    kit.run(main())
    assert [one.message[:33] for one in caplog.records if one.name == "stagedoor.notify"] == [
        "a notification cannot be read and"
    ]


class CountedRows(list[NoticeRow]):
    """How often somebody went through it."""

    times = 0

    def __iter__(self) -> Iterator[NoticeRow]:
        self.times += 1
        return super().__iter__()


def test_a_look_reads_what_is_open_and_goes_through_the_rest_once(
    kit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with notifying(tmp_path) as (notifications, store):
            notifications.add(phone("http://127.0.0.1:1/"))
            seen: list[CountedRows] = []
            stored_notices = store.notices

            async def notices(since: int) -> list[NoticeRow]:
                seen.append(CountedRows(await stored_notices(since)))
                return seen[-1]

            monkeypatch.setattr(store, "notices", notices)
            taken = [replace(row, body=b"not to be read") for row in rows_of("t1", "t2")]
            await store.write(*taken)
            await store.claim_deliveries("another", [(row.id, "phone") for row in taken], 3600.0)
            for number in range(3):
                await store.write(*rows_of(*(f"n{number}-{at}" for at in range(10))))
                await notifications.look()
            await notifications.look()
            assert [len(rows) for rows in seen] == [12, 22, 32, 32]
            assert len({rows.times for rows in seen}) == 1
            assert len(notifications._under_way) == 30

    kit.run(main())


@pytest.mark.parametrize(
    ("url", "refused"),
    [
        ("https://example.org/x?y=1", False),
        ("http://127.0.0.1:8080/topic", False),
        ("ftp://example.org/", True),
        ("file:///etc/passwd", True),
        ("https:///path", True),
        ("https://user:word@example.org/", True),
        ("https://example.org/\r\nX: y", True),
        ("https://example.org/ä", True),
        ("https://example.org/#part", True),
        ("https://example.org:99999/", True),
    ],
)
def test_only_web_addresses_are_used(url: str, refused: bool) -> None:
    assert bool(address_problem(url)) is refused
    text = f"notify: {{ntfy: [{json.dumps(url)}]}}"
    if not refused:
        assert parse(text).settings.ntfy == (url,)
        return
    with pytest.raises(ConfigError) as caught:
        parse(text)
    assert url not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("notify: {webhooks: ['https://a.example/x']}", "needs 'notify.webhook_secret' too"),
        ("notify: {webhook_secret: hunter2}", "must be whsec_ and the base64 of 24 to 64 random bytes"),
        (f"notify: {{webhook_secret: {SECRET[:20]}}}", "must be whsec_"),
        ("notify: {events: [question, don]}", "'events' knows no 'don' on line 1; did you mean 'done'?"),
    ],
)
def test_mistakes_in_the_configuration(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text)
    assert message in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_secrets_are_shown_nowhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(
        f"notify: {{webhooks: ['https://a.example/private'], webhook_secret: {SECRET}, "
        "ntfy: ['https://b.example/private'], ntfy_token: private}\n"
    )
    loaded = load(file, env={})
    assert loaded.settings.ntfy_token == "private"
    shown = flat_settings(loaded.settings)
    assert (shown["webhooks"], shown["webhook_secret"], shown["ntfy"]) == ("1 values", "1 values", "1 values")
    assert config_command(["show", "--config", str(file)]) == 0
    text = capsys.readouterr().out
    assert "notify.ntfy_token" in text
    for shown_text in (text, str(shown)):
        assert "private" not in shown_text
        assert SECRET not in shown_text


def test_a_header_cannot_smuggle_another(kit: Any) -> None:
    async def main(check: Callable[..., Any]) -> None:
        with pytest.raises(Exception, match="characters that cannot be sent"):
            await check("http://127.0.0.1:1/", {"Authorization": "a\r\nX: y"}, b"", seconds=1)

    kit.run(main(post))
