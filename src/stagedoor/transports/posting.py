"""One POST to an address of the operator's, or of a push service: its status, and nothing else of the answer.

Redirects are not followed, and no more than the head of the answer is read: whoever answers gets nothing but what was
meant for them. All of it is bounded and can be cancelled at any moment.
"""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import re
import socket
import ssl
from collections.abc import Mapping
from urllib.parse import urlsplit

from ..errors import ConnectionLost

_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})(?: |\r|\n|$)")
_PLAIN = re.compile(r"[\x21-\x7e]+")
_HEADER = re.compile(r"[\x20-\x7e]*")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
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


async def post(url: str, headers: Mapping[str, str], body: bytes, *, seconds: float, public_only: bool = False) -> int:
    """The status of the answer. Raises ``ConnectionLost`` when none came; it says why without naming anybody.

    ``public_only``: for an address that is not the operator's own. Its name must lead to the internet, never to this
    machine or into its network; what was looked up is what is connected to.
    """
    if problem := address_problem(url):
        raise ConnectionLost(f"the address cannot be used: {problem}")
    if not all(_PLAIN.fullmatch(name) and _HEADER.fullmatch(value) for name, value in headers.items()):
        raise ConnectionLost("a header (the token?) holds characters that cannot be sent")
    try:
        async with asyncio.timeout(seconds):
            return await _post(url, headers, body, public_only=public_only)
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


async def _post(url: str, headers: Mapping[str, str], body: bytes, *, public_only: bool) -> int:
    parts = urlsplit(url)
    host = parts.hostname or ""
    tls = await asyncio.to_thread(_tls) if parts.scheme == "https" else None
    port = parts.port or (443 if tls else 80)
    address = await _public_address(host, port) if public_only else host
    reader, writer = await asyncio.open_connection(address, port, ssl=tls, server_hostname=host if tls else None)
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


async def _public_address(host: str, port: int) -> str:
    """The first address of ``host``; refused when any of them is not of the internet."""
    entries = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [str(entry[4][0]) for entry in entries]
    if not addresses or not all(is_public(address) for address in addresses):
        raise ConnectionLost("its name leads to this machine or its own network, which is not allowed")
    return addresses[0]


def is_public(address: str) -> bool:
    """Whether an address is one of the internet; also those that carry an older one inside are looked into.

    >>> [is_public(one) for one in ("9.9.9.9", "10.0.0.1", "::1", "64:ff9b::a00:1", "2620:fe::fe", "fe80::1%eth0")]
    [True, False, False, False, True, False]
    """
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(parsed, ipaddress.IPv6Address):
        inner = parsed.ipv4_mapped or parsed.sixtofour or (parsed.teredo or (None, None))[1]
        if inner is None and parsed in _NAT64:
            inner = ipaddress.IPv4Address(int(parsed) & 0xFFFF_FFFF)
        if inner is not None:
            return is_public(str(inner))
    return parsed.is_global and not parsed.is_multicast


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
