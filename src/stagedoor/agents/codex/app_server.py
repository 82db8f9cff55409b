"""One running ``codex app-server``: calls and their replies, any number of threads."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from ... import __version__
from ...errors import AgentRefused, NotSignedIn, ProcessExited, RemoteProtocolError, SessionNotFound
from ...transports.conversation import Conversation
from ...transports.launch import Exited
from ...transports.process import ChildProcess
from ...transports.relay import Relay
from ...wire.stamps import Stamp, mark
from .answers import CodexAnswerer, Deliver
from .commands import AnswerQuestion, CallMethod, Command, Decision, ForkThread, ResumeThread, ServerCall, StartThread
from .config import CodexSessionConfig, on_app_server
from .launch import error_line, launch, session_not_found, start_error, thread_params
from .locate import VERSIONS, environment, trust_roots
from .notifications import AppEvent, ServerRequestResolvedNotification, TurnCompletedNotification
from .protocol import AppServerProtocol, ThreadStates, thread_of
from .questions import Question, RequestId
from .sessions import UNREAD_BOUND, CodexThread, weak_notice
from .threads import (
    CallRefusal,
    CallReply,
    CodexInitializeResponse,
    CodexModel,
    GetAccountResponse,
    ModelListResponse,
    Thread,
    ThreadListResponse,
    ThreadResponse,
)

Pair: TypeAlias = tuple[bytes, AppEvent]


class Switchboard:
    """Keeps the threads of one app-server apart: each thread's readers get its own events and those of its sub-agents.

    Takes all pairs of the pipe. What names no thread goes to every thread; what belongs to no open thread is stored.
    """

    def __init__(self, thread_states: ThreadStates) -> None:
        self._thread_states = thread_states
        self._relays: dict[str, Relay[Pair]] = {}
        self._closed: set[str] = set()
        self._unclaimed: dict[str, list[Pair]] = {}
        self._early: list[Pair] = []  # about no thread, received before any was open
        self._ended: Pair | None = None
        self.expecting = 0
        """How many threads are about to be opened: an unknown one may be one of them."""

    async def open(self, thread_id: str) -> Relay[Pair]:
        """A relay for this thread, with its events so far."""
        relay: Relay[Pair] = Relay()
        self._closed.discard(thread_id)
        self._relays[thread_id] = relay
        early, self._early = self._early, []
        await relay.publish([*(self.stamped(pair, thread_id) for pair in early), *self._claimed(thread_id)])
        if self._ended is not None:
            await relay.publish([self.stamped(self._ended, thread_id)])
            relay.close()
        return relay

    def close(self, thread_id: str, relay: Relay[Pair]) -> None:
        """The thread may be open again by now: then its new relay is somebody else's."""
        if self._relays.get(thread_id) is relay:
            del self._relays[thread_id]
            relay.close()
            self._closed.add(thread_id)

    def close_all(self) -> None:
        """Nothing waits for slow readers any more: what still comes is added, and readers end behind it."""
        for relay in self._relays.values():
            relay.close()

    def home(self, thread_id: str) -> str:
        """Which open thread gets the events of ``thread_id``: its family's head, else the only one it can belong to."""
        root = self._thread_states.root(thread_id)
        if root not in self._relays and root not in self._closed and len(self._relays) == 1 and not self.expecting:
            return next(iter(self._relays))  # a sub-agent that has not been introduced
        return root

    def stamped(self, pair: Pair, thread_id: str) -> Pair:
        """The session of an event is the open thread whose readers get it; the turn, that thread's own."""
        event = pair[1]
        mark((pair,), Stamp(thread_id, self._thread_states.turn_number(thread_id), event.stamp.read_at))
        return pair

    async def publish(self, items: Iterable[Pair]) -> None:
        sorted_out: dict[str, list[Pair]] = {}
        for pair in items:
            thread_id = thread_of(pair[1])
            if thread_id is not None:
                home = self.home(thread_id)
                if pair[1].session_id != home:
                    self.stamped(pair, home)
                sorted_out.setdefault(home, []).append(pair)
                continue
            for each in self._relays:
                copy = pair if len(self._relays) == 1 else (pair[0], msgspec.structs.replace(pair[1]))
                sorted_out.setdefault(each, []).append(self.stamped(copy, each))
            if isinstance(pair[1], Exited):
                self._ended = pair
            elif not self._relays:
                self._early.append(pair)
        for thread_id, pairs in sorted_out.items():
            if (relay := self._relays.get(thread_id)) is not None:
                await relay.publish([*self._claimed(thread_id), *pairs])
            elif thread_id not in self._closed:
                self._unclaimed.setdefault(thread_id, []).extend(pairs)
        if self._ended is not None:
            self.close_all()

    def _claimed(self, thread_id: str) -> list[Pair]:
        """What was stored for the thread and for those that turned out to be its sub-agents."""
        members = [key for key in self._unclaimed if self.home(key) == thread_id]
        return [pair for key in members for pair in self._unclaimed.pop(key)]


