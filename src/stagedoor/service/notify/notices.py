"""What is worth telling, and how it reads at each kind of receiver.

Without ``content`` nothing of what people or agents wrote goes out: what happened, and a link that only a paired
device can open.
"""

from __future__ import annotations

from typing import Literal, TypeAlias
from urllib.parse import quote

import msgspec

from stagedoor.unified.events import Done, Event, PermissionRequest, TurnCompleted

from ..views import SessionView
from .signing import signature

Occasion: TypeAlias = Literal["question", "done", "failed"]
OCCASIONS: tuple[Occasion, ...] = ("question", "done", "failed")
TITLES: dict[Occasion, str] = {"question": "Needs approval", "done": "Done", "failed": "Failed"}
LONGEST = 500
"""Characters of content in one notice."""


class NoticeContent(msgspec.Struct, frozen=True, kw_only=True):
    """Only where the configuration asks for it."""

    session: str
    agent: str
    title: str
    text: str


class OutgoingNotice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: str
    kind: Occasion
    at: int
    """Milliseconds since 1970."""
    url: str = ""
    content: NoticeContent | None = None


class Post(msgspec.Struct, frozen=True):
    url: str
    headers: dict[str, str]
    body: bytes


class WebhookTarget(msgspec.Struct, frozen=True):
    name: str
    """For the log: addresses are secrets."""
    url: str
    secret: str

    def post(self, notice: OutgoingNotice, now: float) -> Post:
        body = msgspec.json.encode(notice)
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


Target: TypeAlias = WebhookTarget | NtfyTarget


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
