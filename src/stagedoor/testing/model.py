"""``ScriptedModel``: a loopback server that stands in for the model APIs of the real CLIs."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from .answers import Act, FramedAnswer, IssuedPairs, ModelApi, answer_json, notice_early_end, play, refusal_answer
from .apis.anthropic import AnthropicApi
from .apis.chat import ChatApi
from .apis.gemini import GeminiApi
from .apis.responses import ResponsesApi
from .clis import path_with_node
from .environment import Environment, environment_for
from .loopback_server import LoopbackRequest, LoopbackServer
from .model_request import Json, ModelRequest, NativeCall, record
from .reply_choice import ChosenReply, IssuedCall, ReplyChooser, answered_last, outcomes_of
from .script import HttpError, Script, ScriptedCall, ToolOutcome, say

APIS: tuple[ModelApi, ...] = (AnthropicApi(), ResponsesApi(), ChatApi(), GeminiApi())


class ScriptedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request for an answer, and what the script made of it.

    ``side``: what the agent asks for beside the conversation (a title, a summary); it uses no reply of the script.
    ``follow_up``: a step the agent needs in between, answered by the model itself. ``beyond``: the script had no
    reply left.
    ``unavailable``: native tools the script called although this request did not offer them.
    """

    api: str
    path: str
    model: str
    prompt: str
    system: str
    tools: tuple[str, ...]
    outcomes: tuple[ToolOutcome, ...]
    headers: dict[str, str]
    body: Json
    side: str = ""
    follow_up: bool = False
    route: str = ""
    step: int = -1
    attempt: int = 0
    beyond: bool = False
    calls: tuple[str, ...] = ()
    unavailable: tuple[str, ...] = ()


class UnscriptedRequest(msgspec.Struct, frozen=True):
    """A request that asked for no answer: a health check, a token count, a list of models."""

    method: str
    path: str
    status: int


class ScriptFailed(AssertionError):
    """A branch of the script raised, or one of its calls lacks an argument; the cause is attached."""


class ScriptNotConsumed(AssertionError):
    """The agents did not ask for all replies of the script, or asked for more."""


