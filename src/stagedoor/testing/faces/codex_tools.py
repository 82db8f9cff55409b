"""The tools of Codex, which live in three worlds: plain functions, a free-form patch tool, and *code mode*, where the
model is given one JavaScript tool, ``exec``, and calls everything else from inside it. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..asked import Json, NativeCall, record
from ..playback import Answered
from ..script import Call
from .toolbox import file_commands

Tools = Mapping[str, Json]


def native_calls(call: Call, tools: Tools) -> list[NativeCall]:
    given = call.input
    if call.native:
        return [_function(tools, call.tool, dict(given))]
    match call.tool:
        case "shell":
            return [_shell(tools, str(given["command"]), given)]
        case "read_file" | "search_content" | "find_files":
            return [_shell(tools, file_commands(call), {})]
        case "write_file" | "edit_file" | "delete_file":
            return [_patch(tools, _diff(call))]
        case "web_fetch":
            return [_hosted(tools, {"type": "open_page", "url": given["url"]})]
        case "web_search":
            return [_hosted(tools, {"type": "search", "query": given["query"], "queries": [given["query"]]})]
        case "plan":
            steps = [{"step": item["text"], "status": item["status"]} for item in given["items"]]
            return [_function(tools, "update_plan", {"plan": steps})]
        case "task":
            return [_spawn(tools, str(given["prompt"]))]
        case "mcp":
            return [_mcp(tools, str(given["server"]), str(given["tool"]), given["arguments"])]
        case "question":
            options = [{"label": option, "description": option} for option in given["options"]]
            asks = {"id": "question", "header": "Question", "question": given["text"], "options": options}
            return [_function(tools, "request_user_input", {"questions": [asks]})]
        case _:
            return [_function(tools, call.tool, dict(given))]


_DEFERRED = {"spawn_agent": "multi_agent_v1", "wait_agent": "multi_agent_v1"}
"""Tools that some models have to search for before they see them, with their namespaces: they work unseen, too."""


def _function(tools: Tools, name: str, given: Any) -> NativeCall:
    """A function tool: called straight, or from inside a code cell."""
    tool = tools.get(name)
    if tool is not None:
        if tool.get("type") == "custom":
            source = given if isinstance(given, str) else str(next(iter(record(given).values()), ""))
            return NativeCall(name, source, kind="custom")
        return NativeCall(name, given, namespace=str(tool.get("namespace") or ""))
    if "exec" in tools:
        return _cell(f"tools[{json.dumps(name)}]({json.dumps(given)})")
    if "tool_search" in tools and name in _DEFERRED:
        return NativeCall(name, given, namespace=_DEFERRED[name])
    return NativeCall(name, given, offered=False)


def _cell(expression: str) -> NativeCall:
    return NativeCall("exec", f"const result = await {expression}; text(result);", kind="custom")


def _shell(tools: Tools, command: str, given: Mapping[str, Any]) -> NativeCall:
    more: Json = {}
    if reason := given.get("escalate"):
        more = {"sandbox_permissions": "require_escalated", "justification": reason}
    if "exec_command" in tools:
        return NativeCall("exec_command", {"cmd": command, **more})
    if "exec" in tools:
        return _cell(f"tools.exec_command({json.dumps({'cmd': command, **more})})")
    if "shell_command" in tools:
        return NativeCall("shell_command", {"command": command, **more})
    return NativeCall("shell", {"command": ["bash", "-lc", command], **more}, offered="shell" in tools)


def _patch(tools: Tools, diff: str) -> NativeCall:
    tool = tools.get("apply_patch")
    if tool is not None:
        custom = tool.get("type") == "custom"
        return NativeCall("apply_patch", diff if custom else {"input": diff}, kind="custom" if custom else "function")
    if "exec" in tools:
        return _cell(f"tools.apply_patch({json.dumps(diff)})")
    return _shell(tools, f"apply_patch <<'PATCH'\n{diff}\nPATCH", {})


def _diff(call: Call) -> str:
    """The patch that makes this change. Codex changes whole lines: so must ``old`` and ``new``."""
    path = call.input["path"]
    match call.tool:
        case "write_file":
            change = [f"*** Add File: {path}", *_marked("+", call.input["content"])]
        case "edit_file":
            old, new = _marked("-", call.input["old"]), _marked("+", call.input["new"])
            change = [f"*** Update File: {path}", "@@", *old, *new]
        case _:
            change = [f"*** Delete File: {path}"]
    return "\n".join(["*** Begin Patch", *change, "*** End Patch"])


def _marked(mark: str, text: str) -> list[str]:
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return [mark + line for line in lines]


def _hosted(tools: Tools, action: Json) -> NativeCall:
    return NativeCall("web_search", action, offered="web_search" in tools, kind="hosted")


def _mcp(tools: Tools, server: str, tool: str, arguments: Any) -> NativeCall:
    whole, folder = f"mcp__{server}__{tool}", f"mcp__{server}"
    for name, offered in tools.items():
        namespace = str(offered.get("namespace") or "")
        if name == whole or (name == tool and namespace.rstrip("_") == folder):
            return NativeCall(name, arguments, namespace=namespace)
    if "exec" in tools and "exec_command" not in tools:
        return _cell(f"tools[{json.dumps(whole)}]({json.dumps(arguments)})")
    return NativeCall(tool, arguments, offered="tool_search" in tools, namespace=folder)


# ---------------------------------------------------------------------------------------------------- sub-agents


def _spawn(tools: Tools, prompt: str) -> NativeCall:
    given: Json = {"message": prompt}
    fields = _fields(tools, "spawn_agent")
    if "task_name" in fields:
        given["task_name"] = "scripted_task"
    if "fork_turns" in fields:
        given["fork_turns"] = "none"
    return _function(tools, "spawn_agent", given)


def sub_agent_calls(tools: Tools, last: Sequence[Answered]) -> list[tuple[Call, NativeCall]]:
    """Codex starts a sub-agent and goes on; a scripted task is over when the sub-agent is. So: wait for it."""
    waits: list[tuple[Call, NativeCall]] = []
    for answered in last:
        output = answered.result.output
        waiting = answered.follow_up and '"timed_out":true' not in output.replace(" ", "")
        if answered.call.tool != "task" or answered.call.native or waiting or answered.result.error:
            continue
        fields = _fields(tools, "wait_agent") or {"targets": {}, "timeout_ms": {}}
        given: Json = {"timeout_ms": 60_000} if "timeout_ms" in fields else {}
        ids = re.findall(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}", output) or _targets(answered.native)
        for field in ("targets", "ids", "agent_ids"):
            if field in fields:
                given[field] = ids[:1]
        waits.append((answered.call, _function(tools, "wait_agent", given)))
    return waits


def _targets(native: NativeCall) -> list[str]:
    given = record(native.input)
    return [str(target) for field in ("targets", "ids", "agent_ids") for target in given.get(field, [])]


def _fields(tools: Tools, name: str) -> Json:
    return record(record(record(tools.get(name)).get("parameters")).get("properties"))
