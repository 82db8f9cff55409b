"""What an agent asked the model, the same for all four APIs. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Literal, TypeGuard, cast

import msgspec

Json = dict[str, Any]


class MadeCall(msgspec.Struct, frozen=True):
    """A call the model made earlier, as the agent tells it back."""

    id: str
    name: str
    input: Any = None


class Result(msgspec.Struct, frozen=True):
    """What a call gave, as the agent tells it."""

    id: str
    output: str
    error: bool = False
    name: str = ""


class Turn(msgspec.Struct, frozen=True):
    """One step of the conversation. The ``text`` of a user is what was typed, without what the agent adds to it."""

    role: Literal["user", "model", "tool"]
    text: str = ""
    calls: tuple[MadeCall, ...] = ()
    results: tuple[Result, ...] = ()


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """One request for an answer. ``side`` names an errand of the agent's own (a title, a summary), else it is empty."""

    face: str
    path: str
    body: Json
    model: str = ""
    stream: bool = True
    system: str = ""
    turns: tuple[Turn, ...] = ()
    tools: Mapping[str, Json] = {}
    session: str = ""
    side: str = ""

    @property
    def prompt(self) -> str:
        return next((turn.text for turn in reversed(self.turns) if turn.role == "user"), "")

    @property
    def cwd(self) -> str:
        """The working directory, which every agent tells its model in its own words; empty when it does not."""
        for text in (self.system, *(json.dumps(message) for message in records(self.body.get("messages")))):
            if found := _CWD.search(text):
                return found.group(1).strip()
        return ""


_CWD = re.compile(r"(?:[Pp]rimary working directory|[Ww]orking directory|cwd): (/[^\\\"\n<]*)")


class NativeCall(msgspec.Struct, frozen=True):
    """A call in the agent's own words. ``offered``: the request had such a tool.

    ``custom`` tools take free text, ``hosted`` ones are run by the model's own provider and give no result.
    """

    name: str
    input: Any
    offered: bool = True
    namespace: str = ""
    kind: Literal["function", "custom", "hosted"] = "function"


# ------------------------------------------------------------------------------------------ reading loose JSON


def record(value: Any) -> Json:
    return cast("Json", value) if isinstance(value, dict) else {}


def _is_list(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def listed(value: Any) -> list[Any]:
    return value if _is_list(value) else []


def records(value: Any) -> list[Json]:
    return [record(item) for item in listed(value) if isinstance(item, dict)]


def text_of(content: Any) -> str:
    """The text of a string, or of a list of blocks with a ``text``."""
    if isinstance(content, str):
        return content
    return "\n".join(block["text"] for block in records(content) if isinstance(block.get("text"), str))


_ADDED = re.compile(
    r"<(system-reminder|environment_context|user_instructions|session_context|hook_context|permissions instructions"
    r"|INSTRUCTIONS|turn_aborted|subagent_notification|skills_instructions|apps_instructions|plugins_instructions"
    r"|collaboration_mode|personality_spec|model_switch)>.*?</\1>",
    re.DOTALL,
)


_NUDGES = re.compile(
    r"\[(?:System: You previously returned an empty response|Your previous response had no visible output).*?\]\s*$",
    re.DOTALL,
)


def typed(text: str) -> str:
    """What the person typed: without what agents weave into user messages, nudges after an empty answer included."""
    return _NUDGES.sub("", _ADDED.sub("", text).strip()).strip()


_EXIT = re.compile(r"\b[Ee]xit(?:ed)?(?: with)?[ _][Cc]ode\"?:? *(-?\d+)")


def exit_failed(output: str) -> bool:
    """Whether the text tells of a command that ended with another exit code than 0."""
    found = _EXIT.search(output)
    return found is not None and found.group(1) != "0"


def smallest(schema: Json) -> Any:
    """The smallest value that fits a JSON schema: the answer to side calls that ask for one."""
    if choices := listed(schema.get("enum")):
        return choices[0]
    kind = schema.get("type", "object")
    match str((listed(kind) or [kind])[0]).lower():
        case "object":
            return {name: smallest(record(value)) for name, value in record(schema.get("properties")).items()}
        case "array":
            return []
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "boolean":
            return False
        case _:
            return "scripted"
