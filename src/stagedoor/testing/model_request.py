"""A request of an agent to its model, the same for all four APIs, and scripted calls in the agent's words. Pure."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Container, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Literal, TypeGuard, cast

import msgspec

from .script import ScriptedCall

Json = dict[str, Any]


class PastCall(msgspec.Struct, frozen=True):
    """A call the model made earlier, as the agent repeats it."""

    id: str
    name: str
    input: Any = None


class CallResult(msgspec.Struct, frozen=True):
    """The result of a call, as the agent reports it."""

    id: str
    output: str
    error: bool = False
    name: str = ""


class ConversationTurn(msgspec.Struct, frozen=True):
    """One step of the conversation. The ``text`` of a user is what was typed, without what the agent adds to it."""

    role: Literal["user", "model", "tool"]
    text: str = ""
    calls: tuple[PastCall, ...] = ()
    results: tuple[CallResult, ...] = ()


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request for an answer. ``side``: it asks for something beside the conversation (a title, a summary)."""

    api: str
    path: str
    body: Json
    model: str = ""
    stream: bool = True
    system: str = ""
    turns: tuple[ConversationTurn, ...] = ()
    tools: Mapping[str, Json] = {}
    session: str = ""
    side: str = ""

    @property
    def prompt(self) -> str:
        return next((turn.text for turn in reversed(self.turns) if turn.role == "user"), "")

    @property
    def cwd(self) -> str:
        """The working directory, as the agent tells its model; empty when it does not."""
        for text in (self.system, *(json.dumps(message) for message in records(self.body.get("messages")))):
            if match := _CWD.search(text):
                return match.group(1).strip()
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


# ------------------------------------------------------------------------- scripted calls in an agent's own words


def pick(tools: Container[str], names: str | Sequence[str], arguments: Any) -> NativeCall:
    """A call of the first of these tools that was offered; if none was, of the first all the same."""
    choices = [names] if isinstance(names, str) else list(names)
    for name in choices:
        if name in tools:
            return NativeCall(name, arguments)
    return NativeCall(choices[0], arguments, offered=False)


def absolute(path: Any, cwd: str) -> str:
    """The path as an agent that wants absolute ones takes it."""
    text = str(path or ".")
    return str(PurePosixPath(cwd) / text) if cwd else text


def file_commands(call: ScriptedCall) -> str:
    """The shell command that does what an agent has no tool for."""
    words = {name: shlex.quote(str(value)) for name, value in call.input.items()}
    match call.tool:
        case "search_content":
            return f"grep -rn -e {words['pattern']} {words['path']}"
        case "find_files":
            return f"find {words['path']} -name {words['pattern']}"
        case "delete_file":
            return f"rm {words['path']}"
        case "read_file":
            return f"cat {words['path']}"
        case _:
            raise ValueError(f"no shell command for {call.tool!r}")


# ------------------------------------------------------------------------------------------ reading loose JSON


def record(value: Any) -> Json:
    return cast("Json", value) if isinstance(value, dict) else {}


def _is_list(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def as_list(value: Any) -> list[Any]:
    return value if _is_list(value) else []


def records(value: Any) -> list[Json]:
    return [record(item) for item in as_list(value) if isinstance(item, dict)]


def text_of(content: Any) -> str:
    """The text of a string, or of a list of blocks with a ``text``."""
    if isinstance(content, str):
        return content
    return "\n".join(block["text"] for block in records(content) if isinstance(block.get("text"), str))


_ADDED = re.compile(
    r"<(system-reminder|environment_context|user_instructions|session_context|hook_context|permissions instructions"
    r"|INSTRUCTIONS|turn_aborted|subagent_notification|skills_instructions|apps_instructions|plugins_instructions"
    r"|collaboration_mode|personality_spec|model_switch|current_datetime|tagged_files)>.*?</\1>",
    re.DOTALL,
)


_NUDGES = re.compile(
    r"\[(?:System: You previously returned an empty response|Your previous response had no visible output).*?\]\s*$",
    re.DOTALL,
)


def typed_text(text: str) -> str:
    """What the person typed: without what agents weave into user messages, nudges after an empty answer included."""
    return _NUDGES.sub("", _ADDED.sub("", text).strip()).strip()


_EXIT = re.compile(r"\b[Ee]xit(?:ed)?(?: with)?[ _][Cc]ode\"?:? *(-?\d+)")


def exit_failed(output: str) -> bool:
    """Whether the text reports an exit code other than 0."""
    match = _EXIT.search(output)
    return match is not None and match.group(1) != "0"


def smallest(schema: Json) -> Any:
    """The smallest value that fits a JSON schema: the answer to side calls that ask for one."""
    if choices := as_list(schema.get("enum")):
        return choices[0]
    kind = schema.get("type", "object")
    match str((as_list(kind) or [kind])[0]).lower():
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
