"""The session file: an append-only log that must be replayed to be read. Pure.

A line is one of: the header (``sessionId``), a message (``id``: adds it or replaces the one of that id), ``$set``
(merges metadata; its ``messages`` replace the whole list), ``$rewindTo`` (drops a message and all behind it). The file
knows what the stream leaves out: thoughts, exit codes, diffs, listings, the model that really answered.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, cast

import msgspec

from stagedoor.wire.shapes import decode_or_reason, repaired
from stagedoor.wire.stamps import Stamped

SHELL = "run_shell_command"


class MessageTokens(msgspec.Struct, frozen=True):
    input: int = 0
    output: int = 0
    cached: int = 0
    thoughts: int = 0
    tool: int = 0
    total: int = 0


class Thought(msgspec.Struct, frozen=True):
    subject: str = ""
    description: str = ""
    timestamp: str = ""


class GeminiDiffStat(msgspec.Struct, frozen=True):
    model_added_lines: int = 0
    model_removed_lines: int = 0
    user_added_lines: int = 0
    user_removed_lines: int = 0


class FileDiff(msgspec.Struct, frozen=True, rename="camel"):
    """What an edit did to one file. ``file_diff`` is a unified diff."""

    file_diff: str
    file_name: str = ""
    file_path: str = ""
    original_content: str | None = None
    new_content: str | None = None
    diff_stat: GeminiDiffStat | None = None
    is_new_file: bool = False


class ToolRecord(msgspec.Struct, frozen=True, rename="camel"):
    """A finished call as the session file keeps it."""

    id: str
    name: str = ""
    args: dict[str, Any] = {}
    result: Any = None
    status: str = ""
    result_display: Any = None
    description: str = ""
    display_name: str = ""
    timestamp: str = ""

    @property
    def response(self) -> dict[str, Any]:
        """What the model got: ``{"output": …}`` or ``{"error": …}``."""
        first: Any = _list(self.result)[:1]
        return _dict(_dict(_dict(first[0]).get("functionResponse")).get("response")) if first else {}

    @property
    def exit_code(self) -> int | None:
        """A shell command's; ``None`` for other tools and for commands cancelled or sent to the background."""
        if self.name != SHELL:
            return None
        return _exit_code(str(self.response.get("output", "")), self.result_display)

    @property
    def diff(self) -> FileDiff | None:
        if "fileDiff" not in _dict(self.result_display):
            return None
        try:
            return msgspec.convert(self.result_display, FileDiff, strict=False)
        except msgspec.ValidationError:
            return None


class ToolDetails(Stamped, frozen=True):
    """What the session file adds to a ``tool_result``; comes after it, before the event that follows."""

    tool_id: str
    tool_name: str = ""
    status: str = ""
    exit_code: int | None = None
    diff: FileDiff | None = None
    files: tuple[str, ...] = ()
    response: dict[str, Any] = {}
    args: dict[str, Any] = {}
    parts: list[Any] = []
    """What the model got beside the response: images among others."""


def details(record: ToolRecord) -> ToolDetails:
    files = tuple(str(name) for name in _list(_dict(record.result_display).get("files")))
    return ToolDetails(
        record.id,
        record.name,
        record.status,
        record.exit_code,
        record.diff,
        files,
        record.response,
        record.args,
        _list(record.result)[1:],
    )


class MessageRecord(msgspec.Struct, frozen=True, rename="camel"):
    """One message of the conversation; ``type`` is ``user``, ``gemini``, ``info``, ``error`` or ``warning``."""

    id: str
    type: str = ""
    content: Any = None
    timestamp: str = ""
    model: str | None = None
    tokens: MessageTokens | None = None
    thoughts: list[Thought] | None = None
    tool_calls: list[ToolRecord] | None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, str):
            return self.content
        return "".join(str(_dict(part).get("text", "")) for part in _list(self.content) or [self.content])

    @property
    def is_prompt(self) -> bool:
        """Typed by a person: the CLI itself adds its context, and tool results, as user messages."""
        text = self.text.strip()
        return self.type == "user" and bool(text) and not text.startswith(("<session_context>", "<hook_context>"))

    @property
    def is_resumable(self) -> bool:
        """What the CLI counts as content; a file without any is an empty stub to it."""
        text = self.text.strip()
        if self.type == "user":
            return bool(text) and not text.startswith(("/", "?", "<session_context>", "<hook_context>"))
        return self.type == "gemini" and bool(text or self.tool_calls or self.thoughts)


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    session_id: str = ""
    project_hash: str = ""
    start_time: str = ""
    last_updated: str = ""
    kind: str = "main"
    summary: str | None = None


class RecordLine(
    msgspec.Struct, frozen=True, rename={"session_id": "sessionId", "update": "$set", "rewind_to": "$rewindTo"}
):
    """Enough of a line to know what kind it is."""

    id: str | None = None
    session_id: str | None = None
    update: msgspec.Raw = msgspec.Raw()
    rewind_to: str | None = None
    messages: list[msgspec.Raw] | None = None


