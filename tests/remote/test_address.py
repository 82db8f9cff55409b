"""Which server is meant, and which token it is shown."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import stagedoor
from stagedoor.errors import BadRequest, ConnectionLost, NotSignedIn, StagedoorError
from stagedoor.remote.address import Address, find

HERE = "http://127.0.0.1:16180"
THERE = "https://there.example"


@pytest.mark.parametrize(
    ("url", "token", "env", "expected"),
    [
        (HERE, "t", {}, Address(url=HERE, token="t")),
        (HERE + "/", "t", {"STAGEDOOR_TOKEN": "other"}, Address(url=HERE, token="t")),
        (HERE, None, {}, Address(url=HERE, token="of-this-home")),
        (HERE, None, {"STAGEDOOR_TOKEN": "e"}, Address(url=HERE, token="e")),
        (THERE, None, {"STAGEDOOR_TOKEN": "e"}, Address(url=THERE, token="e")),
        (None, None, {"STAGEDOOR_URL": THERE, "STAGEDOOR_TOKEN": "e"}, Address(url=THERE, token="e")),
        (THERE + "/", None, {"STAGEDOOR_URL": THERE, "STAGEDOOR_TOKEN": "e"}, Address(url=THERE, token="e")),
        (THERE, None, {"STAGEDOOR_URL": HERE, "STAGEDOOR_TOKEN": "e"}, NotSignedIn),
        (HERE, None, {"STAGEDOOR_URL": THERE, "STAGEDOOR_TOKEN": "e"}, Address(url=HERE, token="of-this-home")),
        (THERE, None, {}, NotSignedIn),
        (None, None, {}, Address(url="https://[::1]:7", token="of-this-home", certificate="/c.pem", pinned=True)),
        (
            "local",
            None,
            {"STAGEDOOR_URL": THERE, "STAGEDOOR_TOKEN": "e"},
            Address(url="https://[::1]:7", token="of-this-home", certificate="/c.pem", pinned=True),
        ),
        (None, "t", {}, Address(url="https://[::1]:7", token="t", certificate="/c.pem", pinned=True)),
        (None, None, {"STAGEDOOR_HOME": "/nowhere"}, ConnectionLost),
        ("127.0.0.1:16180", "t", {}, BadRequest),
        ("ftp://there.example", "t", {}, BadRequest),
        ("https://me:secret@there.example", "t", {}, BadRequest),
        ("https://there.example/?token=t", "t", {}, BadRequest),
    ],
)
def test_find(
    url: str | None, token: str | None, env: dict[str, str], expected: Address | type[StagedoorError], tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("of-this-home\n")
    (tmp_path / "server.json").write_text('{"pid":1,"url":"https://[::1]:7","public":"","certificate":"/c.pem"}')
    env = {"STAGEDOOR_HOME": str(tmp_path)} | env
    if isinstance(expected, Address):
        assert find(url, token, env=env) == expected
    else:
        with pytest.raises(expected):
            find(url, token, env=env)


def test_no_token_is_shown_to_people() -> None:
    remote: Any = stagedoor.connect(HERE, "stagedoor_very-secret")
    assert "secret" not in f"{remote!r} {remote._connection.address!r}"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not here to make a certificate")
def test_tls_by_a_certificate_that_is_given_or_that_the_server_of_this_home_has(
    serve: Any, script: Any, tmp_path: Path, stagedoor_home: Path
) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    words = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    names = ["-subj", "/CN=stagedoor.example", "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run(["openssl", *words, *names, "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)

    async def main() -> list[str]:
        async with serve(tls_cert=str(cert), tls_key=str(key)) as server:
            named, numbered = (f"https://{host}:{server.port}" for host in ("localhost", "127.0.0.1"))
            for remote in (
                stagedoor.connect(named, server.token),
                stagedoor.connect(numbered, server.token, certificate=cert),
            ):
                with pytest.raises(ConnectionLost, match="CERTIFICATE_VERIFY_FAILED"):
                    await remote.sessions()
                with pytest.raises(ConnectionLost, match="CERTIFICATE_VERIFY_FAILED"):
                    await anext(remote.session("some").events)
            (stagedoor_home / "token").write_text(server.token)
            (stagedoor_home / "server.json").write_text(json.dumps({"url": numbered, "certificate": str(cert)}))
            ends: list[str] = []
            for remote in (stagedoor.connect(), stagedoor.connect(named, server.token, certificate=cert)):
                events = [event async for event in remote.run("understudy", script([{"say": "Hello"}]))]
                ends.append(type(events[-1]).__name__)
            return ends

    assert asyncio.run(main()) == ["Done", "Done"]
