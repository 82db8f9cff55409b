"""What the app-server's notifications add up to: running turns, sub-agents, token totals, items that are under way."""

from __future__ import annotations

import msgspec

from .notifications import (
    FileChangePatchUpdatedNotification,
    ItemCompletedNotification,
    ItemStartedNotification,
    Notification,
    ThreadStartedNotification,
    ThreadTokenUsageUpdatedNotification,
    TurnCompletedNotification,
    TurnStartedNotification,
)
from .questions import FileChangeRequestApproval, McpServerElicitationRequest, Question
from .thread_items import (
    CollabAgentToolCallThreadItem,
    FileChangeThreadItem,
    McpToolCallThreadItem,
    SubAgentActivityThreadItem,
)
from .threads import Replied, Thread, ThreadResponse, Turn, TurnStartResponse
from .usage import Usage


class _Course:
    """How one thread stands."""

    def __init__(self) -> None:
        self.turn = ""
        self.total: Usage | None = None
        self.before: Usage | None = None
        self.interrupting = False
        self.interrupt_sent = False
        self.files: dict[str, FileChangeThreadItem] = {}
        self.calls: dict[str, McpToolCallThreadItem] = {}

    def start(self, turn: Turn) -> None:
        if turn.id and turn.id != self.turn:
            self.turn, self.before = turn.id, self.total

    def count(self, event: ThreadTokenUsageUpdatedNotification) -> None:
        total = event.token_usage.total.usage()
        if self.turn == event.turn_id and self.before is None:
            # A fork inherits its parent's total without saying so: what this first call used tells it.
            self.before = total.since(event.token_usage.last.usage())
        self.total = total

    def used(self) -> Usage | None:
        return None if self.total is None or self.before is None else self.total.since(self.before)

    def finish(self) -> Usage | None:
        used = self.used()
        self.turn, self.before = "", None
        self.files.clear()
        self.calls.clear()
        return used


class Conversations:
    """Fed with every notification and reply; never asks for anything itself."""

    def __init__(self) -> None:
        self._courses: dict[str, _Course] = {}
        self._parents: dict[str, str] = {}

    def turn(self, thread_id: str) -> str:
        """The id of the running turn, or an empty string."""
        return self._course(thread_id).turn

    def root(self, thread_id: str) -> str:
        """The thread at the top of the family; itself when it is no known sub-agent."""
        seen = {thread_id}
        while (parent := self._parents.get(thread_id)) is not None and parent not in seen:
            seen.add(parent)
            thread_id = parent
        return thread_id

    def family(self, thread_id: str) -> list[str]:
        """The thread and its sub-agents, theirs included."""
        return [thread_id, *(child for child in self._parents if child != thread_id and self._under(child, thread_id))]

    def learn(self, event: Notification) -> Notification:
        """Take an event in; what counts tokens comes back with the turn's usage, everything else as it is."""
        match event:
            case ThreadStartedNotification(thread):
                self._meet(thread)
            case TurnStartedNotification(thread_id, turn):
                self._adopt_by_turn(thread_id, turn)
                self._course(thread_id).start(turn)
            case ThreadTokenUsageUpdatedNotification(thread_id):
                course = self._course(thread_id)
                course.count(event)
                if course.turn and course.turn == event.turn_id:
                    return msgspec.structs.replace(event, turn_usage=course.used())
            case TurnCompletedNotification(thread_id):
                return msgspec.structs.replace(event, turn_usage=self._course(thread_id).finish())
            case ItemStartedNotification() | ItemCompletedNotification():
                self._learn_item(event)
            case FileChangePatchUpdatedNotification(thread_id, item_id=item_id, changes=changes):
                self._course(thread_id).files[item_id] = FileChangeThreadItem(item_id, changes)
            case _:
                pass
        return event

    def learn_reply(self, reply: Replied) -> None:
        match reply.result:
            case ThreadResponse(thread):
                self._meet(thread)
            case TurnStartResponse(turn) if reply.thread_id:
                self._course(reply.thread_id).start(turn)
            case _:
                pass

    def complete(self, question: Question) -> Question:
        """Add to a question what only earlier items said."""
        course = self._course(question.thread_id)
        match question:
            case FileChangeRequestApproval(item_id=item_id) if item_id in course.files:
                return msgspec.structs.replace(question, changes=course.files[item_id].changes)
            case McpServerElicitationRequest() if question.is_tool_approval:
                waiting = [call for call in course.calls.values() if call.server == question.server_name]
                exact = [call for call in waiting if call.arguments == question.tool_params] or waiting
                return msgspec.structs.replace(question, call=exact[-1]) if exact else question
            case _:
                return question

    def interrupt(self, thread_id: str) -> None:
        """An interrupt is wanted; it counts as sent when the turn already has its id."""
        course = self._course(thread_id)
        course.interrupting, course.interrupt_sent = True, bool(course.turn)

    def interrupting(self, thread_id: str) -> bool:
        return self._course(thread_id).interrupting

    def interrupted(self, thread_id: str) -> None:
        course = self._course(thread_id)
        course.interrupting = course.interrupt_sent = False

    def to_interrupt(self) -> list[tuple[str, str]]:
        """Turns that got their id after the interrupt was asked for. Each is named once."""
        due = [
            (thread_id, course)
            for thread_id, course in self._courses.items()
            if course.interrupting and not course.interrupt_sent and course.turn
        ]
        for _, course in due:
            course.interrupt_sent = True
        return [(thread_id, course.turn) for thread_id, course in due]

    def interrupted_without_turn(self) -> list[str]:
        """Threads whose interrupt came too late. Clears them."""
        late = [key for key, course in self._courses.items() if course.interrupt_sent and not course.turn]
        for thread_id in late:
            self.interrupted(thread_id)
        return late

    def _course(self, thread_id: str) -> _Course:
        return self._courses.setdefault(thread_id, _Course())

    def _under(self, child: str, ancestor: str) -> bool:
        seen: set[str] = set()
        while (parent := self._parents.get(child)) is not None and child not in seen:
            if parent == ancestor:
                return True
            seen.add(child)
            child = parent
        return False

    def _meet(self, thread: Thread) -> None:
        course = self._course(thread.id)
        if course.total is None and not thread.preview and not thread.forked_from_id:
            course.total = Usage()  # brand new: nothing was ever said in it
        if thread.parent_thread_id:
            self._parents.setdefault(thread.id, thread.parent_thread_id)

    def _adopt_by_turn(self, thread_id: str, turn: Turn) -> None:
        if not turn.root_turn_id or turn.root_turn_id == turn.id or thread_id in self._parents:
            return
        for other, course in self._courses.items():
            if other != thread_id and course.turn == turn.root_turn_id:
                self._parents[thread_id] = other
                return

    def _learn_item(self, event: ItemStartedNotification | ItemCompletedNotification) -> None:
        course, item = self._course(event.thread_id), event.item
        done = isinstance(event, ItemCompletedNotification)
        match item:
            case FileChangeThreadItem(item_id):
                course.files.pop(item_id, None) if done else course.files.update({item_id: item})
            case McpToolCallThreadItem(item_id):
                course.calls.pop(item_id, None) if done else course.calls.update({item_id: item})
            case CollabAgentToolCallThreadItem(sender_thread_id=sender, receiver_thread_ids=receivers):
                for receiver in receivers:
                    if receiver not in (sender, event.thread_id):
                        self._parents.setdefault(receiver, sender or event.thread_id)
            case SubAgentActivityThreadItem(agent_thread_id=child) if child and child != event.thread_id:
                self._parents.setdefault(child, event.thread_id)
            case _:
                pass
