"""The two ways to talk with Codex, without any I/O: one run of ``codex exec``, and one ``codex app-server``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Never, cast

import msgspec

from ...errors import AlreadyAnswered, LocalProtocolError
from ...wire.jsonrpc import INVALID_PARAMS, METHOD_NOT_FOUND, Notification, Peer, Request, Response, parse
from ...wire.shapes import UnknownMessage, decode_or_reason
from . import events, notifications, questions
from .command_decoder import decode_answer, decode_request
from .commands import (
    AnswerQuestion,
    CallMethod,
    CleanBackgroundTerminals,
    Command,
    ForkThread,
    InterruptTurn,
    ResumeThread,
    ServerCall,
    StartThread,
    StartTurn,
    Steer,
    UnsubscribeThread,
    user_input,
)
from .events import CodexTurnCompleted, CodexTurnFailed, CodexUsage, ExecEvent, OlderItems, StreamEnded, ThreadStarted
from .notifications import (
    AppEvent,
    FileChangePatchUpdatedNotification,
    ItemCompletedNotification,
    ItemStartedNotification,
    OtherNotification,
    ServerRequestResolvedNotification,
    ThreadStartedNotification,
    ThreadTokenUsageUpdatedNotification,
    TurnCompletedNotification,
    TurnStartedNotification,
)
from .questions import FileChangeRequestApproval, McpServerElicitationRequest, Question, RequestId
from .threads import (
    CallRefusal,
    CallReply,
    CodexInitializeResponse,
    CodexTurn,
    CollabAgentToolCallThreadItem,
    FileChangeThreadItem,
    McpToolCallThreadItem,
    SubAgentActivityThreadItem,
    Thread,
    ThreadResponse,
    TurnStartResponse,
    decode_result,
)

NOTHING = CodexUsage()
START, CLEAN = "turn/start", "thread/backgroundTerminals/clean"


class _CallParams(msgspec.Struct, frozen=True, rename="camel"):
    thread_id: str | None = None


class _Envelope(msgspec.Struct, frozen=True):
    params: _CallParams = _CallParams()


_CALL_PARAMS = msgspec.json.Decoder(_CallParams)
_ENVELOPE = msgspec.json.Decoder(_Envelope)


class ExecProtocol:
    """One process of ``codex exec``: one turn. The prompt is its standard input, so nothing is ever sent.

    ``before`` is the thread's total before this turn: zero for a new thread, ``None`` when it is not known.
    """

    def __init__(self, *, before: CodexUsage | None = NOTHING) -> None:
        self._before = before
        self.thread_id: str | None = None
        self.session_id = ""
        self.turn_id = 0
        self._older = OlderItems()
        self._at_end = True  # whether nothing has come since a turn ended
        self.ended = False
        """Whether the stream reported the turn's end; without that, whatever the exit code, it did not end well."""

    def receive(self, message: bytes) -> list[ExecEvent]:
        event = events.decode(self._older.whole(message))
        self._at_end = isinstance(event, CodexTurnCompleted | CodexTurnFailed)
        match event:
            case UnknownMessage(why=why):
                return [UnknownMessage(message, why)]
            case ThreadStarted(thread_id):
                if self.thread_id not in (None, thread_id):
                    self._before = NOTHING  # a recording may hold another thread, too
                self.thread_id = self.session_id = thread_id
            case CodexTurnCompleted(usage):
                self.ended = True
                before, self._before = self._before, usage or self._before  # a recording may hold the next turn, too
                if usage is not None and before is not None:
                    return [CodexTurnCompleted(usage, usage.since(before))]
            case CodexTurnFailed():
                self.ended = True
            case _:
                pass
        return [event]

    def receive_eof(self) -> list[ExecEvent]:
        return [] if self._at_end else [StreamEnded()]

    def send(self, command: Never) -> None:
        raise LocalProtocolError("codex exec takes no input while it runs: use driver='app-server'")

    def outgoing(self) -> list[bytes]:
        return []


# ----------------------------------------------------------------------------------------------------- codex app-server


