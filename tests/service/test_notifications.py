"""Webhooks and ntfy with a real receiver on loopback: what arrives, how it is signed, and that nobody waits for it."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from stagedoor.cli.config import main as config_command
from stagedoor.errors import ConfigError
from stagedoor.service.config.load import load, parse
from stagedoor.service.config.settings import Settings
from stagedoor.service.ledger import flat_settings
from stagedoor.service.notify import delivery
from stagedoor.service.notify.delivery import Notifications, Patience, TargetQueue
from stagedoor.service.notify.notices import NtfyTarget, OutgoingNotice, WebhookTarget, occasion_of
from stagedoor.service.views import SessionView
from stagedoor.transports.posting import address_problem, post
from stagedoor.unified.decisions import Allow
from stagedoor.unified.events import Done, PermissionRequest, TurnCompleted

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


def test_a_failure_is_told_once(kit: Any) -> None:
    async def main() -> None:
        receiver = Receiver(200)
        async with receiver.open() as url:
            settings = Settings(webhooks=(url,), webhook_secret=SECRET)
            notifications = Notifications(settings, Counter(), now=lambda: 1)
            view = SessionView(id="s", agent="understudy", cwd="/", state="failed", turn=2)
            turn, end = TurnCompleted(status="error", turn=2), Done(status="error", turn=2)
            notifications.announce(view, [turn, end])
            notifications.announce(view, [turn])
            notifications.announce(view, [end])
            notifications.announce(view, [end])  # it began anew and failed before its first turn
            notifications.start()
            await receiver.wait_for(3)
            await notifications.stop()
        assert [verified(one)["kind"] for one in receiver.requests] == ["failed"] * 3

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
