"""A text as the answer to a question of an agent's own (``tool_name`` ``question``), in the shapes that agents use.

``{"questions": [{"question", "options"}]}``: the answers go beside them, by the words of each question.
``{"message", "schema"}``: a form; what fills it in goes into ``content``. ``{"message", "url"}``: a page to be opened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, cast

import msgspec

from ..errors import BadRequest
from .events import PermissionRequest


class FormField(msgspec.Struct, frozen=True):
    """``name``: under which its answer goes."""

    name: str
    choices: tuple[str, ...] = ()
    several: bool = False
    kind: str = "string"
    required: bool = True


def fields_of(request: PermissionRequest) -> tuple[FormField, ...]:
    """What is asked, one by one; empty when a yes is all that is waited for."""
    if request.tool_name != "question":
        return ()
    listed = request.input.get("questions")
    if isinstance(listed, list):
        return tuple(
            FormField(
                str(fields["question"]),
                tuple(_label(option) for option in _tables(fields.get("options"))),
                several=bool(fields.get("multiSelect") or fields.get("multiple")),
            )
            for fields in _tables(cast("object", listed))
            if fields.get("question")
        )
    schema: object = request.input.get("schema")
    if not isinstance(schema, Mapping):
        return ()
    form = cast("Mapping[str, object]", schema)
    properties, required = form.get("properties"), form.get("required")
    if not isinstance(properties, Mapping):
        return ()
    names = cast("Sequence[object]", required) if isinstance(required, list) else ()
    return tuple(
        _property(name, fields, name in names) for name, fields in cast("Mapping[str, object]", properties).items()
    )


def answered_input(request: PermissionRequest, text: str) -> dict[str, Any]:
    """The input of ``request`` with ``text`` as its answer. Several questions take a JSON object, by their words or
    names, or one line each. Raises ``BadRequest`` for a text that does not answer it."""
    questions = fields_of(request)
    if not questions:
        return dict(request.input)
    if not text.strip():
        raise BadRequest("the answer is empty; write one, or send isError (deny) to give none")
    texts = _texts(questions, text)
    answers: dict[str, Any] = {}
    for question in questions:
        if question.name in texts:
            answers[question.name] = _value(question, texts[question.name])
        elif question.required:
            raise BadRequest(f"there is no answer to {question.name!r}; {_advice(questions)}")
    return {**request.input, "content" if "schema" in request.input else "answers": answers}


def _texts(questions: Sequence[FormField], text: str) -> Mapping[str, object]:
    """Question → what was written for it."""
    try:
        written: object = msgspec.json.decode(text) if text.lstrip().startswith("{") else None
    except msgspec.DecodeError:
        written = None
    names = {question.name for question in questions}
    if isinstance(written, dict) and names >= (named := cast("dict[str, object]", written)).keys():
        return named
    if len(questions) == 1:
        return {questions[0].name: text.strip()}
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    needed = [question for question in questions if question.required]
    for answered in (questions, needed):
        if len(lines) == len(answered):
            return {question.name: line for question, line in zip(answered, lines, strict=True)}
    raise BadRequest(f"{len(questions)} questions are open and the text answers {len(lines)}; {_advice(questions)}")


def _advice(questions: Sequence[FormField]) -> str:
    example = msgspec.json.encode({question.name: "…" for question in questions}).decode()
    return "answer it with a text" if len(questions) == 1 else f"answer with one line each, or as JSON: {example}"


def _value(question: FormField, written: object) -> Any:
    if question.several:
        words = cast("list[object]", written) if isinstance(written, list) else str(written).split(",")
        return [_choice(question, str(word).strip()) for word in words]
    if isinstance(written, str):
        return _typed(question, written)
    if question.kind != "string":
        return written
    return _choice(question, msgspec.json.encode(written).decode())


def _typed(question: FormField, text: str) -> Any:
    match question.kind:
        case "boolean":
            words = {"true": True, "yes": True, "y": True, "false": False, "no": False, "n": False}
            if text.lower() in words:
                return words[text.lower()]
        case "integer" | "number":
            try:
                number = float(text)
            except ValueError:
                number = float("nan")
            if number.is_integer():
                return int(number)
            if question.kind == "number" and isfinite(number):
                return number
        case _:
            return _choice(question, text)
    raise BadRequest(f"{question.name!r} takes a {question.kind}, not {text[:100]!r}")


def _choice(question: FormField, text: str) -> str:
    """The choice as the agent writes it; another answer stays as it is."""
    return next((choice for choice in question.choices if choice.casefold() == text.casefold()), text)


def _property(name: str, fields: object, required: bool) -> FormField:  # noqa: FBT001
    shape: Mapping[str, object] = cast("Mapping[str, object]", fields) if isinstance(fields, Mapping) else {}
    choices = shape.get("enum")
    words = tuple(str(choice) for choice in cast("list[object]", choices)) if isinstance(choices, list) else ()
    kind = str(shape.get("type") or "string")
    return FormField(name, words, kind == "array", kind, required)


def _label(option: Mapping[str, object]) -> str:
    return str(option.get("label") or option.get("value") or "")


def _tables(value: object) -> list[Mapping[str, object]]:
    if not isinstance(value, list):
        return []
    return [cast("Mapping[str, object]", one) for one in cast("list[object]", value) if isinstance(one, Mapping)]
