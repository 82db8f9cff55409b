"""The to-do list, which Claude Code tells in single steps (``TaskCreate``, ``TaskUpdate``) or whole (``TodoWrite``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from ...unified.events import Plan, PlanItem

Step = Literal["pending", "in_progress", "completed"]
_STEPS: dict[str, Step] = {"in_progress": "in_progress", "completed": "completed"}


class _Todo(msgspec.Struct):
    content: str
    status: str = "pending"


class _Written(msgspec.Struct):
    todos: list[_Todo]


class _Task(msgspec.Struct):
    id: str
    subject: str
    status: str = "pending"


class _Created(msgspec.Struct):
    task: _Task


class _Listed(msgspec.Struct):
    tasks: list[_Task]


class _Change(msgspec.Struct):
    to: str


class _Updated(msgspec.Struct, rename="camel"):
    success: bool = True
    status_change: _Change | None = None


class _Update(msgspec.Struct, rename="camel"):
    task_id: str
    subject: str | None = None
    status: str | None = None


class TodoList:
    def __init__(self) -> None:
        self._items: dict[str, PlanItem] = {}

    def after(self, tool: str, given: Mapping[str, Any], outcome: Any) -> Plan | None:
        """The plan after a call that succeeded; ``None`` when the call changed nothing, or says what we cannot read."""
        before = dict(self._items)
        try:
            self._apply(tool, given, outcome)
        except msgspec.ValidationError:
            return None
        return Plan(items=list(self._items.values())) if self._items != before else None

    def _apply(self, tool: str, given: Mapping[str, Any], outcome: Any) -> None:
        match tool:
            case "TodoWrite":
                todos = msgspec.convert(given, _Written).todos
                self._items = {str(at): PlanItem(todo.content, _step(todo.status)) for at, todo in enumerate(todos)}
            case "TaskCreate":
                task = msgspec.convert(outcome, _Created).task
                self._items[task.id] = PlanItem(task.subject)
            case "TaskUpdate":
                self._update(msgspec.convert(given, _Update), msgspec.convert(outcome or {}, _Updated))
            case "TaskList":
                tasks = msgspec.convert(outcome, _Listed).tasks
                self._items = {task.id: PlanItem(task.subject, _step(task.status)) for task in tasks}
            case _:
                pass

    def _update(self, asked: _Update, outcome: _Updated) -> None:
        if not outcome.success:
            return
        status = outcome.status_change.to if outcome.status_change is not None else asked.status
        if status == "deleted":
            self._items.pop(asked.task_id, None)
            return
        item = self._items.get(asked.task_id, PlanItem(f"Task {asked.task_id}"))
        step = item.status if status is None else _step(status)
        self._items[asked.task_id] = PlanItem(asked.subject or item.text, step)


def _step(status: str) -> Step:
    return _STEPS.get(status, "pending")