class _ThreadState:
    """The state of one thread: its turn, token totals, and items under way."""

    def __init__(self) -> None:
        self.turn = ""
        self.turn_number = 0
        self.total: CodexUsage | None = None
        self.before: CodexUsage | None = None
        self.interrupting = False
        self.interrupt_sent = False
        self.files: dict[str, FileChangeThreadItem] = {}
        self.calls: dict[str, McpToolCallThreadItem] = {}

    def start(self, turn: CodexTurn) -> None:
        if turn.id and turn.id != self.turn:
            self.turn, self.before = turn.id, self.total
            self.turn_number += 1

    def count(self, event: ThreadTokenUsageUpdatedNotification) -> None:
        total = event.token_usage.total.usage()
        if self.turn == event.native_turn_id and self.before is None:
            # A fork inherits its parent's total silently: it is the total less what this first call used.
            self.before = total.since(event.token_usage.last.usage())
        self.total = total

    def used(self) -> CodexUsage | None:
        return None if self.total is None or self.before is None else self.total.since(self.before)

    def finish(self) -> CodexUsage | None:
        used = self.used()
        self.turn, self.before = "", None
        self.files.clear()
        self.calls.clear()
        return used


class ThreadStates:
    """What the app-server's notifications add up to: running turns, sub-agents, token totals, items under way.

    Fed with every notification and reply; never sends anything itself.
    """

    def __init__(self) -> None:
        self._states: dict[str, _ThreadState] = {}
        self._parents: dict[str, str] = {}

    def turn(self, thread_id: str) -> str:
        """The id of the running turn, or an empty string."""
        return self._state(thread_id).turn

    def turn_number(self, thread_id: str) -> int:
        """How many turns the thread has begun since it was opened here."""
        return self._state(thread_id).turn_number

    def root(self, thread_id: str) -> str:
        """The thread at the top of the family; itself when it is no known sub-agent."""
        visited = {thread_id}
        while (parent := self._parents.get(thread_id)) is not None and parent not in visited:
            visited.add(parent)
            thread_id = parent
        return thread_id

    def family(self, thread_id: str) -> list[str]:
        """The thread and its sub-agents, theirs included."""
        return [thread_id, *(child for child in self._parents if child != thread_id and self._under(child, thread_id))]

    def learn(self, event: notifications.Notification) -> notifications.Notification:
        """Take an event in; what counts tokens comes back with the turn's usage, everything else as it is."""
        match event:
            case ThreadStartedNotification(thread):
                self._meet(thread)
            case TurnStartedNotification(thread_id, turn):
                self._adopt_by_turn(thread_id, turn)
                self._state(thread_id).start(turn)
            case ThreadTokenUsageUpdatedNotification(thread_id):
                state = self._state(thread_id)
                state.count(event)
                if state.turn and state.turn == event.native_turn_id:
                    return msgspec.structs.replace(event, turn_usage=state.used())
            case TurnCompletedNotification(thread_id):
                return msgspec.structs.replace(event, turn_usage=self._state(thread_id).finish())
            case ItemStartedNotification() | ItemCompletedNotification():
                self._learn_item(event)
            case FileChangePatchUpdatedNotification(thread_id, item_id=item_id, changes=changes):
                self._state(thread_id).files[item_id] = FileChangeThreadItem(item_id, changes)
            case _:
                pass
        return event

    def forget_files(self) -> None:
        """Something was said of them that we cannot read: a question must not show what was said before."""
        for state in self._states.values():
            state.files.clear()

    def learn_reply(self, reply: CallReply) -> None:
        match reply.result:
            case ThreadResponse(thread):
                self._meet(thread)
            case TurnStartResponse(turn) if reply.thread_id:
                self._state(reply.thread_id).start(turn)
            case _:
                pass

    def complete(self, question: Question) -> Question:
        """Add to a question what only earlier items contain."""
        state = self._state(question.thread_id)
        match question:
            case FileChangeRequestApproval(item_id=item_id) if item_id in state.files:
                return msgspec.structs.replace(question, changes=state.files[item_id].changes)
            case McpServerElicitationRequest() if question.is_tool_approval:
                waiting = [call for call in state.calls.values() if call.server == question.server_name]
                exact = [call for call in waiting if call.arguments == question.tool_params] or waiting
                return msgspec.structs.replace(question, call=exact[-1]) if exact else question
            case _:
                return question

    def interrupt(self, thread_id: str) -> None:
        """An interrupt was requested; it counts as sent when the turn already has its id."""
        state = self._state(thread_id)
        state.interrupting, state.interrupt_sent = True, bool(state.turn)

    def interrupting(self, thread_id: str) -> bool:
        return self._state(thread_id).interrupting

    def interrupted(self, thread_id: str) -> None:
        state = self._state(thread_id)
        state.interrupting = state.interrupt_sent = False

    def to_interrupt(self) -> list[tuple[str, str]]:
        """Turns that got their id after the interrupt was requested. Each is named once."""
        due = [
            (thread_id, state)
            for thread_id, state in self._states.items()
            if state.interrupting and not state.interrupt_sent and state.turn
        ]
        for _, state in due:
            state.interrupt_sent = True
        return [(thread_id, state.turn) for thread_id, state in due]

    def interrupted_without_turn(self) -> list[str]:
        """Threads whose interrupt came too late. Clears them."""
        late = [key for key, state in self._states.items() if state.interrupt_sent and not state.turn]
        for thread_id in late:
            self.interrupted(thread_id)
        return late

    def _state(self, thread_id: str) -> _ThreadState:
        state = self._states.get(thread_id)
        if state is None:
            state = self._states[thread_id] = _ThreadState()
        return state

    def _under(self, child: str, ancestor: str) -> bool:
        visited: set[str] = set()
        while (parent := self._parents.get(child)) is not None and child not in visited:
            if parent == ancestor:
                return True
            visited.add(child)
            child = parent
        return False

    def _meet(self, thread: Thread) -> None:
        state = self._state(thread.id)
        if state.total is None and not thread.preview and not thread.forked_from_id:
            state.total = CodexUsage()  # brand new and empty
        if thread.parent_thread_id:
            self._parents.setdefault(thread.id, thread.parent_thread_id)

    def _adopt_by_turn(self, thread_id: str, turn: CodexTurn) -> None:
        if not turn.root_turn_id or turn.root_turn_id == turn.id or thread_id in self._parents:
            return
        for other, state in self._states.items():
            if other != thread_id and state.turn == turn.root_turn_id:
                self._parents[thread_id] = other
                return

    def _learn_item(self, event: ItemStartedNotification | ItemCompletedNotification) -> None:
        state, item = self._state(event.thread_id), event.item
        done = isinstance(event, ItemCompletedNotification)
        match item:
            case FileChangeThreadItem(item_id):
                state.files.pop(item_id, None) if done else state.files.update({item_id: item})
            case McpToolCallThreadItem(item_id):
                state.calls.pop(item_id, None) if done else state.calls.update({item_id: item})
            case CollabAgentToolCallThreadItem(sender_thread_id=sender, receiver_thread_ids=receivers):
                for receiver in receivers:
                    if receiver not in (sender, event.thread_id):
                        self._parents.setdefault(receiver, sender or event.thread_id)
            case UnknownMessage():
                state.files.clear()  # it may have changed one of them
            case SubAgentActivityThreadItem(agent_thread_id=child) if child and child != event.thread_id:
                self._parents.setdefault(child, event.thread_id)
            case _:
                pass


