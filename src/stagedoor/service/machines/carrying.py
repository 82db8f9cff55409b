"""Sessions in a repository: cloned for each epoch into a folder of its own, and carried from one machine to another.

At the end of each turn the work and the agent's own transcript are put into the log, behind the same fence as all that
an owner writes. Whoever takes the session over clones again, puts both there, and goes on from that turn. Two lives of
a session never share files.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec
from msgspec.structs import replace

from stagedoor import catalog
from stagedoor.drivers.transcripts import Transcript, TranscriptFile
from stagedoor.errors import BadRequest, NotAllowed, StagedoorError
from stagedoor.shadow_git.cloning import NO_LIMIT, CloneLimit, WorkState, clone, pack, unpack
from stagedoor.shadow_git.pushing import is_allowed
from stagedoor.shadow_git.repository import GitFailed, Repository, locate
from stagedoor.transports.programs import in_thread
from stagedoor.unified.events import Notice

from ..journal import Journal
from ..opening import Opening
from ..session_log import SessionLog
from ..views import Carried, SessionView
from ..workspaces import own_folder, places_folder, remove_own_folder
from .places import GitPlace, clone_labels, git_place

_log = logging.getLogger("stagedoor.service")
MOST_WORK = 32_000_000
"""Bytes of a bundle that is kept."""
MOST_TRANSCRIPT = 32_000_000
KEPT_MS = 7 * 86_400_000
"""How long the clone of a session that has ended stays on its machine."""
SETTLED = 0.2
"""Seconds in which an agent that is done writes the last lines of its transcript; looked at again as long as it does,
a few times."""
LOOKS = 10


class CarriedState(msgspec.Struct, frozen=True, kw_only=True):
    """What is in the log of it."""

    work: WorkState
    native_id: str = ""
    transcript: tuple[TranscriptFile, ...] = ()

    def digest(self, turn: int) -> bytes:
        """The same for what would be put there as the same. How git has packed it does not matter."""
        plain = replace(self, work=replace(self.work, bundle=b""))
        return hashlib.sha256(msgspec.msgpack.encode((turn, plain))).digest()


class Carrying:
    """``clone_from``: the addresses that the operator of this machine allows. ``machine``: its name."""

    def __init__(
        self,
        journal: Journal,
        opening: Opening,
        home: Path,
        clone_from: Sequence[str],
        machine: Callable[[], str],
        *,
        limit: CloneLimit = NO_LIMIT,
    ) -> None:
        self._limit = limit
        self._journal = journal
        self._opening = opening
        self._folder = places_folder(home)
        self._clone_from = tuple(clone_from)
        self._machine = machine
        self._digests: dict[str, bytes] = {}
        """Of each session, the digest of what is in the log of it."""
        self._complained: set[str] = set()

    @property
    def labels(self) -> tuple[str, ...]:
        return clone_labels(self._clone_from)

    def check(self, place: GitPlace) -> None:
        """Raises ``NotAllowed`` for an address that this machine does not clone from."""
        if not is_allowed(place.address, self._clone_from):
            raise NotAllowed(
                f"this machine does not clone from {place.address}; its operator can add the address to "
                "workspaces.clone in its configuration"
            )

    def begins_in(self, session_id: str) -> Path:
        """What stands for the folder of a session that is not cloned yet."""
        return own_folder(self._folder, session_id or "new")

    async def arrive(self, session_log: SessionLog) -> list[Notice]:
        """Before an agent's program starts: its files are here, and its transcript. Returns what is to be said of it.

        Raises what is in the way; then nothing of it stays.
        """
        view = session_log.view
        place = git_place(view.place)
        folder = own_folder(self._folder, view.id) / str(view.epoch)
        if place is None or (view.cwd == str(folder) and folder.is_dir()):
            return []
        self.check(place)
        await asyncio.to_thread(shutil.rmtree, folder.parent, ignore_errors=True)  # of epochs that are over
        carried, before = await self._carried(view)
        state = None if carried is None else msgspec.msgpack.decode(carried.body, type=CarriedState)
        base = view.base or ("" if state is None else state.work.base)
        try:
            repository = await in_thread(_bring, place, folder, base, view.id, state, self._limit)
        except (GitFailed, OSError) as fault:
            raise BadRequest(f"{view.place} could not be brought to this machine: {fault}") from fault
        head = repository.head()
        await session_log.change(cwd=str(folder), branch=head.branch or view.branch, base=base or head.commit)
        notices = _files_notices(session_log.view, carried, self._machine())
        if before.native_id:
            notices += await self._bring_transcript(session_log, before.native_id, state)
        return notices

    async def _carried(self, view: SessionView) -> tuple[Carried | None, SessionView]:
        """What there is of the session, or of the one that it continues."""
        carried = await self._journal.store.carried(view.id)
        if carried is not None or view.last_seq or view.parent_id is None:
            return carried, view
        parent = await self._journal.store.session(view.parent_id)
        return await self._journal.store.carried(view.parent_id), view if parent is None else parent

    async def _bring_transcript(
        self, session_log: SessionLog, native_id: str, state: CarriedState | None
    ) -> list[Notice]:
        view = session_log.view
        transcript, title = catalog.agent(view.agent).transcript, catalog.agent(view.agent).title
        if transcript is not None and state is not None and state.native_id == native_id and state.transcript:
            env = self._opening.environment_of(view)
            restore = partial(transcript.restore, native_id, view.cwd, env, state.transcript, most=MOST_TRANSCRIPT)
            try:
                await asyncio.to_thread(restore)
            except (StagedoorError, OSError) as fault:
                why = f"its transcript cannot be put on this machine ({fault})"
            else:
                await session_log.change(native_id=native_id)
                return []
        elif transcript is None:
            why = f"a transcript of {title} cannot be carried from one machine to another"
        else:
            why = "its transcript was not kept"
        await session_log.change(native_id="")
        message = f"{why}: {title} begins a new conversation and knows nothing of what was said before; the log has it"
        return [Notice(level="warning", code="conversation_not_carried", message=message)]

    async def keep(self, session_log: SessionLog) -> None:
        """After a turn: put how everything stands into the log, if anything has changed since."""
        view = session_log.view
        folder = self._folder / view.id / str(view.epoch)
        if git_place(view.place) is None or view.cwd != str(folder):
            return
        try:
            work = await in_thread(_pack, folder, view.base)
            transcript = await self._collect(view)
        except (StagedoorError, OSError) as fault:
            await self._complain(session_log, str(fault))
            return
        state = CarriedState(work=work, native_id=view.native_id, transcript=transcript)
        if (digest := state.digest(view.turn)) != self._digests.get(view.id):
            body = msgspec.msgpack.encode(state)
            await session_log.carry(Carried(session_id=view.id, turn=view.turn, at=session_log.now(), body=body))
            self._digests[view.id] = digest
        if work.left_out:
            await self._complain(session_log, f"these new files are too large: {', '.join(work.left_out[:5])}")
        else:
            self._complained.discard(view.id)

    async def _collect(self, view: SessionView) -> tuple[TranscriptFile, ...]:
        transcript = catalog.agent(view.agent).transcript
        if transcript is None or not view.native_id:
            return ()
        env = self._opening.environment_of(view)
        found = await asyncio.to_thread(_collected, transcript, view, env)
        for _ in range(LOOKS):
            await asyncio.sleep(SETTLED)
            before, found = found, await asyncio.to_thread(_collected, transcript, view, env)
            if found == before:
                break
        return found

    async def _complain(self, session_log: SessionLog, why: str) -> None:
        """Once, until all of it could be kept."""
        session_id = session_log.view.id
        if session_id in self._complained:
            return
        self._complained.add(session_id)
        message = f"if this machine is lost, another one cannot continue with all of the work: {why}"
        await session_log.say(Notice(level="warning", code="work_not_kept", message=message))

    async def forget(self, session_id: str) -> None:
        """The session is deleted, or never began."""
        self._digests.pop(session_id, None)
        self._complained.discard(session_id)
        await asyncio.to_thread(remove_own_folder, self._folder, session_id)

    async def sweep(self, me: str, now: int) -> None:
        """Remove what nobody needs: of sessions that are gone, are another machine's, or ended a while ago, and of
        epochs that are over."""
        for name in await asyncio.to_thread(_names, self._folder):
            # Before the session is looked at: it may come here meanwhile, with a clone of its own.
            epochs = await asyncio.to_thread(_names, self._folder / name)
            view = await self._journal.store.session(name)
            here = view is not None and view.worker == me and not (view.ended and view.updated_at < now - KEPT_MS)
            needed = {str(self._folder / name / str(view.epoch)), view.cwd} if view is not None and here else set[str]()
            for folder in (self._folder / name / epoch for epoch in epochs):
                if str(folder) not in needed:
                    await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
            with contextlib.suppress(OSError):  # not empty
                await asyncio.to_thread((self._folder / name).rmdir)


def _bring(
    place: GitPlace, folder: Path, base: str, session_id: str, state: CarriedState | None, limit: CloneLimit
) -> Repository:
    repository = clone(place.address, place.ref, folder, base=base, branch=f"stagedoor/{session_id[:8]}", limit=limit)
    if state is None:
        return repository
    try:
        unpack(repository, state.work, limit=limit)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return repository


def _pack(folder: Path, base: str) -> WorkState:
    repository = locate(folder)
    if repository is None or repository.top != Path(folder).resolve():
        raise GitFailed(f"{folder} is not a git repository any more")
    return pack(repository, base, most=MOST_WORK)


def _collected(transcript: Transcript, view: SessionView, env: dict[str, str]) -> tuple[TranscriptFile, ...]:
    return transcript.collect(view.native_id, view.cwd, env, most=MOST_TRANSCRIPT)


def _files_notices(view: SessionView, carried: Carried | None, machine: str) -> list[Notice]:
    if not view.turn and carried is None:
        return []
    where = f"the session continues on the machine {machine!r}, in a new clone"
    if carried is None:
        message = f"{where}; nothing of what was done before was kept: the files are as they were at the beginning"
        return [Notice(level="warning", code="taken_over", message=message)]
    since = f"{where}, with the files as they were after turn {carried.turn}"
    if carried.session_id != view.id or carried.turn >= view.turn:
        return [Notice(level="info", code="taken_over", message=since)]
    message = f"{since}; what was changed in a later turn is not there"
    return [Notice(level="warning", code="taken_over", message=message)]


def _names(folder: Path) -> list[str]:
    with contextlib.suppress(OSError):
        return sorted(path.name for path in folder.iterdir())
    return []
