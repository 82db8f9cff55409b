"""The peer: an agent written with the official package, run as a child process. The prompt says what it does."""

import asyncio
import sys
import uuid
from typing import Any

import acp
from acp import schema

UPDATES = [
    {"sessionUpdate": "user_message_chunk", "content": {"type": "text", "text": "u"}, "messageId": "m1"},
    {"sessionUpdate": "agent_message_chunk", "content": {"type": "image", "data": "AA==", "mimeType": "image/png"}},
    {"sessionUpdate": "agent_thought_chunk", "content": {"type": "resource_link", "name": "n", "uri": "file:///n"}},
    {
        "sessionUpdate": "tool_call",
        "toolCallId": "c1",
        "title": "Edit",
        "kind": "edit",
        "status": "pending",
        "content": [{"type": "diff", "path": "/a", "oldText": None, "newText": "x"}],
        "locations": [{"path": "/a", "line": 3}],
        "rawInput": {"a": [1]},
    },
    {
        "sessionUpdate": "tool_call_update",
        "toolCallId": "c1",
        "status": "completed",
        "content": [
            {"type": "content", "content": {"type": "text", "text": "done"}},
            {"type": "terminal", "terminalId": "t1"},
        ],
        "rawOutput": "out",
    },
    {"sessionUpdate": "plan", "entries": [{"content": "one", "priority": "high", "status": "in_progress"}]},
    {"sessionUpdate": "plan_update", "plan": {"type": "markdown", "planId": "p", "content": "# Plan"}},
    {"sessionUpdate": "plan_removed", "planId": "p"},
    {
        "sessionUpdate": "available_commands_update",
        "availableCommands": [{"name": "web", "description": "Search", "input": {"hint": "query"}}],
    },
    {"sessionUpdate": "current_mode_update", "currentModeId": "code"},
    {
        "sessionUpdate": "config_option_update",
        "configOptions": [{"type": "boolean", "id": "b", "name": "B", "currentValue": True}],
    },
    {"sessionUpdate": "session_info_update", "title": "A title", "updatedAt": "2026-01-02T03:04:05Z"},
    {"sessionUpdate": "usage_update", "used": 5, "size": 10, "cost": {"amount": 0.5, "currency": "USD"}},
]

OPTIONS = [
    schema.PermissionOption(option_id="never", name="Never", kind="reject_always"),
    schema.PermissionOption(option_id="no", name="No", kind="reject_once"),
    schema.PermissionOption(option_id="yes-always", name="Always", kind="allow_always"),
    schema.PermissionOption(option_id="yes", name="Yes", kind="allow_once"),
]


def config_options(model: str) -> list[Any]:
    choices = [schema.SessionConfigSelectOption(value=value, name=value.title()) for value in ("small", "large")]
    return [
        schema.SessionConfigOptionSelect(
            type="select", id="model", name="Model", category="model", current_value=model, options=choices
        )
    ]