def thread_of(event: AppEvent) -> str | None:
    """The thread an event is about, where it is about one."""
    if type(event) in notifications.PIECES:
        return cast("notifications.Piece", event).thread_id or None
    if isinstance(event, CallReply) and isinstance(event.result, ThreadResponse):
        return event.result.thread.id
    if isinstance(event, UnknownMessage):
        try:
            return _ENVELOPE.decode(event.raw).params.thread_id
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
    return cast("str | None", getattr(event, "thread_id", None)) or None


class AppServerProtocol:
    """One app-server: any number of threads on one pipe, JSON-RPC without the ``jsonrpc`` member.

    Calls made before the handshake is done wait for it. ``thread_states`` holds which turn runs in which thread and
    which thread is whose sub-agent.
    """

    def __init__(self, *, name: str = "stagedoor", version: str = "0") -> None:
        self._peer = Peer(version=False)
        self._open_calls: dict[RequestId | None, tuple[str, str]] = {}  # their method and thread
        self._call(
            "initialize",
            {
                "clientInfo": {"name": name, "title": name, "version": version},
                "capabilities": {"experimentalApi": True},  # cleaning background terminals needs it
            },
        )
        self._sendable = self._peer.outgoing()
        self._ready = False
        self._recorded_calls: dict[RequestId | None, tuple[str, str]] = {}
        self.open_questions: dict[RequestId, Question] = {}
        self.thread_states = ThreadStates()
        self.session_id = ""
        self.turn_id = 0
        self._last_thread: str | None = None

    def send(self, command: Command) -> None:
        match command:
            case AnswerQuestion(request_id, decision):
                question = self.open_questions.get(request_id)
                if question is None:
                    raise AlreadyAnswered(f"question {request_id} is no longer open: nothing was sent")
                answer = questions.result(question, decision)
                del self.open_questions[request_id]
                self._peer.answer(request_id, answer)
            case InterruptTurn(thread_id):
                self._interrupt(thread_id)
            case _:
                self.call(command)

    def call(self, command: ServerCall) -> int:
        """Queue a request; its reply will be a ``CallReply`` or ``CallRefusal`` with the id returned here."""
        method, params = _method_and_params(command, self.thread_states)
        return self._call(method, params)

    def busy(self, thread_id: str) -> bool:
        """Whether a turn of the thread or of a sub-agent of its runs, starts, or is still being cleaned up after."""
        family = self.thread_states.family(thread_id)
        waiting = {thread for method, thread in self._open_calls.values() if method in (START, CLEAN)}
        return any(member in waiting or self.thread_states.turn(member) for member in family)

    def outgoing(self) -> list[bytes]:
        if self._ready:
            self._sendable += self._peer.outgoing()
        messages, self._sendable = self._sendable, []
        return messages

    def receive(self, message: bytes) -> list[AppEvent]:
        event = self._typed(message)
        thread_id = thread_of(event)
        if thread_id != self._last_thread or type(event) not in notifications.PIECES:
            self._last_thread = thread_id
            self.session_id = self.thread_states.root(thread_id) if thread_id else ""
            self.turn_id = self.thread_states.turn_number(self.session_id) if thread_id else 0
        return [event]

    def _typed(self, message: bytes) -> AppEvent:
        parsed = parse(message)
        if type(parsed) is Notification:  # first, and by its type: the bulk of a stream
            event = notifications.decode(message, parsed.method, parsed.params)
            if type(event) in notifications.PIECES:
                return event
            if not isinstance(event, UnknownMessage):
                return self._notified(event)
            if parsed.method in notifications.NOTIFICATIONS:
                self.thread_states.forget_files()
            return event
        match parsed:
            case Request(request_id, method, params):
                return self._question(message, request_id, method, params)
            case Response() as response:
                return self._reply(response)
            case surprise:
                return cast("UnknownMessage", surprise)

    def receive_eof(self) -> list[AppEvent]:
        self.open_questions.clear()
        self._open_calls.clear()
        self._peer.abandoned()
        return []

    def decode_command(self, message: bytes) -> list[Command]:
        """The commands in what a client wrote, from a two-way recording; they say what the replies to them mean."""
        match parse(message):
            case Request(request_id, method, params) as request:
                about = decode_or_reason(_CALL_PARAMS, params)
                thread_id = "" if isinstance(about, str) else about.thread_id or ""
                self._recorded_calls[request_id] = (method, thread_id)
                return [decode_request(request, running=bool(self.thread_states.turn(thread_id)))]
            case Response(request_id) as response:
                question = None if request_id is None else self.open_questions.pop(request_id, None)
                return [] if question is None else [decode_answer(question, response)]
            case _:
                return []

    def _notified(self, event: notifications.Notification) -> notifications.Notification:
        event = self.thread_states.learn(event)
        match event:
            case ServerRequestResolvedNotification(_, request_id):
                self.open_questions.pop(request_id, None)
            case TurnCompletedNotification(thread_id):
                self._close_questions(thread_id)
                if self.thread_states.interrupting(thread_id):
                    # An interrupted command keeps running as a background terminal until it is cleaned away.
                    self.thread_states.interrupted(thread_id)
                    self.call(CleanBackgroundTerminals(thread_id))
            case _:
                self._interrupt_late_starters()
        return event

    def _question(
        self, message: bytes, request_id: Any, method: str, params: msgspec.Raw
    ) -> Question | OtherNotification | UnknownMessage:
        question = questions.decode(message, request_id, method, params)
        if isinstance(question, UnknownMessage):
            # Nobody can answer what we do not understand, and the server would wait for ever.
            code = INVALID_PARAMS if method in questions.QUESTIONS else METHOD_NOT_FOUND
            self._peer.refuse(request_id, code, f"the client cannot answer {method}")
            return OtherNotification(method, params) if method in questions.WITHOUT_MEANING else question
        question = self.thread_states.complete(question)
        self.open_questions[request_id] = question
        return question

    def _reply(self, response: Response) -> CallReply | CallRefusal:
        own = self._open_calls.pop(response.id, ("", ""))
        method, thread_id = self._recorded_calls.pop(response.id, own)
        self._peer.settle(response)
        if response.fault is not None:
            fault = response.fault
            if method == "turn/interrupt":
                self._give_up_interrupts()
            return CallRefusal(response.id, method, fault.code, fault.message, thread_id)
        assert response.result is not None  # a response has the one or the other
        reply = CallReply(response.id, method, decode_result(method, response.result), thread_id)
        if isinstance(reply.result, CodexInitializeResponse) and not self._ready:
            self._finish_handshake()
        self.thread_states.learn_reply(reply)
        self._interrupt_late_starters()
        return reply

    def _call(self, method: str, params: Mapping[str, Any]) -> int:
        number = self._peer.call(method, params)
        self._open_calls[number] = (method, str(params.get("threadId") or ""))
        return number

    def _finish_handshake(self) -> None:
        queued = self._peer.outgoing()
        self._peer.notify("initialized")
        self._sendable += [*self._peer.outgoing(), *queued]
        self._ready = True

    def _interrupt(self, thread_id: str) -> None:
        for member in self.thread_states.family(thread_id):
            turn = self.thread_states.turn(member)
            if turn:
                self.thread_states.interrupt(member)
                self._call("turn/interrupt", {"threadId": member, "turnId": turn})
            elif (START, member) in self._open_calls.values():
                self.thread_states.interrupt(member)
            elif member == thread_id:
                self.call(CleanBackgroundTerminals(member))

    def _interrupt_late_starters(self) -> None:
        """Turns that had no id yet when the interrupt was requested."""
        for member, turn in self.thread_states.to_interrupt():
            self._call("turn/interrupt", {"threadId": member, "turnId": turn})

    def _give_up_interrupts(self) -> None:
        """The turn was over already: only what it left behind remains to be cleaned."""
        for member in self.thread_states.interrupted_without_turn():
            self.call(CleanBackgroundTerminals(member))

    def _close_questions(self, thread_id: str) -> None:
        for request_id, question in list(self.open_questions.items()):
            if question.thread_id == thread_id:
                del self.open_questions[request_id]


def _method_and_params(command: ServerCall, thread_states: ThreadStates) -> tuple[str, Mapping[str, Any]]:
    match command:
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
            turn = thread_states.turn(thread_id)
            if not turn:
                raise LocalProtocolError("no running turn to steer: send a prompt instead")
            return "turn/steer", {"threadId": thread_id, "expectedTurnId": turn, "input": user_input(text, images)}
        case CleanBackgroundTerminals(thread_id):
            return CLEAN, {"threadId": thread_id}
        case UnsubscribeThread(thread_id):
            return "thread/unsubscribe", {"threadId": thread_id}
        case CallMethod(method, params):
            return method, params