class ScriptedModel:
    """A model that follows a script, for ``with`` and ``async with``.

    Conversations whose user prompt contains a key of ``routes`` follow that script, all others follow ``script``,
    each from its beginning. ``observe`` is called with every request.
    """

    def __init__(
        self,
        script: Script = (),
        *,
        routes: Mapping[str, Script] | None = None,
        port: int = 0,
        observe: Callable[[ScriptedRequest | UnscriptedRequest], None] | None = None,
    ) -> None:
        self.requests: list[ScriptedRequest] = []
        self.other_requests: list[UnscriptedRequest] = []
        self.broken_off: list[str] = []  # the prompts whose answers the client did not wait for to the end
        self._chooser = ReplyChooser(list(script), dict(routes or {}))
        self._observe = observe
        self._issued: dict[str, IssuedCall] = {}
        self._ids = itertools.count(1)
        self._lock = threading.RLock()  # a branch of the script may look at what was recorded
        self._failures: list[Exception] = []
        self._scratch = ExitStack()
        self._server = LoopbackServer(self._respond, port)
        self._port = 0
        self._thread: threading.Thread | None = None
        self._stopping: Callable[[], object] = lambda: None

    # ------------------------------------------------------------------------------------------------ life

    async def __aenter__(self) -> Self:
        self._port = await self._server.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._server.stop()
        self._close(error)

    def __enter__(self) -> Self:
        ready = threading.Event()
        failure: list[BaseException] = []

        async def life() -> None:
            stop = asyncio.Event()
            loop = asyncio.get_running_loop()
            self._stopping = lambda: loop.call_soon_threadsafe(stop.set)
            try:
                self._port = await self._server.start()
            except OSError as error:
                failure.append(error)
                ready.set()
                return
            ready.set()
            await stop.wait()
            await self._server.stop()

        self._thread = threading.Thread(target=lambda: asyncio.run(life()), name="scripted-model", daemon=True)
        self._thread.start()
        ready.wait()
        if failure:
            raise failure[0]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping()
        if self._thread is not None:
            self._thread.join()
        self._close(error)

    def _close(self, error: BaseException | None) -> None:
        self._scratch.close()
        if error is None:
            self._raise_failures()

    def _raise_failures(self) -> None:
        if self._failures:
            raise ScriptFailed(f"the script failed: {self._failures[0]!r}") from self._failures[0]

    @property
    def url(self) -> str:
        """Where the server listens, without a path."""
        if not self._port:
            raise RuntimeError("the scripted model is not running: use it in a `with` or `async with` block")
        return f"http://127.0.0.1:{self._port}"

    def environment(
        self, agent: str, *, home: Path | str | None = None, cwd: Path | str | None = None, model: str | None = None
    ) -> Environment:
        """Point the real CLI of this agent at the model: its whole environment, in a separate home.

        Without ``home`` it is a temporary folder that goes away with the model.
        """
        if home is None:
            scratch = tempfile.TemporaryDirectory(prefix=f"scripted-{agent}-", ignore_cleanup_errors=True)
            self._scratch.callback(scratch.cleanup)
            home = scratch.name
        return environment_for(
            agent,
            self.url,
            Path(home),
            Path(cwd) if cwd else None,
            model,
            {**os.environ, "PATH": path_with_node(agent=agent)},
        )

    # ----------------------------------------------------------------------------------------------- checks

    def unused(self) -> list[str]:
        """The replies that no agent asked for, in words."""
        with self._lock:
            return self._chooser.unused()

    def assert_consumed(self) -> None:
        """Fail unless every reply was asked for and none beyond them."""
        self._raise_failures()
        complaints = [f"not asked for: {reply}" for reply in self.unused()]
        complaints += [
            f"asked for more than the script has: {request.prompt!r}" for request in self.requests if request.beyond
        ]
        if complaints:
            raise ScriptNotConsumed("; ".join(complaints))

    # ---------------------------------------------------------------------------------------------- answers

    def _respond(self, request: LoopbackRequest) -> FramedAnswer:
        for api in APIS:
            if api.accepts(request.method, request.path):
                try:
                    body = record(json.loads(request.body))
                except ValueError:
                    return self._other(request, 400, {"error": {"message": "the body is not JSON"}})
                question = api.read(request.path, request.headers, body)
                try:
                    with self._lock:
                        return self._play(api, question, request.headers)
                except Exception as error:  # raised by the script: the agent gets an answer, the test gets the error
                    self._failures.append(error)
                    return refusal_answer(api.refuse(HttpError(400, f"the script failed: {error!r}")))
        return self._plain(request)

    def _play(self, api: ModelApi, request: ModelRequest, headers: dict[str, str]) -> FramedAnswer:
        issued: IssuedPairs = []

        def issue(call: ScriptedCall, native: NativeCall, *, follow_up: bool = False) -> tuple[NativeCall, str]:
            call_id = f"call_scripted{next(self._ids):08d}"
            self._issued[call_id] = IssuedCall(call, native, follow_up)
            issued.append((native, call_id))
            return native, call_id

        def dispatch(call: ScriptedCall) -> IssuedPairs:
            return [issue(call, native) for native in api.native(call, request)]

        outcomes = outcomes_of(request.turns, self._issued)
        chosen: ChosenReply | None = None
        parts: Sequence[Act]
        follow_ups = [] if request.side else api.follow_up(request, answered_last(request.turns, self._issued))
        if request.side:
            parts = [say(api.side_answer(request))]
        elif follow_ups:
            parts = [[issue(call, native, follow_up=True) for call, native in follow_ups]]
            self._chooser.remember(request)
        else:
            chosen = self._chooser.choose(request, outcomes)
            parts = api.complete_parts(request, chosen.parts)
        stream = api.stream(request, lambda: next(self._ids))
        answer = play(api, request, parts, stream, dispatch)
        if answer.chunked and not request.side:
            frames = notice_early_end(answer.frames, lambda: self._broken_off(request))
            answer = msgspec.structs.replace(answer, frames=frames)
        self._record(request, headers, outcomes, chosen, issued, follow_up=bool(follow_ups))
        return answer

    def _broken_off(self, request: ModelRequest) -> None:
        with self._lock:
            self._chooser.broken_off(request)
            self.broken_off.append(request.prompt)

    def _record(
        self,
        request: ModelRequest,
        headers: dict[str, str],
        outcomes: Sequence[ToolOutcome],
        chosen: ChosenReply | None,
        issued: IssuedPairs,
        *,
        follow_up: bool,
    ) -> None:
        entry = ScriptedRequest(
            api=request.api,
            path=request.path,
            model=request.model,
            prompt=request.prompt,
            system=request.system,
            tools=tuple(request.tools),
            outcomes=tuple(outcomes),
            headers=headers,
            body=request.body,
            side=request.side,
            follow_up=follow_up,
            route=chosen.route if chosen else "",
            step=chosen.step if chosen else -1,
            attempt=chosen.attempt if chosen else 0,
            beyond=chosen.beyond if chosen else False,
            calls=tuple(native.name for native, _ in issued),
            unavailable=tuple(native.name for native, _ in issued if not native.offered),
        )
        self.requests.append(entry)
        if self._observe:
            self._observe(entry)

    def _plain(self, request: LoopbackRequest) -> FramedAnswer:
        path = request.path.rstrip("/")
        if "upgrade" in request.headers:
            return self._other(request, 426, {"error": {"message": "no WebSocket here: use HTTP and SSE"}})
        if path.endswith("/count_tokens"):
            return self._other(request, 200, {"input_tokens": max(1, len(request.body) // 4)})
        if path.endswith(":countTokens"):
            return self._other(request, 200, {"totalTokens": max(1, len(request.body) // 4)})
        if path.endswith("/models"):
            return self._other(request, 200, _models(path))
        if path == "" and request.method in ("GET", "HEAD"):
            return self._other(request, 200, {"ok": True})
        return self._other(
            request, 404, {"error": {"message": f"nothing at {request.path}", "type": "not_found_error"}}
        )

    def _other(self, request: LoopbackRequest, status: int, body: Json) -> FramedAnswer:
        entry = UnscriptedRequest(request.method, request.path, status)
        self.other_requests.append(entry)
        if self._observe:
            self._observe(entry)
        return answer_json(status, body)


def _models(path: str) -> Json:
    if "v1beta" in path:
        return {"models": [{"name": "models/scripted-model", "supportedGenerationMethods": ["generateContent"]}]}
    model = {
        "id": "scripted-model",
        "object": "model",
        "type": "model",
        "display_name": "Scripted",
        "owned_by": "stagedoor",
    }
    return {"object": "list", "data": [model], "has_more": False, "models": []}
