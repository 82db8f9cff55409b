"""The server's log, on standard error: lines for people, or JSON for machines. Never a token."""

from __future__ import annotations

import logging
import re
import sys
import time
from typing import Any, Literal

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .access.tokens import TOKEN_PATTERN

Format = Literal["text", "json"]
LEVELS = ("debug", "info", "warning", "error")
ACCESS = logging.getLogger("stagedoor.server.access")
OWN_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""Characters with which a path or an agent's text could forge a log line."""
_SESSION = re.compile(r"/sessions/([\w-]{1,64})(?:/|$)")


def set_up(log_format: Format, level: str) -> None:
    """Log to standard error, from ``level`` on."""
    stream = logging.StreamHandler(sys.stderr)
    stream.addFilter(_worth_logging)
    stream.setFormatter(JsonLines() if log_format == "json" else TextLines())
    root = logging.getLogger()
    root.handlers[:] = [stream]
    root.setLevel(level.upper())
    for noisy in ("uvicorn", "httpx", "httpcore", "websockets", "watchfiles"):
        logging.getLogger(noisy).setLevel(max(logging.WARNING, root.level))


def _worth_logging(record: logging.LogRecord) -> bool:
    """uvicorn logs every refused WebSocket as an error of the app."""
    return "without completing handshake" not in record.msg


def redacted(text: str) -> str:
    return TOKEN_PATTERN.sub("stagedoor_…", text)


class JsonLines(logging.Formatter):
    """``{"time", "level", "logger", "message", …}``: with the fields of ``extra`` beside them."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": _moment(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_extra(record),
        }
        if record.exc_info:
            fields["error"] = self.formatException(record.exc_info)
        return redacted(msgspec.json.encode(fields, enc_hook=str).decode())


class TextLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        extra = " ".join(f"{name}={value}" for name, value in _extra(record).items() if value not in ("", None))
        text = _CONTROLS.sub(lambda match: ascii(match[0])[1:-1], f"{record.getMessage()} {extra}".rstrip())
        line = f"{_moment(record.created)} {record.levelname.lower():7} {text}"
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
        started = time.monotonic()
        statuses: list[int] = []

        async def watched(message: Message) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])
            await send(message)

        is_socket = scope["type"] == "websocket"
        try:
            await self._app(scope, receive, send if is_socket else watched)
        finally:
            method, status = "WS" if is_socket else scope["method"], statuses[-1] if statuses else 0
            quiet = method in ("GET", "HEAD", "WS") and status not in (401, 403, 421, 429) and status < 500
            level = logging.DEBUG if quiet else logging.WARNING if status >= 500 else logging.INFO
            if ACCESS.isEnabledFor(level):
                ACCESS.log(level, "%s %s", method, scope["path"][:200], extra=_facts(scope, status, started))


def _facts(scope: Scope, status: int, started: float) -> dict[str, Any]:
    caller = scope.get("state", {}).get("caller")
    session = _SESSION.search(scope["path"])
    return {
        "status": status or None,
        "ms": round((time.monotonic() - started) * 1000),
        "device": "" if caller is None else caller.device_id,
        "session": session[1] if session else "",
    }


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in OWN_FIELDS}


def _moment(seconds: float) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds % 1 * 1000):03d}Z"
