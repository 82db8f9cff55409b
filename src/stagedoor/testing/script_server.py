"""Serves a script from the command line, for a CI of your own."""

from __future__ import annotations

import shlex
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from .environment import scripted_agents
from .model import ScriptedModel, ScriptedRequest, UnscriptedRequest
from .yaml_script import load_script

_SHARED = ("PATH", "LANG", "LC_ALL", "TZ", "SHELL", "TERM", "COLORTERM", "NO_COLOR")


def serve_script(
    path: Path | str,
    port: int = 0,
    *,
    agents: Sequence[str] | None = None,
    home: Path | None = None,
    cwd: Path | None = None,
    out: TextIO | None = None,
    until: threading.Event | None = None,
) -> int:
    """Serve the script until Ctrl-C (or ``until``); 0 if the agents used all of it and asked for no more, else 1.

    Prints the address, for each agent the command that starts it there, and a line for every request. The homes of
    the agents are made below ``home``.
    """
    loaded = load_script(Path(path))
    stream = out or sys.stdout
    stop = until or threading.Event()
    printing = threading.Lock()

    def line(text: str) -> None:
        with printing:
            print(text, file=stream, flush=True)

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, frame: stop.set())
    model = ScriptedModel(
        loaded.script, routes=loaded.routes, port=port, observe=lambda request: line(describe(request))
    )
    with model:
        line(f"# scripted model on {model.url}")
        for agent in scripted_agents() if agents is None else agents:
            agent_home = None if home is None else home / agent
            environment = model.environment(agent, home=agent_home, cwd=cwd)
            line(f"# {agent} (model {environment.model})")
            own = {name: value for name, value in environment.env.items() if name not in _SHARED}
            line(
                " \\\n".join(
                    ["  env", *(f"    {name}={shlex.quote(value)}" for name, value in own.items()), f"    {agent}"]
                )
            )
        stop.wait()
        try:
            model.assert_consumed()
        except AssertionError as complaint:
            line(f"# {complaint}")
            return 1
    line("# the whole script was used")
    return 0


def describe(request: ScriptedRequest | UnscriptedRequest) -> str:
    """One line for one request."""
    if isinstance(request, UnscriptedRequest):
        return f"{request.method} {request.path} -> {request.status}"
    if request.side:
        answer = f"side call ({request.side})"
    elif request.follow_up:
        answer = "follow-up"
    else:
        name = f"route {request.route!r} " if request.route else ""
        answer = f"{name}reply {request.step + 1}" + (f", try {request.attempt}" if request.attempt > 1 else "")
    calls = f" calls {', '.join(request.calls)}" if request.calls else ""
    missing = f" (not offered: {', '.join(request.unavailable)})" if request.unavailable else ""
    beyond = " BEYOND THE SCRIPT" if request.beyond else ""
    return f"{request.api} {request.model} {request.prompt[:60]!r} -> {answer}{calls}{missing}{beyond}"
