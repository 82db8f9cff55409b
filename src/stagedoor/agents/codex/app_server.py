"""One running ``codex app-server``: calls with answers, any number of threads."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ... import __version__
from ...errors import AgentRefused, NotSignedIn, ProcessExited, RemoteProtocolError, SessionNotFound
from ...transports.conversation import Conversation
from ...transports.executables import VERSION, require_version
from ...transports.launch import Exited
from ...transports.process import ChildProcess
from .answering import Answering, Deliver
from .commands import Answer, Call, Command, Decision, ForkThread, Request, ResumeThread, StartThread
from .complaints import complaint, failure, unknown_session
from .config import CodexConfig, on_app_server
from .launch import launch, thread_params
from .locate import INSTALL, MINIMUM_VERSION, environment, trust_roots
from .notifications import AppEvent, ServerRequestResolvedNotification, TurnCompletedNotification
from .protocol import AppServerProtocol
from .questions import Question, RequestId
from .switchboard import Switchboard
from .thread_session import CodexThread
from .threads import (
    GetAccountResponse,
    InitializeResponse,
    Model,
    ModelListResponse,
    Refused,
    Replied,
    Thread,
    ThreadListResponse,
    ThreadResponse,
)

UNREAD_BOUND = 1.0
"""Seconds that readers have to take what is left once everything has ended."""
ALL_SOURCES = ("cli", "vscode", "exec", "appServer")
"""Without naming them, the server lists no sessions of ``codex exec``."""


class CodexAppServer:
    """Made by :meth:`start`. Collected or closed, it leaves nothing running."""

    def __init__(
        self,
        process: ChildProcess,
        protocol: AppServerProtocol,
        config: CodexConfig,
        cwd: str,
        environ: Mapping[str, str],
    ) -> None:
        self.cwd = cwd
        self.protocol = protocol
        self.environ = environ
        self.config = config
        self.version: tuple[int, int, int] = (0, 0, 0)
        self._calls: dict[int, asyncio.Future[Replied]] = {}
        self._threads: weakref.WeakValueDictionary[str, CodexThread] = weakref.WeakValueDictionary()
        self._changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._exited: Exited | None = None
        self._nobody = Answering(None, None, waits=False, deliver=deliver_to(self))
        self.switchboard = Switchboard(protocol.conversations)
        self._conversation: Conversation[AppEvent] = Conversation(
            process, protocol, self.switchboard, notice=_weakly(self), quiet=config.stall_after
        )
        weakref.finalize(self, self._conversation.abandon).atexit = False

    @classmethod
    async def start(
        cls,
        config: CodexConfig,
        *,
        cwd: str,
        executable: str,
        native: bool = True,
        env: Mapping[str, str] | None = None,
    ) -> CodexAppServer:
        """Start the program and shake hands."""
        config = on_app_server(config)
        plan = launch(config, cwd=cwd, executable=executable, native=native)
        protocol = AppServerProtocol(version=__version__)
        process = await ChildProcess.start(plan, base_env=env)
        server = cls(process, protocol, config, cwd, environment(config, env))
        greeting: asyncio.Future[Replied] = asyncio.get_running_loop().create_future()
        server._calls[0] = greeting
        try:
            await server.flush()
            reply = await greeting
            if not isinstance(reply.result, InitializeResponse):
                raise RemoteProtocolError("the Codex app-server answered initialize with something else; update Codex")
            found = VERSION.search(reply.result.user_agent)
            if found is not None:
                server.version = int(found[1]), int(found[2]), int(found[3])
                require_version("Codex", server.version, MINIMUM_VERSION, INSTALL)
        except ProcessExited as error:
            await server.cancel()
            raise failure(server.exited or Exited(error.code or 1, error.stderr)) from None
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

    async def call(self, wish: Request) -> Replied:
        """One request and its answer. Raises ``AgentRefused``, or ``ProcessExited`` when the server is gone."""
        if self._exited is not None:
            raise self._gone(self._exited)
        number = self.protocol.call(wish)
        answer: asyncio.Future[Replied] = asyncio.get_running_loop().create_future()
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
        await self.send(Answer(request_id, decision))

    async def start_thread(
        self,
        prompt: str | None,
        config: CodexConfig | None = None,
        *,
        cwd: str | None = None,
        images: Sequence[str] = (),
        owned: bool = False,
    ) -> CodexThread:
        """A new thread, and its first turn. ``owned`` threads end the server with themselves."""
        chosen, folder = on_app_server(config or self.config), cwd or self.cwd
        wish = StartThread(self._params(chosen, folder))
        return await self._open(wish, chosen, prompt, images, owned=owned)

    async def resume_thread(
        self,
        thread_id: str,
        prompt: str | None,
        config: CodexConfig | None = None,
        *,
        cwd: str | None = None,
        images: Sequence[str] = (),
        owned: bool = False,
    ) -> CodexThread:
        chosen, folder = on_app_server(config or self.config), cwd or self.cwd
        wish = ResumeThread(thread_id, {"excludeTurns": True, **self._params(chosen, folder)})
        return await self._open(wish, chosen, prompt, images, owned=owned)

    async def fork_thread(
        self,
        thread_id: str,
        prompt: str | None,
        config: CodexConfig | None = None,
        *,
        cwd: str | None = None,
        images: Sequence[str] = (),
        last_turn_id: str | None = None,
        owned: bool = False,
    ) -> CodexThread:
        chosen, folder = on_app_server(config or self.config), cwd or self.cwd
        wish = ForkThread(thread_id, {"excludeTurns": True, **self._params(chosen, folder)}, last_turn_id)
        return await self._open(wish, chosen, prompt, images, owned=owned)

    async def list_threads(self, *, cwd: str | None = None, limit: int = 100) -> list[Thread]:
        """The stored threads, the newest first, as the server itself lists them."""
        params: dict[str, Any] = {"limit": limit, "sourceKinds": list(ALL_SOURCES)}
        reply = await self.call(Call("thread/list", params if cwd is None else params | {"cwd": cwd}))
        return reply.result.data if isinstance(reply.result, ThreadListResponse) else []

    async def models(self) -> list[Model]:
        reply = await self.call(Call("model/list"))
        return reply.result.data if isinstance(reply.result, ModelListResponse) else []

    async def account(self) -> GetAccountResponse:
        reply = await self.call(Call("account/read"))
        if not isinstance(reply.result, GetAccountResponse):
            raise RemoteProtocolError("the Codex app-server answered account/read with something else; update Codex")
        return reply.result

    async def require_sign_in(self) -> None:
        """Raise ``NotSignedIn`` when the provider wants an account and there is none."""
        found = await self.account()
        if found.requires_openai_auth and found.account is None:
            raise NotSignedIn("nobody is signed in to Codex: run `codex login`, or configure a model_provider")

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
            case Replied(request_id) | Refused(request_id):
                self._settle(request_id, event)
            case ServerRequestResolvedNotification(thread_id, request_id):
                if (thread := self._thread(thread_id)) is not None:
                    thread.answering.close(request_id)
            case TurnCompletedNotification(thread_id):
                if (thread := self._thread(thread_id)) is not None:
                    thread.answering.close_all_but(set(self.protocol.open_questions))
            case Exited():
                self._end(event)
            case _ if isinstance(event, Question) and event.request_id in self.protocol.open_questions:
                asked = self._thread(event.thread_id)
                (asked.answering if asked is not None else self._nobody).ask(event)
            case _:
                pass
        self._changed.set_result(None)
        self._changed = self._changed.get_loop().create_future()

    def _params(self, config: CodexConfig, cwd: str) -> dict[str, Any]:
        return thread_params(config, cwd=cwd, trust_roots=trust_roots(cwd))

    async def _open(
        self,
        wish: StartThread | ResumeThread | ForkThread,
        config: CodexConfig,
        prompt: str | None,
        images: Sequence[str],
        *,
        owned: bool,
    ) -> CodexThread:
        known = "" if isinstance(wish, StartThread) else wish.thread_id
        self.switchboard.expecting += 1
        try:
            reply = await self.call(wish)
            if not isinstance(reply.result, ThreadResponse):
                raise RemoteProtocolError(f"the Codex app-server answered {reply.method} with no thread; update Codex")
            if isinstance(wish, ResumeThread) and reply.result.thread.id != known:
                raise unknown_session(known)
            relay = await self.switchboard.open(reply.result.thread.id)
        except AgentRefused as error:
            raise _unknown_session(error, known) from None
        finally:
            self.switchboard.expecting -= 1
        thread = CodexThread(self, reply.result, relay, config, owned=owned, deliver=deliver_to(self))
        self._threads[thread.session_id] = thread
        if prompt is not None:
            await thread.send(prompt, images=images)
        return thread

    def _thread(self, thread_id: str) -> CodexThread | None:
        return self._threads.get(self.switchboard.home(thread_id))

    def _settle(self, request_id: int | str | None, event: Replied | Refused) -> None:
        waiting = self._calls.get(request_id) if isinstance(request_id, int) else None
        if waiting is None or waiting.done():
            return
        if isinstance(event, Replied):
            waiting.set_result(event)
        else:
            waiting.set_exception(AgentRefused(f"Codex refused {event.method}: {event.message}", code=event.code))

    def _end(self, exited: Exited) -> None:
        self._exited = exited
        for waiting in self._calls.values():
            if not waiting.done():
                waiting.set_exception(self._gone(exited))
        for thread in self._threads.values():
            thread.answering.close_all_but(set())

    def _gone(self, exited: Exited) -> ProcessExited:
        last = complaint(exited.stderr) or "it said nothing"
        return ProcessExited(
            f"the Codex app-server has ended with code {exited.code}: {last}", code=exited.code, stderr=exited.stderr
        )


def _unknown_session(error: AgentRefused, thread_id: str) -> AgentRefused | SessionNotFound:
    words = str(error).lower()
    if thread_id and ("no rollout found" in words or "invalid thread id" in words or "not found" in words):
        return unknown_session(thread_id)
    return error


def deliver_to(server: CodexAppServer) -> Deliver:
    """Sends answers to the server for as long as somebody holds it."""
    reference = weakref.ref(server)

    async def deliver(request_id: RequestId, decision: Decision) -> None:
        if (alive := reference()) is not None:
            await alive.answer(request_id, decision)

    return deliver


def _weakly(server: CodexAppServer) -> Callable[[AppEvent], None]:
    """The pump must not keep the server alive: one that nobody holds is collected, and its process with it."""
    reference = weakref.ref(server)

    def notice(event: AppEvent) -> None:
        if (alive := reference()) is not None:
            alive.notice(event)

    return notice
