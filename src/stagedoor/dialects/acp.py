"""What happened as an ACP agent says it: the ``update`` of each ``session/update``.

Questions are requests in that protocol and no updates; the door that shows them (``server.acp``) sees to them.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any, TypeAlias, assert_never

import msgspec

from stagedoor.unified import events as canonical
from stagedoor.unified.events import Event, PermissionRequest, ToolUse

from .event_parts import Drafts

Update: TypeAlias = dict[str, Any]

KINDS: dict[str, str] = {
    "shell": "execute", "read_file": "read", "write_file": "edit", "edit_file": "edit", "search_content": "search",
    "find_files": "search", "web_fetch": "fetch", "web_search": "fetch", "task": "think", "plan": "think",
}  # fmt: skip
"""Tool → the protocol's kind of it; the rest is ``other``."""
MOST_OUTPUT = 64 * 1024
"""Characters of a running call's output that are shown; the whole comes at its end."""


class AcpUpdates:
    """The updates of one session, whose ``cwd`` completes paths: those of the protocol are absolute."""

    def __init__(self, cwd: str) -> None:
        self._cwd = PurePosixPath(cwd)
        self._texts = Drafts()
        self._thoughts = Drafts()
        self._calls: dict[str, _OpenCall] = {}

    def of(self, event: Event) -> list[Update]:
        """The updates that say what ``event`` says; often one, sometimes none."""
        match event:
            case canonical.TurnStarted(prompt=prompt):
                return [chunk("user_message_chunk", prompt)] if prompt else []
            case canonical.TextDelta(text=text, message_id=message_id):
                self._texts.add((event.parent_tool_use_id, message_id), text)
                return self._speech(event, text, message_id)
            case canonical.Text(text=text, message_id=message_id):
                rest = self._texts.rest((event.parent_tool_use_id, message_id), text)
                return self._speech(event, rest, message_id)
            case canonical.ThinkingDelta(text=text):
                self._thoughts.add((event.parent_tool_use_id, ""), text)
                return _thought(event, text)
            case canonical.Thinking(text=text):
                return _thought(event, self._thoughts.rest((event.parent_tool_use_id, ""), text))
            case canonical.ToolUse():
                return self._started(event)
            case canonical.ToolProgress(tool_use_id=call_id, output=output):
                call = self._call(call_id)
                call.output += output
                shown = call.output[-MOST_OUTPUT:]
                return [_call_update(call_id, status="in_progress", content=[*call.diffs, text_content(shown)])]
            case canonical.ToolResult():
                return [self._ended(event)]
            case canonical.FileChange(tool_use_id=call_id):
                return self._changed(event) if call_id else []
            case canonical.Plan(items=items):
                entries = [{"content": item.text, "priority": "medium", "status": item.status} for item in items]
                return [{"sessionUpdate": "plan", "entries": entries}]
            case canonical.Notice(images=[_, *_] as images):
                kind = "agent_message_chunk" if event.parent_tool_use_id is None else "agent_thought_chunk"
                return [{"sessionUpdate": kind, "content": image_block(image)} | _meta(event) for image in images]
            case canonical.Notice(level=level, message=message):
                return [] if level == "info" else _thought(event, f"{level}: {message}\n")
            case canonical.FilesRestored():
                return _thought(event, f"{canonical.restored_words(event)}\n")
            case canonical.Error(message=message):
                return _thought(event, f"error: {message}\n")
            case canonical.TurnCompleted():
                self._texts.drain()
                self._thoughts.drain()
                self._calls.clear()
                return []
            case (
                canonical.Init()
                | canonical.PermissionRequest()
                | canonical.PermissionResolved()
                | canonical.UsageReport()
                | canonical.Retry()
                | canonical.Done()
                | canonical.Unrecognized()
            ):
                return []
            case _:
                assert_never(event)

    def _speech(self, event: Event, text: str, message_id: str) -> list[Update]:
        """What a sub-agent says is no answer to the user: it is shown as a thought."""
        if event.parent_tool_use_id is not None:
            return _thought(event, text)
        return [chunk("agent_message_chunk", text, message_id)] if text else []

    def _started(self, use: ToolUse) -> list[Update]:
        self._call(use.tool_use_id)
        update = {"sessionUpdate": "tool_call", **call_fields(use, self._cwd), "status": "in_progress"}
        return [update | _meta(use)]

    def _ended(self, result: canonical.ToolResult) -> Update:
        call = self._calls.pop(result.tool_use_id, None) or _OpenCall()
        output = [text_content(result.output)] if result.output else []
        output += [{"type": "content", "content": image_block(image)} for image in result.images]
        raw: dict[str, Any] = {"output": result.output, "status": result.status}
        if result.exit_code is not None:
            raw["exitCode"] = result.exit_code
        status = "completed" if result.status == "success" else "failed"
        return _call_update(result.tool_use_id, status=status, content=[*call.diffs, *output], rawOutput=raw)

    def _changed(self, change: canonical.FileChange) -> list[Update]:
        if change.before is None and change.after is None:
            return []
        call = self._call(change.tool_use_id)
        path = str(self._cwd / change.path)
        shown: dict[str, Any] = {"type": "diff", "path": path, "newText": change.after or ""}
        if change.before is not None:
            shown["oldText"] = change.before
        call.diffs = [*(other for other in call.diffs if other["path"] != path), shown]
        return [_call_update(change.tool_use_id, content=call.diffs, locations=[{"path": path}])]

    def _call(self, call_id: str) -> _OpenCall:
        return self._calls.setdefault(call_id, _OpenCall())


