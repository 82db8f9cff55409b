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
from .machines.routing import Router, verb_groups
from .notify.delivery import Notifications
from .notify.receivers import Receivers
from .opening import Opening
from .postgres import log_in
from .questions import Questions
from .running import Role, RunningSessions
from .sessions import Sessions
from .sqlite import SqliteStore
from .store import Remember, Store
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

    ``role="door"``: it takes requests and runs nothing itself.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        store: Store | None = None,
        hub: Hub | None = None,
        role: Role = "both",
        now: Callable[[], int] = milliseconds,
        new_id: Callable[[], str] = fresh_id,
    ) -> None:
        self.settings = settings
        self._role = role
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
        self._changes = ConfigChanges(journal, now)
        self.policy = opening.policy
        self.trust = opening.trust
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
        self._outbox: CommandOutbox | None = None
        self._inbox: CommandInbox | None = None
        if self._store.shared:  # whoever asks may be elsewhere than the session
            self._outbox = outbox = CommandOutbox(journal, verb_groups(sessions, questions), now=now)
            me = "" if role == "door" else running.worker.identity.id
            router = Router(outbox, Placement(journal, now), sessions.get, lambda: me)
            self.sessions, self.questions = router.sessions(sessions), router.questions(questions)
            self.workspaces = router.workspaces(sessions.workspaces)
            if role != "door":
                self._inbox = CommandInbox(journal, outbox.verbs, lambda: running.worker.identity.id, now=now)
        self._upkeep = Upkeep(journal, settings.keep_days, now, sweep=sessions.undoing.sweep)
        self.events = Events(journal, sessions.get)
        self.stored = Past(journal, settings, now=now, new_id=new_id)
        self.usage = UsageLedger(self._store)
        self.audit = AuditRows(self._store, opening.audit.path)
        self.replies = ReplyRows(self._store)
        self.notifications = Notifications(settings, running.counts, now=now)
        self.receivers = Receivers(self._store, settings, self.home, self.notifications)
        self.devices = DeviceRows(journal, self.receivers.forget)
        running.announce = self.notifications.announce

    async def __aenter__(self) -> Service:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        await self._store.open()
        self.notifications.start()
        try:
            await self._journal.hub.open()
            await self.receivers.load(devices=self._role != "worker")  # whose role may not read them
            await self._changes.note(self.settings, self.policy_file)
            if self._inbox is not None:
                ready = [f"agent:{view.agent}" for view in await self.agents.list() if view.enabled and view.installed]
                self._running.worker.add_labels(ready)
            await self._running.start()
            if self._inbox is not None:
                self._inbox.start()
        except BaseException:
            await self.stop()
            raise
        self._upkeep.start()

    async def stop(self) -> None:
        """No new work is taken; what runs is ended truthfully, in bounded time; the log is closed last."""
        self._running.refuse_work()
        if self._inbox is not None:
            await self._inbox.stop()
        if self._outbox is not None:
            await self._outbox.close()
        await self._upkeep.stop()
        await self._running.stop()
        await self._changes.finish()
        await self.notifications.stop()
        await self._journal.hub.close()
        await self.receivers.close()
        await self._store.close()

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
