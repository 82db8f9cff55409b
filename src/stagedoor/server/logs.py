"""What the server says about itself, on standard error: lines for people, or JSON for machines. Never a token."""

from __future__ import annotations

import logging
import re
import sys
import time
from typing import Any, Literal

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .access.tokens import LOOKS_LIKE_ONE

Format = Literal["text", "json"]
LEVELS = ("debug", "info", "warning", "error")
ACCESS = logging.getLogger("stagedoor.server.access")
OWN_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""What would let a path or an agent's word forge a line of its own."""
_SESSION = re.compile(r"/sessions/([\w-]{1,64})(?:/|$)")


def set_up(how: Format, level: str) -> None:
    """Say what is logged, from ``level`` on, on standard error."""
    stream = logging.StreamHandler(sys.stderr)
    stream.addFilter(_worth_telling)
    stream.setFormatter(JsonLines() if how == "json" else TextLines())
    root = logging.getLogger()
    root.handlers[:] = [stream]
    root.setLevel(level.upper())
    for noisy in ("uvicorn", "httpx", "httpcore", "websockets", "watchfiles"):
        logging.getLogger(noisy).setLevel(max(logging.WARNING, root.level))


def _worth_telling(record: logging.LogRecord) -> bool:
    """uvicorn calls every refused WebSocket a fault of the app."""
    return "without completing handshake" not in record.msg


def redacted(text: str) -> str:
    return LOOKS_LIKE_ONE.sub("stagedoor_…", text)


class JsonLines(logging.Formatter):
    """``{"time", "level", "logger", "message", …}``: what was given as ``extra`` stands beside it."""

    def format(self, record: logging.LogRecord) -> str:
        said: dict[str, Any] = {
            "time": _moment(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_extra(record),
        }
        if record.exc_info:
            said["error"] = self.formatException(record.exc_info)
        return redacted(msgspec.json.encode(said, enc_hook=str).decode())


class TextLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        extra = " ".join(f"{name}={value}" for name, value in _extra(record).items() if value not in ("", None))
        said = _CONTROLS.sub(lambda found: ascii(found[0])[1:-1], f"{record.getMessage()} {extra}".rstrip())
        line = f"{_moment(record.created)} {record.levelname.lower():7} {said}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return redacted(line)


class RequestLog:
    """One line per request: no query, no header, no body. Reads are ``debug``, changes and refusals ``info``."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or not ACCESS.isEnabledFor(logging.INFO):
            await self._app(scope, receive, send)
            return
        begun = time.monotonic()
        told: list[int] = []

        async def watched(message: Message) -> None:
            if message["type"] == "http.response.start":
                told.append(message["status"])
            await send(message)

        is_socket = scope["type"] == "websocket"
        try:
            await self._app(scope, receive, send if is_socket else watched)
        finally:
            method, status = "WS" if is_socket else scope["method"], told[-1] if told else 0
            quiet = method in ("GET", "HEAD", "WS") and status not in (401, 403, 421, 429) and status < 500
            level = logging.DEBUG if quiet else logging.WARNING if status >= 500 else logging.INFO
            if ACCESS.isEnabledFor(level):
                ACCESS.log(level, "%s %s", method, scope["path"][:200], extra=_facts(scope, status, begun))


def _facts(scope: Scope, status: int, begun: float) -> dict[str, Any]:
    caller = scope.get("state", {}).get("caller")
    session = _SESSION.search(scope["path"])
    return {
        "status": status or None,
        "ms": round((time.monotonic() - begun) * 1000),
        "device": "" if caller is None else caller.device_id,
        "session": session[1] if session else "",
    }


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in OWN_FIELDS}


def _moment(seconds: float) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds % 1 * 1000):03d}Z"
