"""The server's log, on standard error: lines for people, or JSON for machines. Never a token.

What anybody on the network can cause is logged by count: the first lines of a minute, then how many more there were.
"""

from __future__ import annotations

import logging
import re
import sys
import time
from collections import Counter
from collections.abc import Callable
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
REPEAT_SECONDS = 60.0
LINES_OF_A_KIND = 20
"""That are logged within ``REPEAT_SECONDS``, of those that anybody can cause."""
_FOREIGN = ("uvicorn", "websockets", "asyncio")


def set_up(log_format: Format, level: str) -> None:
    """Log to standard error, from ``level`` on."""
    stream = logging.StreamHandler(sys.stderr)
    stream.addFilter(_worth_logging)
    stream.addFilter(FLOOD)
    stream.setFormatter(JsonLines() if log_format == "json" else TextLines())
    root = logging.getLogger()
    root.handlers[:] = [stream]
    root.setLevel(level.upper())
    for noisy in ("uvicorn", "httpx", "httpcore", "websockets", "watchfiles"):
        logging.getLogger(noisy).setLevel(max(logging.WARNING, root.level))


def _worth_logging(record: logging.LogRecord) -> bool:
    """uvicorn logs every refused WebSocket as an error of the app."""
    return "without completing handshake" not in record.msg


class RepeatedLine:
    """Something that may happen thousands of times a second: one line with the count, at most once in a while."""

    def __init__(self, log: logging.Logger, text: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._text = text
        self._clock = clock
        self._times = 0
        self._quiet_until = 0.0

    def count(self) -> None:
        self._times += 1

    def report(self, detail: str = "") -> bool:
        """Write the line when it is time and there is something to say; whether it did."""
        if not self._times or self._clock() < self._quiet_until:
            return False
        self._quiet_until = self._clock() + REPEAT_SECONDS
        times, self._times = self._times, 0
        self._log.warning("%s%s", self._text, f" ({detail})" if detail else "", extra={"times": times})
        return True


class Flood:
    """Lets the first lines of each kind through, of those that anybody can cause, and counts the rest."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._window_ends = 0.0
        self._lines: Counter[str] = Counter()

    def filter(self, record: logging.LogRecord) -> bool:
        kind = _kind(record)
        if kind is None:
            return True
        self.report()
        self._lines[kind] += 1
        return self._lines[kind] <= LINES_OF_A_KIND

    def report(self) -> None:
        """When the time is over: how many lines were left out."""
        if self._clock() < self._window_ends:
            return
        self._window_ends = self._clock() + REPEAT_SECONDS
        lines, self._lines = self._lines, Counter()
        for kind, count in lines.items():
            if count > LINES_OF_A_KIND:
                more = count - LINES_OF_A_KIND
                logging.getLogger("stagedoor.server").warning("more lines like it: %s", kind, extra={"times": more})


def _kind(record: logging.LogRecord) -> str | None:
    if record.name.partition(".")[0] in _FOREIGN:
        return f"{record.name}: {record.msg}"[:200]
    if record.name == ACCESS.name and not getattr(record, "device", ""):
        return f"requests without a token were answered with {getattr(record, 'status', 0)}"
    return None


FLOOD = Flood()


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
