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

from .asked import Asked, Json, NativeCall, record
from .clis import path_with_node
from .environment import Environment, environment_for
from .faces.anthropic import AnthropicFace
from .faces.chat import ChatFace
from .faces.gemini import GeminiFace
from .faces.responses import ResponsesFace
from .playback import Cue, Issued, Playback, answered_last, outcomes_of
from .script import Call, HttpError, Script, ToolOutcome, say
from .server import HttpRequest, LoopbackServer
from .stage import Act, Answer, Dispatched, Face, answer_json, perform, refused, watched

FACES: tuple[Face, ...] = (AnthropicFace(), ResponsesFace(), ChatFace(), GeminiFace())


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request for an answer, and what the script made of it.

    ``side``: an errand of the agent's own (a title, a summary), answered without consuming the script. ``follow_up``:
    a step the agent needs in between, answered by the model itself. ``beyond``: the script had no reply left.
    ``unavailable``: native tools the script called although this request did not offer them.
    """

    face: str
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


class OtherRequest(msgspec.Struct, frozen=True):
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
    each from its beginning. ``observe`` is told of every request as it comes.
    """

    def __init__(
        self,
        script: Script = (),
        *,
        routes: Mapping[str, Script] | None = None,
        port: int = 0,
        observe: Callable[[Request | OtherRequest], None] | None = None,
    ) -> None:
        self.requests: list[Request] = []
        self.other_requests: list[OtherRequest] = []
        self.broken_off: list[str] = []  # the prompts whose answers the client did not wait for to the end
        self._playback = Playback(list(script), dict(routes or {}))
        self._observe = observe
        self._issued: dict[str, Issued] = {}
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
        """Point the real CLI of this agent at the model: its whole environment, in a home of its own.

        Without ``home`` it is a temporary folder that goes away with the model.
        """
        if home is None:
            scratch = tempfile.TemporaryDirectory(prefix=f"scripted-{agent}-", ignore_cleanup_errors=True)
            self._scratch.callback(scratch.cleanup)
            home = scratch.name
        return environment_for(
            agent, self.url, Path(home), Path(cwd) if cwd else None, model, {**os.environ, "PATH": path_with_node()}
        )

    # ----------------------------------------------------------------------------------------------- checks

    def unused(self) -> list[str]:
        """The replies nobody has asked for, in words."""
        with self._lock:
            return self._playback.unused()

    def assert_consumed(self) -> None:
        """Fail unless every reply was asked for and none beyond them."""
        self._raise_failures()
        complaints = [f"not asked for: {reply}" for reply in self.unused()]
        complaints += [f"asked beyond the end of the script: {one.prompt!r}" for one in self.requests if one.beyond]
        if complaints:
            raise ScriptNotConsumed("; ".join(complaints))

    # ---------------------------------------------------------------------------------------------- answers

    def _respond(self, request: HttpRequest) -> Answer:
        for face in FACES:
            if face.reads(request.method, request.path):
                try:
                    body = record(json.loads(request.body))
                except ValueError:
                    return self._other(request, 400, {"error": {"message": "the body is not JSON"}})
                asked = face.read(request.path, request.headers, body)
                try:
                    with self._lock:
                        return self._play(face, asked, request.headers)
                except Exception as error:  # the script's own: the agent gets an answer, the test gets the error
                    self._failures.append(error)
                    return refused(face.refuse(HttpError(400, f"the script failed: {error!r}")))
        return self._plain(request)

    def _play(self, face: Face, asked: Asked, headers: dict[str, str]) -> Answer:
        made: Dispatched = []

        def issue(call: Call, native: NativeCall, *, follow_up: bool = False) -> tuple[NativeCall, str]:
            call_id = f"call_scripted{next(self._ids):08d}"
            self._issued[call_id] = Issued(call, native, follow_up)
            made.append((native, call_id))
            return native, call_id

        def dispatch(call: Call) -> Dispatched:
            return [issue(call, native) for native in face.native(call, asked)]

        outcomes = outcomes_of(asked.turns, self._issued)
        cue: Cue | None = None
        parts: Sequence[Act]
        follow_ups = [] if asked.side else face.follow_up(asked, answered_last(asked.turns, self._issued))
        if asked.side:
            parts = [say(face.side_answer(asked))]
        elif follow_ups:
            parts = [[issue(call, native, follow_up=True) for call, native in follow_ups]]
            self._playback.remember(asked)
        else:
            cue = self._playback.cue(asked, outcomes)
            parts = face.settle(asked, cue.parts)
        wire = face.wire(asked, lambda: next(self._ids))
        answer = perform(face, asked, parts, wire, dispatch)
        if answer.chunked and not asked.side:
            frames = watched(answer.frames, lambda: self._broken_off(asked))
            answer = msgspec.structs.replace(answer, frames=frames)
        self._record(asked, headers, outcomes, cue, made, follow_up=bool(follow_ups))
        return answer

    def _broken_off(self, asked: Asked) -> None:
        with self._lock:
            self._playback.broken_off(asked)
            self.broken_off.append(asked.prompt)

    def _record(
        self,
        asked: Asked,
        headers: dict[str, str],
        outcomes: Sequence[ToolOutcome],
        cue: Cue | None,
        made: Dispatched,
        *,
        follow_up: bool,
    ) -> None:
        request = Request(
            face=asked.face,
            path=asked.path,
            model=asked.model,
            prompt=asked.prompt,
            system=asked.system,
            tools=tuple(asked.tools),
            outcomes=tuple(outcomes),
            headers=headers,
            body=asked.body,
            side=asked.side,
            follow_up=follow_up,
            route=cue.route if cue else "",
            step=cue.step if cue else -1,
            attempt=cue.attempt if cue else 0,
            beyond=cue.beyond if cue else False,
            calls=tuple(native.name for native, _ in made),
            unavailable=tuple(native.name for native, _ in made if not native.offered),
        )
        self.requests.append(request)
        if self._observe:
            self._observe(request)

    def _plain(self, request: HttpRequest) -> Answer:
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

    def _other(self, request: HttpRequest, status: int, body: Json) -> Answer:
        noted = OtherRequest(request.method, request.path, status)
        self.other_requests.append(noted)
        if self._observe:
            self._observe(noted)
        return answer_json(status, body)


def _models(path: str) -> Json:
    if "v1beta" in path:
        return {"models": [{"name": "models/scripted-model", "supportedGenerationMethods": ["generateContent"]}]}
    one = {
        "id": "scripted-model",
        "object": "model",
        "type": "model",
        "display_name": "Scripted",
        "owned_by": "stagedoor",
    }
    return {"object": "list", "data": [one], "has_more": False, "models": []}
