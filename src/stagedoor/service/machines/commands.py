"""Verbs that are carried out on the machine where a session is: each call is a row in the log, taken there once.

A door puts the row and waits for its outcome; the worker that owns the session (or the machine that has its files)
takes it, carries the verb out and writes what came of it. Nobody is asked twice: what was taken in a life that ended
before its outcome was written is closed as unknown, and said so.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import inspect
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping
from itertools import count
from typing import Any, get_type_hints

import msgspec

from stagedoor import errors
from stagedoor.errors import BadRequest, Fenced, StagedoorError, StoreError, UnknownOutcome, WorkerAway
from stagedoor.transports.tasks import TaskOwner

from ..identity import current_caller, current_seed, id_below, ids_from
from ..journal import Journal
from ..store import CommandDone, Query, Sweep
from ..views import Command, SessionView, WorkerRow
from . import MOST_LISTED
from .places import clone_label, git_place, lacking

_log = logging.getLogger("stagedoor.service")
PATIENCE = 120.0
"""Seconds that a door waits for an outcome."""
GRACE = 20.0
"""Seconds that a session's machine may be away before a door stops waiting for it, or for one that takes over."""
LOOK_EVERY = 2.0
"""Seconds after which it looks without having been rung for."""
CLOSE_WITHIN = 5.0
"""Seconds in which what nobody waits for is withdrawn when a door stops."""
FINISH_WITHIN = 10.0
"""Seconds that what a worker has taken has to come to its end when it stops."""
SWEEP_LOOKS_EVERY = 60.0
"""Seconds between two times that a worker removes answers that no door has fetched."""
SWEEP_EVERY = 10.0
"""Seconds after which a worker looks for commands without having been rung for."""
FINAL = (
    errors.SessionNotFound, errors.SessionEnded, errors.SessionRunning, errors.AlreadyAnswered, errors.EventsRemoved,
    errors.BadRequest, errors.UnknownOutcome, errors.NotSupported, errors.LocalProtocolError, errors.MessageTooLarge,
)  # fmt: skip
"""Errors that are the answer to a request. The reason of any other may be gone when the same request comes again."""
MOST_BYTES = 16 * 1024 * 1024
"""Of an answer."""


def topic_of(worker_id: str) -> str:
    """Rings when there is a command for this worker."""
    return f"commands:{worker_id}"


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """``value``, or the ``error`` (the name of its class) with its words."""

    value: msgspec.Raw = msgspec.Raw(b"null")
    error: str = ""
    message: str = ""


ABANDONED = Outcome(error=UnknownOutcome.__name__, message="whoever sent this was gone before it was done")


class _Call(msgspec.Struct, frozen=True):
    arguments: msgspec.Raw
    seed: str
    """Ids that are made follow from it, wherever the verb is carried out."""


class Verb:
    """A method whose arguments and answer can travel, by their annotations."""

    def __init__(self, kind: str, method: Callable[..., Awaitable[Any]]) -> None:
        self.kind = kind
        self.method = method
        self.signature = inspect.signature(method)
        hints = get_type_hints(method, include_extras=True)
        self.answer: Any = hints.pop("return")
        fields: list[Any] = []
        for name, parameter in self.signature.parameters.items():
            default = parameter.default
            fields.append((name, hints[name]) if default is parameter.empty else (name, hints[name], default))
        self.arguments = msgspec.defstruct(kind.replace(".", "_"), fields, kw_only=True, forbid_unknown_fields=True)

    def encoded(self, *args: Any, **named: Any) -> bytes:
        bound = self.signature.bind(*args, **named)
        return msgspec.json.encode(dict(bound.arguments))

    async def carry_out(self, arguments: bytes) -> bytes:
        decoded = msgspec.json.decode(arguments, type=self.arguments, strict=False)
        values = {name: getattr(decoded, name) for name in self.signature.parameters}
        return msgspec.json.encode(await self.method(**values))

    def decoded(self, value: bytes) -> Any:
        return msgspec.json.decode(value, type=self.answer, strict=False)


def _verbs(groups: Mapping[str, tuple[object, tuple[str, ...]]]) -> dict[str, Verb]:
    return {
        f"{group}.{name}": Verb(f"{group}.{name}", getattr(verbs, name))
        for group, (verbs, names) in groups.items()
        for name in names
    }


