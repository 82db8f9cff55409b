"""What is worth telling, and how it reads at each kind of receiver.

Without ``content`` nothing of what people or agents wrote goes out: what happened, and a link that only a paired
device can open.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Literal, TypeAlias
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from stagedoor.unified.events import Done, Event, PermissionRequest, TurnCompleted

from ..views import SessionView
from .signing import signature
from .webpush import LONGEST_MESSAGE, PushKey, base64_of, encrypt, padded

Occasion: TypeAlias = Literal["question", "done", "failed"]
OCCASIONS: tuple[Occasion, ...] = ("question", "done", "failed")
NoticeKind: TypeAlias = Literal["question", "done", "failed", "test"]
TITLES: dict[NoticeKind, str] = {
    "question": "Needs approval", "done": "Done", "failed": "Failed", "test": "Test",
}  # fmt: skip
LONGEST = 500
"""Characters of content in one notice."""
LONGEST_TITLE = 120
PUSH_SECONDS = 4 * 3600
"""How long a push service keeps a message for a phone that is away: a question mostly waits that long."""


class NoticeContent(msgspec.Struct, frozen=True, kw_only=True):
    """Only where the configuration asks for it."""

    session: str
    agent: str
    title: str
    text: str


class OutgoingNotice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: str
    kind: NoticeKind
    at: int
    """Milliseconds since 1970."""
    url: str = ""
    content: NoticeContent | None = None
    session: str = ""
    """For those who can keep a secret; others get the link."""


class Post(msgspec.Struct, frozen=True):
    url: str
    headers: dict[str, str]
    body: bytes
    public_only: bool = False
    """The address is not the operator's: it must be one of the internet."""


class WebhookTarget(msgspec.Struct, frozen=True):
    name: str
    """For the log: addresses are secrets."""
    url: str
    secret: str

    def post(self, notice: OutgoingNotice, now: float) -> Post:
        body = msgspec.json.encode(replace(notice, session=""))
        headers = {"Content-Type": "application/json", **signature(self.secret, notice.id, int(now), body)}
        return Post(self.url, headers, body)


class NtfyTarget(msgspec.Struct, frozen=True):
    name: str
    url: str
    token: str

    def post(self, notice: OutgoingNotice, now: float) -> Post:
        urgent = "high" if notice.kind == "question" else "default"
        headers = {"Content-Type": "text/plain; charset=utf-8", "Title": TITLES[notice.kind], "Priority": urgent}
        if notice.url:
            headers["Click"] = notice.url
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        content = notice.content
        lines = [] if content is None else [f"{content.title} ({content.agent})", content.text]
        text = "\n".join(line for line in lines if line) or "Stagedoor"
        return Post(self.url, headers, text.encode())


class PushMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the page's service worker reads. Only it can: the push service sees nothing but the length."""

    kind: NoticeKind
    session: str = ""
    title: str = ""
    text: str = ""


class PushTarget(msgspec.Struct, frozen=True):
    """A browser, by its push service."""

    name: str
    endpoint: str
    public: bytes
    secret: bytes
    key: PushKey
    contact: Callable[[], str]
    """Whom the push service may write to."""
    public_only: bool = True

    def post(self, notice: OutgoingNotice, now: float) -> Post:
        content = notice.content
        short = PushMessage(kind=notice.kind, session=notice.session)
        message = msgspec.json.encode(short)
        if content is not None:
            title = f"{content.title[:LONGEST_TITLE]} ({content.agent})"
            longer = msgspec.json.encode(replace(short, title=title, text=content.text))
            message = longer if len(longer) <= LONGEST_MESSAGE else message
        headers = {
            "Content-Type": "application/octet-stream",
            "Content-Encoding": "aes128gcm",
            "TTL": str(PUSH_SECONDS),
            "Urgency": "high" if notice.kind == "question" else "normal",
            # Of a phone that was away, only the last word of each session is kept.
            "Topic": base64_of(hashlib.sha256(self.secret + notice.session.encode()).digest())[:32],
            "Authorization": self.key.authorization(self.endpoint, self.contact(), now),
        }
        return Post(self.endpoint, headers, encrypt(padded(message), self.public, self.secret), self.public_only)


Target: TypeAlias = WebhookTarget | NtfyTarget | PushTarget


def occasion_of(view: SessionView, event: Event) -> Occasion | None:
    """``view`` is the session after ``event``. What a session of a model's own ends with is that model's to hear."""
    match event:
        case PermissionRequest(automatic=False):
            return "question"
        case TurnCompleted(status="interrupted"):
            return None  # somebody stopped it
        case TurnCompleted(status="success"):
            return None if view.parent or view.queued else "done"
        case TurnCompleted():
            return None if view.parent else "failed"
        case Done() if view.state == "failed":
            return None if view.parent else "failed"
        case _:
            return None


def text_of(view: SessionView, event: Event) -> str:
    match event:
        case PermissionRequest():
            text = f"{event.native_name or event.tool_name}: {event.target or event.description}"
        case TurnCompleted(status="success"):
            text = event.result
        case _:
            text = view.error
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def link_to(page: str, session_id: str) -> str:
    return f"{page}/#/s/{quote(session_id, safe='')}" if page else ""
