"""One session as an editor has it open: what it is sent, the prompts that wait for their turns, the open questions.

An editor names a session before its first prompt. Until then it is a draft, which only this connection knows; with the
first prompt it is a session of the log, under the same id. One that has ended is continued by a new one, which the
editor goes on calling by the old name.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, TypeAlias, cast

from msgspec.structs import replace

from stagedoor.agent_side.link import AUTH_REQUIRED, REQUEST_CANCELLED, AgentLink, ClientRefused, MethodRefused
from stagedoor.agents.acp.hosted import HostRefused
from stagedoor.dialects.acp import AcpUpdates, Update, image_block
from stagedoor.errors import AlreadyAnswered, BadRequest, SessionEnded, StagedoorError
from stagedoor.service.service import Service
from stagedoor.service.views import SessionSpec, SessionView
from stagedoor.transports.tasks import TaskOwner
from stagedoor.unified.decisions import Decision, Deny
from stagedoor.unified.events import (
    Done,
    Error,
    Event,
    Notice,
    PermissionRequest,
    PermissionResolved,
    ShownImage,
    TurnCompleted,
    TurnStarted,
    decode,
)
from stagedoor.wire.jsonrpc import INTERNAL_ERROR

from ..access.devices import Caller
from .choices import Choices, choose, config_options, modes
from .outbox import Outbox
from .prompts import EditorPrompt, linked_files, read_prompt
from .questions import decision_of, form_decision, form_params, permission_params

_LOG = logging.getLogger("stagedoor.server.acp")
CHUNK = 512
MOST_LINKS = 20
READ_WITHIN = 10.0
HOST_WITHIN = 60.0
FILE_CAPABILITIES = {"fs/read_text_file": "readTextFile", "fs/write_text_file": "writeTextFile"}
MOST_UNSAVED = 1_000_000
"""Characters of a file that go into a prompt; a longer one the agent reads itself, as it is on disk."""
Json: TypeAlias = dict[str, Any]
STOP_REASONS = {
    "success": "end_turn", "interrupted": "cancelled", "max_turns": "max_turn_requests", "max_budget": "max_tokens",
}  # fmt: skip


class EditorLink:
    """What all sessions of one connection share. ``alone``: nobody but this editor could answer a question.
    ``same_machine``: its files are ours. ``environment``: in which the agents of its sessions start, if it has one."""

    def __init__(
        self, service: Service, caller: Caller, link: AgentLink, outbox: Outbox, *, alone: bool, same_machine: bool
    ) -> None:
        self.same_machine = same_machine
        self.service = service
        self.caller = caller
        self.link = link
        self.outbox = outbox
        self.alone = alone
        self.environment: Mapping[str, str] | None = None

    @property
    def reads_files(self) -> bool:
        return self.serves("fs/read_text_file")

    def serves(self, method: str) -> bool:
        """Whether the editor offers this."""
        if method.startswith("terminal/"):
            return self.link.client_capabilities.get("terminal") is True
        offered: object = self.link.client_capabilities.get("fs")
        return isinstance(offered, dict) and cast("Json", offered).get(FILE_CAPABILITIES.get(method, "")) is True

    @property
    def has_forms(self) -> bool:
        offered: object = self.link.client_capabilities.get("elicitation")
        return isinstance(offered, dict) and "form" in offered


class PendingPrompt:
    """A prompt of this editor, from its arrival to the end of its turn."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.turn: int | None = None
        self.posted = False
        self.cancelled = False
        self.ended: asyncio.Future[TurnCompleted | Done | MethodRefused] = asyncio.get_running_loop().create_future()

    def is_asked_by(self, prompt: str) -> bool:
        """Whether the prompt of a turn is this one, with or without what was attached to it."""
        return prompt == self.text or prompt.startswith(f"{self.text}\n\n")

    def end(self, ending: TurnCompleted | Done | MethodRefused) -> None:
        if not self.ended.done():
            self.ended.set_result(ending)