class CommandOutbox:
    """A door's side. ``groups``: the objects whose named methods may be called from elsewhere."""

    def __init__(
        self,
        journal: Journal,
        groups: Mapping[str, tuple[object, tuple[str, ...]]],
        *,
        now: Callable[[], int],
        looks: Collection[str] = (),
        patience: float = PATIENCE,
        grace: float = GRACE,
    ) -> None:
        self.verbs = _verbs(groups)
        self._journal = journal
        self._now = now
        self._looks = frozenset(looks)
        """Verbs that change nothing: their rows are removed as soon as the answer is read."""
        self._patience = patience
        self._tasks = TaskOwner()
        self._grace = grace

    async def to_owner(self, kind: str, view: SessionView, *args: Any, **named: Any) -> Any:
        """Carried out by whoever owns the session; once it has ended, on the machine that ran it last."""
        return await self.again(kind, view, 1, *args, **named)

    async def again(self, kind: str, view: SessionView, number: int, *args: Any, **named: Any) -> Any:
        """For the ``number``th time, because the log shows that the times before came to nothing."""
        session_id = "" if view.ended else view.id
        return await self._call(self.verbs[kind], view.worker, session_id, args, named, first=number)

    async def to_machine(self, kind: str, worker_id: str, *args: Any, **named: Any) -> Any:
        return await self._call(self.verbs[kind], worker_id, "", args, named, first=1)

    async def _call(self, verb: Verb, worker_id: str, session_id: str, args: Any, named: Any, *, first: int) -> Any:
        seed = current_seed()
        body = msgspec.json.encode(_Call(msgspec.Raw(verb.encoded(*args, **named)), seed))
        digest = hashlib.sha256(body).hexdigest()
        worker = await self._worker(worker_id)
        for number in count(first):
            command = Command(
                id=id_below(f"{verb.kind} {number} {digest}"),
                kind=verb.kind,
                session_id=session_id,
                worker="" if session_id else worker_id,
                body=body,
                who=str(named.get("who") or current_caller()),
                at=self._now(),
            )
            bell = self._journal.hub.bell(command.id)
            stored: Command | None = None
            try:
                stored = await self._journal.store.put_command(command)
                if stored.done and (not stored.taken_epoch or _is_passing(stored)):
                    continue  # of an earlier try of the same request, which nobody began, or which was refused for now
                self._journal.hub.ring(topic_of(worker_id))
                outcome = await self._outcome(stored, bell.rung, worker_id, worker)
            except asyncio.CancelledError:
                self._tasks.start(self._withdraw(command))
                raise
            except StoreError as fault:
                self._tasks.start(self._withdraw(command))
                if stored is None:
                    raise
                raise UnknownOutcome(f"what came of this is not known: {fault}") from fault
            finally:
                bell.close()
            if verb.kind in self._looks:  # nobody asks for it again, and it may be a whole file
                self._tasks.start(self._drop(command.id))
            if outcome.error:
                raise _raised(outcome)
            return verb.decoded(outcome.value)
        raise AssertionError

    async def close(self) -> None:
        await self._tasks.finish(CLOSE_WITHIN)

    async def _drop(self, command_id: str) -> None:
        with contextlib.suppress(StoreError):  # it is swept later
            await self._journal.store.drop_command(command_id)

    async def _withdraw(self, command: Command) -> None:
        """Nobody waits for it any more: it is not begun later, when nobody thinks of it."""
        with contextlib.suppress(StoreError):  # it is too old then, when somebody could take it
            await self._journal.store.write(CommandDone(command.id, msgspec.json.encode(ABANDONED)))

    async def _outcome(
        self, command: Command, rung: Callable[[], Awaitable[None]], worker_id: str, first: WorkerRow | None
    ) -> Outcome:
        until = time.monotonic() + self._patience
        seen = time.monotonic()
        while True:
            current = await self._journal.store.command(command.id)
            if current is None:
                raise WorkerAway("the request was removed before it was carried out; send it again")
            if current.done:
                return msgspec.json.decode(current.outcome, type=Outcome)
            owner = await self._worker(await self._owner(current, worker_id))
            now = time.monotonic()
            if owner is not None and not owner.revoked and owner.until > self._now():
                seen = now
            grace = self._grace if current.session_id and not current.taken_epoch else 0.0
            lost = current.taken_epoch and await self._life_is_over(current, first, owner)
            if lost or seen + grace < now or now > until:
                await self._give_up(current, owner or first, late=now > until)
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY):
                    await rung()

    async def _worker(self, worker_id: str) -> WorkerRow | None:
        return next((row for row in await self._journal.store.workers() if row.id == worker_id), None)

    async def _owner(self, command: Command, worker_id: str) -> str:
        if not command.session_id:
            return command.worker
        view = await self._journal.store.session(command.session_id)
        owner = worker_id if view is None else view.worker
        if owner != worker_id:
            self._journal.hub.ring(topic_of(owner))  # it was taken over meanwhile: whoever has it now is told
        return owner

    async def _life_is_over(self, command: Command, first: WorkerRow | None, owner: WorkerRow | None) -> bool:
        """It was begun by a life that is no more: whether it was done, nobody can say."""
        if not command.session_id:
            return first is None or owner is None or first.incarnation != owner.incarnation
        view = await self._journal.store.session(command.session_id)
        return view is None or view.epoch != command.taken_epoch

    async def _give_up(self, command: Command, worker: WorkerRow | None, *, late: bool) -> None:
        """The first outcome holds: if it is being done at this very moment, that one counts."""
        name = "" if worker is None else f" {worker.name!r}"
        if command.taken_epoch and late:
            words = f"the machine{name} has not said in {self._patience:g} seconds what came of this: look whether it "
            words += "was done before you send it again"
            outcome = Outcome(error=UnknownOutcome.__name__, message=words)
        elif command.taken_epoch:
            words = f"the machine{name} stopped while it did this: look whether it was done before you send it again"
            outcome = Outcome(error=UnknownOutcome.__name__, message=words)
        else:
            words = f"the machine{name} is away: try again when it is back, or start the session elsewhere"
            outcome = Outcome(error=WorkerAway.__name__, message=words)
        await self._journal.store.write(CommandDone(command.id, msgspec.json.encode(outcome)))


