"""When is a turn really over? Pure.

A ``result`` is not the end: a background task that finishes wakes the model again, which gives another ``result``.
``session_state_changed`` to ``idle`` is not the end either: it does not wait for background commands. The turn is over
at the first ``idle`` with no task open. Where the state events are off, a ``result`` stands in for ``idle``.
"""

from __future__ import annotations

from .events import Event, Result, SystemInit, TurnSettled
from .notices import SessionStateChanged, TaskNotification, TaskStarted


class Turn:
    def __init__(self) -> None:
        self._tells_state = False
        self._running = False
        self._result: Result | None = None
        self._tasks: dict[str, None] = {}

    @property
    def running(self) -> bool:
        """Whether a turn has begun that is not over yet."""
        return self._running

    @property
    def open_tasks(self) -> tuple[str, ...]:
        return tuple(self._tasks)

    def begin(self) -> None:
        """A prompt is on its way."""
        self._running = True

    def observe(self, event: Event) -> TurnSettled | None:
        """Take note of one event; the judgement, when this event ends the turn."""
        match event:
            case SystemInit():
                self._running = True
            case TaskStarted():
                self._tasks[event.task_id] = None
            case TaskNotification():
                self._tasks.pop(event.task_id, None)
            case Result():
                self._result = event
                if not self._tells_state:
                    return self._settled()
            case SessionStateChanged():
                self._tells_state = True
                if event.state == "running":
                    self._running = True
                elif event.state == "idle":
                    return self._settled()
            case _:
                pass
        return None

    def end(self) -> TurnSettled | None:
        """The stream ended: whatever ran is over, and no task will ever report."""
        if not self._running and self._result is None:
            return None
        unfinished, self._tasks = tuple(self._tasks), {}
        settled = TurnSettled(result=self._result, unfinished=unfinished)
        self._running, self._result = False, None
        return settled

    def _settled(self) -> TurnSettled | None:
        if self._tasks or self._result is None:
            return None
        settled = TurnSettled(result=self._result)
        self._running, self._result = False, None
        return settled