OPENING_STORED = ("thread/resume", "thread/fork")
NO_SUCH_THREAD = ("no rollout found", "invalid thread id", "not found")
"""How Codex words it that a stored thread does not exist."""
ALL_SOURCES = ("cli", "vscode", "exec", "appServer")
"""Without naming them, the server lists no sessions of ``codex exec``."""


class CodexAppServer:
    """Made by :meth:`start`. Collected or closed, it leaves nothing running."""

    def __init__(
        self,
        process: ChildProcess,
        protocol: AppServerProtocol,
        config: CodexSessionConfig,
        cwd: str,
        environ: Mapping[str, str],
    ) -> None:
        self.cwd = cwd
        self.protocol = protocol
        self.environ = environ
        self.config = config
        self.version = ""
        self._calls: dict[int, asyncio.Future[CallReply]] = {}
        self._threads: weakref.WeakValueDictionary[str, CodexThread] = weakref.WeakValueDictionary()
        self._changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._exited: Exited | None = None
        self._nobody = CodexAnswerer(None, None, waits=False, deliver=deliver_to(self))
        self.switchboard = Switchboard(protocol.thread_states)
        self._conversation: Conversation[AppEvent] = Conversation(
            process, protocol, self.switchboard, notice=weak_notice(self), quiet=config.stall_after
        )
        weakref.finalize(self, self._conversation.abandon).atexit = False

    @classmethod
    async def start(
        cls,
        config: CodexSessionConfig,
        *,
        cwd: str,
        executable: str,
        native: bool = True,
        env: Mapping[str, str] | None = None,
    ) -> CodexAppServer:
        """Start the program and do the handshake."""
        config = on_app_server(config)
        plan = launch(config, cwd=cwd, executable=executable, native=native)
        protocol = AppServerProtocol(version=__version__)
        process = await ChildProcess.start(plan, base_env=env)
        server = cls(process, protocol, config, cwd, environment(config, env))
        handshake: asyncio.Future[CallReply] = asyncio.get_running_loop().create_future()
        server._calls[0] = handshake
        try:
            await server.flush()
            reply = await handshake
            if not isinstance(reply.result, CodexInitializeResponse):
                raise RemoteProtocolError("unexpected reply of the Codex app-server to initialize: update Codex")
            server.version = VERSIONS.judge(reply.result.user_agent).version
        except ProcessExited as error:
            await server.cancel()
            raise start_error(server.exited or Exited(error.code or 1, error.stderr)) from None
        except BaseException:
            server._conversation.abandon()
            raise
        return server

    @property
    def pid(self) -> int:
        return self._conversation.process.pid

    @property
    def exited(self) -> Exited | None:
        return self._exited

    async def end_commands(self, threads: Sequence[str]) -> None:
        """End the sandboxed commands that still run for ``threads``, none of which may have a turn.

        Where Codex kills a command while its sandbox starts, what is in the sandbox goes on without a parent.
        """
        await self._conversation.process.end_sandboxed(*(f"CODEX_THREAD_ID={thread}".encode() for thread in threads))

    def fault(self, *, unfinished: bool = False) -> ProcessExited | None:
        """Why the server's end is an error, where it is one."""
        return self._conversation.process.fault("codex app-server", unfinished=unfinished)

    async def call(self, request: ServerCall) -> CallReply:
        """One request and its reply. Raises ``AgentRefused``, or ``ProcessExited`` when the server has exited."""
        if self._exited is not None:
            raise self._exit_error(self._exited)
        number = self.protocol.call(request)
        answer: asyncio.Future[CallReply] = asyncio.get_running_loop().create_future()
        self._calls[number] = answer
        try:
            await self.flush()
            return await answer
        finally:
            self._calls.pop(number, None)

    async def send(self, command: Command) -> None:
        self.protocol.send(command)
        await self.flush()

    async def flush(self) -> None:
        await self._conversation.flush()

    async def answer(self, request_id: RequestId, decision: Decision) -> None:
        """Answer an open question. Raises ``AlreadyAnswered`` when it is closed."""
        await self.send(AnswerQuestion(request_id, decision))

    async def start_thread(
        self,
        prompt: str | None,
        config: CodexSessionConfig | None = None,
        *,
        cwd: str | None = None,
        images: Sequence[str] = (),
        owned: bool = False,
    ) -> CodexThread:
        """A new thread, and its first turn. ``owned`` threads end the server with themselves."""
        chosen, folder = on_app_server(config or self.config), cwd or self.cwd
        call = StartThread(self._params(chosen, folder))
        return await self._open(call, chosen, prompt, images, owned=owned)

    async def resume_thread(
        self,
        thread_id: str,
        prompt: str | None,
        config: CodexSessionConfig | None = None,
        *,
        cwd: str | None = None,
        images: Sequence[str] = (),
        owned: bool = False,
    ) -> CodexThread:
        chosen, folder = on_app_server(config or self.config), cwd or self.cwd
        call = ResumeThread(thread_id, {"excludeTurns": True, **self._params(chosen, folder)})
        return await self._open(call, chosen, prompt, images, owned=owned)

    async def fork_thread(
        self,
        thread_id: str,
        prompt: str | None,
        config: CodexSessionConfig | None = None,
        *,
        cwd: str | None = None,
        images: Sequence[str] = (),
        last_turn_id: str | None = None,
        owned: bool = False,
    ) -> CodexThread:
        chosen, folder = on_app_server(config or self.config), cwd or self.cwd
        call = ForkThread(thread_id, {"excludeTurns": True, **self._params(chosen, folder)}, last_turn_id)
        return await self._open(call, chosen, prompt, images, owned=owned)

    async def list_threads(self, *, cwd: str | None = None, limit: int = 100) -> list[Thread]:
        """The stored threads, the newest first, as the server itself lists them."""
        params: dict[str, Any] = {"limit": limit, "sourceKinds": list(ALL_SOURCES)}
        reply = await self.call(CallMethod("thread/list", params if cwd is None else params | {"cwd": cwd}))
        return reply.result.data if isinstance(reply.result, ThreadListResponse) else []

    async def models(self) -> list[CodexModel]:
        reply = await self.call(CallMethod("model/list"))
        return reply.result.data if isinstance(reply.result, ModelListResponse) else []

    async def account(self) -> GetAccountResponse:
        reply = await self.call(CallMethod("account/read"))
        if not isinstance(reply.result, GetAccountResponse):
            raise RemoteProtocolError("unexpected reply of the Codex app-server to account/read: update Codex")
        return reply.result

    async def require_sign_in(self) -> None:
        """Raise ``NotSignedIn`` when the provider needs an account and none is signed in."""
        response = await self.account()
        if response.requires_openai_auth and response.account is None:
            raise NotSignedIn("not signed in to Codex: run `codex login`, or configure a model_provider")

    async def changed(self) -> None:
        """Wait for the next event of any thread, or for the server's end."""
        if self._exited is None:
            await asyncio.shield(self._changed)

    async def cancel(self) -> None:
        """Stop the server and everything under it."""
        await self._conversation.process.stop()
        try:
            async with asyncio.timeout(UNREAD_BOUND):
                await self._conversation.ended()
        except TimeoutError:  # somebody does not read; that must not hold up the end
            self.switchboard.close_all()
            await self._conversation.ended()

    async def close(self) -> None:
        await self.cancel()

    async def __aenter__(self) -> CodexAppServer:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def notice(self, event: AppEvent) -> None:
        """The pump's business: sees each event before any reader."""
        match event:
            case CallReply(request_id) | CallRefusal(request_id):
                self._settle(request_id, event)
            case ServerRequestResolvedNotification(thread_id, request_id):
                if (thread := self._thread(thread_id)) is not None:
                    thread.answerer.close(request_id)
            case TurnCompletedNotification(thread_id):
                if (thread := self._thread(thread_id)) is not None:
                    thread.answerer.close_all_but(set(self.protocol.open_questions))
            case Exited():
                self._end(event)
            case _ if isinstance(event, Question) and event.request_id in self.protocol.open_questions:
                thread = self._thread(event.thread_id)
                (thread.answerer if thread is not None else self._nobody).ask(event)
            case _:
                pass
        self._changed.set_result(None)
        self._changed = self._changed.get_loop().create_future()

    def _params(self, config: CodexSessionConfig, cwd: str) -> dict[str, Any]:
        return thread_params(config, cwd=cwd, trust_roots=trust_roots(cwd))

    async def _open(
        self,
        call: StartThread | ResumeThread | ForkThread,
        config: CodexSessionConfig,
        prompt: str | None,
        images: Sequence[str],
        *,
        owned: bool,
    ) -> CodexThread:
        self.switchboard.expecting += 1
        try:
            reply = await self.call(call)
            if not isinstance(reply.result, ThreadResponse):
                raise RemoteProtocolError(f"unexpected reply of the Codex app-server to {reply.method}: update Codex")
            if isinstance(call, ResumeThread) and reply.result.thread.id != call.thread_id:
                raise session_not_found(call.thread_id)
            relay = await self.switchboard.open(reply.result.thread.id)
        finally:
            self.switchboard.expecting -= 1
        thread = CodexThread(self, reply.result, relay, config, owned=owned, deliver=deliver_to(self))
        self._threads[thread.session_id] = thread
        if prompt is not None:
            await thread.send(prompt, images=images)
        return thread

    def _thread(self, thread_id: str) -> CodexThread | None:
        return self._threads.get(self.switchboard.home(thread_id))

    def _settle(self, request_id: int | str | None, event: CallReply | CallRefusal) -> None:
        waiting = self._calls.get(request_id) if isinstance(request_id, int) else None
        if waiting is None or waiting.done():
            return
        if isinstance(event, CallReply):
            waiting.set_result(event)
        else:
            waiting.set_exception(_refusal(event))

    def _end(self, exited: Exited) -> None:
        self._exited = exited
        for waiting in self._calls.values():
            if not waiting.done():
                waiting.set_exception(self._exit_error(exited))
        for thread in self._threads.values():
            thread.answerer.close_all_but(set())

    def _exit_error(self, exited: Exited) -> ProcessExited:
        reason = error_line(exited.stderr) or "no error message"
        return ProcessExited(
            f"the Codex app-server exited with code {exited.code}: {reason}", code=exited.code, stderr=exited.stderr
        )


def _refusal(event: CallRefusal) -> AgentRefused | SessionNotFound:
    reason = event.message.lower()
    if event.method in OPENING_STORED and any(words in reason for words in NO_SUCH_THREAD):
        return session_not_found(event.thread_id)
    return AgentRefused(f"Codex refused {event.method}: {event.message}", code=event.code)


def deliver_to(server: CodexAppServer) -> Deliver:
    """Sends answers to the server for as long as somebody holds it."""
    reference = weakref.ref(server)

    async def deliver(request_id: RequestId, decision: Decision) -> None:
        if (alive := reference()) is not None:
            await alive.answer(request_id, decision)

    return deliver
