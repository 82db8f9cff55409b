"""OpenCode's questions, in our words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec

from ...agents.opencode.events import PermissionAsked, QuestionAsked
from ...agents.opencode.parts import ToolPart
from ...unified.events import PermissionRequest
from ...unified.tools import described, operation_of
from .calls import as_written
from .tools import name_of, target_of

CHOICES = ["allow_once", "allow_always", "reject_once"]


def permission_request(
    asked: PermissionAsked, part: ToolPart | None, tool_use_id: str, parent: str | None
) -> PermissionRequest:
    """``part`` is the call it is about, where that is known already: the question itself tells less."""
    native = part.tool if part is not None else _tool(asked)
    name = name_of(native)
    given = {**part.state.input} if part is not None else _input(asked)
    diff = diff_in(asked)
    if diff:
        given["diff"] = diff
    return PermissionRequest(
        request_id=asked.id,
        tool_use_id=tool_use_id,
        tool_name=name,
        native_name=native,
        operation=operation_of(name),
        target=target_of(name, native, given) or ", ".join(asked.patterns),
        input=given,
        description=_why(asked) or described(given),
        choices=[*CHOICES],
        parent_tool_use_id=parent,
    )


def question_request(asked: QuestionAsked, tool_use_id: str, parent: str | None) -> PermissionRequest:
    """A question to the person. Allowed with ``updated_input={"answers": …}``, it is answered."""
    first = asked.questions[0] if asked.questions else None
    given: dict[str, Any] = {"questions": msgspec.to_builtins(asked.questions)}
    return PermissionRequest(
        request_id=asked.id,
        tool_use_id=tool_use_id,
        tool_name="question",
        native_name="question",
        target=target_of("question", "question", given),
        input=given,
        description=first.header if first is not None else "",
        choices=[choice.label for choice in first.options] if first is not None else [],
        parent_tool_use_id=parent,
    )


def answers_in(asked: QuestionAsked, given: Mapping[str, Any] | None) -> list[list[str]] | None:
    """The answers put into a question's input: a list of them, or by the question's words or header."""
    answers: object = (given or {}).get("answers")
    if isinstance(answers, dict):
        named = cast("dict[str, object]", answers)
        answers = [named.get(one.question, named.get(one.header, [])) for one in asked.questions]
    if not isinstance(answers, list):
        return None
    return [
        [str(label) for label in cast("list[object]", chosen)] if isinstance(chosen, list) else [str(chosen)]
        for chosen in cast("list[object]", answers)
    ]


def diff_in(asked: PermissionAsked) -> str:
    diff: object = asked.metadata.get("diff")
    return diff if isinstance(diff, str) else ""


def _tool(asked: PermissionAsked) -> str:
    """The tool behind a permission; a few permissions are about any."""
    match asked.permission, asked.metadata:
        case "doom_loop", {"tool": str(tool)}:
            return tool
        case "external_directory", {"command": str()}:
            return "bash"
        case "external_directory", _:
            return "read"
        case permission, _:
            return permission


def _input(asked: PermissionAsked) -> dict[str, Any]:
    match asked.permission, asked.metadata:
        case "doom_loop", {"input": dict()}:
            return {**cast("dict[str, Any]", asked.metadata["input"])}
        case _, {"filepath": str(path)}:
            return {"filePath": path}
        case "read" | "glob" | "grep" | "list", metadata:
            return {**metadata, "path": ", ".join(asked.patterns)}
        case _, metadata:
            return as_written({key: value for key, value in metadata.items() if key != "diff"})


def _why(asked: PermissionAsked) -> str:
    match asked.permission:
        case "external_directory":
            return f"outside the project: {', '.join(asked.patterns)}"
        case "doom_loop":
            return "the same call again and again"
        case _:
            return ""
