"""One session of the understudy: its workspace, its mode, how far its script is, and what the user allowed."""

from __future__ import annotations

import asyncio
from typing import Any, Literal, TypeAlias

import msgspec

from stagedoor.agent_side.link import AgentLink
from stagedoor.agent_side.params import McpServerParams
from stagedoor.transports.tasks import TaskOwner

from .mcp import RunningMcpServer
from .store import StoredEntry, UnderstudyStore
from .workspace import ToolCallFailed, WorkspaceCommand, WorkspaceFiles

PermissionOutcome: TypeAlias = Literal["allowed", "rejected", "cancelled"]
Effect: TypeAlias = Literal["read", "edit", "execute"]


class SessionModeRules(msgspec.Struct, frozen=True):
    """What a mode does with a call: ``free`` effects run unasked, ``barred`` ones are refused, the others are asked."""

    id: str
    name: str
    description: str
    free: frozenset[Effect]
    barred: frozenset[Effect] = frozenset()


MODES: dict[str, SessionModeRules] = {
    mode.id: mode
    for mode in (
        SessionModeRules("ask", "Ask", "Asks before edits and commands", frozenset({"read"})),
        SessionModeRules("auto_edit", "Auto edit", "Asks before commands", frozenset({"read", "edit"})),
        SessionModeRules("auto", "Auto", "Asks nothing", frozenset({"read", "edit", "execute"})),
        SessionModeRules("plan", "Plan", "Reads only", frozenset({"read"}), frozenset({"edit", "execute"})),
    )
}

OPTIONS = (
    {"optionId": "allow", "name": "Allow", "kind": "allow_once"},
    {"optionId": "allow_always", "name": "Always allow", "kind": "allow_always"},
    {"optionId": "reject", "name": "Reject", "kind": "reject_once"},
    {"optionId": "reject_always", "name": "Always reject", "kind": "reject_always"},
)


class UnderstudySession:
    def __init__(
        self, session_id: str, cwd: str, link: AgentLink, store: UnderstudyStore, more: tuple[str, ...] = ()
    ) -> None:
        self.session_id = session_id
        self.cwd = cwd
        self.files = WorkspaceFiles(cwd, more)
        self.mode = "ask"
        self.without: frozenset[str] = frozenset()  # the tools it does not have
        self.readers: frozenset[str] = frozenset()  # tools of servers that only read, as server/tool
        self.model = ""
        self.effort = ""
        self.route = ""
        self.step = 0
        self.calls = 0
        self.title = ""
        self.background: list[WorkspaceCommand] = []
        self.mcp_specs: dict[str, McpServerParams] = {}
        self._mcp: dict[str, RunningMcpServer] = {}
        self._mcp_starting = asyncio.Lock()
        self.tasks = TaskOwner()
        self.turn: asyncio.Task[str] | None = None
        self._link = link
        self._store = store
        self._remembered: dict[tuple[str, ...], PermissionOutcome] = {}

    def show(self, update: dict[str, Any]) -> None:
        """Send it to the client, and store nothing."""
        self._link.notify("session/update", {"sessionId": self.session_id, "update": update})

    def store(self, update: dict[str, Any]) -> None:
        """Make it part of the stored conversation."""
        self._store.append(self.session_id, StoredEntry(update=update))

    def store_progress(self) -> None:
        """Store how far the session has come."""
        self._store.append(
            self.session_id, StoredEntry(step=self.step, calls=self.calls, mode=self.mode, route=self.route)
        )

    def set_title(self, title: str) -> None:
        self.title = title
        self._store.append(self.session_id, StoredEntry(title=title))
        self.show({"sessionUpdate": "session_info_update", "title": title})

    def next_call_id(self, tool: str) -> str:
        """The tool's name and a number, as the ids of some real agents are made."""
        self.calls += 1
        return f"{tool}__{self.calls}"

    async def mcp(self, name: str) -> RunningMcpServer:
        """The running server of this name, started when it is first needed."""
        if name not in self.mcp_specs:
            raise ToolCallFailed(f"The session has no MCP server {name!r}.")
        async with self._mcp_starting:
            if name not in self._mcp:
                self._mcp[name] = await RunningMcpServer.start(self.mcp_specs[name], self.cwd)
            return self._mcp[name]

    async def end(self) -> None:
        """End the turn and everything that was started."""
        if self.turn is not None:
            self.turn.cancel()
            await asyncio.wait([self.turn])
        while self.background:
            await self.background.pop().kill()
        while self._mcp:
            await self._mcp.popitem()[1].stop()

    async def permission(
        self, effect: Effect, subject: tuple[str, ...], tool_call: dict[str, Any]
    ) -> PermissionOutcome:
        """Whether a call may run: by the mode, by an answer for the whole session, or by asking."""
        mode = MODES[self.mode]
        if effect in mode.barred:
            return "rejected"
        if effect in mode.free:
            return "allowed"
        if subject in self._remembered:
            return self._remembered[subject]
        params = {"sessionId": self.session_id, "toolCall": tool_call, "options": OPTIONS}
        answer = await self._link.ask("session/request_permission", params)
        match answer:
            case {"outcome": {"outcome": "selected", "optionId": "allow" | "allow_always" as chosen}}:
                verdict: PermissionOutcome = "allowed"
            case {"outcome": {"outcome": "selected", "optionId": str(chosen)}}:
                verdict = "rejected"
            case _:
                return "cancelled"
        if chosen.endswith("_always"):
            self._remembered[subject] = verdict
        return verdict

    async def elicit(self, message: str, options: list[str], call_id: str) -> str | None:
        """Ask the user to choose; None when the client cannot ask or the user declined."""
        offered: Any = self._link.client_capabilities.get("elicitation")
        if not isinstance(offered, dict) or "form" not in offered:
            return None
        choice = {"type": "string", "enum": options} if options else {"type": "string"}
        schema = {"type": "object", "properties": {"answer": choice}, "required": ["answer"]}
        answer = await self._link.ask(
            "elicitation/create",
            {
                "sessionId": self.session_id,
                "toolCallId": call_id,
                "mode": "form",
                "message": message,
                "requestedSchema": schema,
            },
        )
        match answer:
            case {"action": "accept", "content": {"answer": str(chosen)}}:
                return chosen
            case _:
                return None