class ExampleAgent:
    def __init__(self) -> None:
        self.sessions: dict[str, str] = {}
        self.cancelled: dict[str, asyncio.Event] = {}
        self.client: Any = None

    def on_connect(self, conn: Any) -> None:
        self.client = conn

    async def initialize(self, protocol_version: int, **_: Any) -> schema.InitializeResponse:
        supported = {}
        return schema.InitializeResponse(
            protocol_version=99 if "--future" in sys.argv else 1,
            agent_capabilities=schema.AgentCapabilities(
                load_session=True,
                prompt_capabilities=schema.PromptCapabilities(image="--images" in sys.argv),
                session_capabilities=schema.SessionCapabilities.model_validate(
                    {"list": supported, "fork": supported, "resume": supported, "close": supported}
                ),
            ),
            auth_methods=[schema.AuthMethodAgent(id="login", name="Log in")],
            agent_info=schema.Implementation(name="example", version="1.2.3"),
        )

    def state(self, mode: str = "ask") -> schema.SessionModeState:
        modes = [schema.SessionMode(id=mode_id, name=mode_id.title()) for mode_id in ("ask", "code")]
        return schema.SessionModeState(current_mode_id=mode, available_modes=modes)

    async def new_session(self, cwd: str, mcp_servers: Any = None, **_: Any) -> schema.NewSessionResponse:
        if "--signed-out" in sys.argv:
            raise acp.RequestError.auth_required()
        session_id = uuid.uuid4().hex
        self.sessions[session_id] = cwd
        return schema.NewSessionResponse(
            session_id=session_id, modes=self.state(), config_options=config_options("small")
        )

    async def load_session(self, session_id: str, **_: Any) -> schema.LoadSessionResponse:
        if session_id != "stored":
            raise acp.RequestError.resource_not_found(session_id)
        await self.say(session_id, "history")
        return schema.LoadSessionResponse(modes=self.state())

    async def resume_session(self, session_id: str, **_: Any) -> schema.ResumeSessionResponse:
        if session_id != "stored":
            raise acp.RequestError.resource_not_found(session_id)
        return schema.ResumeSessionResponse(modes=self.state())

    async def fork_session(self, session_id: str, **_: Any) -> schema.ForkSessionResponse:
        await self.say("forked", "history of the fork")
        return schema.ForkSessionResponse(session_id="forked")

    async def list_sessions(self, cursor: str | None = None, **_: Any) -> schema.ListSessionsResponse:
        first = schema.SessionInfo(session_id="a", cwd="/x", title="A")
        second = schema.SessionInfo(session_id="b", cwd="/x")
        if cursor is None:
            return schema.ListSessionsResponse(sessions=[first], next_cursor="more")
        return schema.ListSessionsResponse(sessions=[second])

    async def set_session_mode(self, session_id: str, mode_id: str, **_: Any) -> None:
        update = schema.CurrentModeUpdate(session_update="current_mode_update", current_mode_id=mode_id)
        await self.client.session_update(session_id=session_id, update=update)

    async def set_config_option(self, value: str | bool, **_: Any) -> schema.SetSessionConfigOptionResponse:
        return schema.SetSessionConfigOptionResponse(config_options=config_options(str(value)))

    async def close_session(self, session_id: str, **_: Any) -> None:
        self.sessions.pop(session_id, None)

    async def authenticate(self, method_id: str, **_: Any) -> None:
        if method_id != "login":
            raise acp.RequestError.invalid_params({"details": f"no method {method_id}"})

    async def cancel(self, session_id: str, **_: Any) -> None:
        self.cancelled.setdefault(session_id, asyncio.Event()).set()

    async def say(self, session_id: str, text: str) -> None:
        await self.client.session_update(session_id=session_id, update=acp.update_agent_message_text(text))

    async def prompt(self, session_id: str, prompt: list[Any], **_: Any) -> schema.PromptResponse:
        self.cancelled[session_id] = asyncio.Event()
        verb, _, rest = prompt[0].text.partition(" ")
        stop = await getattr(self, f"do_{verb}")(session_id, rest) or "end_turn"
        usage = schema.Usage(input_tokens=3, output_tokens=4, total_tokens=7)
        return schema.PromptResponse(stop_reason=stop, usage=usage)

    async def do_say(self, session_id: str, text: str) -> None:
        await self.say(session_id, text)

    async def do_flood(self, session_id: str, count: str) -> str | None:
        for number in range(int(count)):
            await self.say(session_id, f"{number} ")
            if self.cancelled[session_id].is_set():
                return "cancelled"
        return None

    async def do_updates(self, session_id: str, _: str) -> None:
        for update in UPDATES:
            note = schema.SessionNotification.model_validate({"sessionId": session_id, "update": update})
            await self.client.session_update(session_id=session_id, update=note.update)

    async def do_ask(self, session_id: str, _: str) -> None:
        tool_call = schema.ToolCallUpdate(tool_call_id="c1", title="rm -rf /", kind="execute", status="pending")
        answer = await self.client.request_permission(session_id=session_id, tool_call=tool_call, options=OPTIONS)
        await self.say(session_id, getattr(answer.outcome, "option_id", answer.outcome.outcome))

    async def do_wait(self, session_id: str, _: str) -> str:
        await self.say(session_id, "waiting")
        await self.cancelled[session_id].wait()
        return "cancelled"

    async def do_ask_then_wait(self, session_id: str, _: str) -> str:
        await self.do_ask(session_id, "")
        await self.cancelled[session_id].wait()
        return "cancelled"

    async def do_read(self, session_id: str, path: str) -> None:
        try:
            answer = await self.client.read_text_file(session_id=session_id, path=path)
            await self.say(session_id, answer.content)
        except acp.RequestError as error:
            await self.say(session_id, f"error {error.code}")

    async def do_write(self, session_id: str, path: str) -> None:
        try:
            await self.client.write_text_file(session_id=session_id, path=path, content="written\n")
            await self.say(session_id, "written")
        except acp.RequestError as error:
            await self.say(session_id, f"error {error.code}")

    async def do_terminal(self, session_id: str, command: str) -> None:
        params = {"session_id": session_id}
        terminal = await self.client.create_terminal(command="/bin/sh", args=["-c", command], **params)
        params["terminal_id"] = terminal.terminal_id
        ended = await self.client.wait_for_terminal_exit(**params)
        output = await self.client.terminal_output(**params)
        await self.client.release_terminal(**params)
        await self.say(session_id, f"{ended.exit_code} {output.output}")

    async def do_shell(self, session_id: str, command: str) -> None:
        """The same for one that may be refused."""
        try:
            await self.do_terminal(session_id, command)
        except acp.RequestError as error:
            await self.say(session_id, f"error {error.code}")

    async def do_hold(self, session_id: str, command: str) -> str:
        """Starts a terminal and leaves it running."""
        await self.client.create_terminal(command="/bin/sh", args=["-c", command], session_id=session_id)
        await self.say(session_id, "held")
        await self.cancelled[session_id].wait()
        return "cancelled"

    async def do_elicit(self, session_id: str, _: str) -> None:
        answer = await self.client.create_elicitation(
            message="Which colour?",
            mode=schema.ElicitationFormSessionMode(
                session_id=session_id,
                requested_schema=schema.ElicitationSchema.model_validate(
                    {"type": "object", "properties": {"colour": {"type": "string"}}}
                ),
            ),
        )
        await self.say(session_id, answer.model_dump_json(exclude_none=True))

    async def do_extension(self, session_id: str, _: str) -> None:
        await self.client.ext_notification("example/news", {"a": 1})
        try:
            await self.client.ext_method("example/question", {})
        except acp.RequestError as error:
            await self.say(session_id, f"error {error.code}")

    async def do_fail(self, session_id: str, _: str) -> None:
        raise acp.RequestError(429, "Slow down", {"details": "quota"})

    async def do_die(self, session_id: str, _: str) -> None:
        print("something went wrong", file=sys.stderr, flush=True)
        sys.stdout.flush()
        import os

        os._exit(7)


asyncio.run(acp.run_agent(ExampleAgent(), use_unstable_protocol=True))
