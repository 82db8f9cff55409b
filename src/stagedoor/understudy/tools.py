"""The tools a script can call, each shown to the client as a real agent shows its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from stagedoor.agent_side.link import ClientRefused
from stagedoor.testing.script import ScriptedCall, ToolOutcome

from .session import Effect, UnderstudySession
from .workspace import ToolCallFailed, WorkspaceCommand

SHOWN_WHILE_RUNNING = 16_000
PROGRESS_EVERY = 0.05

KINDS = {
    "shell": "execute", "read_file": "read", "write_file": "edit", "edit_file": "edit", "delete_file": "delete",
    "search_content": "search", "find_files": "search", "web_fetch": "fetch", "web_search": "fetch", "task": "think",
    "question": "other", "mcp": "other",
}  # fmt: skip
TOOL_NAMES = (
    "shell", "read_file", "write_file", "edit_file", "delete_file", "search_content", "find_files", "task", "plan",
    "question",
)  # fmt: skip
"""Those it has by itself."""


class TurnCancelled(Exception):
    """The client answered a question with ``cancelled``: the turn is over."""


def text(content: str) -> dict[str, Any]:
    return {"type": "content", "content": {"type": "text", "text": content}}


class ToolCallCard:
    """One tool call as the client sees it."""

    def __init__(self, session: UnderstudySession, call: ScriptedCall, parent: str | None) -> None:
        self.call_id = session.next_call_id(call.tool)
        self._session = session
        self._started = time.monotonic()
        self._shown_at = 0.0
        self._output = ""
        self.failed = False
        meta: dict[str, Any] = {"toolName": call.tool}
        if parent is not None:
            meta["parentToolCallId"] = parent
        self.facts: dict[str, Any] = {
            "toolCallId": self.call_id,
            "title": _title(call),
            "kind": KINDS.get(call.tool, "other"),
            "rawInput": dict(call.input),
            "_meta": meta,
        }
        if isinstance(path := call.input.get("path"), str) and call.tool.endswith("_file"):
            self.facts["locations"] = [{"path": str(session.files.root / path)}]

    def begin(self) -> None:
        self._session.show({"sessionUpdate": "tool_call", **self.facts, "status": "pending"})

    def running(self) -> None:
        self._started = time.monotonic()  # how long the user took to answer is not how long it ran
        self._update(status="in_progress")

    async def progress(self, output: str) -> None:
        self._output = output
        now = time.monotonic()
        if now - self._shown_at >= PROGRESS_EVERY:
            self._shown_at = now
            self._update(status="in_progress", content=[text(output[-SHOWN_WHILE_RUNNING:])])

    def end(self, status: str, content: list[dict[str, Any]], raw_output: Any = None) -> None:
        self.failed = status == "failed"
        more = {} if raw_output is None else {"rawOutput": raw_output}
        self._update(status=status, content=content, **more)
        self._session.store({"sessionUpdate": "tool_call", **self.facts, "status": status, "content": content, **more})

    def cancelled(self) -> None:
        self.end("failed", [text(f"{self._output}\nCancelled.".lstrip())], {"error": "cancelled"})

    def duration_ms(self) -> int:
        return round((time.monotonic() - self._started) * 1000)

    def _update(self, **members: Any) -> None:
        self._session.show({"sessionUpdate": "tool_call_update", "toolCallId": self.call_id, **members})


class Toolbox:
    """``play`` performs a sub-agent's script and returns its text."""

    def __init__(
        self, session: UnderstudySession, play: Callable[[ScriptedCall, str], Awaitable[str]], parent: str | None = None
    ) -> None:
        self._session = session
        self._play = play
        self._parent = parent
        self._tools: dict[str, Callable[[ScriptedCall, ToolCallCard], Awaitable[str]]] = {
            "shell": self._shell,
            "read_file": self._read_file,
            "write_file": self._write_file,
            "edit_file": self._edit_file,
            "delete_file": self._delete_file,
            "search_content": self._search_content,
            "find_files": self._find_files,
            "task": self._task,
            "question": self._question,
            "mcp": self._mcp,
        }

    async def use(self, call: ScriptedCall) -> ToolOutcome:
        """Run one call to its end. Whatever happens, the client sees how it ended."""
        withheld = call.tool in self._session.without
        if call.tool == "plan" and not withheld:
            return self._plan(call)
        card = ToolCallCard(self._session, call, self._parent)
        card.begin()
        try:
            tool = self._tools.get(call.tool)
            if tool is None or withheld:
                raise ToolCallFailed(f"The understudy has no tool {call.tool!r}.")
            output = await tool(call, card)
        except (ToolCallFailed, ClientRefused) as failure:
            card.end("failed", [text(str(failure))], {"error": str(failure)})
            return ToolOutcome(call.tool, str(failure), error=True, id=card.call_id)
        except KeyError as missing:
            why = f"{call.tool} needs {missing.args[0]!r}."
            card.end("failed", [text(why)], {"error": why})
            return ToolOutcome(call.tool, why, error=True, id=card.call_id)
        except (asyncio.CancelledError, TurnCancelled):
            card.cancelled()
            raise
        return ToolOutcome(call.tool, output, error=card.failed, id=card.call_id)

    async def _permit(self, effect: Effect, subject: tuple[str, ...], card: ToolCallCard, content: list[Any]) -> None:
        tool_call = {**card.facts, "status": "pending", "content": content}
        verdict = await self._session.permission(effect, subject, tool_call)
        if verdict == "cancelled":
            raise TurnCancelled
        if verdict == "rejected":
            barred = "the session is read-only" if self._session.mode == "plan" else "the user rejected it"
            raise ToolCallFailed(f"Not done: {barred}.")
        card.running()

    # ----------------------------------------------------------------------------------------------------- files

    async def _read_file(self, call: ScriptedCall, card: ToolCallCard) -> str:
        content = self._session.files.read(str(call.input["path"]))
        card.end("completed", [text(content)])
        return content

    async def _write_file(self, call: ScriptedCall, card: ToolCallCard) -> str:
        path, content = str(call.input["path"]), str(call.input["content"])
        before = self._session.files.before(path)
        return await self._change(card, path, before, content, lambda: self._session.files.write(path, content))

    async def _edit_file(self, call: ScriptedCall, card: ToolCallCard) -> str:
        path, old, new = (str(call.input[name]) for name in ("path", "old", "new"))
        before, after = self._session.files.edit(path, old, new)
        return await self._change(card, path, before, after, lambda: self._session.files.write(path, after))

    async def _delete_file(self, call: ScriptedCall, card: ToolCallCard) -> str:
        path = str(call.input["path"])
        before = self._session.files.before(path)
        if before is None:
            raise ToolCallFailed(f"{path}: No such file or directory")
        return await self._change(card, path, before, None, lambda: self._session.files.delete(path))

    async def _change(
        self, card: ToolCallCard, path: str, before: str | None, after: str | None, make: Callable[[], None]
    ) -> str:
        kind = "add" if before is None else "delete" if after is None else "modify"
        place = str(self._session.files.locate(path))
        diff = {"type": "diff", "path": place, "oldText": before, "newText": after or "", "_meta": {"kind": kind}}
        await self._permit("edit", ("edit",), card, [diff])
        make()
        card.end("completed", [diff])
        return f"{path}: {'created' if kind == 'add' else 'deleted' if kind == 'delete' else 'changed'}"

    async def _search_content(self, call: ScriptedCall, card: ToolCallCard) -> str:
        pattern, path = str(call.input["pattern"]), str(call.input.get("path", "."))
        matches = await asyncio.to_thread(self._session.files.search, pattern, path)
        card.end("completed", [text(matches)])
        return matches

    async def _find_files(self, call: ScriptedCall, card: ToolCallCard) -> str:
        pattern, path = str(call.input["pattern"]), str(call.input.get("path", "."))
        matches = await asyncio.to_thread(self._session.files.find, pattern, path)
        card.end("completed", [text(matches)])
        return matches

    # -------------------------------------------------------------------------------------------------- the others

    async def _shell(self, call: ScriptedCall, card: ToolCallCard) -> str:
        command = str(call.input["command"])
        await self._permit("execute", ("shell", command), card, [text(command)])
        if call.input.get("background"):
            running = await WorkspaceCommand.start(command, self._session.cwd, capture=False)
            self._session.background.append(running)
            message = f"Started in the background as process {running.pid}."
            card.end("completed", [text(message)])
            return message
        running = await WorkspaceCommand.start(command, self._session.cwd)
        code = await running.run(card.progress)
        if running.has_survivors:
            self._session.background.append(running)
        facts: dict[str, Any] = {"exitCode": code, "durationMs": card.duration_ms()}
        if code != 0:
            facts["error"] = f"exit code {code}"
        card.end("failed" if code else "completed", [text(running.output)], facts)
        return running.output

    async def _task(self, call: ScriptedCall, card: ToolCallCard) -> str:
        card.running()
        answer = await self._play(call, card.call_id)
        card.end("completed", [text(answer)])
        return answer

    async def _question(self, call: ScriptedCall, card: ToolCallCard) -> str:
        options = [str(option) for option in call.input.get("options", ())]
        answer = await self._session.elicit(str(call.input["text"]), options, card.call_id)
        if answer is None:
            raise ToolCallFailed("The question was not answered.")
        card.end("completed", [text(answer)])
        return answer

    async def _mcp(self, call: ScriptedCall, card: ToolCallCard) -> str:
        server, tool = str(call.input["server"]), str(call.input["tool"])
        arguments = dict(call.input.get("arguments", {}))
        content = [text(msgspec.json.encode(arguments).decode())]
        effect: Effect = "read" if f"{server}/{tool}" in self._session.readers else "execute"
        await self._permit(effect, ("mcp", server, tool), card, content)
        running = await self._session.mcp(server)
        answer = await running.call(tool, arguments)
        images = [block for block in answer.content if block.get("type") == "image"]
        output = "\n".join(str(block.get("text", "")) for block in answer.content if block not in images)
        shown = [text(output), *({"type": "content", "content": image} for image in images)]
        card.end("failed" if answer.is_error else "completed", shown)
        return output

    def _plan(self, call: ScriptedCall) -> ToolOutcome:
        entries = [
            {"content": str(item["text"]), "status": item.get("status", "pending"), "priority": "medium"}
            for item in call.input.get("items", ())
        ]
        update = {"sessionUpdate": "plan", "entries": entries}
        self._session.show(update)
        self._session.store(update)
        return ToolOutcome("plan", "The plan is noted.")


def _title(call: ScriptedCall) -> str:
    arguments = call.input
    match call.tool:
        case "shell":
            return str(arguments.get("command", ""))
        case "search_content" | "find_files":
            return f"{'Search' if call.tool == 'search_content' else 'Find'} {arguments.get('pattern', '')}"
        case "task":
            return str(arguments.get("description", "Sub-agent"))
        case "question":
            return str(arguments.get("text", "Question"))
        case "mcp":
            return f"{arguments.get('server', '')}: {arguments.get('tool', '')}"
        case name if name.endswith("_file"):
            return f"{name.removesuffix('_file').title()} {arguments.get('path', '')}"
        case name:
            return name
