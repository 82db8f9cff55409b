"""Letting devices in: codes that are short, for minutes, once; the list; the cookie for browsers."""

from __future__ import annotations

import asyncio
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import httpx
import pytest

from stagedoor.server.access.pairing import (
    CODE_SECONDS,
    LENGTH,
    MAX_CODES,
    WINDOW,
    WRONG_FROM_ALL,
    WRONG_FROM_ONE,
    PairingCodes,
)
from stagedoor.server.problems import RefusedRequest
from stagedoor.service.machines import LETTERS

ORIGIN = "http://127.0.0.1"


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def codes(clock: Clock) -> PairingCodes:
    return PairingCodes(clock)


def refused(codes: PairingCodes, display: str, address: str = "one") -> str:
    with pytest.raises(RefusedRequest) as fault:
        asyncio.run(codes.use(display, address))
    return fault.value.kind.slug


def test_a_code_is_easy_to_read_out(codes: PairingCodes) -> None:
    code = codes.new("run")
    assert re.fullmatch(rf"[{LETTERS}]{{4}}-[{LETTERS}]{{4}}", code.display)
    assert not set(LETTERS) & set("01ILOU")
    assert len(LETTERS) ** LENGTH > 6 * 10**11


@pytest.mark.parametrize("written", [str, str.lower, lambda code: code.replace("-", ""), lambda code: f" {code} "])
def test_a_code_counts_however_it_is_written_and_only_once(codes: PairingCodes, written: Any) -> None:
    code = codes.new("watch", "phone")
    assert asyncio.run(codes.use(written(code.display), "one")) == code
    assert refused(codes, code.display) == "not-signed-in"


def test_a_code_lives_for_minutes(codes: PairingCodes, clock: Clock) -> None:
    code = codes.new("run")
    clock.now += CODE_SECONDS
    assert refused(codes, code.display) == "not-signed-in"


def test_only_the_newest_codes_count(codes: PairingCodes) -> None:
    made = [codes.new("run") for _ in range(MAX_CODES + 1)]
    assert refused(codes, made[0].display) == "not-signed-in"
    assert asyncio.run(codes.use(made[1].display, "one")) == made[1]


def test_wrong_codes_are_limited_for_an_address_and_for_all(codes: PairingCodes, clock: Clock) -> None:
    code = codes.new("run")
    for _ in range(WRONG_FROM_ONE):
        assert refused(codes, "wrong") == "not-signed-in"
    assert refused(codes, code.display) == "too-many"
    for n in range(WRONG_FROM_ALL - WRONG_FROM_ONE):
        assert refused(codes, "wrong", f"address {n}") == "not-signed-in"
    assert refused(codes, code.display, "another") == "too-many"
    clock.now += WINDOW
    fresh = codes.new("run")
    assert asyncio.run(codes.use(fresh.display, "one")) == fresh


def test_codes_of_a_revoked_device_are_void(codes: PairingCodes) -> None:
    theirs, ours = codes.new("run", by="phone"), codes.new("run", by="local")
    asyncio.run(codes.void("phone"))
    assert refused(codes, theirs.display) == "not-signed-in"
    assert asyncio.run(codes.use(ours.display, "one")) == ours


def test_a_server_that_phones_can_reach_shows_a_qr_code(serve: Any) -> None:
    async def main() -> None:
        async with serve(hosts=("https://agents.example.org",)) as server, server.client() as client:
            invitation = (await client.post("/api/pairing")).json()
            assert invitation["url"] == f"https://agents.example.org/#pair={invitation['code']}"
            assert ElementTree.fromstring(invitation["qr"]).tag.endswith("svg")
            assert (invitation["reachable"], invitation["fingerprint"]) == (True, "")

    asyncio.run(main())


def test_pairing_from_code_to_device(server: Any) -> None:
    invited = server.http.post("/api/pairing", json={"scope": "answer", "name": "kitchen"})
    assert invited.status_code == 201
    invitation = invited.json()
    assert invitation["url"] == f"{server.url}/#pair={invitation['code']}"
    assert invitation["scope"] == "answer"
    assert (invitation["reachable"], invitation["qr"], invitation["fingerprint"]) == (False, "", ""), "no QR to nowhere"
    with httpx.Client(base_url=server.url, timeout=240) as phone:
        answer = phone.post("/api/pair", json={"code": invitation["code"].lower(), "name": "Chrome on Linux"})
        assert answer.status_code == 201
        paired = answer.json()
        assert {**paired, "deviceId": "", "token": ""} == {
            "deviceId": "", "name": "kitchen", "scopes": ["answer"], "token": "",
        }  # fmt: skip
        assert "set-cookie" not in answer.headers
        assert answer.headers["cache-control"] == "no-store"
        again = phone.post("/api/pair", json={"code": invitation["code"], "name": "another"})
        assert again.status_code == 401
        phone.headers["Authorization"] = f"Bearer {paired['token']}"
        me = {"deviceId": paired["deviceId"], "name": "kitchen", "scopes": ["answer"]}
        assert phone.get("/api/me").json() == me
        assert phone.get("/api/devices").status_code == 403
        assert phone.post("/api/pairing", json={}).status_code == 403
        [listed] = server.http.get("/api/devices").json()["devices"]
        assert set(listed) == {"id", "name", "scopes", "createdAt", "seenAt", "dialect", "current"}
        assert (listed["id"], listed["current"]) == (paired["deviceId"], False)
        assert listed["seenAt"] >= listed["createdAt"] > 0
        assert phone.delete("/api/devices/local").status_code == 403
        assert phone.delete(f"/api/devices/{paired['deviceId']}").status_code == 204
        assert phone.get("/api/me").status_code == 401
    assert server.http.get("/api/devices").json() == {"devices": []}
    assert server.http.delete(f"/api/devices/{paired['deviceId']}").status_code == 404


