"""Where a server is and how to get in: given, from the environment, or the one that runs with this home."""

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
_NOTE = "server.json"
_TOKEN = "token"


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """``certificate``: a PEM file to trust too. ``own``: it must be this very one, whatever name it bears."""

    url: str
    token: str
    certificate: str = ""
    own: bool = False

    def __repr__(self) -> str:
        return f"Address({self.url!r})"  # a token has no place in a log

    @property
    def ws_url(self) -> str:
        return "ws" + self.url.removeprefix("http")

    @property
    def loopback(self) -> bool:
        return _is_loopback(self.url)

    def tls(self) -> ssl.SSLContext | None:
        if not self.url.startswith("https:"):
            return None
        if not self.own:
            context = ssl.create_default_context()
            if self.certificate:
                context.load_verify_locations(self.certificate)
            return context
        context = ssl.create_default_context(cafile=self.certificate)
        context.check_hostname = False  # the certificate names the outside, and we come from inside
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        return context


class _Note(msgspec.Struct, frozen=True):
    """What a server that runs has left in its home."""

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
    known = env.get("STAGEDOOR_URL")
    wanted = url or known
    if not wanted:
        return _running(home(env), token or env.get("STAGEDOOR_TOKEN"))
    wanted = _checked(wanted)
    if token is None and (known is None or _checked(known) == wanted):
        token = env.get("STAGEDOOR_TOKEN")
    if token is None and _is_loopback(wanted):
        token = _stored_token(home(env))
    if not token:
        raise NotSignedIn(f"no token for {wanted}: pass one, or set STAGEDOOR_TOKEN (stagedoor pair lets a device in)")
    return Address(url=wanted, token=token, certificate=certificate or "")


def _running(folder: Path, token: str | None) -> Address:
    try:
        note = msgspec.json.decode((folder / _NOTE).read_bytes(), type=_Note)
    except (OSError, msgspec.MsgspecError):
        raise ConnectionLost(
            f"no server runs with the home {folder}; start one with: stagedoor serve, or name one: connect(url, token)"
        ) from None
    token = token or _stored_token(folder)
    if not token:
        raise NotSignedIn(f"{folder / _TOKEN} cannot be read; pass the token, or set STAGEDOOR_TOKEN")
    return Address(url=note.url, token=token, certificate=note.certificate, own=bool(note.certificate))


def _stored_token(folder: Path) -> str | None:
    try:
        return (folder / _TOKEN).read_text(encoding="utf-8").strip() or None
    except OSError:
        return None


def _checked(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadRequest(f"a server's address looks like http://127.0.0.1:16180, not {url!r}")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise BadRequest("a server's address holds no name, query or fragment; give the token as the second argument")
    return url.rstrip("/")


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
