"""Call every tool of an agent's own, one by one, and write down what became of it: a part of ``make contract``.

    python -m tools.own_tools [--clis FOLDER] [--page] [AGENT …]

``own_tools.yaml`` has a call for each tool, with an effect that can be seen from outside. It is made in five ways: in a
dry run, where everybody who is asked says no, under a policy that denies all, with the tool on the list of those that
are not allowed, and where everything may run (which shows that the call works). What is seen is kept in
``docs/own_tools.json`` and shown by ``docs/own-tools.md`` (``--page``: only write the page). The exit code is 1 when
something happened that must not.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import json
import re
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, cast

import msgspec
import yaml

import stagedoor
from stagedoor import catalog
from stagedoor.permissions.policy import Policy
from stagedoor.testing.clis import find_cli
from stagedoor.testing.contract.deeds import HOSTED_FETCH, HOSTED_SEARCH, SERVER
from stagedoor.testing.contract.trial import SHARED
from stagedoor.testing.environment import scripted_agents
from stagedoor.testing.model import ScriptedModel, ScriptedRequest
from stagedoor.testing.script import Reply, Script, ScriptedCall, native, say, shell, task

CALLS = Path(__file__).with_name("own_tools.yaml")
RESULTS = Path("docs/own_tools.json")
PAGE = Path("docs/own-tools.md")
BOUND = 120.0
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
NOTEBOOK: dict[str, Any] = {
    "cells": [{"cell_type": "code", "id": "a", "metadata": {}, "outputs": [], "execution_count": None, "source": []}],
    "metadata": {},
    "nbformat": 4,
    "nbformat_minor": 5,
}

Does = Literal["nothing", "wrote", "visited", "read", "searched"]
"""``searched``: the model was offered a tool that works at its vendor's."""
Way = Literal["dry-run", "all denied", "policy denies", "disallowed", "autonomous"]
WAYS: dict[Way, dict[str, Any]] = {
    "dry-run": {"tier": "dry-run"},
    "all denied": {"approval": "ask"},
    "policy denies": {"tier": "autonomous", "policy": Policy(default="deny")},
    "disallowed": {"tier": "autonomous"},
    "autonomous": {"tier": "autonomous"},
}


class ToolTrial(msgspec.Struct, frozen=True):
    """How a tool is called."""

    input: Mapping[str, Any] = {}
    before: Mapping[str, Mapping[str, Any]] = {}
    task: str = ""
    through: str = ""
    normalized: str = ""
    does: Does = "nothing"


