"""``allowed_tools`` and ``disallowed_tools``: which of an agent's tools a session has. Pure.

One meaning for every agent: with ``allowed_tools`` only the listed tools exist or are allowed, ``disallowed_tools``
takes away from those, and listing a tool grants nothing: tier, policy and callback decide about it as before. The
drivers withhold a tool where the program can, and a question about one that is not in the lists is denied.

A list names whole tools: by our words (``shell``, ``read``), the agent's own (``Bash``), or a server's
(``mcp__server__tool``, ``mcp__server``, ``mcp`` for all). What a command may do is for a policy to say.
"""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Iterable, Sequence
from typing import Literal, get_args

import msgspec

from ..errors import BadRequest
from ..mcp.functions import HOST
from .events import PermissionRequest, ToolName
from .options import Options

Reach = Literal["files", "network", "process"]
ToolControl = Literal["asked", "withheld", "free", "plumbing"]
WORDS: tuple[ToolName, ...] = get_args(ToolName)
SHORT: dict[str, ToolName] = {
    "bash": "shell", "read": "read_file", "write": "write_file", "edit": "edit_file", "grep": "search_content",
    "search": "search_content", "glob": "find_files", "find": "find_files", "fetch": "web_fetch",
    "webfetch": "web_fetch", "websearch": "web_search", "agent": "task", "todo": "plan",
}  # fmt: skip
"""Short words for ours, where the agent has no tool of that name."""
MCP = "mcp__{server}__{tool}"
"""The name of a server's tool, as callers write it and as most agents do."""


class AgentTool(msgspec.Struct, frozen=True):
    """One of an agent's own tools, as its running program offers it to the model."""

    name: str
    kind: ToolName
    reaches: tuple[Reach, ...] = ()
    """What it can read, change or start by itself; nothing: it plans, talks or waits."""
    control: ToolControl = "asked"
    """How a tier holds it. ``asked``: the program, or a hook of ours in it, asks before it is used wherever the tier
    asks. ``withheld``: the program never asks about it, so it is taken away unless tier and policy allow it. ``free``:
    no tier asks. ``plumbing``: it does nothing but carry other tools, and no list takes it away."""
    also: tuple[ToolName, ...] = ()
    """More of our words for it, where it does the work of several."""

    @property
    def words(self) -> frozenset[str]:
        return frozenset((self.kind, *self.also))


class ServerTool(msgspec.Struct, frozen=True):
    """A tool of an MCP server, or all of them (no ``tool``)."""

    server: str
    tool: str = ""

    def covers(self, server: str, tool: str) -> bool:
        return self.server == server and self.tool in ("", tool)

    def is_native(self, name: str, template: str) -> bool:
        """Whether an agent that names servers' tools by ``template`` means this one by ``name``."""
        whole = template.format(server=self.server, tool=self.tool)
        return name == whole or (not self.tool and name.startswith(whole))


class ToolSet(msgspec.Struct, frozen=True):
    """What one list names."""

    names: frozenset[str] = frozenset()
    """The agent's own tools."""
    words: frozenset[str] = frozenset()
    """Our words that were used: they cover tools we have not heard of."""
    servers: tuple[ServerTool, ...] = ()

    @property
    def all_servers(self) -> bool:
        return "mcp" in self.words


class ToolLists(msgspec.Struct, frozen=True):
    """Both lists of a session, read against the agent's table of tools."""

    table: tuple[AgentTool, ...]
    allowed: ToolSet | None = None
    denied: ToolSet = ToolSet()
    mcp_name: str = MCP

    @property
    def limits(self) -> bool:
        """Whether there is a list at all."""
        return self.allowed is not None or self.denied != ToolSet()

    def permits(self, name: str, kind: ToolName) -> bool:
        """Whether the session has this tool. Of one that is not in the table, a list must name the kind."""
        row = next((tool for tool in self.table if tool.name == name), None)
        if row is not None:
            return self._permits_row(row)
        if kind == "mcp" or self._names_server(name):
            return self._permits_native(name)
        if kind in self.denied.words:
            return False
        return self.allowed is None or (kind in self.allowed.words and kind != "other")

    def permits_server(self, server: str, tool: str = "") -> bool:
        """Whether the session has this tool of a server; without one, whether it has any of them."""
        if self.denied.all_servers or any(one.covers(server, tool) for one in self.denied.servers if not one.tool):
            return False
        if tool and any(one.covers(server, tool) for one in self.denied.servers):
            return False
        if self.allowed is None or self.allowed.all_servers:
            return True
        if tool:
            return any(one.covers(server, tool) for one in self.allowed.servers)
        begins = self.mcp_name.format(server=server, tool="")
        natives = (self.mcp_name.format(server=one.server, tool=one.tool) for one in self.allowed.servers)
        return any(name.startswith(begins) for name in natives)

    @property
    def permits_servers(self) -> bool:
        """Whether any MCP server can be of use."""
        if self.denied.all_servers:
            return False
        return self.allowed is None or self.allowed.all_servers or bool(self.allowed.servers)

    @property
    def withheld(self) -> tuple[AgentTool, ...]:
        """The rows of the table that the session does not have."""
        return tuple(tool for tool in self.table if not self._permits_row(tool))

    @property
    def offered(self) -> tuple[AgentTool, ...]:
        return tuple(tool for tool in self.table if self._permits_row(tool))

    def withholds(self, name: str) -> bool:
        return any(tool.name == name for tool in self.withheld)

    def refusal(self, request: PermissionRequest) -> str:
        """Why this call is denied; empty when the lists have nothing against it."""
        name, kind = request.native_name, request.tool_name
        if self.permits(name, kind):
            return ""
        if self.allowed is not None and not msgspec.structs.replace(self, denied=ToolSet()).permits(name, kind):
            return f"{name or kind} is not in allowed_tools of this session"
        return f"{name or kind} is in disallowed_tools of this session"

    def _permits_row(self, tool: AgentTool) -> bool:
        if tool.control == "plumbing":
            return True
        if tool.name in self.denied.names or tool.words & self.denied.words:
            return False
        return self.allowed is None or tool.name in self.allowed.names or bool(tool.words & self.allowed.words)

    def _names_server(self, name: str) -> bool:
        entries = (*(self.allowed.servers if self.allowed is not None else ()), *self.denied.servers)
        begins = self.mcp_name.partition("{")[0]
        return bool(begins and name.startswith(begins)) or any(one.is_native(name, self.mcp_name) for one in entries)

    def _permits_native(self, name: str) -> bool:
        if self.denied.all_servers or any(one.is_native(name, self.mcp_name) for one in self.denied.servers):
            return False
        if self.allowed is None or self.allowed.all_servers:
            return True
        return any(one.is_native(name, self.mcp_name) for one in self.allowed.servers)