class CommandInbox:
    """A worker's side: takes what is meant for it, and carries it out."""

    def __init__(
        self,
        journal: Journal,
        verbs: Mapping[str, Verb],
        me: Callable[[], str],
        *,
        now: Callable[[], int],
        looks: Collection[str] = (),
    ) -> None:
        self._looks = tuple(looks)
        self._swept = float("-inf")
        self._journal = journal
        self._now = now
        self._verbs = verbs
        self._me = me
        self._tasks = TaskOwner()
        self._taking = TaskOwner()
        self._under_way: set[str] = set()

    def start(self) -> None:
        self._tasks.start(self._listen(), name="stagedoor commands")

    async def stop(self) -> None:
        """What was taken comes to its end first: whoever waits for it is told."""
        await self._tasks.close()
        await self._taking.finish(FINISH_WITHIN)
        await self._taking.close()

    async def _listen(self) -> None:
        bell = self._journal.hub.bell(topic_of(self._me()))
        try:
            while True:
                with contextlib.suppress(StoreError):  # the log is away; what waits there is found when it is back
                    await self._look()
                    await self._sweep()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(SWEEP_EVERY):
                        await bell.rung()
        finally:
            bell.close()

    async def _sweep(self) -> None:
        """Answers to those who only looked are removed by the door that asked. One that was killed does not: nobody
        waits for them after that time."""
        if self._looks and time.monotonic() - self._swept > SWEEP_LOOKS_EVERY:
            self._swept = time.monotonic()
            before = self._now() - int((PATIENCE + GRACE) * 1000)
            await self._journal.store.write(Sweep(before, kinds=self._looks))

    async def _look(self) -> None:
        for command in await self._journal.store.commands(worker=self._me()):
            if command.id in self._under_way or command.taken_epoch or command.kind not in self._verbs:
                continue
            if command.at + int((PATIENCE + GRACE) * 1000) < self._now():  # its door was killed: nobody waits for it
                await self._journal.store.write(CommandDone(command.id, msgspec.json.encode(ABANDONED)))
                continue
            self._under_way.add(command.id)
            self._taking.start(self._take(command))

    async def _take(self, command: Command) -> None:
        try:
            epoch = 1
            if command.session_id:
                view = await self._journal.store.session(command.session_id)
                if view is None or view.worker != self._me():
                    return
                epoch = view.epoch
            if await self._journal.store.take(command.id, epoch):
                outcome = await self._carry_out(command)
                await self._journal.store.write(CommandDone(command.id, msgspec.json.encode(outcome)))
                self._journal.hub.ring(command.id)
        except Fenced:
            pass  # another has the session by now, and the command with it
        except StoreError as fault:
            _log.error("what came of a request could not be stored: %s", fault, extra={"command": command.id})
        finally:
            self._under_way.discard(command.id)

    async def _carry_out(self, command: Command) -> Outcome:
        call = msgspec.json.decode(command.body, type=_Call)
        verb = self._verbs[command.kind]
        try:
            with ids_from(call.seed or command.id):
                value = await verb.carry_out(call.arguments)
            if len(value) > MOST_BYTES:
                words = f"the answer has {len(value):,} bytes, and at most {MOST_BYTES:,} go to another machine"
                return Outcome(error=BadRequest.__name__, message=f"{words}; ask for less of it")
            return Outcome(msgspec.Raw(value))
        except StagedoorError as fault:
            return Outcome(error=type(fault).__name__, message=str(fault))
        except Exception as fault:  # a fault of our own is an answer too: somebody waits for it
            _log.exception("a verb failed", extra={"verb": command.kind})
            return Outcome(error=StagedoorError.__name__, message=f"{command.kind} failed: {fault!r}")