class Seen(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one call. ``audit``: the decisions that are in the audit log."""

    does: tuple[Does, ...] = ()
    asked: bool = False
    offered: bool = True
    audit: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        said = [*self.does, *(["asked"] if self.asked else [])]
        return ", ".join(said) or ("nothing" if self.offered else "not offered")


class ToolResults(msgspec.Struct, frozen=True, kw_only=True):
    """All tools of one version."""

    agent: str
    driver: str
    version: str
    date: str
    tools: dict[str, dict[Way, Seen]]


def trials() -> dict[str, dict[str, ToolTrial]]:
    return msgspec.convert(yaml.safe_load(CALLS.read_text()), dict[str, dict[str, ToolTrial]])


def load(path: Path = RESULTS) -> list[ToolResults]:
    return msgspec.json.decode(path.read_bytes(), type=list[ToolResults]) if path.exists() else []


# ------------------------------------------------------------------------------------------------------- one session


class _Mark:
    """What one call is about: names and contents that no other call has."""

    def __init__(self, tool: str, workspace: Path, port: int) -> None:
        self.mark = "mark" + re.sub(r"\W", "", tool.replace("_", "")).lower() + secrets.token_hex(3)
        self.secret = f"secret {secrets.token_hex(8)}"
        self.folder = workspace / f"folder-{self.mark}"
        self.folder.mkdir()
        self.places = {
            "file": workspace / f"{self.mark}.txt",
            "text": self.folder / f"{self.mark}-text.txt",
            "other": self.folder / f"{self.mark}-other.txt",
            "notebook": self.folder / f"{self.mark}.ipynb",
            "image": self.folder / f"{self.mark}.png",
        }
        self.places["text"].write_text(f"{self.secret}\n")
        self.places["other"].write_text("before\n")
        self.places["notebook"].write_text(json.dumps(NOTEBOOK))
        self.places["image"].write_bytes(PIXEL)
        self._before = {name: self.places[name].read_bytes() for name in ("other", "notebook")}
        self.words = {
            **{name: str(place) for name, place in self.places.items()},
            "folder": str(self.folder),
            "mark": self.mark,
            "url": f"http://127.0.0.1:{port}/{self.mark}",
        }

    def filled(self, value: Any) -> Any:
        if isinstance(value, str):
            return re.sub(r"\{(\w+)\}", lambda match: self.words.get(match[1], match[0]), value)
        if isinstance(value, dict):
            return {key: self.filled(one) for key, one in cast("dict[str, Any]", value).items()}
        if isinstance(value, list):
            return [self.filled(one) for one in value]  # pyright: ignore[reportUnknownVariableType]
        return value

    def done(self, workspace: Path, requests: list[ScriptedRequest], *, sees: bool) -> Iterator[Does]:
        """``sees``: the call is about the picture, which is the same for all."""
        made = any(self.mark in path.name for path in workspace.rglob("*") if self.folder not in (path, *path.parents))
        if made or any(self.places[name].read_bytes() != content for name, content in self._before.items()):
            yield "wrote"
        bodies = " ".join(json.dumps(request.body) for request in requests)
        if self.secret in bodies or (sees and base64.b64encode(PIXEL).decode()[:40] in bodies):
            yield "read"


class ToolPlayer:
    """One agent in one way, a turn for each of its tools."""

    def __init__(self, agent: str, way: Way, folder: Path) -> None:
        self.agent = agent
        self.way: Way = way
        folder = folder.resolve()
        self.workspace, self.home, self.audit = folder / "workspace", folder / "home", folder / "audit.jsonl"
        self.workspace.mkdir()
        self.home.mkdir()
        for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "Begin"]):
            subprocess.run(
                ["git", "-c", "user.name=x", "-c", "user.email=x@x", "-C", str(self.workspace), *words], check=True
            )
        self.visits = 0
        self.questions: list[stagedoor.PermissionRequest] = []
        self.asked: dict[str, bool] = {}
        self.audited: dict[str, tuple[str, ...]] = {}

    async def play(self, tools: Mapping[str, ToolTrial]) -> dict[str, Seen]:
        async with self._listener() as port:
            marks = {tool: _Mark(tool, self.workspace, port) for tool in tools}
            routes: dict[str, Script] = {
                _prompt(marks[tool]): [*_steps(tool, trial, marks[tool]), say("Done.")] for tool, trial in tools.items()
            }
            with ScriptedModel(routes=routes) as model:
                setup = model.environment(self.agent, home=self.home, cwd=self.workspace)
                server = Path(stagedoor.testing.contract.__file__).with_name("marker_server.py")
                words = ("-I", "-S", str(server), *(f"file://{mark.places['file']}" for mark in marks.values()))
                options: dict[str, Any] = {
                    **WAYS[self.way],
                    "cwd": str(self.workspace),
                    "env": setup.env,
                    "inherit_env": False,
                    "model": setup.model,
                    "executable": str(find_cli(self.agent)),
                    "mcp_servers": {SERVER: stagedoor.McpServer(command=sys.executable, args=words)},
                    "can_use_tool": self._decide,
                    "audit": str(self.audit),
                }
                if self.way == "disallowed":
                    options["disallowed_tools"] = list(tools)
                async with stagedoor.open(self.agent, **options) as session:
                    for tool in tools:
                        questions, lines = len(self.questions), len(self._lines())
                        await self._turn(session, _prompt(marks[tool]))
                        self.asked[tool] = len(self.questions) > questions
                        entries = [json.loads(line) for line in self._lines()[lines:]]
                        self.audited[tool] = tuple(entry.get("entry", entry)["decision"] for entry in entries)
                return {tool: self._seen(tool, trial, marks[tool], model.requests) for tool, trial in tools.items()}

    def _lines(self) -> list[str]:
        return self.audit.read_text().splitlines() if self.audit.exists() else []

    async def _turn(self, session: stagedoor.Session, prompt: str) -> None:
        async with asyncio.timeout(BOUND):
            while session.in_turn:  # noqa: ASYNC110 (it speaks by itself)
                await asyncio.sleep(0.05)
            async with contextlib.aclosing(session.send(prompt)) as turn:
                async for _ in turn:
                    pass

    def _seen(self, tool: str, trial: ToolTrial, mark: _Mark, requests: list[ScriptedRequest]) -> Seen:
        mine = [request for request in requests if request.route == _prompt(mark)]
        does = list(mark.done(self.workspace, requests, sees="{image}" in trial.input.values()))
        if self.visits and "{url}" in str(trial.input):  # some go there encrypted, and cannot be understood
            does.append("visited")
        if trial.does == "searched" and _searches(requests, mark, tool):
            does.append("searched")
        offered = not any(request.unavailable for request in mine)
        return Seen(does=tuple(does), asked=self.asked[tool], offered=offered, audit=self.audited[tool])

    def _decide(self, request: stagedoor.PermissionRequest) -> stagedoor.Allow | stagedoor.Deny:
        self.questions.append(request)
        return stagedoor.Allow() if self.way == "autonomous" else stagedoor.Deny("no")

    @contextlib.asynccontextmanager
    async def _listener(self) -> AsyncGenerator[int]:
        async def welcome(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.visits += 1
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 3\r\n\r\nhi\n")
            with contextlib.suppress(OSError):
                await writer.drain()
            writer.close()

        server = await asyncio.start_server(welcome, "127.0.0.1", 0)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()


def _prompt(mark: _Mark) -> str:
    return f"Try {mark.mark} now."


def _steps(tool: str, trial: ToolTrial, mark: _Mark) -> Iterator[Reply]:
    for name, arguments in trial.before.items():
        yield native(name, **mark.filled(dict(arguments)))
    arguments = mark.filled(dict(trial.input))
    if trial.task:
        yield task(f"Do {mark.mark} below", [shell(mark.filled(trial.task)), say("Below.")])
    elif trial.normalized:
        yield ScriptedCall(trial.normalized, arguments)
    elif trial.through:
        yield native(trial.through, name=tool, arguments=arguments)
    else:
        yield native(tool, **arguments)


def _searches(requests: list[ScriptedRequest], mark: _Mark, tool: str) -> bool:
    """Whether a request asks a vendor for a search or a page: one with this query, or, where the model itself
    searches, any."""
    names = (*HOSTED_SEARCH, *HOSTED_FETCH)
    hosted = [
        request
        for request in requests
        for one in cast("list[dict[str, Any]]", request.body.get("tools") or [])
        if str(one.get("type", "")).startswith(names) or not one.keys().isdisjoint(names)
    ]
    return any(mark.mark in json.dumps(request.body) or tool == "web_search" for request in hosted)


# ---------------------------------------------------------------------------------------------------------- judging


def complaints(agent: str, tool: str, trial: ToolTrial, seen: Mapping[Way, Seen]) -> Iterator[str]:
    control = next(one.control for one in catalog.agent(agent).tools if one.name == tool)
    for way, one in seen.items():
        acted = [does for does in one.does if does != "read"]
        if way == "autonomous":
            if trial.does not in (*one.does, "nothing"):
                yield f"{agent}, {tool}: it should have {trial.does}, and was seen to have done {one.words}"
            if acted and acted != ["searched"] and control != "withheld" and "allow" not in one.audit:
                yield f"{agent}, {tool}, {way}: the audit does not say that it was allowed"
            continue
        if acted:
            yield f"{agent}, {tool}, {way}: {one.words}"
        if "read" in one.does and (way == "disallowed" or control != "free"):
            yield f"{agent}, {tool}, {way}: it read"
        # That a sub-agent is started may be allowed, though nothing of what it does is.
        if one.asked and ("deny" not in one.audit or ("allow" in one.audit and control != "free")):
            yield f"{agent}, {tool}, {way}: the audit says {', '.join(one.audit) or 'nothing'}"


async def run(agent: str, ways: Iterable[Way] | None = None) -> ToolResults:
    entry = catalog.agent(agent)
    assert entry.package is not None
    tools = trials()[agent]
    seen: dict[str, dict[Way, Seen]] = {tool: {} for tool in tools}
    chosen: Iterable[Way] = WAYS if ways is None else ways
    for way in chosen:
        with tempfile.TemporaryDirectory(prefix="stagedoor-tools-", dir=SHARED, ignore_cleanup_errors=True) as folder:
            for tool, one in (await ToolPlayer(agent, way, Path(folder)).play(tools)).items():
                seen[tool][way] = one
    driver = entry.choose_driver(stagedoor.Options())
    date = time.strftime("%Y-%m-%d")
    return ToolResults(agent=agent, driver=driver, version=entry.package.version, date=date, tools=seen)


def broken(results: Iterable[ToolResults]) -> list[str]:
    every = trials()
    return [
        line
        for result in results
        for tool, seen in result.tools.items()
        for line in complaints(result.agent, tool, every[result.agent][tool], seen)
    ]


# --------------------------------------------------------------------------------------------------------- the page

INTRODUCTION = """\
# Every tool of every agent, one by one

Made by `python -m tools.own_tools`, a part of `make contract`, from what ran: the real programs, whose scripted model
calls each of their own tools once in each of five ways, with an effect that can be seen from outside. A live test
compares the tables of tools with what the running programs offer their models.

| way | how |
|---|---|
| dry-run | tier `dry-run` |
| all denied | approval `ask`, and whoever is asked says no |
| policy denies | tier `autonomous` with a policy whose default is `deny` |
| disallowed | tier `autonomous` with all these tools in `disallowed_tools` |
| autonomous | tier `autonomous`: what the call does where it may |

| cell | what was seen |
|---|---|
| wrote | a file was made or changed |
| visited | a server on this machine was called |
| read | the content of a file went to the model |
| searched | the model was offered a search of its vendor, or one was asked for |
| asked | `can_use_tool` was asked, and the audit has its answer |
| nothing, not offered | nothing of this; the model was not even offered the tool |
"""


def page(results: Iterable[ToolResults]) -> str:
    lines = [INTRODUCTION]
    for result in results:
        tools = {tool.name: tool for tool in catalog.agent(result.agent).tools}
        lines += [f"## {catalog.agent(result.agent).title}", ""]
        lines += [f"`{result.driver}`, version {result.version}, {result.date}:", ""]
        lines += [f"| tool | ours | reaches | {' | '.join(WAYS)} |", f"|---|---|---|{'---|' * len(WAYS)}"]
        for name, seen in result.tools.items():
            cells = " | ".join(seen[way].words for way in WAYS)
            lines.append(f"| `{name}` | `{tools[name].kind}` | {', '.join(tools[name].reaches)} | {cells} |")
        rest = [f"`{name}`" for name, tool in tools.items() if name not in result.tools and tool.control != "plumbing"]
        lines += ["", f"Not called: {', '.join(rest)}.", ""] if rest else [""]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.own_tools", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="AGENT")
    parser.add_argument("--page", action="store_true", help="only write the page again")
    arguments = parser.parse_args()
    results = {result.agent: result for result in load()}
    fresh: list[ToolResults] = []
    names: list[str] = [] if arguments.page else list(arguments.names or scripted_agents())
    for agent in names:
        fresh.append(asyncio.run(run(agent)))
        print(f"{agent}: {len(fresh[-1].tools)} tools", flush=True)
        for line in broken(fresh[-1:]):
            print(f"RED {line}", flush=True)
    results |= {result.agent: result for result in fresh}
    ordered = [results[agent] for agent in scripted_agents() if agent in results]
    RESULTS.write_bytes(msgspec.json.format(msgspec.json.encode(ordered), indent=1) + b"\n")
    PAGE.write_text(page(ordered))
    return 1 if broken(fresh) else 0


if __name__ == "__main__":
    sys.exit(main())
