"""In front of MCP servers over HTTP, for agents that read resources unasked: all passes, but no resource is listed or
read. What ``tools_only`` is for servers over pipes.

It listens on the loopback address, each server under a path that nobody can guess. Keys are the agent's: it sends them
along, and none is kept here. A server that sends its clients elsewhere is not followed, since the agent would go there
without us.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import SplitResult, urlsplit

from .http_exchange import (
    LONGEST_HEAD,
    LoopbackConnections,
    RefusedExchange,
    RequestHead,
    close_writer,
    parse_head,
    read_body,
    write_reply,
)
from .tools_only import names_resources, refusals

HEAD_SECONDS = 60.0
CONNECT_SECONDS = 30.0
PIECE = 64 * 1024
METHODS = ("POST", "GET", "DELETE")
BETWEEN_TWO = frozenset(
    {"host", "connection", "keep-alive", "content-length", "transfer-encoding", "expect", "te", "upgrade", "trailer",
     "proxy-connection", "proxy-authorization"}
)  # fmt: skip
"""Headers that speak of one connection alone."""


class ToolsGate:
    """One for each session. ``servers``: their addresses by name; ``environ`` says by which proxy they are reached."""

    def __init__(self, servers: Mapping[str, str], environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._paths = {name: f"/{secrets.token_urlsafe(24)}" for name in servers}
        self._targets = {self._paths[name]: urlsplit(address) for name, address in servers.items()}
        self._connections = LoopbackConnections(self._exchange)
        self._tls: ssl.SSLContext | None = None

    @classmethod
    async def open(cls, servers: Mapping[str, str], environ: Mapping[str, str]) -> ToolsGate:
        gate = cls(servers, environ)
        await gate._connections.open()
        return gate

    @property
    def addresses(self) -> dict[str, str]:
        """Where each of the servers is to be reached instead."""
        return {name: f"http://127.0.0.1:{self._connections.port}{path}" for name, path in self._paths.items()}

    def abandon(self) -> None:
        """For finalizers: stop listening, without waiting."""
        self._connections.abandon()

    async def close(self) -> None:
        await self._connections.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request and its reply; whether the connection goes on."""
        try:
            async with asyncio.timeout(HEAD_SECONDS):
                head = parse_head(await reader.readuntil(b"\r\n\r\n"))
                target = self._target(head)
                has_body = head.method == "POST" or "content-length" in head.headers
                body = await read_body(head, reader, writer) if has_body else b""
            if head.method == "POST":
                message = _message(body)
                if names_resources(message):
                    answers = refusals(message)
                    reply: Any = answers if isinstance(message, list) else answers[0] if answers else None
                    status, text = (202, b"") if reply is None else (200, json.dumps(reply).encode())
                    await write_reply(writer, status, text, last=False, kind="application/json")
                    return True
                # As it was read: what another reader might find in the same bytes must not be sent on.
                body = json.dumps(message).encode()
            await self._forward(head, target, body, reader, writer)
        except asyncio.LimitOverrunError:
            await write_reply(writer, 431, b"the head is too long", last=True)
        except RefusedExchange as refused:
            await write_reply(writer, refused.status, str(refused).encode(), last=True)
        return False

    def _target(self, head: RequestHead) -> SplitResult:
        if "origin" in head.headers or head.headers.get("host", "").lower() != f"127.0.0.1:{self._connections.port}":
            raise RefusedExchange(403, "only the agent of this session may come in here")
        target = self._targets.get(head.target)
        if target is None:
            raise RefusedExchange(404, "there is no server at this address")
        if head.method not in METHODS:
            raise RefusedExchange(405, "a server of tools takes POST, GET and DELETE")
        return target

    async def _forward(
        self,
        head: RequestHead,
        target: SplitResult,
        body: bytes,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                incoming, out, path = await self._connect(target)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, ValueError) as fault:
            raise RefusedExchange(502, f"{target.netloc} cannot be reached: {fault or 'no answer'}") from None
        try:
            lines = [f"{head.method} {path} HTTP/1.1", f"Host: {target.netloc.rpartition('@')[2]}", "Connection: close"]
            lines += [f"{name}: {value}" for name, value in head.headers.items() if name not in BETWEEN_TWO]
            lines += [f"Content-Length: {len(body)}"] if body or head.method == "POST" else []
            out.write("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)
            await out.drain()
            copying = self._connections.tasks.start(_copy(incoming, writer), name="stagedoor mcp gate copy")
            hangup = self._connections.tasks.start(reader.read(1), name="stagedoor mcp gate client")
            try:
                await asyncio.wait([copying, hangup], return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (copying, hangup):
                    task.cancel()
                await asyncio.wait([copying, hangup])
            if not copying.cancelled():
                copying.result()
        finally:
            await close_writer(out)

    async def _connect(self, target: SplitResult) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, str]:
        """The connection, and what is asked for over it."""
        host, secure = target.hostname or "", target.scheme == "https"
        port = target.port or (443 if secure else 80)
        path = (target.path or "/") + (f"?{target.query}" if target.query else "")
        proxy = _proxy(self._environ, target.scheme, host)
        if secure and self._tls is None:
            self._tls = await asyncio.to_thread(ssl.create_default_context)
        if proxy is None:
            tls = self._tls if secure else None
            incoming, out = await asyncio.open_connection(host, port, ssl=tls, limit=LONGEST_HEAD)
            return incoming, out, path
        if proxy.scheme != "http":
            raise ValueError(f"a proxy of the kind {proxy.scheme}:// is not supported")
        incoming, out = await asyncio.open_connection(proxy.hostname, proxy.port or 80, limit=LONGEST_HEAD)
        if not secure:
            return incoming, out, f"http://{target.netloc.rpartition('@')[2]}{path}"
        try:
            out.write(f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
            answer = await incoming.readuntil(b"\r\n\r\n")
            if answer.split(b" ", 2)[1:2] != [b"200"]:
                raise ConnectionRefusedError(f"the proxy answered {answer.splitlines()[0].decode('latin-1')}")
            assert self._tls is not None
            await out.start_tls(self._tls, server_hostname=host)
        except BaseException:
            out.close()
            raise
        return incoming, out, path


async def _copy(incoming: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """The reply as it comes, and the end of the connection with it."""
    while True:
        text = await incoming.readuntil(b"\r\n\r\n")
        first, *lines = text[:-4].split(b"\r\n")
        status = first.split(b" ", 2)[1]
        if not status.startswith(b"1"):
            break
    if status.startswith(b"3"):
        raise RefusedExchange(502, "the server is at another address now: configure that one")
    headers = [line for line in lines if line.partition(b":")[0].strip().lower() not in (b"connection", b"keep-alive")]
    writer.write(b"\r\n".join([first, *headers, b"Connection: close"]) + b"\r\n\r\n")
    left = _length(headers)
    while left is None or left > 0:
        piece = await incoming.read(PIECE if left is None else min(PIECE, left))
        if not piece:
            break
        left = None if left is None else left - len(piece)
        writer.write(piece)
        await writer.drain()
    await writer.drain()


def _length(headers: list[bytes]) -> int | None:
    """How much follows; ``None``: until the connection ends."""
    for line in headers:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length" and value.strip().isdigit():
            return int(value)
    return None


def _message(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise RefusedExchange(400, "the message cannot be read") from None


def _proxy(environ: Mapping[str, str], scheme: str, host: str) -> SplitResult | None:
    names = (f"{scheme}_proxy", f"{scheme.upper()}_PROXY", "all_proxy", "ALL_PROXY")
    address = next((environ[name] for name in names if environ.get(name)), "")
    excepted = (environ.get("no_proxy") or environ.get("NO_PROXY") or "").split(",")
    if not address or any(_covers(one.strip(), host) for one in excepted):
        return None
    return urlsplit(address if "://" in address else f"http://{address}")


def _covers(pattern: str, host: str) -> bool:
    name = pattern.removeprefix("*").removeprefix(".").lower()
    return pattern == "*" or (name != "" and (host.lower() == name or host.lower().endswith(f".{name}")))
