"""One REST operation as a value: what it reads, which scope it needs, what it answers.

The same table answers requests (``rest``) and describes itself (``openapi``), so the description is always true.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, Generic, Literal, TypeAlias, TypeVar

import msgspec

from stagedoor.dialects import DIALECTS
from stagedoor.service.service import Service
from stagedoor.service.views import Scope as Right

from ..access.devices import Caller
from .event_pages import EventPages

Method = Literal["GET", "POST", "PATCH", "DELETE"]
QueryType = TypeVar("QueryType")
BodyType = TypeVar("BodyType")

LARGEST = 2**53 - 1
"""The largest whole number every JSON reader keeps exactly."""
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]
ANY_AGENT = "x-agent-name"
"""Marks a text in the schemas that is an agent's name: which there are is known when the document is asked for."""
AgentName: TypeAlias = Annotated[str, msgspec.Meta(max_length=1000, extra_json_schema={ANY_AGENT: True})]
DialectName: TypeAlias = Annotated[str, msgspec.Meta(max_length=1000, extra_json_schema={"enum": [*DIALECTS]})]
PathText: TypeAlias = Annotated[str, msgspec.Meta(max_length=4096)]
Words: TypeAlias = Annotated[str, msgspec.Meta(max_length=1000)]


class PlaceQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of which machine (``host:NAME``)."""

    place: Words = ""


class RestCall(msgspec.Struct, Generic[QueryType, BodyType], frozen=True, kw_only=True):
    """One request, read and checked."""

    service: Service
    pages: EventPages
    caller: Caller
    path: Mapping[str, str]
    query: QueryType
    body: BodyType

    @property
    def who(self) -> str:
        return self.caller.name

    @property
    def session_id(self) -> str:
        return self.path["sessionId"]


Verb: TypeAlias = Callable[[RestCall[Any, Any]], Awaitable[Any]]


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    """Its ``operationId``."""
    method: Method
    path: str
    summary: str
    tag: str
    scope: Right | None
    """``None``: it needs no token."""
    verb: Verb | None = None
    """``None``: another door answers it."""
    query: Any = None
    """A struct whose fields are the names after ``?``."""
    bodies: tuple[Any, ...] = ()
    """The type of the JSON body; empty when there is none, several when ``read`` chooses between them."""
    body_optional: bool = False
    read: Callable[[Any], Any] | None = None
    answer: Any = None
    """The type of the JSON answer; ``None``: it has no body."""
    media: tuple[str, ...] = ("application/json",)
    status: int = 200
    faults: tuple[int, ...] = ()
    """The statuses of its own problems, beside those every operation has."""
    keyed: bool = True
    """For a POST: whether it takes an ``Idempotency-Key``. One whose answer is secret does not: it is never stored."""
    recall: Verb | None = None
    """For a request whose answer was lost in a crash: looks up what it created (see ``idempotency``)."""
