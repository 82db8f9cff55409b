"""The seam to the log. SQLite fills it (``sqlite/``); anything that keeps these promises may.

``write`` is atomic and returns when the changes would survive the death of this process; writes are carried out in the
order they were asked for. What is read is never newer than what was written so. Reads never wait for writes, and what
is about one session never waits for what looks at many (lists with a search, sums): such a question is given up
(``TooMany``) when it takes too long.

A session has at most one owner, a worker, and its epoch says which: ``claim`` gives a new one each time, and whatever
an owner writes carries it (``Fence``). Time only decides when a session may be taken from a worker that is silent; what
that one still writes is refused (``Fenced``) by its epoch alone. What a door wants of an owner is a row (``Command``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Sequence
from typing import Any, Protocol, TypeAlias

import msgspec

from stagedoor.errors import BadRequest

from .views import (
    By,
    Carried,
    Command,
    Device,
    IdempotentReply,
    NoticeRow,
    OneTimeCode,
    Question,
    QueuedPrompt,
    Record,
    SessionView,
    State,
    TurnUsage,
    UsageSum,
    WorkerRow,
)

MOST_BYTES = 4 * 1024 * 1024
"""How much one read of records takes into memory, unless told otherwise."""


class Append(msgspec.Struct, frozen=True):
    """Records of one session, in order; the first ``seq`` follows the last one stored (else ``SequenceConflict``).

    Its row, when read, is at least as far as its last record (``last_seq``, ``updated_at``), without being put again.
    """

    session_id: str
    records: Sequence[Record]


class Fence(msgspec.Struct, frozen=True):
    """The write is carried out only if the stored session has this ``epoch``; else nothing of it is, and ``Fenced``.

    It stands before what it is for.
    """

    session_id: str
    epoch: int


class CommandDone(msgspec.Struct, frozen=True):
    """A command came to its end, in the same write as what follows from it. The first outcome holds."""

    command_id: str
    outcome: bytes = b""


class Forget(msgspec.Struct, frozen=True):
    """Remove a session and all that was said in it; what was decided stays in the audit, what it used in the sums."""

    session_id: str


class Trim(msgspec.Struct, frozen=True):
    """Remove a session's records before ``seq``, but never its last; its row then says so (``first_seq``). What it
    carried goes too."""

    session_id: str
    seq: int


class Sweep(msgspec.Struct, frozen=True):
    """Remove what requests with an idempotency key were answered with before ``before``, notices of that time, and
    commands done by then. With ``kinds`` only commands of these, done or not."""

    before: int
    kinds: tuple[str, ...] = ()


class Remember(msgspec.Struct, frozen=True):
    """A setting or a change of configuration, by name. ``None`` removes it."""

    name: str
    value: bytes | None


class Secret(msgspec.Struct, frozen=True):
    """Like ``Remember``, where only those may read it who may let others in. ``first``: one that is there stays.
    ``stored``: it is removed only while this is its value; another process may have written a newer one."""

    name: str
    value: bytes | None
    first: bool = False
    stored: bytes | None = None


class ConfigChange(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Somebody changed what the server is told. Secrets are left out before it comes here; rows are only ever added."""

    at: int
    who: str
    name: str
    before: str = ""
    after: str = ""
    machine: str = ""
    """Whose, where several share a log."""
    n: int = 0
    """Its number, given by the store."""


Change: TypeAlias = (
    Fence
    | Append
    | SessionView
    | Question
    | QueuedPrompt
    | TurnUsage
    | Device
    | IdempotentReply
    | Carried
    | NoticeRow
    | Command
    | CommandDone
    | Forget
    | Trim
    | Sweep
    | Remember
    | Secret
    | ConfigChange
)
"""A row put (inserted or replaced by its id), or one of the above.

A session that is put again keeps its owner and its epoch, whatever the row says; a command whose id or key is there
already is left as it stands.
"""


Writing: TypeAlias = asyncio.Future[None] | Coroutine[Any, Any, None]


