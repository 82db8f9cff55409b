"""Scripted calls in the words of the agents that speak the Chat Completions API. Pure.

Whose request it is shows in the tools it offers: each of these agents has names that no other has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..model_request import Json, NativeCall, file_commands, pick
from ..script import ScriptedCall

Tools = Mapping[str, Json]


def native_call(call: ScriptedCall, tools: Tools) -> NativeCall:
    if call.native:
        return pick(tools, call.tool, dict(call.input))
    words = next((words for names, words in _AGENTS if not names.isdisjoint(tools)), opencode_call)
    return words(call, tools)


def opencode_call(call: ScriptedCall, tools: Tools) -> NativeCall:
    fields = call.input
    match call.tool:
        case "shell":
            return pick(tools, "bash", {"command": fields["command"], "description": "Run a command"})
        case "read_file":
            return pick(tools, "read", {"filePath": fields["path"]})
        case "write_file":
            return pick(tools, "write", {"filePath": fields["path"], "content": fields["content"]})
        case "edit_file":
            edit = {"filePath": fields["path"], "oldString": fields["old"], "newString": fields["new"]}
            return pick(tools, "edit", edit)
        case "delete_file":
            return pick(tools, "bash", {"command": file_commands(call), "description": "Delete a file"})
        case "search_content":
            return pick(tools, "grep", {"pattern": fields["pattern"], "path": fields["path"]})
        case "find_files":
            return pick(tools, "glob", {"pattern": fields["pattern"], "path": fields["path"]})
        case "web_fetch":
            return pick(tools, "webfetch", {"url": fields["url"], "format": "text"})
        case "web_search":
            return pick(tools, "websearch", {"query": fields["query"]})
        case "plan":
            todos = [
                {"content": item["text"], "status": item["status"], "priority": "medium"} for item in fields["items"]
            ]
            return pick(tools, "todowrite", {"todos": todos})
        case "task":
            task = {"prompt": fields["prompt"], "subagent_type": "general"}
            return pick(tools, "task", {"description": fields.get("description", "Sub-agent"), **task})
        case "mcp":
            return pick(tools, f"{fields['server']}_{fields['tool']}", fields["arguments"])
        case "question":
            options = [{"label": option, "description": option} for option in fields["options"]]
            return pick(
                tools,
                "question",
                {"questions": [{"question": fields["text"], "header": "Question", "options": options}]},
            )
        case _:
            return pick(tools, call.tool, dict(fields))


def qwen_call(call: ScriptedCall, tools: Tools) -> NativeCall:
    fields = call.input
    match call.tool:
        case "shell":
            command = {"command": fields["command"], "description": "Run a command"}
            return pick(tools, "run_shell_command", {**command, "is_background": bool(fields.get("background"))})
        case "read_file":
            return pick(tools, "read_file", {"file_path": fields["path"]})
        case "write_file":
            return pick(tools, "write_file", {"file_path": fields["path"], "content": fields["content"]})
        case "edit_file":
            edit = {"file_path": fields["path"], "old_string": fields["old"], "new_string": fields["new"]}
            return pick(tools, "edit", edit)
        case "delete_file":
            command = {"command": file_commands(call), "description": "Delete a file", "is_background": False}
            return pick(tools, "run_shell_command", command)
        case "search_content":
            return pick(tools, "grep_search", {"pattern": fields["pattern"], "path": fields["path"]})
        case "find_files":
            return pick(tools, "glob", {"pattern": fields["pattern"], "path": fields["path"]})
        case "web_fetch":
            return _deferred(tools, "web_fetch", {"url": fields["url"], "prompt": "What is there?"})
        case "plan":
            todos = [
                {"id": str(number), "content": item["text"], "status": item["status"]}
                for number, item in enumerate(fields["items"], 1)
            ]
            return pick(tools, "todo_write", {"todos": todos})
        case "task":
            task = {"prompt": fields["prompt"], "subagent_type": "general-purpose", "run_in_background": False}
            return pick(tools, "agent", {"description": fields.get("description", "Sub-agent"), **task})
        case "mcp":
            return pick(tools, f"mcp__{fields['server']}__{fields['tool']}", fields["arguments"])
        case "question":
            options = [{"label": option, "description": option} for option in fields["options"]]
            question = {"question": fields["text"], "header": "Question", "options": options, "multiSelect": False}
            return pick(tools, "ask_user_question", {"questions": [question]})
        case _:
            return pick(tools, call.tool, dict(fields))


def _deferred(tools: Tools, name: str, arguments: Json) -> NativeCall:
    """A tool that is not in the list, but behind another that is."""
    if name in tools or "tool_call" not in tools:
        return pick(tools, name, arguments)
    return NativeCall("tool_call", {"name": name, "arguments": arguments})


def copilot_call(call: ScriptedCall, tools: Tools) -> NativeCall:
    fields = call.input
    match call.tool:
        case "shell":
            mode = {"mode": "async", "initial_wait": 1} if fields.get("background") else {"mode": "sync"}
            return pick(tools, "bash", {"command": fields["command"], "description": "Run a command", **mode})
        case "read_file":
            return pick(tools, "view", {"path": fields["path"]})
        case "write_file":
            return pick(tools, "create", {"path": fields["path"], "file_text": fields["content"]})
        case "edit_file":
            edit = {"path": fields["path"], "old_str": fields["old"], "new_str": fields["new"]}
            return pick(tools, "edit", edit)
        case "delete_file":
            command = {"command": file_commands(call), "description": "Delete a file", "mode": "sync"}
            return pick(tools, "bash", command)
        case "search_content":
            return pick(tools, "grep", {"pattern": fields["pattern"], "path": fields["path"]})
        case "find_files":
            return pick(tools, "glob", {"pattern": fields["pattern"], "path": fields["path"]})
        case "web_fetch":
            return pick(tools, "web_fetch", {"url": fields["url"]})
        case "task":
            task = {"prompt": fields["prompt"], "agent_type": "general-purpose", "name": "scripted", "mode": "sync"}
            return pick(tools, "task", {"description": fields.get("description", "Sub-agent"), **task})
        case "mcp":
            return pick(tools, f"{fields['server']}-{fields['tool']}", fields["arguments"])
        case "question":
            return pick(tools, "ask_user", {"question": fields["text"], "choices": list(fields["options"])})
        case _:
            return pick(tools, call.tool, dict(fields))


def kimi_call(call: ScriptedCall, tools: Tools) -> NativeCall:
    fields = call.input
    match call.tool:
        case "shell":
            background = {"run_in_background": True} if fields.get("background") else {}
            return pick(tools, "Bash", {"command": fields["command"], "description": "Run a command", **background})
        case "read_file":
            return pick(tools, "Read", {"path": fields["path"]})
        case "write_file":
            return pick(tools, "Write", {"path": fields["path"], "content": fields["content"]})
        case "edit_file":
            edit = {"path": fields["path"], "old_string": fields["old"], "new_string": fields["new"]}
            return pick(tools, "Edit", edit)
        case "delete_file":
            return pick(tools, "Bash", {"command": file_commands(call), "description": "Delete a file"})
        case "search_content":
            return pick(tools, "Grep", {"pattern": fields["pattern"], "path": fields["path"]})
        case "find_files":
            return pick(tools, "Glob", {"pattern": fields["pattern"], "path": fields["path"]})
        case "web_fetch":
            return pick(tools, "FetchURL", {"url": fields["url"]})
        case "web_search":
            return pick(tools, "WebSearch", {"query": fields["query"]})
        case "plan":
            todos = [{"title": item["text"], "status": _KIMI_STATUS[item["status"]]} for item in fields["items"]]
            return pick(tools, "TodoList", {"todos": todos})
        case "task":
            task = {"prompt": fields["prompt"], "subagent_type": "coder"}
            return pick(tools, "Agent", {"description": fields.get("description", "Sub-agent"), **task})
        case "mcp":
            return pick(tools, f"mcp__{fields['server']}__{fields['tool']}", fields["arguments"])
        case "question":
            options = [{"label": option, "description": option} for option in fields["options"]]
            question = {"question": fields["text"], "header": "Question", "options": options, "multi_select": False}
            return pick(tools, "AskUserQuestion", {"questions": [question]})
        case _:
            return pick(tools, call.tool, dict(fields))


_KIMI_STATUS = {"pending": "pending", "in_progress": "in_progress", "completed": "done"}


_AGENTS: tuple[tuple[frozenset[str], Callable[[ScriptedCall, Tools], NativeCall]], ...] = (
    (frozenset({"read", "write", "webfetch", "todowrite"}), opencode_call),
    (frozenset({"tool_search", "tool_call", "grep_search", "notebook_edit", "get_goal"}), qwen_call),
    (frozenset({"TodoList", "FetchURL", "AgentSwarm"}), kimi_call),
    (frozenset({"view", "create", "read_bash", "sql"}), copilot_call),
)
