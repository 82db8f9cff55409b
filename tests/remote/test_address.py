"""Which server is meant, and which token it is shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import podium
from podium.errors import BadRequest, ConnectionLost, NotSignedIn, PodiumError
from podium.remote.address import Address, find

HERE = "http://127.0.0.1:16180"
THERE = "https://there.example"


@pytest.mark.parametrize(
    ("url", "token", "env", "expected"),
    [
        (HERE, "t", {}, Address(url=HERE, token="t")),
        (HERE + "/", "t", {"PODIUM_TOKEN": "other"}, Address(url=HERE, token="t")),
        (HERE, None, {}, Address(url=HERE, token="of-this-home")),
        (HERE, None, {"PODIUM_TOKEN": "e"}, Address(url=HERE, token="e")),
        (THERE, None, {"PODIUM_TOKEN": "e"}, Address(url=THERE, token="e")),
        (None, None, {"PODIUM_URL": THERE, "PODIUM_TOKEN": "e"}, Address(url=THERE, token="e")),
        (THERE + "/", None, {"PODIUM_URL": THERE, "PODIUM_TOKEN": "e"}, Address(url=THERE, token="e")),
        (THERE, None, {"PODIUM_URL": HERE, "PODIUM_TOKEN": "e"}, NotSignedIn),
        (HERE, None, {"PODIUM_URL": THERE, "PODIUM_TOKEN": "e"}, Address(url=HERE, token="of-this-home")),
        (THERE, None, {}, NotSignedIn),
        (None, None, {}, Address(url="https://[::1]:7", token="of-this-home", certificate="/c.pem", own=True)),
        (None, "t", {}, Address(url="https://[::1]:7", token="t", certificate="/c.pem", own=True)),
        (None, None, {"PODIUM_HOME": "/nowhere"}, ConnectionLost),
        ("127.0.0.1:16180", "t", {}, BadRequest),
        ("ftp://there.example", "t", {}, BadRequest),
        ("https://me:secret@there.example", "t", {}, BadRequest),
        ("https://there.example/?token=t", "t", {}, BadRequest),
    ],
)
def test_find(
    url: str | None, token: str | None, env: dict[str, str], expected: Address | type[PodiumError], tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("of-this-home\n")
    (tmp_path / "server.json").write_text('{"pid":1,"url":"https://[::1]:7","public":"","certificate":"/c.pem"}')
    env = {"PODIUM_HOME": str(tmp_path)} | env
    if isinstance(expected, Address):
        assert find(url, token, env=env) == expected
    else:
        with pytest.raises(expected):
            find(url, token, env=env)


def test_no_token_is_shown_to_people() -> None:
    remote: Any = podium.connect(HERE, "podium_very-secret")
    assert "secret" not in f"{remote!r} {remote._line.address!r}"
