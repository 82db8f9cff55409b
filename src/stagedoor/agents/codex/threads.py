"""Threads, turns and what the app-server answers our calls with."""

from __future__ import annotations

from typing import Any, TypeAlias, cast

import msgspec

from ...wire.shapes import Unrecognized
from . import thread_items
from .lenient import decoded
from .thread_items import ThreadItem


class TurnErrorDetails(msgspec.Struct, frozen=True, rename="camel"):
    """``codex_error_info`` is a word (``"modelNotFound"``), or a word with details, or nothing."""

    message: str = ""
    codex_error_info: Any = None
    additional_details: str | None = None

    @property
    def kind(self) -> str:
        """The word alone; empty when there is none."""
        if isinstance(self.codex_error_info, str):
            return self.codex_error_info
        return next(iter(self._detailed()), "")

    @property
    def http_status(self) -> int | None:
        for details in self._detailed().values():
            if isinstance(details, dict):
                status = cast("dict[str, Any]", details).get("httpStatusCode")
                return status if isinstance(status, int) else None
        return None

    def _detailed(self) -> dict[str, Any]:
        found: Any = self.codex_error_info
        return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


class Turn(msgspec.Struct, frozen=True, rename="camel"):
    """``status``: inProgress, completed, interrupted, failed. ``items`` is empty or a summary, never the whole turn."""

    id: str = ""
    status: str = ""
    error: TurnErrorDetails | None = None
    items: list[msgspec.Raw] = []
    started_at: float | None = None
    completed_at: float | None = None
    duration_ms: float | None = None
    root_turn_id: str | None = None

    def thread_items(self) -> list[ThreadItem | Unrecognized]:
        return [thread_items.decode(bytes(raw)) for raw in self.items]


class ThreadStatus(msgspec.Struct, frozen=True, rename="camel"):
    """``type``: notLoaded, idle, active, systemError. Flags of an active one: waitingOnApproval, waitingOnUserInput."""

    type: str = ""
    active_flags: list[str] = []


class GitInfo(msgspec.Struct, frozen=True, rename="camel"):
    sha: str | None = None
    branch: str | None = None
    origin_url: str | None = None


class Thread(msgspec.Struct, frozen=True, rename="camel"):
    """``created_at`` and ``updated_at`` are seconds. ``source`` is a word, or an object for sub-agents."""

    id: str
    preview: str = ""
    name: str | None = None
    cwd: str = ""
    path: str | None = None
    model: str | None = None
    model_provider: str = ""
    cli_version: str = ""
    originator: str | None = None
    source: Any = None
    created_at: float = 0
    updated_at: float = 0
    ephemeral: bool = False
    status: ThreadStatus = ThreadStatus()
    git_info: GitInfo | None = None
    forked_from_id: str | None = None
    parent_thread_id: str | None = None
    agent_nickname: str | None = None
    agent_role: str | None = None
    turns: list[Turn] = []


class InitializeResponse(msgspec.Struct, frozen=True, rename="camel"):
    user_agent: str
    codex_home: str = ""
    platform_family: str = ""
    platform_os: str = ""


class ThreadResponse(msgspec.Struct, frozen=True, rename="camel"):
    """The answer to ``thread/start``, ``thread/resume``, ``thread/fork`` and ``thread/read``, with what is in force."""

    thread: Thread
    model: str = ""
    model_provider: str = ""
    cwd: str = ""
    approval_policy: Any = None
    sandbox: Any = None
    reasoning_effort: str | None = None


class TurnStartResponse(msgspec.Struct, frozen=True):
    turn: Turn


class TurnSteerResponse(msgspec.Struct, frozen=True, rename="camel"):
    turn_id: str


class ThreadListResponse(msgspec.Struct, frozen=True, rename="camel"):
    data: list[Thread]
    next_cursor: str | None = None


class ReasoningEffortOption(msgspec.Struct, frozen=True, rename="camel"):
    reasoning_effort: str = ""
    description: str = ""


class Model(msgspec.Struct, frozen=True, rename="camel"):
    id: str
    display_name: str = ""
    description: str = ""
    hidden: bool = False
    is_default: bool = False
    default_reasoning_effort: str | None = None
    supported_reasoning_efforts: list[ReasoningEffortOption] = []
    input_modalities: list[str] = []


class ModelListResponse(msgspec.Struct, frozen=True, rename="camel"):
    data: list[Model]
    next_cursor: str | None = None


class Account(msgspec.Struct, frozen=True, rename="camel"):
    """``type``: apiKey, chatgpt, amazonBedrock, gcp."""

    type: str = ""
    email: str | None = None
    plan_type: str | None = None


class GetAccountResponse(msgspec.Struct, frozen=True, rename="camel"):
    """Nobody is signed in when ``account`` is none although ``requires_openai_auth``."""

    requires_openai_auth: bool
    account: Account | None = None


class BackgroundTerminal(msgspec.Struct, frozen=True, rename="camel"):
    item_id: str = ""
    process_id: str = ""
    command: str = ""
    cwd: str = ""


class BackgroundTerminalsResponse(msgspec.Struct, frozen=True, rename="camel"):
    data: list[BackgroundTerminal]
    next_cursor: str | None = None


Result: TypeAlias = (
    InitializeResponse
    | ThreadResponse
    | TurnStartResponse
    | TurnSteerResponse
    | ThreadListResponse
    | ModelListResponse
    | GetAccountResponse
    | BackgroundTerminalsResponse
    | msgspec.Raw
)

RESULTS: dict[str, type[Any]] = {
    "initialize": InitializeResponse,
    "thread/start": ThreadResponse,
    "thread/resume": ThreadResponse,
    "thread/fork": ThreadResponse,
    "thread/read": ThreadResponse,
    "turn/start": TurnStartResponse,
    "turn/steer": TurnSteerResponse,
    "thread/list": ThreadListResponse,
    "model/list": ModelListResponse,
    "account/read": GetAccountResponse,
    "thread/backgroundTerminals/list": BackgroundTerminalsResponse,
}
"""What each call is answered with; the answers of other calls are kept raw."""


class Replied(msgspec.Struct, frozen=True):
    """An answer to a call of ours. ``method`` is empty when we did not make that call (a replayed recording).

    ``thread_id`` is the thread the call was about, empty when it was about none.
    """

    request_id: int | str | None
    method: str
    result: Result
    thread_id: str = ""


class Refused(msgspec.Struct, frozen=True):
    """A call of ours was answered with an error. Codex uses code -32600 for nearly everything."""

    request_id: int | str | None
    method: str
    code: int
    message: str
    thread_id: str = ""


_DECODERS = {method: msgspec.json.Decoder(shape) for method, shape in RESULTS.items()}
_BY_SHAPE = ("initialize", "thread/start", "turn/start")


def result(method: str, raw: msgspec.Raw) -> Result:
    """The typed result of ``method``; raw when it has no type or not the expected shape."""
    for candidate in (method,) if method else _BY_SHAPE:
        if decoder := _DECODERS.get(candidate):
            value = decoded(decoder, raw)
            if not isinstance(value, str):
                return cast("Result", value)
    return raw