class _MetadataUpdate(msgspec.Struct, frozen=True):
    messages: list[msgspec.Raw] | None = None


_LINE = msgspec.json.Decoder(RecordLine)
_UPDATE = msgspec.json.Decoder(_MetadataUpdate)
_METADATA = msgspec.json.Decoder(dict[str, Any])
_RECORD = msgspec.json.Decoder(MessageRecord, strict=False)


def _record(raw: bytes | msgspec.Raw) -> MessageRecord:
    record = decode_or_reason(_RECORD, raw)
    if isinstance(record, str):
        raise ValueError(record)
    return record


class SessionFileReplay:
    """Feed it the lines of a session file, in order; unreadable ones are counted and passed over, as the CLI does."""

    def __init__(self) -> None:
        self._metadata: dict[str, Any] = {}
        self._messages: dict[str, MessageRecord] = {}
        self._tools: dict[str, ToolRecord] = {}
        """The calls of the messages, by their ids."""
        self.unreadable = 0

    def feed(self, lines: Iterable[bytes]) -> list[MessageRecord]:
        """Take ``lines`` in; returns the messages they added or replaced."""
        changed: list[MessageRecord] = []
        for line in lines:
            if not line.strip():
                continue
            try:
                changed += self._line(line)
            except (msgspec.MsgspecError, ValueError, RecursionError):
                self.unreadable += 1
        return changed

    @property
    def metadata(self) -> Metadata:
        try:
            return msgspec.convert(self._metadata, Metadata)
        except msgspec.ValidationError:
            return Metadata(session_id=str(self._metadata.get("sessionId", "")))

    @property
    def messages(self) -> list[MessageRecord]:
        return list(self._messages.values())

    def tool(self, tool_id: str) -> ToolRecord | None:
        return self._tools.get(tool_id)

    def _line(self, line: bytes) -> list[MessageRecord]:
        try:
            kind = _LINE.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            line = repaired(line)
            known = decode_or_reason(_LINE, line)
            if isinstance(known, str):
                raise ValueError(known) from None
            kind = known
        if kind.rewind_to is not None:
            self._rewind(kind.rewind_to)
        elif kind.id is not None:
            return [self._put(_record(line))]
        elif kind.update:
            messages = _UPDATE.decode(kind.update).messages
            if messages is not None:
                self._messages.clear()
                self._tools.clear()
            self._merge(_METADATA.decode(kind.update))
            return self._put_all(messages)
        elif kind.session_id is not None:
            began: object = self._metadata.get("startTime")
            self._merge(_METADATA.decode(line))
            if began:
                self._metadata["startTime"] = began  # a resume within the minute repeats the header with its own time
            return self._put_all(kind.messages)  # the older format: one object, whole
        return []

    def _merge(self, metadata: dict[str, Any]) -> None:
        metadata.pop("messages", None)
        self._metadata |= metadata

    def _put_all(self, messages: list[msgspec.Raw] | None) -> list[MessageRecord]:
        put: list[MessageRecord] = []
        for raw in messages or ():
            try:
                put.append(self._put(_record(raw)))
            except ValueError:
                self.unreadable += 1
        return put

    def _put(self, record: MessageRecord) -> MessageRecord:
        replaced = self._messages.get(record.id)
        for call in () if replaced is None else replaced.tool_calls or ():
            self._tools.pop(call.id, None)
        self._messages[record.id] = record
        for call in record.tool_calls or ():
            self._tools[call.id] = call
        return record

    def _rewind(self, message_id: str) -> None:
        ids = list(self._messages)
        start = ids.index(message_id) if message_id in self._messages else 0
        for dropped in ids[start:]:
            del self._messages[dropped]
        self._tools = {call.id: call for message in self._messages.values() for call in message.tool_calls or ()}


def _dict(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return list(cast("Iterable[Any]", value)) if isinstance(value, list) else []


_RAN = re.compile(r"\nProcess Group PGID: \d+\s*(?:</untrusted_context>\s*)?\Z")
_CODE = re.compile(r"\nExit Code: (\d+)(?:\nSignal: [^\n]*)?(?:\nBackground PIDs: [^\n]*)?\Z")


def _exit_code(response: str, display: object) -> int | None:
    """From ``Output: …\\nExit Code: 3\\nProcess Group PGID: 7``, where the code is left out when it is 0."""
    ran = _RAN.search(response)
    if ran is None:
        return None
    body = response[: ran.start()].removeprefix("<untrusted_context>\n")
    if isinstance(display, str) and display and body.startswith(f"Output: {display}"):
        body = body[len("Output: ") + len(display) :]  # a command can print "Exit Code: 3" itself
    code = _CODE.search(body)
    return int(code[1]) if code else 0