class EditorSession:
    """``id``: as the editor calls it. ``stored_id``: the session of the log, empty for a draft."""

    def __init__(
        self,
        editor: EditorLink,
        session_id: str,
        cwd: str,
        choices: Choices,
        spec: SessionSpec,
        view: SessionView | None = None,
    ) -> None:
        self.id = session_id
        self.cwd = cwd
        self.choices = choices
        self.stored_id = "" if view is None else view.id
        self._spec = spec
        self._editor = editor
        self._service = editor.service
        self._updates = AcpUpdates(cwd)
        self._tasks = TaskOwner()
        self._questions = TaskOwner()
        self._hosting = TaskOwner()
        self._take_back: Callable[[], None] = lambda: None
        self._resolved: set[str] = set()
        """Questions that are decided: one read from the log a moment before is not shown any more."""
        self._pending: list[PendingPrompt] = []
        self._posting = asyncio.Lock()
        self._turn = 0
        self._fault: Error | None = None
        self._seq = 0
        self._shown_title = ""
        self._last_word: Done | MethodRefused | None = None
        """Nothing more comes of the session of the log, and why."""

    # -- what the editor wants of it

    async def described(self) -> Json:
        return {"modes": modes(self.choices), "configOptions": await config_options(self._service, self.choices)}

    async def replay(self) -> None:
        """Send everything that has happened, those before it included that it continues."""
        for view in await self._chain():
            after = max(view.first_seq - 1, 0)
            updates = self._updates = AcpUpdates(self.cwd)
            while after < view.last_seq:
                records = await self._service.events.read(view.id, after, CHUNK)
                if not records:
                    break
                for record in records:
                    if record.seq <= view.last_seq:
                        event = decode(record.body)
                        self._send([*updates.of(event), *await self._sent_pictures(view.id, event)])
                after = records[-1].seq
                await self._editor.outbox.room()
            self._seq = view.last_seq

    async def _sent_pictures(self, session_id: str, event: Event) -> list[Update]:
        """What somebody sent with a prompt; the event names it only."""
        shown: list[Update] = []
        for name in event.attachments if isinstance(event, Notice) else ():
            with contextlib.suppress(StagedoorError):  # removed, or on a machine that is away: its name is all there is
                picture = await self._service.sessions.attachment(session_id, name)
                image = ShownImage(media_type=picture.media_type, content=picture.content)
                shown.append({"sessionUpdate": "user_message_chunk", "content": image_block(image)})
        return shown

    async def listen_from_now(self) -> None:
        """Send what happens from now on; what was before is not sent."""
        self._seq = (await self._service.sessions.get(self.stored_id)).last_seq

    def follow(self) -> None:
        """Send what comes after the place where ``replay`` or ``listen_from_now`` stopped, and show open questions."""
        if self.stored_id:
            self._tasks.start(self._follow(self.stored_id, self._seq), key="follow")
            self._tasks.start(self._show_open_questions(self.stored_id), key="questions")

    async def prompt(self, blocks: Sequence[Json]) -> Json:
        self._lend(self.stored_id or self.id)
        prompt = read_prompt(blocks, await self._unsaved(linked_files(blocks)))
        pending = PendingPrompt(prompt.text)
        self._pending.append(pending)
        try:
            async with self._posting:
                await self._post(prompt)
            pending.posted = True
            if self._last_word is not None:
                self._end(pending, self._last_word)
            ending = await asyncio.shield(pending.ended)
        except asyncio.CancelledError:
            self.cancel()
            raise
        except BaseException:
            if pending in self._pending:
                self._pending.remove(pending)
            raise
        return self._result(ending)

    def cancel(self) -> None:
        """End the running turn, and those of this editor's prompts that have not begun when they do."""
        for pending in self._pending:
            pending.cancelled = True
        if self.stored_id:
            self._tasks.start(self._interrupt())

    async def choose(self, option: str, value: object) -> None:
        """Holds from the next turn on. Raises what the agent cannot do."""
        choices = await choose(self._service, self.choices, option, value)
        spec = choices.applied_to(self._spec)
        if choices != self.choices and self.stored_id:
            # A tier that is named again would end the session's own approval, which may be the stricter.
            tier = None if choices.tier == self.choices.tier else choices.tier
            await self._service.sessions.reconfigure(
                self.stored_id, model=choices.model, tier=tier, effort=choices.effort, who=self._editor.caller.name
            )
        elif choices != self.choices:
            await self._service.sessions.check(replace(spec, prompt="-"))
        self.choices, self._spec = choices, spec

    def show_mode(self) -> None:
        self._send([{"sessionUpdate": "current_mode_update", "currentModeId": self.choices.tier}])
        self._tasks.start(self._show_choices())

    async def close(self) -> None:
        """The editor has closed it, or left: nothing of it is sent any more. The session itself is not touched."""
        self._take_back()
        await self._hosting.close()
        self._conclude(MethodRefused(REQUEST_CANCELLED, "the session was closed before this turn ended"))
        self._questions.cancel_all()
        await self._tasks.close()
        await self._questions.close()

    @property
    def in_turn(self) -> bool:
        """A prompt of this editor has not come to its end."""
        return any(not pending.ended.done() for pending in self._pending)

    async def rest(self) -> None:
        """Wait until no prompt of this editor is on its way."""
        while waiting := [pending.ended for pending in self._pending if not pending.ended.done()]:
            await asyncio.wait(waiting)

    # -- to the service

    async def _unsaved(self, paths: Sequence[str]) -> dict[str, str]:
        """Files of the project that the editor has open with changes that are not on disk, with their text."""
        if not self._editor.reads_files:
            return {}
        unsaved: dict[str, str] = {}
        for path in await asyncio.to_thread(_within, self.cwd, paths[:MOST_LINKS]):
            try:
                async with asyncio.timeout(READ_WITHIN):
                    read = await self._editor.link.ask("fs/read_text_file", {"sessionId": self.id, "path": path})
            except (ClientRefused, TimeoutError):
                continue  # the agent reads what is on disk
            match read:
                case {"content": str(text)} if len(text) <= MOST_UNSAVED:
                    if await asyncio.to_thread(_text_on_disk, path) != text:
                        unsaved[path] = text
                case _:
                    pass
        return unsaved

    async def _post(self, prompt: EditorPrompt) -> None:
        sessions, who = self._service.sessions, self._editor.caller.name
        if not self.stored_id:
            spec = replace(
                self.choices.applied_to(self._spec), prompt=prompt.text, attachments=prompt.pictures, keep_open=True
            )
            self._begin(await sessions.create(spec, who=who, session_id=self.id))
            return
        await self._use_own_servers()
        try:
            await sessions.send(self.stored_id, prompt.text, attachments=prompt.pictures, who=who)
        except SessionEnded:
            if prompt.pictures:
                raise BadRequest("this session has ended: continue it with a prompt without images first") from None
            self._begin(await sessions.resume(self.stored_id, prompt.text, keep_open=True, who=who))

    def _lend(self, session_id: str) -> None:
        """The editor that prompts has the files and terminals that agents use which leave those to their client."""
        self._take_back()
        if self._editor.same_machine:
            self._take_back = self._service.sessions.lend(session_id, self._do_for_agent, self._editor.environment)

    async def _do_for_agent(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any] | None:
        if not self._editor.serves(method):
            return None
        request = self._hosting.start(self._editor.link.ask(method, {"sessionId": self.id, **params}))
        try:
            await asyncio.wait([request], timeout=None if method == "terminal/wait_for_exit" else HOST_WITHIN)
        except asyncio.CancelledError:
            request.cancel()
            raise
        if not request.done():
            request.cancel()
            raise HostRefused(f"the editor did not answer {method} within {HOST_WITHIN:g} s")
        if request.cancelled():
            raise HostRefused("the editor has left")
        fault = request.exception()
        if fault is not None:
            raise HostRefused(f"the editor refused it: {fault}")
        answer = request.result()
        return cast("Json", answer) if isinstance(answer, dict) else {}

    def _begin(self, view: SessionView) -> None:
        self._lend(view.id)
        self.stored_id, self._seq, self._last_word = view.id, 0, None
        self.choices, self._spec = Choices.of(view), view.spec or self._spec
        self._updates = AcpUpdates(view.cwd)
        self.follow()
        self._tasks.start(self._show_choices())
        self._show_title(view.title)

    async def _use_own_servers(self) -> None:
        """A session that was loaded goes on with the tool servers this editor named, if they are others."""
        view = await self._service.sessions.get(self.stored_id)
        if view.spec is not None and view.spec.mcp_servers != self._spec.mcp_servers and not view.ended:
            await self._service.sessions.reconfigure(
                self.stored_id, mcp_servers=self._spec.mcp_servers, who=self._editor.caller.name
            )

    async def _interrupt(self) -> None:
        try:
            await self._service.sessions.interrupt(self.stored_id)
        except StagedoorError as fault:
            _LOG.warning("a turn could not be interrupted: %s", fault, extra={"session": self.stored_id})

    async def _chain(self) -> list[SessionView]:
        """The session and those that it continues, the first one first."""
        view = await self._service.sessions.get(self.stored_id)
        chain = [view]
        while view.parent_id is not None and view.parent_id not in [other.id for other in chain]:
            before = await self._service.sessions.find(view.parent_id)
            if before is None:
                break
            view = before
            chain.insert(0, view)
        return chain

    # -- from the log

    async def _follow(self, session_id: str, after: int) -> None:
        why = "the session was deleted"
        try:
            async with aclosing(self._service.events.follow(session_id, after)) as batches:
                async for records in batches:
                    for record in records:
                        self._show(decode(record.body))
                        self._seq = record.seq
                    await self._editor.outbox.room()
        except StagedoorError as fault:
            why = str(fault)
        except Exception:
            _LOG.exception("a session could not be followed", extra={"session": session_id})
            why = "internal error of Stagedoor; load the session again"
        if self.stored_id == session_id:
            self._conclude(self._last_word or MethodRefused(INTERNAL_ERROR, why))

    def _conclude(self, last_word: Done | MethodRefused) -> None:
        self._last_word = last_word
        for pending in [pending for pending in self._pending if pending.posted]:
            self._end(pending, last_word)
        self._questions.cancel_all()

    def _show(self, event: Event) -> None:
        match event:
            case TurnStarted(prompt=prompt, turn=turn):
                self._turn, self._fault = turn, None
                pending = next((one for one in self._pending if one.turn is None and one.is_asked_by(prompt)), None)
                if pending is not None:
                    pending.turn = turn
                    if pending.cancelled:
                        self._tasks.start(self._interrupt())
                    return  # the editor has shown its own prompt
            case PermissionRequest() if not event.automatic:
                self._ask(event)
            case PermissionResolved(request_id=request_id):
                self._resolved.add(request_id)
                self._questions.cancel(request_id)
            case Error():
                self._fault = event
            case _:
                pass
        self._send(self._updates.of(event))
        if isinstance(event, TurnCompleted):
            for pending in [one for one in self._pending if one.turn is not None and one.turn <= event.turn]:
                self._end(pending, event)
        elif isinstance(event, Done):
            self._conclude(event)

    def _send(self, updates: list[Update]) -> None:
        for update in updates:
            self._editor.link.notify("session/update", {"sessionId": self.id, "update": update})

    async def _show_choices(self) -> None:
        options = await config_options(self._service, self.choices)
        self._send([{"sessionUpdate": "config_option_update", "configOptions": options}])

    def _show_title(self, title: str) -> None:
        if title and title != self._shown_title:
            self._shown_title = title
            self._send([{"sessionUpdate": "session_info_update", "title": title}])

    # -- the end of a turn

    def _end(self, pending: PendingPrompt, ending: TurnCompleted | Done | MethodRefused) -> None:
        if pending in self._pending:
            self._pending.remove(pending)
        pending.end(ending)

    def _result(self, ending: TurnCompleted | Done | MethodRefused) -> Json:
        if isinstance(ending, MethodRefused):
            raise ending
        if ending.status != "error":
            usage = {name: value for name, value in _usage(ending).items() if value is not None}
            return {"stopReason": STOP_REASONS[ending.status], "_meta": {"stagedoor": usage}}
        fault = self._fault
        message = (fault.message if fault is not None else "") or ending.result or "the agent failed"
        kind = "unknown" if fault is None else fault.kind
        raise MethodRefused(
            AUTH_REQUIRED if kind == "authentication_failed" else INTERNAL_ERROR, message, {"kind": kind}
        )

    # -- questions

    async def _show_open_questions(self, session_id: str) -> None:
        with contextlib.suppress(StagedoorError):
            for question in await self._service.questions.list(session_id=session_id):
                self._ask(question.request)

    def _ask(self, request: PermissionRequest) -> None:
        request_id = request.request_id
        if self._editor.caller.may("answer") and request_id not in self._questions and request_id not in self._resolved:
            self._questions.start(self._question(request), key=request_id)

    async def _question(self, request: PermissionRequest) -> None:
        """Show it until somebody has answered: this editor or anybody else, who makes the journal cancel this."""
        try:
            decision = await self._asked_of_editor(request)
            if decision is not None:
                await self._service.questions.answer(request.request_id, decision, who=self._editor.caller.name)
        except AlreadyAnswered:
            pass
        except StagedoorError as fault:
            _LOG.warning("an answer was not taken: %s", fault, extra={"session": self.stored_id})
            with contextlib.suppress(StagedoorError):
                await self._service.questions.answer(request.request_id, Deny(str(fault)), who=self._editor.caller.name)

    async def _asked_of_editor(self, request: PermissionRequest) -> Decision | None:
        """``None``: this editor cannot be asked, and somebody else may answer."""
        link = self._editor.link
        try:
            if request.tool_name == "question" and self._editor.has_forms:
                return form_decision(request, await link.ask("elicitation/create", form_params(self.id, request)))
            params = permission_params(self.id, request, self.cwd)
            return decision_of(request, await link.ask("session/request_permission", params))
        except ClientRefused as refused:
            _LOG.warning("the editor could not be asked: %s", refused, extra={"session": self.stored_id})
            return Deny(f"the editor could not be asked: {refused}") if self._editor.alone else None


def _within(folder: str, paths: Sequence[str]) -> list[str]:
    """Those that lie there, links followed."""
    root = os.path.realpath(folder)
    return [path for path in paths if Path(os.path.realpath(path)).is_relative_to(root)]


def _text_on_disk(path: str) -> str | None:
    try:
        place = Path(path)
        if not place.is_file():  # a pipe would wait for a writer
            return None
        with place.open("rb") as file:
            return file.read(4 * MOST_UNSAVED + 1).decode()  # more than that is not what the editor has
    except (OSError, ValueError):
        return None


def _usage(ending: TurnCompleted | Done) -> Json:
    usage = ending.usage
    return {
        "inputTokens": usage.input_tokens,
        "outputTokens": usage.output_tokens,
        "cachedTokens": usage.cached_tokens,
        "totalTokens": usage.total_tokens,
        "costUsd": ending.cost_usd,
    }