class Placement:
    """Which machine a new session goes to."""

    def __init__(self, journal: Journal, now: Callable[[], int]) -> None:
        self._journal = journal
        self._now = now

    async def choose(self, needs: tuple[str, ...], place: str = "") -> WorkerRow:
        """Of those that have all labels, may bring ``place`` and take work, the one with the fewest open sessions for
        its seats. Raises ``WorkerAway``."""
        rows = await self._journal.store.workers()
        if (repository := git_place(place)) is not None:
            rows = [row for row in rows if clone_label(repository, row.labels)]
            if not rows:
                raise WorkerAway(
                    f"no machine may clone from {repository.address}; add the address to workspaces.clone in the "
                    "configuration of one"
                )
        able = [row for row in rows if not row.revoked and set(needs) <= set(row.labels)]
        ready = [row for row in able if not row.draining and row.until > self._now()]
        if not ready:
            words = ", ".join(needs) or "any"
            away = ", ".join(row.name for row in able)
            raise WorkerAway(
                f"no machine with the labels {words} takes work now (away or draining: {away})"
                if able
                else f"no machine has the labels {words}; stagedoor workers lists them"
            )
        counts = await self._open_counts()
        return min(ready, key=lambda row: (counts[row.id] - row.seats, counts[row.id], row.name, row.id))

    async def knows(self, needs: tuple[str, ...]) -> bool:
        """Whether there is a machine with all labels, also one that takes no work now."""
        return any(not row.revoked and set(needs) <= set(row.labels) for row in await self._journal.store.workers())

    async def ready(self, needs: tuple[str, ...]) -> list[WorkerRow]:
        """Those that have all labels and are there; also those that take no work now."""
        rows = await self._journal.store.workers()
        return [row for row in rows if not row.revoked and row.until > self._now() and set(needs) <= set(row.labels)]

    async def home_of(self, view: SessionView) -> str:
        """The machine with its folder: whoever closed a session for one that was away does not have that."""
        if not view.place:
            return view.worker
        rows = [row for row in await self._journal.store.workers() if view.place in row.labels]
        rows.sort(key=lambda row: (row.id != view.worker, row.revoked, -row.until))
        return rows[0].id if rows else view.worker

    async def next_of(self, view: SessionView) -> str:
        """The machine that can go on with a session that nobody runs: the one with its folder, or, while that one is
        away and the files are in a repository, any that can bring them."""
        home = await self.home_of(view)
        if not view.place:
            return home
        present = {row.id: row for row in await self.ready(())}
        in_repository = git_place(view.place) is not None
        able = [row.id for row in await self.ready(view.needs if in_repository else (*view.needs, view.place))]
        if home in able:
            return home
        if in_repository:
            try:
                return (await self.choose(view.needs, view.place)).id
            except WorkerAway:
                if not view.ended or home not in present:
                    raise
        elif not able and home in present and not view.ended:
            raise WorkerAway(lacking(view.id, view.needs, present[home].name, present[home].labels))
        return next(iter(able), home)

    async def keeper_of(self, view: SessionView) -> str:
        """Where an open session that nobody runs can be ended and put away though no machine can go on with it: the one
        with its folder, any where its files are in a repository. Empty: it is somebody's, or that one is away."""
        if view.ended or view.worker:
            return ""
        home = await self.home_of(view)
        present = sorted(await self.ready(()), key=lambda row: (row.id != home, row.draining, row.name, row.id))
        return next((row.id for row in present if row.id == home or git_place(view.place) is not None), "")

    async def _open_counts(self) -> Counter[str]:
        open_ones = await self._journal.store.sessions(Query(ended=False, limit=MOST_LISTED))
        return Counter(view.worker for view in open_ones)


def _is_passing(command: Command) -> bool:
    """Whether it was refused for a reason that may be gone by now."""
    outcome = msgspec.json.decode(command.outcome, type=Outcome)
    return bool(outcome.error) and not issubclass(_kind(outcome), FINAL)


def _raised(outcome: Outcome) -> StagedoorError:
    return _kind(outcome)(outcome.message)


def _kind(outcome: Outcome) -> type[StagedoorError]:
    kind = getattr(errors, outcome.error, StagedoorError)
    return kind if isinstance(kind, type) and issubclass(kind, StagedoorError) else StagedoorError