class _OpenCall(msgspec.Struct):
    """A call that has not ended: what it has put out, and what it changed."""

    output: str = ""
    diffs: list[dict[str, Any]] = []


def chunk(kind: str, text: str, message_id: str = "") -> Update:
    update: Update = {"sessionUpdate": kind, "content": {"type": "text", "text": text}}
    return update | {"messageId": message_id} if message_id else update


def text_content(text: str) -> dict[str, Any]:
    return {"type": "content", "content": {"type": "text", "text": text}}


def image_block(image: canonical.ShownImage) -> dict[str, Any]:
    return {"type": "image", "mimeType": image.media_type, "data": image.content}


def call_fields(call: ToolUse | PermissionRequest, cwd: PurePosixPath) -> dict[str, Any]:
    """A call as ``tool_call`` and ``session/request_permission`` name it."""
    name = call.name if isinstance(call, ToolUse) else call.tool_name
    fields: dict[str, Any] = {
        "toolCallId": call.tool_use_id,
        "title": title_of(name, call),
        "kind": KINDS.get(name, "other"),
        "rawInput": call.input,
    }
    path = call.input.get("path") or call.input.get("file_path")
    if KINDS.get(name) in ("read", "edit") and isinstance(path, str) and path:
        fields["locations"] = [{"path": str(cwd / path)}]
    return fields


_VERBS = {
    "read_file": "Read", "write_file": "Write", "edit_file": "Edit", "search_content": "Search for",
    "find_files": "Find", "web_fetch": "Fetch", "web_search": "Search the web for",
}  # fmt: skip


def title_of(name: str, call: ToolUse | PermissionRequest) -> str:
    """One line that says what is done: the command itself, or a verb and its target."""
    target = " ".join(call.target.split())
    verb = _VERBS.get(name, "")
    if target:
        return f"{verb} {target}".strip()[:500]
    return " ".join(call.description.split())[:500] or call.native_name or name


def _thought(event: Event, text: str) -> list[Update]:
    return [chunk("agent_thought_chunk", text) | _meta(event)] if text else []


def _call_update(call_id: str, **members: Any) -> Update:
    return {"sessionUpdate": "tool_call_update", "toolCallId": call_id, **members}


def _meta(event: Event) -> Update:
    parent = event.parent_tool_use_id
    return {} if parent is None else {"_meta": {"parentToolCallId": parent}}
