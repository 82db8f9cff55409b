"""The two ways to talk with Codex, without any I/O: one run of ``codex exec``, and one ``codex app-server``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Never

import msgspec

from ...errors import AlreadyAnswered, LocalProtocolError
from ...wire.jsonrpc import INVALID_PARAMS, METHOD_NOT_FOUND, Notification, Peer, Request, Response, parse
from ...wire.shapes import Unrecognized
from . import events, notifications, questions, threads
from .command_decoder import answer_in, request_in
from .commands import (
    Answer,
    Call,
    CleanBackgroundTerminals,
    Command,
    ForkThread,
    Interrupt,
    ResumeThread,
    StartThread,
    StartTurn,
    Steer,
    UnsubscribeThread,
    user_input,
)
from .commands import Request as Wish
from .conversations import Conversations
from .events import ExecEvent, ThreadStarted, TurnCompleted, TurnFailed
from .lenient import decoded
from .notifications import AppEvent, ServerRequestResolvedNotification, TurnCompletedNotification
from .older import OlderItems
from .questions import Question, RequestId
from .threads import Refused, Replied
from .usage import Usage

NOTHING = Usage()
START, CLEAN = "turn/start", "thread/backgroundTerminals/clean"


class _About(msgspec.Struct, frozen=True, rename="camel"):
    thread_id: str | None = None


_ABOUT = msgspec.json.Decoder(_About)


class ExecProtocol:
    """One process of ``codex exec``: one turn. The prompt is its standard input, so nothing is ever sent.

    ``before`` is the thread's total before this turn: zero for a new thread, ``None`` when it is not known.
    """

    def __init__(self, *, before: Usage | None = NOTHING) -> None:
        self._before = before
        self.thread_id: str | None = None
        self._older = OlderItems()
        self.ended = False
        """Whether the stream said how the turn ended; without that, whatever the exit code, it did not end well."""

    def receive(self, message: bytes) -> list[ExecEvent]:
        event = events.decode(self._older.whole(message))
        match event:
            case Unrecognized(why=why):
                return [Unrecognized(message, why)]
            case ThreadStarted(thread_id):
                if self.thread_id not in (None, thread_id):
                    self._before = NOTHING  # a recording may hold another thread, too
                self.thread_id = thread_id
            case TurnCompleted(usage):
                self.ended = True
                before, self._before = self._before, usage or self._before  # a recording may hold the next turn, too
                if usage is not None and before is not None:
                    return [TurnCompleted(usage, usage.since(before))]
            case TurnFailed():
                self.ended = True
            case _:
                pass
        return [event]

    def receive_eof(self) -> list[ExecEvent]:
        return []

    def send(self, command: Never) -> None:
        raise LocalProtocolError("codex exec takes no input while it runs; use the app-server driver for that")

    def outgoing(self) -> list[bytes]:
        return []


class AppServerProtocol:
    """One app-server: any number of threads on one pipe, JSON-RPC without the ``jsonrpc`` member.

    Calls made before the handshake is through wait for it. ``conversations`` knows which turn runs in which thread and
    which thread is whose sub-agent.
    """

    def __init__(self, *, name: str = "stagedoor", version: str = "0") -> None:
        self._peer = Peer(version=False)
        self._about: dict[RequestId | None, tuple[str, str]] = {}  # open calls: their method and thread
        self._call(
            "initialize",
            {
                "clientInfo": {"name": name, "title": name, "version": version},
                "capabilities": {"experimentalApi": True},  # cleaning background terminals needs it
            },
        )
        self._sendable = self._peer.outgoing()
        self._ready = False
        self._overheard: dict[RequestId | None, tuple[str, str]] = {}
        self.open_questions: dict[RequestId, Question] = {}
        self.conversations = Conversations()

    def send(self, command: Command) -> None:
        match command:
            case Answer(request_id, decision):
                question = self.open_questions.get(request_id)
                if question is None:
                    raise AlreadyAnswered(f"question {request_id} is no longer open; nothing was sent")
                answer = questions.result(question, decision)
                del self.open_questions[request_id]
                self._peer.answer(request_id, answer)
            case Interrupt(thread_id):
                self._interrupt(thread_id)
            case _:
                self.call(command)

    def call(self, wish: Wish) -> int:
        """Queue a request; its answer will be a ``Replied`` or ``Refused`` with the id returned here."""
        method, params = _request(wish, self.conversations)
        return self._call(method, params)

    def busy(self, thread_id: str) -> bool:
        """Whether a turn of the thread or of a sub-agent of its runs, starts, or is still being cleaned up after."""
        family = self.conversations.family(thread_id)
        waiting = {thread for method, thread in self._about.values() if method in (START, CLEAN)}
        return any(member in waiting or self.conversations.turn(member) for member in family)

    def outgoing(self) -> list[bytes]:
        if self._ready:
            self._sendable += self._peer.outgoing()
        messages, self._sendable = self._sendable, []
        return messages

    def receive(self, message: bytes) -> list[AppEvent]:
        match parse(message):
            case Notification(method, params):
                event = notifications.decode(message, method, params)
                return [event if isinstance(event, Unrecognized) else self._notified(event)]
            case Request(request_id, method, params):
                return [self._asked(message, request_id, method, params)]
            case Response() as response:
                return [self._answered(response)]
            case surprise:
                return [surprise]

    def receive_eof(self) -> list[AppEvent]:
        self.open_questions.clear()
        self._about.clear()
        self._peer.abandoned()
        return []

    def decode_command(self, message: bytes) -> list[Command]:
        """What a client once said, as a two-way recording holds it: it tells what the answers to it mean."""
        match parse(message):
            case Request(request_id, method, params) as request:
                about = decoded(_ABOUT, params)
                thread_id = "" if isinstance(about, str) else about.thread_id or ""
                self._overheard[request_id] = (method, thread_id)
                return [request_in(request, running=bool(self.conversations.turn(thread_id)))]
            case Response(request_id) as response:
                question = None if request_id is None else self.open_questions.pop(request_id, None)
                return [] if question is None else [answer_in(question, response)]
            case _:
                return []

    def _notified(self, event: notifications.Notification) -> notifications.Notification:
        known = self.conversations.learn(event)
        match known:
            case ServerRequestResolvedNotification(_, request_id):
                self.open_questions.pop(request_id, None)
            case TurnCompletedNotification(thread_id):
                self._close_questions(thread_id)
                if self.conversations.interrupting(thread_id):
                    # An interrupted command keeps running as a background terminal until it is cleaned away.
                    self.conversations.interrupted(thread_id)
                    self.call(CleanBackgroundTerminals(thread_id))
            case _:
                self._interrupt_late_starters()
        return known

    def _asked(self, message: bytes, request_id: Any, method: str, params: msgspec.Raw) -> Question | Unrecognized:
        question = questions.decode(message, request_id, method, params)
        if isinstance(question, Unrecognized):
            # Nobody can answer what we do not understand, and the server would wait for ever.
            code = INVALID_PARAMS if method in questions.QUESTIONS else METHOD_NOT_FOUND
            self._peer.refuse(request_id, code, f"the client cannot answer {method}")
            return question
        question = self.conversations.complete(question)
        self.open_questions[request_id] = question
        return question

    def _answered(self, response: Response) -> Replied | Refused:
        own = self._about.pop(response.id, ("", ""))
        method, thread_id = self._overheard.pop(response.id, own)
        self._peer.settle(response)
        if response.fault is not None:
            fault = response.fault
            if method == "turn/interrupt":
                self._give_up_interrupts()
            return Refused(response.id, method, fault.code, fault.message, thread_id)
        assert response.result is not None  # a response has the one or the other
        reply = Replied(response.id, method, threads.result(method, response.result), thread_id)
        if isinstance(reply.result, threads.InitializeResponse) and not self._ready:
            self._begin()
        self.conversations.learn_reply(reply)
        self._interrupt_late_starters()
        return reply

    def _call(self, method: str, params: Mapping[str, Any]) -> int:
        number = self._peer.call(method, params)
        self._about[number] = (method, str(params.get("threadId") or ""))
        return number

    def _begin(self) -> None:
        queued = self._peer.outgoing()
        self._peer.notify("initialized")
        self._sendable += [*self._peer.outgoing(), *queued]
        self._ready = True

    def _interrupt(self, thread_id: str) -> None:
        for member in self.conversations.family(thread_id):
            turn = self.conversations.turn(member)
            if turn:
                self.conversations.interrupt(member)
                self._call("turn/interrupt", {"threadId": member, "turnId": turn})
            elif (START, member) in self._about.values():
                self.conversations.interrupt(member)
            elif member == thread_id:
                self.call(CleanBackgroundTerminals(member))

    def _interrupt_late_starters(self) -> None:
        """Turns that had no id yet when the interrupt was asked for."""
        for member, turn in self.conversations.to_interrupt():
            self._call("turn/interrupt", {"threadId": member, "turnId": turn})

    def _give_up_interrupts(self) -> None:
        """The turn was over already: only what it left behind remains to be cleaned."""
        for member in self.conversations.interrupted_without_turn():
            self.call(CleanBackgroundTerminals(member))

    def _close_questions(self, thread_id: str) -> None:
        for request_id, question in list(self.open_questions.items()):
            if question.thread_id == thread_id:
                del self.open_questions[request_id]


def _request(wish: Wish, conversations: Conversations) -> tuple[str, Mapping[str, Any]]:
    match wish:
        case StartThread(params):
            return "thread/start", params
        case ResumeThread(thread_id, params):
            return "thread/resume", {"threadId": thread_id, **params}
        case ForkThread(thread_id, params, last_turn_id):
            last = {} if last_turn_id is None else {"lastTurnId": last_turn_id}
            return "thread/fork", {"threadId": thread_id, **last, **params}
        case StartTurn(thread_id, text, images, params):
            return START, {"threadId": thread_id, "input": user_input(text, images), **params}
        case Steer(thread_id, text, images):
            turn = conversations.turn(thread_id)
            if not turn:
                raise LocalProtocolError("there is no running turn to steer; send a prompt instead")
            given = {"threadId": thread_id, "expectedTurnId": turn, "input": user_input(text, images)}
            return "turn/steer", given
        case CleanBackgroundTerminals(thread_id):
            return CLEAN, {"threadId": thread_id}
        case UnsubscribeThread(thread_id):
            return "thread/unsubscribe", {"threadId": thread_id}
        case Call(method, params):
            return method, params