def test_a_browser_gets_a_cookie_that_no_script_can_read(server: Any) -> None:
    code = server.http.post("/api/pairing").json()["code"]
    with httpx.Client(base_url=server.url, headers={"Origin": server.url}, timeout=240) as browser:
        answer = browser.post("/api/pair", json={"code": code, "name": "laptop", "cookie": True})
        assert "token" not in answer.json()
        cookie = answer.headers["set-cookie"].lower()
        assert all(part in cookie for part in ("stagedoor=stagedoor_", "httponly", "samesite=strict", "path=/"))
        assert browser.get("/api/me").json()["scopes"] == ["run"]
        gone = browser.delete(f"/api/devices/{answer.json()['deviceId']}")
        assert gone.status_code == 204
        assert 'stagedoor=""' in gone.headers["set-cookie"]


FROM_A_BROWSER: list[tuple[dict[str, str], int]] = [
    ({"Origin": "{own}"}, 201),
    ({"Sec-Fetch-Site": "same-origin"}, 201),
    ({}, 403),
    ({"Origin": "http://localhost:1"}, 403),
    ({"Origin": "null"}, 403),
    ({"Origin": "{own}", "Sec-Fetch-Site": "same-site"}, 403),
    ({"Sec-Fetch-Site": "cross-site"}, 403),
]


def test_a_cookie_counts_only_for_our_own_page(server: Any) -> None:
    code = server.http.post("/api/pairing", json={"scope": "admin"}).json()["code"]
    token = httpx.post(f"{server.url}/api/pair", json={"code": code}, timeout=240).json()["token"]
    for headers, status in FROM_A_BROWSER:
        sent = {name: value.replace("{own}", server.url) for name, value in headers.items()}
        with_cookie = {**sent, "Cookie": f"stagedoor={token}"}
        answer = httpx.post(f"{server.url}/api/pairing", json={}, headers=with_cookie, timeout=240)
        assert (headers, answer.status_code) == (headers, status)


STRANGE: list[tuple[bytes, int]] = [
    (b"", 415),
    (b"{", 400),
    (b"[]", 400),
    (b"{}", 400),
    (b'{"code": 7}', 400),
    (b'{"code": "AAAA", "extra": 1}', 400),
    (b'{"code": "' + b"A" * 41 + b'"}', 400),
    (b'{"code": "' + b"A" * 20_000 + b'"}', 413),
    (b'{"code": "\\ud83d"}', 400),
    (b'{"code": "AAAA-AAAA"}', 401),
    (b'{"code": "\xc3\xa4\xc3\xb6"}', 401),
]


def test_strange_bodies_are_refused_with_a_problem(server: Any) -> None:
    for body, status in STRANGE:
        headers = {"Content-Type": "application/json"} if body else {}
        answer = httpx.post(f"{server.url}/api/pair", content=body, headers=headers, timeout=240)
        result = (body[:40], answer.status_code, answer.headers["content-type"])
        assert result == (body[:40], status, "application/problem+json")


def test_guessing_is_stopped_at_the_door(server: Any) -> None:
    statuses = [
        httpx.post(f"{server.url}/api/pair", json={"code": "AAAA-AAAA"}, timeout=240).status_code
        for _ in range(WRONG_FROM_ONE + 1)
    ]
    assert statuses == [401] * WRONG_FROM_ONE + [429]


def test_one_code_used_twice_at_once_lets_one_in(serve: Any) -> None:
    async def main() -> list[int]:
        async with serve() as server, server.client() as client:
            code = (await client.post("/api/pairing")).json()["code"]
            tries = (client.post("/api/pair", json={"code": code}) for _ in range(8))
            return sorted(answer.status_code for answer in await asyncio.gather(*tries))

    assert asyncio.run(main()) == [201] + [401] * 7


def test_no_code_and_no_token_stands_in_a_file_or_in_the_output(
    serve: Any, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    async def main() -> list[str]:
        async with serve() as server, server.client() as client:
            code = (await client.post("/api/pairing")).json()["code"]
            token = (await client.post("/api/pair", json={"code": code})).json()["token"]
            await client.get("/api/me", headers={"Authorization": f"Bearer {token}"})
            return [code, token, server.token]

    secrets = asyncio.run(main())
    output = "".join(capfd.readouterr())
    kept = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    for secret in secrets:
        assert secret not in output
        assert not any(secret.encode() in part for part in kept)


def test_an_address_cannot_be_forged(server: Any) -> None:
    statuses = [
        httpx.post(
            f"{server.url}/api/pair",
            json={"code": "AAAA-AAAA"},
            headers={"X-Forwarded-For": f"192.0.2.{n}", "Forwarded": f"for=192.0.2.{n}"},
            timeout=240,
        ).status_code
        for n in range(WRONG_FROM_ONE + 1)
    ]
    assert statuses[-1] == 429