class Query(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Which sessions; newest first (by ``created_at``, then ``id``, both falling).

    ``search`` finds a text in title, prompt, result, folder and id, wherever it stands in them and however it is
    capitalized. ``cursor`` names the last one seen (``cursor_of``): what comes after it is found at once and stays in
    place though new ones come, which is not so for ``offset``. ``cwd`` is a whole path.
    """

    state: State | None = None
    agent: str = ""
    project_id: str = ""
    group: str = ""
    search: str = ""
    archived: bool | None = None
    ended: bool | None = None
    cwd: str = ""
    cursor: str = ""
    offset: int = 0
    limit: int = 50


def cursor_of(view: SessionView) -> str:
    return f"{view.created_at}.{view.id}"


def next_cursor(views: Sequence[SessionView], query: Query) -> str:
    """Where the page after this one begins; empty when this was the last."""
    return cursor_of(views[-1]) if views and len(views) == query.limit else ""


def place_of(cursor: str) -> tuple[int, str]:
    """When the session that ``cursor`` names was created, and its id."""
    created, _, session_id = cursor.partition(".")
    if not session_id or not created.isdecimal() or len(created) > 18:
        raise BadRequest(f"{cursor!r} is no place in a list of sessions; send the nextCursor of the page before")
    return int(created), session_id


class Removable(msgspec.Struct, frozen=True):
    """Records of an ended session that retention may remove."""

    session_id: str
    updated_at: int
    first_seq: int
    last_seq: int


class Admission(Protocol):
    """Codes that count once, at whatever door, where several processes share a log; and who came in with one."""

    async def put_code(self, code: OneTimeCode, seconds: float) -> None:
        """It counts for so long."""
        ...

    async def take_code(self, digest: bytes) -> OneTimeCode | None:
        """That of a device, which does not count any more then."""
        ...

    async def void_codes(self, by: str) -> None: ...

    async def enrol(self, worker_id: str, code: str) -> bool:
        """Let a worker in with its code, which does not count any more then. False: it is none, or it is revoked."""
        ...


class Store(Protocol):
    @property
    def away(self) -> bool:
        """It cannot be reached, and has not been for a while; what is asked of it waits, and then is ``StoreAway``."""
        ...

    @property
    def shared(self) -> bool:
        """Whether other processes may use the same log at the same time."""
        ...

    @property
    def admission(self) -> Admission | None:
        """None where nobody else can come."""
        ...

    async def open(self) -> None:
        """Make ready; migrates forward. Raises ``StoreTooNew`` or ``StoreBroken``."""

    async def close(self) -> None: ...

    def write(self, *changes: Change) -> Writing:
        """All or nothing, durable when awaited. ``StoreBroken`` when it cannot be kept: then nothing is.

        ``Fenced`` and ``SequenceConflict`` are about one session; nothing is kept either, and the store is sound.
        """
        ...

    async def records(self, session_id: str, after: int, limit: int, most_bytes: int = MOST_BYTES) -> list[Record]:
        """Those with ``seq > after``, in order; at least one when there is one."""
        ...

    async def session(self, session_id: str) -> SessionView | None: ...

    async def session_of(self, agent: str, native_id: str) -> SessionView | None:
        """The first one that stands for what ``agent`` itself stores as ``native_id``."""
        ...

    async def sessions(self, query: Query) -> list[SessionView]: ...
    async def count(self, query: Query) -> int: ...

    async def removable(self, before: int, after: Removable | None, limit: int) -> list[Removable]:
        """Ended sessions that last changed before ``before`` and have more than their last record, those that changed
        longest ago first; the ones after ``after``."""
        ...

    async def question(self, question_id: str) -> Question | None: ...

    async def questions(
        self, *, session_id: str | None = None, open_only: bool = True, offset: int = 0, limit: int | None = None
    ) -> list[Question]:
        """As they were asked, the oldest first."""
        ...

    async def question_count(self, *, session_id: str | None = None, open_only: bool = True) -> int: ...

    async def answer(self, question: Question, *, fence: Fence | None = None) -> bool:
        """Put the answered ``question`` if the stored one is open. False: somebody was faster, and nothing is put.
        Where the session is no longer as ``fence`` says, ``Fenced``."""
        ...

    async def messages(self, session_id: str, *, queued_only: bool = True) -> list[QueuedPrompt]: ...

    async def carried(self, session_id: str) -> Carried | None: ...

    async def sums(
        self, by: By | None, *, since: int = 0, until: int | None = None, offset_minutes: int = 0
    ) -> list[UsageSum]:
        """What turns used that ended from ``since`` on and before ``until``; with no ``by`` one sum of all, if any.

        Days are those of UTC plus ``offset_minutes``.
        """
        ...

    async def devices(self) -> list[Device]: ...
    async def done(self, key: str) -> IdempotentReply | None: ...
    async def setting(self, name: str) -> bytes | None: ...

    async def secrets(self) -> dict[str, bytes]:
        """All of them, by name."""
        ...

    async def notices(self, since: int) -> list[NoticeRow]:
        """Those from ``since`` on, the oldest first."""
        ...

    async def claim_deliveries(
        self, holder: str, deliveries: Collection[tuple[str, str]], seconds: float
    ) -> set[tuple[str, str]]:
        """Those of ``deliveries`` (a notice and a receiver) that ``holder`` has from now on: nobody has told it, and
        nobody else is telling it. They are its own for so long; so are, again, those that it had before."""
        ...

    async def finish_deliveries(self, deliveries: Collection[tuple[str, str]]) -> None:
        """Nobody tells these again."""
        ...

    async def workers(self) -> list[WorkerRow]:
        """By id."""
        ...

    async def put_worker(self, worker: WorkerRow) -> WorkerRow:
        """Register one that starts; returns the row as it stands then. Whether it is draining stays as it was, and one
        that is revoked stays as it is. One that is not ``enrolled`` is not stored. Whoever may let workers in is
        enrolled by coming."""
        ...

    async def renew(self, worker_id: str, incarnation: str, until: int) -> bool:
        """Lengthen its lease. False: it is revoked, or another incarnation has its id; it must let go of everything."""
        ...

    async def mark_worker(
        self, worker_id: str, *, draining: bool | None = None, revoked: bool | None = None
    ) -> WorkerRow | None:
        """Returns the row as it stands then; ``None`` when there is none. One that was let in and has not come yet is
        revoked too."""
        ...

    async def claim(
        self, worker_id: str, incarnation: str, *, labels: Collection[str], limit: int, now: int, session_id: str = ""
    ) -> list[SessionView]:
        """Give this worker sessions that nobody owns, the oldest first, or only ``session_id``; each has a new epoch.

        They have not ended, need no label but ``labels``, and their owner is none, or is revoked, or its lease was over
        at ``now``, or it is an older incarnation of this worker. A worker that is revoked or draining, whose own lease
        is over or that has another incarnation by now gets none.
        """
        ...

    async def release(self, session_id: str, epoch: int) -> bool:
        """Let go of a session: it has no owner then, and a new epoch. False: it was another's already."""
        ...

    async def put_command(self, command: Command) -> Command:
        """Put it unless one with its id, or with its key, is there; returns the one that is there then."""
        ...

    async def command(self, command_id: str) -> Command | None: ...
    async def drop_command(self, command_id: str) -> None:
        """One that is done, and that nobody asks for again."""
        ...

    async def command_with(self, key: str) -> Command | None: ...

    async def commands(self, *, worker: str = "", session_id: str = "", open_only: bool = True) -> list[Command]:
        """In the order they were put; of ``worker``: those for it, and those for sessions that it owns now."""
        ...

    async def take(self, command_id: str, epoch: int) -> bool:
        """Begin a command in the life of its session that has this ``epoch``. False: it was begun or done before.

        Raises ``Fenced`` when the session has another epoch.
        """
        ...

    async def config_changes(self, *, offset: int = 0, limit: int = 100) -> list[ConfigChange]:
        """Newest first."""
        ...
