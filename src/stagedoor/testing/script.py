"""What a scripted model does, as plain values. Pure: the scripted model and the understudy both play it.

A script is a list of replies, one for each time the model is asked. A reply is one part, a list of parts (several
calls in it run in parallel), a function of the outcomes of the previous reply's calls, or a :class:`When` table.

    [
        [think("Let me look."), shell("pytest -q")],
        lambda outcomes: say("Green.") if "passed" in outcomes[0].output else say("Red."),
    ]
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

StopReason = Literal["end", "max_tokens", "refusal", "content_filter"]


class ToolOutcome(msgspec.Struct, frozen=True):
    """What came back for one call of the previous reply. ``tool`` is the name the script used."""

    tool: str
    output: str
    error: bool = False
    native: str = ""
    id: str = ""


# ---------------------------------------------------------------------------------------------- what a model says


class Say(msgspec.Struct, frozen=True):
    """Answer text, streamed piece by piece with ``pause`` seconds between the pieces."""

    pieces: tuple[str, ...]
    pause: float = 0.0

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class Think(msgspec.Struct, frozen=True):
    """Reasoning text."""

    text: str


class ScriptedCall(msgspec.Struct, frozen=True):
    """A tool call. ``native``: ``tool`` and ``input`` are the agent's own and pass through untouched.

    ``script`` is what the sub-agent started by a ``task`` call does.
    """

    tool: str
    input: Mapping[str, Any] = {}
    native: bool = False
    script: tuple[Reply, ...] = ()


class Structured(msgspec.Struct, frozen=True):
    """The final answer when the caller asked for one that fits a JSON schema."""

    value: Any


class EarlyStop(msgspec.Struct, frozen=True):
    """Why the reply ends, when it is not for the ordinary reason."""

    reason: StopReason


class UsageOverride(msgspec.Struct, frozen=True):
    """The token counts this reply reports. ``input`` includes the cached ones."""

    input: int = 100
    output: int = 20
    cached: int = 50
    reasoning: int = 0


# ------------------------------------------------------------------------------------------------------- faults
# ``times``: the fault befalls only the first so many requests for this reply; the others get the rest of the reply.


class HttpError(msgspec.Struct, frozen=True):
    """An HTTP error instead of an answer. ``kind`` overrides the error type the API would name."""

    status: int
    message: str = ""
    kind: str | None = None
    retry_after: float | None = None
    times: int | None = None


class StreamError(msgspec.Struct, frozen=True):
    """An error event inside a stream that began well."""

    kind: str = "overloaded"
    message: str = "Overloaded"
    times: int | None = None


class ContextOverflow(msgspec.Struct, frozen=True):
    """The API refuses the request because the conversation is too long."""

    times: int | None = None


class Cut(msgspec.Struct, frozen=True):
    """The connection is reset here. ``partway``: in the middle of an event."""

    partway: bool = False
    times: int | None = None


class Stall(msgspec.Struct, frozen=True):
    """Silence: for so many seconds, or until the client gives up."""

    seconds: float | None = None
    times: int | None = None


class Endless(msgspec.Struct, frozen=True):
    """Text that never stops, until the client gives up."""

    text: str = "and on "
    pause: float = 0.01


class Empty(msgspec.Struct, frozen=True):
    """An answer with nothing in it."""


Fault: TypeAlias = HttpError | StreamError | ContextOverflow | Cut | Stall | Endless | Empty
Part: TypeAlias = Say | Think | ScriptedCall | Structured | EarlyStop | UsageOverride | Fault

# --------------------------------------------------------------------------------------------- replies and branches


class Case(msgspec.Struct, frozen=True):
    """A branch: taken when all that is stated here holds for the last tool outcome."""

    reply: Reply
    contains: str | None = None
    matches: str | None = None
    error: bool | None = None

    def holds(self, last: ToolOutcome | None) -> bool:
        output, error = (last.output, last.error) if last else ("", False)
        return (
            (self.contains is None or self.contains in output)
            and (self.matches is None or re.search(self.matches, output) is not None)
            and (self.error is None or self.error == error)
        )


class When(msgspec.Struct, frozen=True):
    """A reply chosen by the outcome of the last tool call: the first case that holds."""

    cases: tuple[Case, ...]


class Forever(msgspec.Struct, frozen=True):
    """The last reply of a script, given again and again."""

    reply: Reply


Branch: TypeAlias = Callable[[list[ToolOutcome]], "Reply"]
Reply: TypeAlias = Part | Sequence[Part] | Branch | When | Forever
Script: TypeAlias = Sequence[Reply]


def parts_of(reply: Reply, outcomes: Sequence[ToolOutcome]) -> tuple[Part, ...]:
    """What this reply is, given what the calls before it gave."""
    while True:
        if isinstance(reply, When):
            last = outcomes[-1] if outcomes else None
            reply = next((case.reply for case in reply.cases if case.holds(last)), Empty())
        elif isinstance(reply, Part):
            return (reply,)
        elif isinstance(reply, Forever):
            reply = reply.reply
        elif callable(reply):
            reply = reply(list(outcomes))
        else:
            return tuple(reply)


def calls_in(parts: Sequence[Part]) -> list[ScriptedCall]:
    return [part for part in parts if isinstance(part, ScriptedCall)]


# ------------------------------------------------------------------------------------------------------ constructors


def say(text: str | Sequence[str], *, chunks: int | None = None, pause: float = 0.0) -> Say:
    """Answer text: word by word, in ``chunks`` equal pieces, or in the very pieces given."""
    if not isinstance(text, str):
        return Say(tuple(text), pause)
    if chunks is None:
        pieces = re.findall(r"\s*\S+\s*|\s+", text) if len(text) <= 4000 else _equal(text, 100)
    else:
        pieces = _equal(text, chunks)
    return Say(tuple(pieces), pause)


def _equal(text: str, count: int) -> list[str]:
    size = max(1, -(-len(text) // max(1, count)))
    return [text[at : at + size] for at in range(0, len(text), size)]


def half_emoji() -> Say:
    """Text that ends in one half of a surrogate pair, as JavaScript prints a split emoji."""
    return Say(("Half of an emoji: ", "\ud83d"))


def think(text: str) -> Think:
    return Think(text)


def call(tool: str, /, **input: Any) -> ScriptedCall:
    """A call of the tool with this *normalized* name; each model API translates it to the tool the agent offered."""
    return ScriptedCall(tool, input)


def native(tool: str, /, **input: Any) -> ScriptedCall:
    """A call of the agent's own tool by the agent's own name."""
    return ScriptedCall(tool, input, native=True)


def shell(command: str, *, escalate: str | None = None, background: bool = False) -> ScriptedCall:
    """Run a command. ``escalate``: ask to run it outside the sandbox, for this reason, where the agent knows that."""
    more: dict[str, Any] = {}
    if escalate is not None:
        more["escalate"] = escalate
    if background:
        more["background"] = True
    return ScriptedCall("shell", {"command": command, **more})


def read_file(path: str) -> ScriptedCall:
    return ScriptedCall("read_file", {"path": path})


def write_file(path: str, content: str) -> ScriptedCall:
    return ScriptedCall("write_file", {"path": path, "content": content})


def edit_file(path: str, old: str, new: str) -> ScriptedCall:
    """Replace ``old`` by ``new``. Claude Code refuses it unless the conversation has read the file before."""
    return ScriptedCall("edit_file", {"path": path, "old": old, "new": new})


def delete_file(path: str) -> ScriptedCall:
    """Delete a file, by a patch where the agent has one and by ``rm`` elsewhere."""
    return ScriptedCall("delete_file", {"path": path})


def search_content(pattern: str, path: str = ".") -> ScriptedCall:
    return ScriptedCall("search_content", {"pattern": pattern, "path": path})


def find_files(pattern: str, path: str = ".") -> ScriptedCall:
    return ScriptedCall("find_files", {"pattern": pattern, "path": path})


def web_fetch(url: str) -> ScriptedCall:
    return ScriptedCall("web_fetch", {"url": url})


def web_search(query: str) -> ScriptedCall:
    return ScriptedCall("web_search", {"query": query})


def plan(items: Sequence[Mapping[str, str]]) -> ScriptedCall:
    """Set the plan: ``[{"text": …, "status": "pending" | "in_progress" | "completed"}]``."""
    return ScriptedCall(
        "plan", {"items": [{"text": item["text"], "status": item.get("status", "pending")} for item in items]}
    )


def task(prompt: str, script: Script = (), *, description: str = "Sub-agent") -> ScriptedCall:
    """Start a sub-agent with this prompt; ``script`` is what *it* is told to do."""
    return ScriptedCall("task", {"prompt": prompt, "description": description}, script=tuple(script))


def mcp(server: str, tool: str, /, **arguments: Any) -> ScriptedCall:
    """A tool of a configured MCP server."""
    return ScriptedCall("mcp", {"server": server, "tool": tool, "arguments": arguments})


def question(text: str, options: Sequence[str]) -> ScriptedCall:
    """Ask the user to choose."""
    return ScriptedCall("question", {"text": text, "options": list(options)})


def structured(value: Any) -> Structured:
    return Structured(value)


def stop(reason: StopReason) -> EarlyStop:
    return EarlyStop(reason)


def usage(*, input: int = 100, output: int = 20, cached: int = 50, reasoning: int = 0) -> UsageOverride:
    return UsageOverride(input, output, cached, reasoning)


def http_error(
    status: int,
    message: str = "",
    *,
    kind: str | None = None,
    retry_after: float | None = None,
    times: int | None = None,
) -> HttpError:
    return HttpError(status, message, kind, retry_after, times)


def stream_error(kind: str = "overloaded", message: str = "Overloaded", *, times: int | None = None) -> StreamError:
    return StreamError(kind, message, times)


def context_overflow(*, times: int | None = None) -> ContextOverflow:
    return ContextOverflow(times)


def cut(*, partway: bool = False, times: int | None = None) -> Cut:
    return Cut(partway, times)


def stall(seconds: float | None = None, *, times: int | None = None) -> Stall:
    return Stall(seconds, times)


def endless(text: str = "and on ", *, pause: float = 0.01) -> Endless:
    return Endless(text, pause)


def forever(reply: Reply) -> Forever:
    return Forever(reply)


def empty() -> Empty:
    return Empty()