def tool_lists(
    options: Options, table: Sequence[AgentTool], *, agent: str = "this agent", mcp_name: str = MCP
) -> ToolLists:
    """The lists of ``options``, checked. Raises ``BadRequest`` for a name that means nothing to this agent."""

    def read(option: str, names: Iterable[str]) -> ToolSet:
        own: set[str] = set()
        words: set[str] = set()
        servers: list[ServerTool] = []
        for name in names:
            own_function = any(name == tool.name for tool in options.tools)
            match _meaning(name, table, mcp_name) or (ServerTool(HOST, name) if own_function else None):
                case ServerTool() as server:
                    servers.append(server)
                case AgentTool() as tool:
                    own.add(tool.name)
                case str(word):
                    words.add(word)
                case None:
                    raise BadRequest(f"{option}: {agent} has no tool {name!r}; {_hint(name, table)}")
        return ToolSet(frozenset(own), frozenset(words), tuple(servers))

    return ToolLists(
        tuple(table),
        None if options.allowed_tools is None else read("allowed_tools", options.allowed_tools),
        read("disallowed_tools", options.disallowed_tools),
        mcp_name,
    )


def unknown_tool(name: str, table: Sequence[AgentTool], mcp_name: str = MCP) -> str:
    """Why a rule that names this tool could never speak of a call: what to write instead. Empty when it can."""
    names = [*WORDS, *(tool.name for tool in table)]
    if not table or name.startswith("mcp") or any(fnmatch.fnmatchcase(one, name) for one in names):
        return ""
    return "" if _native_server_tool(name, table, mcp_name) is not None else _hint(name, table)


def _meaning(name: str, table: Sequence[AgentTool], mcp_name: str) -> ServerTool | AgentTool | str | None:
    if name in WORDS:  # before the agent's own names: a word means the same everywhere
        return name
    by_name = {tool.name: tool for tool in table}
    if name in by_name:
        return by_name[name]
    if name.startswith("mcp__"):
        server, _, tool = name.removeprefix("mcp__").partition("__")
        return ServerTool(server, "" if tool == "*" else tool) if server else None
    alike = [tool for tool in table if tool.name.lower() == name.lower()]
    if len(alike) == 1:
        return alike[0]
    return SHORT.get(name.lower()) or _native_server_tool(name, table, mcp_name)


def _native_server_tool(name: str, table: Sequence[AgentTool], mcp_name: str) -> ServerTool | None:
    """A server's tool as the agent itself writes it: ``mcp_server_tool``, ``server_tool``, or ``*`` for all."""
    begins = mcp_name.partition("{")[0]
    server, bar, tool = name.removeprefix(begins).partition("_")
    if mcp_name == MCP or not name.startswith(begins) or not (server and bar and tool) or "(" in name:
        return None
    if not begins and difflib.get_close_matches(name, [*WORDS, *(row.name for row in table)], n=1, cutoff=0.8):
        return None  # a slip of the pen, not a server
    return ServerTool(server, "" if tool == "*" else tool)


def _hint(name: str, table: Sequence[AgentTool]) -> str:
    if "(" in name:
        whole = name.partition("(")[0]
        return f"a list names whole tools: write {whole!r}, and say which calls of it are allowed in a policy"
    names = [tool.name for tool in table if tool.control != "plumbing"]
    lower = {candidate.lower(): candidate for candidate in (*SHORT, *WORDS, *names)}
    near = difflib.get_close_matches(name.lower(), list(lower), n=1, cutoff=0.6)
    if near:
        return f"did you mean {lower[near[0]]!r}?"
    return f"use our words ({', '.join(WORDS[:4])}, …), its own names ({', '.join(names[:4])}, …) or mcp__server__tool"
