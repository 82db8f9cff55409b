"""The caller's own functions as tools of a session: a server in this process, and no call that was not decided first.

Agents differ in what they ask about, so the rules are kept where the functions are called. Where an agent does ask, it
is answered by the same rules, and what was allowed then is not asked about a second time when the call arrives.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec.structs import replace

from ..mcp.functions import HOST, Tool, ToolContext
from ..mcp.loopback import LoopbackListener
from ..mcp.protocol import ToolCall, ToolRefused, ToolServer
from ..transports.callbacks import run_callback
from ..unified.decisions import Allow, Decision, Deny
from ..unified.events import PermissionRequest, ToolResult, ToolUse
from ..unified.options import FunctionServer, Options
from ..unified.tool_lists import MCP, ToolLists
from .ground import ground_of

if TYPE_CHECKING:
    from ..session import Session
    from .risk.judge import RiskVerdict

OVERTAKEN = 0.5
ONLY_READERS = "this session may only read, and this function does not say that it only reads"


class _SeenCall(msgspec.Struct):
    """A call as the agent's stream tells it."""

    call_id: str
    tool: str
    arguments: bytes
    is_claimed: bool = False


class SessionFunctions:
    """``ask`` puts a question to whoever decides in the session; ``interrupt`` ends its turn."""

    def __init__(
        self,
        options: Options,
        lists: ToolLists | None,
        *,
        agent: str,
        session_id: str,
        ask: Callable[[PermissionRequest], Awaitable[Decision]],
        interrupt: Callable[[], None],
        session: Callable[[], Session | None],
    ) -> None:
        self._options = options
        self._agent = agent
        self._session_id = session_id
        self._ask = ask
        self._interrupt = interrupt
        self._session = session
        self._only_reads = options.tier == "dry-run" or options.sandbox == "readOnly"
        template = MCP if lists is None else lists.mcp_name
        # What a session can never call, its model is not shown.
        offered = [
            tool
            for tool in options.tools
            if (tool.reads or not self._only_reads) and (lists is None or lists.permits_server(HOST, tool.name))
        ]
        self._tools = {tool.name: tool for tool in offered}
        self._native = {template.format(server=HOST, tool=tool.name): tool for tool in options.tools}
        self._names = {tool.name: native for native, tool in self._native.items()}
        self._server = ToolServer(offered, name=HOST)
        self._listener: LoopbackListener | None = None
        self._allowed: list[tuple[str, bytes]] = []
        """Calls that were allowed when the agent asked about them, and have not come yet."""
        self._calls: dict[str, _SeenCall] = {}
        self._news = asyncio.Event()
        self._was_listed = asyncio.Event()

    async def join(self, options: Options) -> Options:
        """``options`` with our server among theirs; it listens from now on."""
        if not self._tools:
            return options
        self._listener = await LoopbackListener.open(self._respond)
        server = FunctionServer(
            url=self._listener.url, headers=self._listener.headers, transport="http", listed=self._listed
        )
        return replace(options, mcp_servers={**options.mcp_servers, HOST: server})

    async def _respond(self, message: bytes) -> dict[str, Any] | None:
        reply = await self._server.respond(message, self._run)
        if reply is not None and "tools" in reply.get("result", {}):
            self._was_listed.set()
        return reply

    async def _listed(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._was_listed.wait()
        return self._was_listed.is_set()

    def cancel_calls(self) -> None:
        """The turn ends: what it called ends too."""
        self._allowed.clear()
        if self._listener is not None:
            self._listener.cancel_calls()

    def abandon(self) -> None:
        if self._listener is not None:
            self._listener.abandon()

    async def close(self) -> None:
        if self._listener is not None:
            await self._listener.close()

    def verdict(self, call: PermissionRequest | ToolUse) -> RiskVerdict | None:
        """The risk of a call of ours, by what the author of the function says of it; ``None``: it is not ours."""
        named = self._recognized(call)
        if named is None:
            return None
        from .risk.judge import RiskVerdict

        tool, _ = named
        if tool.risk is not None:
            return RiskVerdict(tool.risk, (f"its author says that its risk is {tool.risk}",))
        if tool.reads:
            return RiskVerdict("low", ("its author says that it only reads",))
        return RiskVerdict("medium", ("what a function of the calling program does cannot be known",))

    def refusal(self, request: PermissionRequest) -> str:
        """Why a call of ours cannot run whatever anybody says; empty for all others."""
        named = self._recognized(request)
        if named is None:
            return ""
        return ONLY_READERS if self._only_reads and not named[0].reads else ""

    async def answer(self, request: PermissionRequest) -> Decision | None:
        """What the agent is answered about a call of ours; ``None``: it is not ours."""
        named = self._recognized(request)
        if named is None:
            return None
        tool, arguments = named
        decision = await self._decide(self._request(tool, arguments, request.tool_use_id))
        if isinstance(decision, Allow):
            changed = decision.updated_input  # also to nothing at all: then the call as it was is not allowed
            self._allowed.append((tool.name, _canonical(arguments if changed is None else changed)))
        return decision

    def observe(self, event: ToolUse | ToolResult) -> None:
        """What the stream tells of calls: a function can be told which one it is."""
        if isinstance(event, ToolResult):
            self._calls.pop(event.tool_use_id, None)
        elif (named := self._recognized(event)) is not None:
            tool, arguments = named
            self._calls[event.tool_use_id] = _SeenCall(event.tool_use_id, tool.name, _canonical(arguments))
            self._news.set()

    def _recognized(self, call: PermissionRequest | ToolUse) -> tuple[Tool, Mapping[str, Any]] | None:
        """Which of our functions a call is of, by the agent's name for it or by server and tool."""
        if (tool := self._native.get(call.native_name)) is not None:
            return tool, call.input
        name = call.tool_name if isinstance(call, PermissionRequest) else call.name
        match call.input:
            case {"server": server, "tool": str(bare), **rest} if name == "mcp" and server == HOST:
                tool = self._native.get(self._names.get(bare, ""))
                inner = rest.get("arguments", {})
                return None if tool is None or not isinstance(inner, dict) else (tool, cast("dict[str, Any]", inner))
            case _:
                return None

    def _request(self, tool: Tool, arguments: Mapping[str, Any], call_id: str) -> PermissionRequest:
        return PermissionRequest(
            request_id="",
            tool_name="mcp",
            tool_use_id=call_id,
            native_name=self._names[tool.name],
            operation="read" if tool.reads else "other",
            target=tool.name,
            input=dict(arguments),
            agent=self._agent,
        )

    async def _decide(self, request: PermissionRequest) -> Decision:
        """With rules of the caller's those decide; without any, tier and modes do, and only then is somebody asked."""
        if self._options.policy is None and not self.refusal(request):
            from .policy import built_in

            options = self._options
            own = built_in(tier=options.tier, approval=options.approval, sandbox=options.sandbox)
            if own.decide(request, ground_of(options), verdict=self.verdict(request)).action == "allow":
                return Allow()
        return await self._ask(request)

    async def _run(self, call: ToolCall) -> Any:
        """One call that has arrived: decided, if it was not yet, then made."""
        tool, arguments = call.tool, call.arguments
        tool.bound(arguments)  # nobody is asked about a call that cannot be made
        call_id = await self._claim(call)
        allowed = (tool.name, _canonical(arguments))
        if allowed in self._allowed:
            self._allowed.remove(allowed)
        else:
            decision = await self._decide(self._request(tool, arguments, call_id))
            if isinstance(decision, Deny):
                if decision.interrupt:
                    self._interrupt()
                raise ToolRefused(f"not run: {decision.message or 'denied'}")
            arguments = arguments if decision.updated_input is None else decision.updated_input
        context = ToolContext(
            tool=tool.name,
            call_id=call_id,
            arguments=arguments,
            session_id=self._session_id,
            agent=self._agent,
            cwd=self._options.cwd,
            session=self._session(),
        )
        try:
            return await run_callback(tool.bound(arguments, context))
        except asyncio.CancelledError:
            context.cancelled = True
            raise

    async def _claim(self, call: ToolCall) -> str:
        """Which call of the stream this is; it may be a moment ahead of it. Empty where that cannot be said."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(OVERTAKEN):
                while (seen := self._matching(call)) is None:
                    self._news.clear()
                    await self._news.wait()
                seen.is_claimed = True
                return seen.call_id
        return ""

    def _matching(self, call: ToolCall) -> _SeenCall | None:
        if named := next((self._calls[one] for one in call.meta.values() if _is_key(one, self._calls)), None):
            return named
        unclaimed = [seen for seen in self._calls.values() if seen.tool == call.tool.name and not seen.is_claimed]
        arguments = _canonical(call.arguments)
        return next((seen for seen in unclaimed if seen.arguments == arguments), unclaimed[0] if unclaimed else None)


def _is_key(value: object, calls: Mapping[str, _SeenCall]) -> bool:
    return isinstance(value, str) and value in calls


def _canonical(arguments: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode(arguments, order="deterministic", enc_hook=repr)
