"""A question of the agent to its user: the choices are numbered, one key chooses, or an answer is typed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import msgspec

from ..transcript import clean
from ..unified.decisions import Allow, Decision, Deny
from ..unified.events import PermissionRequest
from . import keyboard
from .keyboard import Keyboard
from .lines import Style

MOST = 9


class Question(msgspec.Struct, frozen=True):
    text: str
    choices: list[str]
    several: bool = False
    secret: bool = False


def questions_in(request: PermissionRequest) -> list[Question]:
    """What the agent wants to know, in the shape the agents share; empty when it is not put so."""
    if request.tool_name != "question":
        return []
    found: list[Question] = []
    for one in _tables(request.input.get("questions")):
        text = one.get("question")
        options = _tables(one.get("options"))
        choices = [str(option.get("label") or option.get("value") or "") for option in options]
        if isinstance(text, str) and text:
            several = bool(one.get("multiSelect") or one.get("multiple"))
            told = [clean(choice) for choice in choices if choice][:MOST]
            found.append(Question(clean(text), told, several, secret=bool(one.get("isSecret"))))
    return found


async def answer(request: PermissionRequest, keys: Keyboard, write: Callable[[str], None], style: Style) -> Decision:
    """Ask every question in turn. Escape refuses them all."""
    answers: dict[str, str | list[str]] = {}
    for question in questions_in(request):
        chosen = await _choose(question, keys, write, style)
        if chosen is None:
            write("no answer\n")
            return Deny("the user does not want to answer")
        answers[question.text] = chosen if question.several else chosen[0]
    return Allow(updated_input={**request.input, "answers": answers})


async def _choose(question: Question, keys: Keyboard, write: Callable[[str], None], style: Style) -> list[str] | None:
    write(f"{style('strong', '?')} {question.text}\n")
    write("".join(f"    {style('tool', str(number))} {choice}\n" for number, choice in enumerate(question.choices, 1)))
    if not question.choices:
        return await _typed(question, keys, write)
    how = "some numbers, then Enter" if question.several else "a number"
    chosen: list[str] = []
    write(style("strong", "  which?") + f" {how}, [o]ther, [n]one ")
    while True:
        key = (await keys.typed())[:1].lower()
        match key:
            case "n" | "" | keyboard.ESCAPE | keyboard.END_OF_INPUT:
                return None
            case "o":
                write("other\n")
                return await _typed(question, keys, write)
            case "\r" | "\n" if chosen:
                write("\n")
                return chosen
            case _ if key.isdigit() and 1 <= int(key) <= len(question.choices):
                choice = question.choices[int(key) - 1]
                write(f"{choice} " if question.several else f"{choice}\n")
                chosen += [] if choice in chosen else [choice]
                if not question.several:
                    return chosen
            case _:
                continue


async def _typed(question: Question, keys: Keyboard, write: Callable[[str], None]) -> list[str] | None:
    write("  > ")
    line = await keys.line("", secret=question.secret)
    return [line] if line else None


def _tables(value: object) -> list[dict[str, Any]]:
    if not isinstance(value, list):
        return []
    return [cast("dict[str, Any]", one) for one in cast("list[object]", value) if isinstance(one, dict)]
