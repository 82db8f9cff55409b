"""The address and token of a server: passed, from the environment, or of the one that runs with this home."""

from __future__ import annotations

import ipaddress
import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from ..errors import BadRequest, ConnectionLost, NotSignedIn
from ..register import home

LOCAL = "local"
_SERVER_FILE = "server.json"
_TOKEN = "token"


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """``certificate``: a PEM file to trust too. ``pinned``: accept exactly this certificate, whatever name is in it."""

    url: str
    token: str
    certificate: str = ""
    pinned: bool = False

    def __repr__(self) -> str:
        return f"Address({self.url!r})"  # never show a token

    @property
    def ws_url(self) -> str:
        return "ws" + self.url.removeprefix("http")

    @property
    def loopback(self) -> bool:
        return _is_loopback(self.url)

    def tls(self) -> ssl.SSLContext | None:
        if not self.url.startswith("https:"):
            return None
        if not self.pinned:
            context = ssl.create_default_context()
            if self.certificate:
                context.load_verify_locations(self.certificate)
            return context
        context = ssl.create_default_context(cafile=self.certificate)
        context.check_hostname = False  # it holds the public name, and we connect by the local one
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        return context


class _RunningServer(msgspec.Struct, frozen=True):
    """What a running server writes into its home."""

    url: str
    certificate: str = ""


def find(
    url: str | None, token: str | None, certificate: str | None = None, env: Mapping[str, str] = os.environ
) -> Address:
    """The rest comes from ``STAGEDOOR_URL`` and ``STAGEDOOR_TOKEN``, else from the server of this home (``local``).

    A token is sent only where it belongs: that of the environment to the server of the environment, that of this home
    to this machine.
    """
    if url == LOCAL:
        return _running(home(env), token)
    default = env.get("STAGEDOOR_URL")
    address = url or default
    if not address:
        return _running(home(env), token or env.get("STAGEDOOR_TOKEN"))
    address = _checked(address)
    if token is None and (default is None or _checked(default) == address):
        token = env.get("STAGEDOOR_TOKEN")
    if token is None and _is_loopback(address):
        token = _stored_token(home(env))
    if not token:
        raise NotSignedIn(
            f"no token for {address}: pass one, or set STAGEDOOR_TOKEN (run stagedoor pair on the server to get one)"
        )
    return Address(url=address, token=token, certificate=certificate or "")


def _running(folder: Path, token: str | None) -> Address:
    try:
        server = msgspec.json.decode((folder / _SERVER_FILE).read_bytes(), type=_RunningServer)
    except (OSError, msgspec.MsgspecError):
        raise ConnectionLost(
            f"no server is running with the home {folder}; run stagedoor serve, or give the address of another one"
        ) from None
    token = token or _stored_token(folder)
    if not token:
        raise NotSignedIn(f"cannot read {folder / _TOKEN}; pass the token, or set STAGEDOOR_TOKEN")
    return Address(url=server.url, token=token, certificate=server.certificate, pinned=bool(server.certificate))


def _stored_token(folder: Path) -> str | None:
    try:
        return (folder / _TOKEN).read_text(encoding="utf-8").strip() or None
    except OSError:
        return None


def _checked(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadRequest(f"{url!r} is not a server address; write it like http://127.0.0.1:16180")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise BadRequest("a server address has no user name, query or fragment; pass the token as the second argument")
    return url.rstrip("/")


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
