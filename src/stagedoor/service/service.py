"""The verbs of the house, in groups. Every door turns a request into one of them; none decides anything itself."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path

import msgspec

from stagedoor import catalog
from stagedoor.engine import milliseconds
from stagedoor.errors import StoreError, TooMany
from stagedoor.register import home
from stagedoor.secret_files import keep_secret

from .agents import Agents
from .config.settings import Settings
from .identity import fresh_id
from .journal import Bell, Hub, Journal, LocalHub, Upkeep
from .ledger import AuditRows, ConfigChanges, DeviceRows, ReplyRows, UsageLedger
from .machines import Machines
from .machines.commands import CommandInbox, CommandOutbox, Placement
from .machines.ground import MachineGround
from .machines.histories import Histories
from .machines.lost_rings import LostRings
from .machines.openings import OpeningsElsewhere
from .machines.places import HOST
from .machines.routing import LOOKS, Router, verb_groups
from .machines.watching import FolderWatches
from .notify.delivery import Notifications
from .notify.receivers import Receivers
from .opening import Opening
from .postgres import log_in
from .questions import Questions
from .running import Role, RunningSessions
from .sessions import Sessions
from .sqlite import SqliteStore
from .store import Admission, Remember, Store
from .stored import Past
from .views import FollowVerdict, Record, SessionView
from .worker import Worker


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """``log``: what is written is stored. ``policy``: the policy file can be read. ``stopping``: no work is taken."""

    log: bool
    policy: bool
    stopping: bool


class Events:
    """``service.events``: the records of sessions."""

    def __init__(self, journal: Journal, get: Callable[[str], Awaitable[SessionView]]) -> None:
        self._journal = journal
        self._get = get

    async def read(self, session_id: str, after: int = 0, limit: int = 512) -> list[Record]:
        """Those with ``seq > after``, in order; none of a session that does not exist."""
        return await self._journal.read(session_id, after, limit)

    def follow(self, session_id: str, after: int) -> AsyncGenerator[list[Record]]:
        """Everything after ``after``, then what comes, until the session has ended."""
        return self._journal.follow(session_id, after)

    async def verdict(self, session_id: str, after: int) -> FollowVerdict:
        """Whether everything after ``after`` can still be read."""
        return FollowVerdict.of(await self._get(session_id), after)

    def bell(self, session_id: str) -> Bell:
        """Rings whenever the session has changed."""
        return self._journal.hub.bell(session_id)


class Service:
    """``async with Service(settings) as service:`` opens the log, closes what a crash left, and stops in order.

    ``role="door"``: it takes requests and runs nothing itself. ``shared``: it runs for several programs of one user,
    who may bring their own environments for what they start.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        store: Store | None = None,
        hub: Hub | None = None,
        role: Role = "both",
        shared: bool = False,
        now: Callable[[], int] = milliseconds,
        new_id: Callable[[], str] = fresh_id,
    ) -> None:
        self.settings = settings
        self.shared = shared
        self._role = role
        self._now = now
        catalog.configure(settings.added_agents())
        self.home = Path(settings.home) if settings.home else home()
        keep_secret(self.home, settings.tls_key, settings.database_password_file)
        if store is None and settings.database:
            store, hub = log_in(
                settings.database,
                password_file=settings.database_password_file,
                durable=settings.durable == "power",
            )
        self._store = store or SqliteStore(self.home / "log.db", durable=settings.durable)
        self._journal = journal = Journal(self._store, hub or LocalHub())
        opening = Opening(settings, self.home)
        self._running = running = RunningSessions(
            journal, opening, settings, self.home, role=role, now=now, new_id=new_id
        )
        self._changes = ConfigChanges(journal, now, self._identity)
        self.policy = opening.policy
        self.policy_file = opening.policy_file
        if self.policy is not None:
            self.policy.file.changed = self._changes.policy_changed
        self.agents = Agents(settings)
        sessions = Sessions(journal, running, opening, self.agents, settings, self.home, now=now, new_id=new_id)
        questions = Questions(journal.store, running, opening, sessions.get, now=now, new_id=new_id)
        self.machines = Machines(journal, now, settings.lease)
        self._own_verbs = sessions, questions
        """The verbs as they are carried out in this process."""
        self.sessions, self.questions, self.workspaces = sessions, questions, sessions.workspaces
        self.audit = AuditRows(self._store, opening.audit.path)
        self.ground = ground = MachineGround(
            settings,
            opening.trust,
            self.agents,
            self.audit,
            self.policy,
            self.policy_file,
            lambda: running.worker.identity.name,
            is_one_of_many=self._store.shared,
        )
        self.stored: Past | Histories
        self.stored = past = Past(journal, settings, place=self._place, now=now, new_id=new_id)
        self._watches = FolderWatches(sessions.workspaces)
        self._outbox: CommandOutbox | None = None
        self._inbox: CommandInbox | None = None
        self._lost_rings: LostRings | None = None
        self._openings: OpeningsElsewhere | None = None
        if self._store.shared:  # whoever asks may be elsewhere than the session
            self._lost_rings = LostRings(journal, now)
            groups = verb_groups(sessions, questions, ground, past, self._watches)
            self._outbox = outbox = CommandOutbox(journal, groups, now=now, looks=LOOKS)
            me = "" if role == "door" else running.worker.identity.id
            router = Router(outbox, Placement(journal, now), sessions.get, lambda: me)
            self._openings = openings = OpeningsElsewhere(journal, lambda: me)
            self.sessions, self.questions = router.sessions(sessions, openings), router.questions(questions)
            self.workspaces, self.ground = router.workspaces(sessions.workspaces), router.ground(ground)
            self.stored = Histories(past, journal, outbox, lambda: me, now)
            if role != "worker":
                self.agents.elsewhere = self.machines.labels
                self.agents.runs_here = role != "door"
            if role != "door":
                self._inbox = CommandInbox(
                    journal, outbox.verbs, lambda: running.worker.identity.id, now=now, looks=LOOKS
                )
        self._upkeep = Upkeep(journal, settings.keep_days, now, sweep=self._sweep)
        self.events = Events(journal, sessions.get)
        self.usage = UsageLedger(self._store)
        self.replies = ReplyRows(self._store)
        self.notifications = Notifications(journal, settings, running.counts, now=now, has_page=role != "worker")
        self.receivers = Receivers(self._store, settings, self.home, self.notifications, is_door=role != "worker")
        self.devices = DeviceRows(journal, self.receivers.forget)
        running.notices_of = self.notifications.notices_of

    async def __aenter__(self) -> Service:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        await self._store.open()
        try:
            await self._journal.hub.open()
            await self.receivers.load()
            self.notifications.start()
            await self._changes.note(self.settings, self.policy_file)
            if self._inbox is not None:
                ready = [
                    f"agent:{view.agent}"
                    for view in await self.agents.on_this_machine()
                    if view.enabled and view.installed
                ]
                self._running.worker.add_labels(ready)
            await self._running.start()
            if self._inbox is not None:
                self._inbox.start()
            if self._lost_rings is not None:
                self._lost_rings.start()
        except BaseException:
            await self.stop()
            raise
        self._upkeep.start()

    async def stop(self) -> None:
        """No new work is taken; what runs is ended truthfully, in bounded time; the log is closed last."""
        self._running.refuse_work()
        await self._watches.stop()
        if self._inbox is not None:
            await self._inbox.stop()
        if self._outbox is not None:
            await self._outbox.close()
        if self._lost_rings is not None:
            await self._lost_rings.stop()
        if self._openings is not None:
            await self._openings.close()
        await self._upkeep.stop()
        await self._running.stop()
        await self._changes.finish()
        await self.notifications.stop()
        await self._journal.hub.close()
        await self.receivers.close()
        await self._store.close()

    def _identity(self) -> tuple[str, str]:
        identity = self._running.worker.identity
        return (identity.id, identity.name) if self._store.shared else ("", "")

    def _place(self) -> str:
        """Of this machine, where several share the log."""
        return f"{HOST}{self._running.worker.identity.name}" if self._store.shared else ""

    async def _sweep(self) -> None:
        await self._own_verbs[0].undoing.sweep()
        if self._role != "door":
            await self._running.carrying.sweep(self._running.worker.identity.id, self._now())

    @property
    def admission(self) -> Admission | None:
        """Codes that count at every door, where there may be several."""
        return self._store.admission

    @property
    def log_is_shared(self) -> bool:
        """It is in a database that others use too."""
        return bool(self.settings.database)

    @property
    def log_is_away(self) -> bool:
        """The database that the log is in cannot be reached, for so long that whoever asks should come again later."""
        return self._store.away

    @property
    def worker(self) -> Worker:
        """This process as a worker."""
        return self._running.worker

    def counters(self) -> dict[str, int]:
        """What has happened since the start, and how it stands: ``created <agent>``, ``ended <agent> <state>``, …"""
        return self._running.counters()

    async def health(self, *, stopping: bool = False) -> Health:
        """Whether work is taken, tried out; ``stopping``: it is known that it is not."""
        log = self._running.fault is None
        if self.log_is_away:
            log = False
        elif not stopping:
            try:
                await self._running.accepting()
                log = True
                await self._store.write(Remember("ready", str(int(time.time())).encode()))
            except StoreError:
                log = False
            except TooMany:
                stopping = True
        return Health(log=log, policy=self.policy is None or not self.policy.problem, stopping=stopping)
