"""Web Push against what others have written: the example of RFC 8291, ``http_ece`` and ``jwt``; who may be told, and
where messages never go."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import stat
from collections import Counter
from pathlib import Path
from typing import Any

import http_ece
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from stagedoor.errors import BadRequest, ConnectionLost, NotAllowed, SessionNotFound
from stagedoor.service.config.load import parse
from stagedoor.service.notify.delivery import Patience, TargetQueue
from stagedoor.service.notify.notices import NoticeContent, OutgoingNotice, PushTarget
from stagedoor.service.notify.receivers import ROW, PushKeys, ReceiverBody, SubscriptionBody, push_row
from stagedoor.service.notify.webpush import (
    LONGEST_MESSAGE,
    base64_of,
    browser_keys,
    encrypt,
    from_base64,
    padded,
    push_key,
)
from stagedoor.service.store import Secret
from stagedoor.service.views import Device
from stagedoor.transports.posting import is_public, post
from tests.service.sites import Site
from tests.service.test_notifications import QUICK, Receiver

AUTH = bytes(range(16))
BROWSER = ec.derive_private_key(0x5EED, ec.SECP256R1())
PUBLIC = BROWSER.public_key().public_bytes(
    serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint
)  # fmt: skip
KEYS = PushKeys(p256dh=base64_of(PUBLIC), auth=base64_of(AUTH))


def decrypted(body: bytes) -> bytes:
    """With code of others, as a browser would."""
    plain: bytes = http_ece.decrypt(body, private_key=BROWSER, auth_secret=AUTH, version="aes128gcm")
    return plain


def test_the_example_of_the_standard() -> None:
    """RFC 8291, appendix A."""
    private = int.from_bytes(from_base64("yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw"), "big")
    sealed = encrypt(
        b"When I grow up, I want to be a watermelon",
        from_base64("BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"),
        from_base64("BTBZMqHH6r4Tts7J_aSIgg"),
        salt=from_base64("DGv6ra1nlYgDCS1FRnbzlw"),
        sender=ec.derive_private_key(private, ec.SECP256R1()),
    )
    assert base64_of(sealed) == (
        "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBr"
        "u3jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
    )


@pytest.mark.parametrize("length", [0, 1, 1023, 1024, 1025, LONGEST_MESSAGE])
def test_every_length_arrives_and_few_lengths_are_seen(length: int) -> None:
    body = encrypt(padded(b"x" * length), PUBLIC, AUTH)
    assert decrypted(body).rstrip(b" ") == b"x" * length
    assert len(body) <= 4096
    assert (len(body) - 103) % 1024 == 0 or len(body) == 4096


def test_the_key_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    key = push_key(tmp_path)
    file = tmp_path / "push-key.pem"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert push_key(tmp_path).public == key.public
    file.chmod(0o644)  # others may have it now
    fresh = push_key(tmp_path)
    assert fresh.public != key.public
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    os.link(file, tmp_path / "second-name")
    assert push_key(tmp_path).public != fresh.public
    file.write_text("not a key")
    assert push_key(tmp_path).public == push_key(tmp_path).public


def target(tmp_path: Path, endpoint: str, **changes: Any) -> PushTarget:
    return PushTarget("push 1", endpoint, PUBLIC, AUTH, push_key(tmp_path), lambda: "mailto:me@example.org", **changes)


def test_who_sends_is_proven_to_one_push_service(tmp_path: Path) -> None:
    request = target(tmp_path, "https://push.example:8443/abc?x=1").post(
        OutgoingNotice(id="msg_1", kind="failed", at=1, session="a/ b"), 1_000_000.0
    )
    token, public = request.headers["Authorization"].removeprefix("vapid t=").split(", k=")
    verifying = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), from_base64(public))
    claims = jwt.decode(
        token, verifying, algorithms=["ES256"], audience="https://push.example:8443", options={"verify_exp": False}
    )
    assert claims == {"aud": "https://push.example:8443", "exp": 1_043_200, "sub": "mailto:me@example.org"}
    assert {name: request.headers[name] for name in ("Content-Encoding", "TTL", "Urgency")} == {
        "Content-Encoding": "aes128gcm",
        "TTL": "14400",
        "Urgency": "normal",
    }
    assert len(request.headers["Topic"]) == 32
    assert request.public_only
    assert json.loads(decrypted(request.body)) == {"kind": "failed", "session": "a/ b"}


@pytest.mark.parametrize("text", ["result", "\x01" * 500, "🦀" * 500])
def test_content_goes_along_only_where_it_fits(tmp_path: Path, text: str) -> None:
    content = NoticeContent(session="s", agent="understudy", title="t" * 1000, text=text)
    notice = OutgoingNotice(id="m", kind="done", at=1, session="s", content=content)
    message = json.loads(decrypted(target(tmp_path, "https://a.example/").post(notice, 0.0).body))
    assert message == {"kind": "done", "session": "s", "title": "t" * 120 + " (understudy)", "text": text}


@pytest.mark.parametrize(
    ("p256dh", "auth"),
    [
        ("", KEYS.auth),
        (KEYS.p256dh, ""),
        (KEYS.p256dh, base64_of(b"short")),
        (base64_of(b"\x04" + b"\x01" * 64), KEYS.auth),  # no point of the curve
        (base64_of(PUBLIC[:33]), KEYS.auth),
        ("ä", KEYS.auth),
    ],
)
def test_only_keys_of_browsers_are_taken(p256dh: str, auth: str) -> None:
    with pytest.raises(BadRequest, match="subscribe again"):
        browser_keys(p256dh, auth)


@pytest.mark.parametrize(
    ("endpoint", "problem"),
    [
        ("http://push.example/x", "must begin with https://"),
        ("https://127.0.0.1/x", "own network"),
        ("https://[::1]/x", "own network"),
        ("https://10.0.0.7/x", "own network"),
        ("https://169.254.169.254/latest", "own network"),
        ("https://[::ffff:192.168.0.1]/x", "own network"),
        ("https://localhost/x", "own network"),
        ("https://router/x", "own network"),
        ("https://user:word@push.example/x", "no user name"),
        ("file:///etc/passwd", "must begin with"),
        ("nonsense", "must begin with"),
    ],
)
def test_a_device_cannot_send_us_into_our_own_network(kit: Any, endpoint: str, problem: str) -> None:
    async def main() -> None:
        async with kit.house.service() as service:
            with pytest.raises(BadRequest, match=problem):
                await service.receivers.subscribe("d", "phone", SubscriptionBody(endpoint=endpoint, keys=KEYS))
            assert service.receivers.list() == []

    kit.run(main())


def test_a_name_that_leads_inside_is_not_followed(kit: Any) -> None:
    """Whatever it led to when it was checked: what is looked up is what is connected to."""

    async def main() -> None:
        receiver = Receiver(201)
        async with receiver.open() as url:
            inner = url.replace("127.0.0.1", "localhost")
            with pytest.raises(ConnectionLost, match="own network"):
                await post(inner, {}, b"", seconds=60, public_only=True)
            assert await post(inner, {}, b"", seconds=60) == 201
        assert len(receiver.requests) == 1

    kit.run(main())
    assert not any(is_public(one) for one in ("100.64.0.1", "2002:7f00:1::", "::ffff:10.0.0.1", "224.0.0.1", "x"))


@pytest.mark.parametrize(
    ("answers", "requests", "gone", "counts"),
    [
        ((503, 429, 201), 3, 0, {"notices sent": 1}),
        ((500,), 4, 0, {"notices failed": 1}),
        ((413,), 1, 0, {"notices failed": 1}),
        ((404,), 1, 1, {"notices failed": 1}),
        ((503, 410), 2, 1, {"notices failed": 1}),
    ],
)
def test_tries_are_bounded_and_who_is_gone_is_not_tried_again(
    kit: Any, tmp_path: Path, answers: tuple[int, ...], requests: int, gone: int, counts: dict[str, int]
) -> None:
    async def main() -> None:
        receiver, calls = Receiver(*answers), 0

        def forget() -> None:
            nonlocal calls
            calls += 1

        counted: Counter[str] = Counter()
        async with receiver.open() as url:
            queue = TargetQueue(target(tmp_path, url, public_only=False), counted, QUICK, forget)
            for _ in range(2 if gone else 1):  # what waits behind it goes nowhere
                queue.put(OutgoingNotice(id="m", kind="question", at=1, session="s"))
            running = asyncio.ensure_future(queue.run())
            await queue.emptied()
            if gone:
                await running
            running.cancel()
        assert (counted, len(receiver.requests), calls) == (counts, requests, gone)
        assert queue.last is not None

    kit.run(main())


def host_of(url: str) -> str:
    return url.split("/")[2]


def device(device_id: str, **changes: Any) -> Device:
    return Device(id=device_id, name=f"{device_id}'s phone", scopes=("answer",), token_hash="", created_at=1, **changes)


def test_subscriptions_outlive_a_restart_and_end_with_their_device(kit: Any) -> None:
    async def main() -> None:
        receiver = Receiver(201)
        async with receiver.open() as url:
            settings = {"push_hosts": (host_of(url),)}
            async with kit.house.service(**settings) as service:
                before = await service.receivers.push_state("one")
                assert not before.subscribed
                for name, events in (("one", ("done",)), ("two", ("question", "done")), ("three", ("failed",))):
                    await service.devices.save(device(name))
                    body = SubscriptionBody(endpoint=f"{url}&{name}", keys=KEYS, events=events, content=name == "two")
                    await service.receivers.subscribe(name, f"{name}'s phone", body)
                with pytest.raises(BadRequest, match="pair this browser first"):
                    await service.receivers.subscribe("local", "local", SubscriptionBody(endpoint=url, keys=KEYS))
            async with kit.house.service(**settings) as service:
                state = await service.receivers.push_state("one")
                assert (state.subscribed, state.events, state.public_key) == (True, ("done",), before.public_key)
                _, watch = await kit.start_session(service, kit.play([{"say": "a private result"}]))
                await watch.rest()
                arrived = {line.split()[1][-3:]: body for line, _, body in await receiver.wait_for(2)}
                messages = {name: json.loads(decrypted(body)) for name, body in arrived.items()}
                assert {name: message["kind"] for name, message in messages.items()} == {"one": "done", "two": "done"}
                assert ("text" in messages["one"], messages["two"]["text"]) == (False, "a private result")
                await service.devices.save(device("two", revoked_at=2))
                assert [view.name for view in service.receivers.list()] == ["one's phone", "three's phone"]
                with pytest.raises(SessionNotFound):
                    await service.receivers.test("two")
                receiver.answers = [410]
                assert "any more" in (await service.receivers.test("one")).problem
                assert [view.id for view in service.receivers.list()] == ["three"]
            async with kit.house.service(**settings) as service:
                assert [view.id for view in service.receivers.list()] == ["three"]
                assert [name for name in await service._store.secrets() if name.startswith("push")] == [
                    push_row("three")
                ]
                await service.receivers.unsubscribe("three")
                (Path(service.home) / "push-key.pem").unlink()
            async with kit.house.service(**settings) as service:
                assert service.receivers.list() == []
                assert (await service.receivers.push_state("one")).public_key != before.public_key

    kit.run(main())


def test_only_the_subscription_that_is_no_more_is_removed(kit: Any, tmp_path: Path) -> None:
    """A browser subscribes anew at one door; another one, which has not heard of it, is told that the old one is gone.
    What a newer version wrote is left alone."""

    async def main() -> None:
        receiver, site = Receiver(410), Site(kit, tmp_path)
        async with receiver.open() as url:
            hosts = (host_of(url),)
            async with (
                site.machine("one", "door", push_hosts=hosts) as one,
                site.machine("two", "door", push_hosts=hosts) as two,
            ):
                await one.devices.save(device("phone"))
                for number, name in enumerate(("old", "new")):
                    body = SubscriptionBody(endpoint=f"{url}&{name}", keys=KEYS)
                    await one.receivers.subscribe("phone", "phone", body)
                    assert number or (await two.receivers.push_state("phone")).subscribed
                stored = await site.store.secrets()
                assert "any more" in (await two.notifications.test("phone")).problem
                await two.receivers.close()
                assert await site.store.secrets() == stored
                assert (await two.receivers.push_state("phone")).subscribed
                await two.notifications.test("phone")
                await two.receivers.close()
                assert [line.split()[1][-3:] for line, _, _ in receiver.requests] == ["old", "new"]
                assert push_row("phone") not in await site.store.secrets()

                unknown = {f"{ROW}x": b'{"id":"x","body":{"kind":"of a newer version"}}', push_row("phone"): b"{}"}
                await site.store.write(*(Secret(name, value) for name, value in unknown.items()))
                added = await one.receivers.add(ReceiverBody(kind="ntfy", url=url))
                assert [view.id for view in one.receivers.list()] == [added.id]
                await one.receivers.remove(added.id)
                left = await site.store.secrets()
                assert {name: left.get(name) for name in unknown} == unknown

    kit.run(main())


def test_receivers_of_the_page_are_kept_and_those_of_the_configuration_stay(kit: Any) -> None:
    async def main() -> None:
        hook, topic = Receiver(200), Receiver(200)
        async with hook.open() as hook_url, topic.open() as topic_url:
            async with kit.house.service(ntfy=(topic_url,)) as service:
                for url in ("ftp://a.example", "https://u:p@a.example", "x"):
                    with pytest.raises(BadRequest):
                        await service.receivers.add(ReceiverBody(kind="ntfy", url=url))
                with pytest.raises(BadRequest, match="whsec_"):
                    await service.receivers.add(ReceiverBody(kind="webhook", url=hook_url, secret="short"))
                added = await service.receivers.add(ReceiverBody(kind="webhook", url=hook_url, events=("done",)))
                assert added.secret.startswith("whsec_")
                assert (added.kind, added.origin, added.name) == ("webhook", "page", host_of(hook_url))
            async with kit.house.service(ntfy=(topic_url,)) as service:
                views = service.receivers.list()
                assert [(view.kind, view.origin, view.secret) for view in views] == [
                    ("ntfy", "config", ""),
                    ("webhook", "page", ""),
                ]
                assert not any("very-private" in str(view) for view in views)
                assert (await service.receivers.test(views[0].id)).problem == ""
                assert (await service.receivers.test(added.id)).problem == ""
                assert [view.last and view.last.problem for view in service.receivers.list()] == ["", ""]
                [(_, headers, body)] = hook.requests
                assert json.loads(body)["kind"] == "test"
                key = base64.b64decode(added.secret.removeprefix("whsec_"))
                assert len(key) == 32
                assert headers["webhook-id"] == json.loads(body)["id"]
                with pytest.raises(NotAllowed, match="stagedoor config edit"):
                    await service.receivers.remove(views[0].id)
                await service.receivers.remove(added.id)
                with pytest.raises(SessionNotFound):
                    await service.receivers.remove(added.id)
            async with kit.house.service() as service:
                assert service.receivers.list() == []

    kit.run(main())


def test_the_settings_of_push() -> None:
    text = "notify: {push_contact: 'mailto:me@example.org', push_hosts: ['push.lan:8443']}"
    settings = parse(text).settings
    assert (settings.push_contact, settings.push_hosts) == ("mailto:me@example.org", ("push.lan:8443",))
    assert Patience().tries * Patience().answer < 120
