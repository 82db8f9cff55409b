"""HTTP requests and answers as values: what a protocol asks for, and what came back. Sending is the transport's."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote, urlencode

import msgspec


class HttpRequest(msgspec.Struct, frozen=True):
    """One call. ``path`` begins with a slash; ``body`` is JSON, or empty for none."""

    method: str
    path: str
    body: bytes = b""
    query: Mapping[str, str] = {}

    @property
    def target(self) -> str:
        """Path and query, as they stand in the request line."""
        return f"{self.path}?{urlencode(self.query, quote_via=quote, safe='/')}" if self.query else self.path

    def line(self) -> bytes:
        """The call on one line, the form in which two-way recordings keep it."""
        head = f"{self.method} {self.target}".encode()
        return head + b" " + self.body if self.body else head


class HttpAnswer(msgspec.Struct, frozen=True):
    """What came back. A refusal is an answer too; only a broken connection is an exception."""

    status: int
    body: bytes = b""

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    def line(self) -> bytes:
        """The answer on one line, the form in which two-way recordings keep it."""
        return f"HTTP {self.status} ".encode() + self.body
