"""One POST to an address of the operator's: its status, and nothing else of the answer.

Redirects are not followed, and no more than the head of the answer is read: whoever answers gets nothing but what was
meant for them. All of it is bounded and can be cancelled at any moment.
"""

from __future__ import annotations

import asyncio
import functools
import re
import socket
import ssl
from collections.abc import Mapping
from urllib.parse import urlsplit

from ..errors import ConnectionLost

_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})(?: |\r|\n|$)")
_PLAIN = re.compile(r"[\x21-\x7e]+")
_HEADER = re.compile(r"[\x20-\x7e]*")
MOST_INTERIM = 10
"""Answers before the real one (``103 Early Hints``)."""


def address_problem(url: str) -> str:
    """Why nothing can be posted to ``url``; empty when it can. The address itself is not in it."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "it is not an address"
    if parts.scheme not in ("http", "https"):
        return "it must begin with https:// (or http://)"
    if not parts.hostname or port == 0:
        return "it names no server"
    if parts.username is not None or parts.password is not None:
        return "it must hold no user name and no password"
    if parts.fragment or not _PLAIN.fullmatch(url):
        return "it must hold no '#', no spaces and only ASCII characters"
    return ""


async def post(url: str, headers: Mapping[str, str], body: bytes, *, seconds: float) -> int:
    """The status of the answer. Raises ``ConnectionLost`` when none came; it says why without naming anybody."""
    if problem := address_problem(url):
        raise ConnectionLost(f"the address cannot be used: {problem}")
    if not all(_PLAIN.fullmatch(name) and _HEADER.fullmatch(value) for name, value in headers.items()):
        raise ConnectionLost("a header (the token?) holds characters that cannot be sent")
    try:
        async with asyncio.timeout(seconds):
            return await _post(url, headers, body)
    except TimeoutError:
        raise ConnectionLost(f"no answer in {seconds:g} seconds") from None
    except ssl.SSLCertVerificationError:
        raise ConnectionLost("its certificate is not valid for it") from None
    except ssl.SSLError:
        raise ConnectionLost("it does not speak TLS as it should") from None
    except socket.gaierror:
        raise ConnectionLost("its name cannot be resolved") from None
    except (OSError, ValueError, EOFError):
        raise ConnectionLost("no connection, or it ended before an answer") from None


async def _post(url: str, headers: Mapping[str, str], body: bytes) -> int:
    parts = urlsplit(url)
    host = parts.hostname or ""
    tls = await asyncio.to_thread(_tls) if parts.scheme == "https" else None
    port = parts.port or (443 if tls else 80)
    reader, writer = await asyncio.open_connection(host, port, ssl=tls)
    try:
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        fields = {
            "Host": parts.netloc,
            "User-Agent": "stagedoor",
            "Content-Length": str(len(body)),
            "Connection": "close",
            **headers,
        }
        head = "".join([f"POST {target} HTTP/1.1\r\n", *(f"{name}: {value}\r\n" for name, value in fields.items())])
        writer.write(f"{head}\r\n".encode() + body)
        await writer.drain()
        return await _status(reader)
    finally:
        writer.transport.abort()


async def _status(reader: asyncio.StreamReader) -> int:
    for _ in range(MOST_INTERIM):
        match = _STATUS.match(await reader.readline())
        if match is None:
            break
        if match[1][:1] != b"1":
            return int(match[1])
        while (await reader.readline()).strip():  # an interim answer: the real one follows
            pass
    raise ValueError("no HTTP answer")


@functools.cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()
