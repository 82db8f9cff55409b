"""Call every tool of an agent's own, one by one, and write down what became of it: a part of ``make contract``.

    python -m tools.own_tools [--clis FOLDER] [--all] [--page] [AGENT[:DRIVER[:VERSION]] …]

``own_tools.yaml`` has a call for each tool, with an effect that can be seen from outside. It is made in five ways: in a
dry run, where everybody who is asked says no, under a policy that denies all, with the tool on the list of those that
are not allowed, and where everything may run (which shows that the call works). ``--all`` plays the other drivers and
the oldest accepted versions too; what is missing is installed into the folder. What is seen is kept in
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
import shutil
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
from stagedoor.testing.script import Branch, Reply, Script, ScriptedCall, ToolOutcome, native, say, shell, task
from tools.contract import program

CALLS = Path(__file__).with_name("own_tools.yaml")
RESULTS = Path("docs/own_tools.json")
PAGE = Path("docs/own-tools.md")
BOUND = 120.0
LISTED = "Listed by the tool server"
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
NOTEBOOK: dict[str, Any] = {
    "cells": [{"cell_type": "code", "id": "a", "metadata": {}, "outputs": [], "execution_count": None, "source": []}],
    "metadata": {},
    "nbformat": 4,
    "nbformat_minor": 5,
}

Does = Literal["nothing", "wrote", "visited", "read", "listed", "called", "searched"]
"""``listed``: the model was given the names that a tool server has. ``called``: a sub-agent asked its model.
``searched``: the model was offered a tool that works at its vendor's."""
SKILLS = (".claude", ".agents", ".gemini", ".qwen", ".kimi-code", ".copilot", ".config/opencode")
"""Where the agents look for skills of the user's."""
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
    number: str = ""
    """A pattern for the number in what the call before it gave back, which is the ``{number}`` of this one."""
    does: Does = "nothing"
    why: str = ""
    """Why no effect can be seen, where none can."""


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
    """All tools of one version, through one driver. ``unsupported``: the ways that the driver refuses before start."""

    agent: str
    driver: str
    version: str
    date: str
    tools: dict[str, dict[Way, Seen]]
    unsupported: tuple[Way, ...] = ()

    @property
    def key(self) -> tuple[str, str, str]:
        return (self.agent, self.driver, self.version)


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
        self.hidden = f"hidden{secrets.token_hex(8)}"
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
        (self.folder / f"{self.hidden}.md").write_text("x\n")
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

    def plant_skill(self, home: Path) -> None:
        """The model is told of it by its name; what it says is read by a call."""
        for place in SKILLS:
            skill = home / place / "skills" / self.mark / "SKILL.md"
            skill.parent.mkdir(parents=True)
            skill.write_text(f"---\nname: {self.mark}\ndescription: Try it.\n---\n{self.secret}\n")

    def done(self, workspace: Path, requests: list[ScriptedRequest], *, sees: bool) -> Iterator[Does]:
        """``sees``: the call is about the picture, which is the same for all."""
        made = any(self.mark in path.name for path in workspace.rglob("*") if self.folder not in (path, *path.parents))
        if made or any(self.places[name].read_bytes() != content for name, content in self._before.items()):
            yield "wrote"
        bodies = " ".join(json.dumps(request.body) for request in requests)
        given = " ".join(
            one.output for request in requests for one in request.outcomes
        )  # not what agents say of a folder
        if self.secret in bodies or self.hidden in given or (sees and base64.b64encode(PIXEL).decode()[:40] in bodies):
            yield "read"


class ToolPlayer:
    """One agent in one way, a turn for each of its tools."""

    def __init__(self, agent: str, driver: str, executable: str, way: Way, folder: Path) -> None:
        self.agent = agent
        self.driver = driver
        self.executable = executable
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
            for tool, trial in tools.items():
                if trial.does == "read" and "{mark}" in trial.input.values():
                    marks[tool].plant_skill(self.home)
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
                    "driver": self.driver,
                    "env": {**setup.env, "PATH": _path_with_ripgrep(setup.env["PATH"])},
                    "inherit_env": False,
                    "model": setup.model,
                    "executable": self.executable,
                    "mcp_servers": {SERVER: stagedoor.McpServer(command=sys.executable, args=words)},
                }
                if _asks(self.agent, self.driver):
                    options |= {"can_use_tool": self._decide, "audit": str(self.audit)}
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
        if trial.does == "listed" and any(LISTED in json.dumps(request.body) for request in mine):
            does.append("listed")
        if trial.does == "called" and any(_is_below(request, mark) for request in requests):
            does.append("called")
        if trial.does == "searched" and _searches(requests, mark, tool):
            does.append("searched")
        missing = {name for request in mine for name in request.unavailable}
        offered = missing <= trial.before.keys()
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


def _path_with_ripgrep(path: str) -> str:
    """Some agents search with the machine's ``rg``, and would fetch one; Codex brings its own."""
    if shutil.which("rg", path=path):
        return path
    codex = find_cli("codex")
    if codex is None:
        return path
    brought = codex.parents[1].glob("@openai/codex-*/vendor/*/codex-path/rg")
    return ":".join([path, *(str(one.parent) for one in brought)])


def _prompt(mark: _Mark) -> str:
    return f"Try {mark.mark} now."


def _is_below(request: ScriptedRequest, mark: _Mark) -> bool:
    """Whether a sub-agent of this call asks."""
    return request.route != _prompt(mark) and f"below {mark.mark}" in request.prompt


def _numbered(tool: str, arguments: dict[str, Any], pattern: str) -> Branch:
    def call(outcomes: list[ToolOutcome]) -> Reply:
        found = re.search(pattern, outcomes[-1].output) if outcomes else None
        number = found.group(1) if found else "0"
        given = {key: int(number) if value == "{number}" else value for key, value in arguments.items()}
        return native(tool, **given)

    return call


def _steps(tool: str, trial: ToolTrial, mark: _Mark) -> Iterator[Reply]:
    for name, arguments in trial.before.items():
        yield native(name, **mark.filled(dict(arguments)))
    arguments = mark.filled(dict(trial.input))
    if trial.task:
        yield task(f"Do {mark.mark} below", [shell(mark.filled(trial.task)), say("Below.")])
    elif trial.number:
        yield _numbered(tool, arguments, trial.number)
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


def complaints(result: ToolResults, tool: str, trial: ToolTrial, seen: Mapping[Way, Seen]) -> Iterator[str]:
    control = next(one.control for one in catalog.agent(result.agent).tools if one.name == tool)
    agent = f"{result.agent} {result.driver} {result.version}"
    for way, one in seen.items():
        acted = [does for does in one.does if does not in ("read", "listed")]
        if way == "autonomous":
            absent = not one.offered and result.key != usual(result.agent)  # an older version may not have it yet
            if trial.does not in (*one.does, "nothing") and not absent:
                yield f"{agent}, {tool}: it should have {trial.does}, and was seen to have done {one.words}"
            audited = _asks(result.agent, result.driver) and control != "withheld" and acted != ["searched"]
            if acted and audited and "allow" not in one.audit:
                yield f"{agent}, {tool}, {way}: the audit does not say that it was allowed"
            continue
        by_rule = way in ("policy denies", "disallowed")
        if acted and not (acted == ["called"] and control == "free" and not by_rule):
            yield f"{agent}, {tool}, {way}: {one.words}"
        if "listed" in one.does and control != "free":
            yield f"{agent}, {tool}, {way}: it listed"
        if "read" in one.does and (by_rule or control != "free"):
            yield f"{agent}, {tool}, {way}: it read"
        # That a sub-agent is started may be allowed, though nothing of what it does is.
        if one.asked and ("deny" not in one.audit or ("allow" in one.audit and control != "free")):
            yield f"{agent}, {tool}, {way}: the audit says {', '.join(one.audit) or 'nothing'}"


def _asks(agent: str, driver: str) -> bool:
    return catalog.agent(agent).drivers[driver].capabilities.permissions != "none"


def usual(agent: str) -> tuple[str, str, str]:
    """The driver that is used where none is named, in the version that ``make clis`` brings."""
    entry = catalog.agent(agent)
    assert entry.package is not None
    return agent, entry.choose_driver(stagedoor.Options()), entry.package.version


def accepted(agent: str) -> list[tuple[str, str, str]]:
    """All drivers, in the usual and in the oldest accepted version; the usual one first."""
    entry = catalog.agent(agent)
    assert entry.versions is not None
    first = usual(agent)
    every = [(agent, driver, version) for version in (first[2], entry.versions.oldest) for driver in entry.drivers]
    return list(dict.fromkeys([first, *every]))


def chosen(names: list[str], *, everything: bool) -> list[tuple[str, str, str]]:
    plays = [play for agent in scripted_agents() for play in (accepted(agent) if everything else [usual(agent)])]
    if not names:
        return plays
    named = [":".join(play[:length]) for agent in scripted_agents() for play in accepted(agent) for length in (1, 2, 3)]
    if unknown := set(names) - set(named):
        raise SystemExit(f"there is no {', '.join(sorted(unknown))}: choose from {', '.join(dict.fromkeys(named))}")
    every = [play for agent in scripted_agents() for play in accepted(agent)]
    exact = [play for play in every if {":".join(play), ":".join(play[:2])} & set(names)]
    return [play for play in every if play in exact or (play in plays and play[0] in names)]


async def run(agent: str, driver: str, version: str, executable: str, ways: Iterable[Way] | None = None) -> ToolResults:
    tools = trials()[agent]
    seen: dict[str, dict[Way, Seen]] = {tool: {} for tool in tools}
    unsupported: list[Way] = []
    chosen_ways: Iterable[Way] = WAYS if ways is None else ways
    for way in chosen_ways:
        with tempfile.TemporaryDirectory(prefix="stagedoor-tools-", dir=SHARED, ignore_cleanup_errors=True) as folder:
            try:
                played = await ToolPlayer(agent, driver, executable, way, Path(folder)).play(tools)
            except stagedoor.NotSupported:
                unsupported.append(way)
                continue
            for tool, one in played.items():
                seen[tool][way] = one
    date = time.strftime("%Y-%m-%d")
    return ToolResults(
        agent=agent, driver=driver, version=version, date=date, tools=seen, unsupported=tuple(unsupported)
    )


def broken(results: Iterable[ToolResults]) -> list[str]:
    every = trials()
    return [
        line
        for result in results
        for tool, seen in result.tools.items()
        for line in complaints(result, tool, every[result.agent][tool], seen)
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
| read | the content of a file, or the names in a folder, went to the model |
| listed | what a tool server has went to the model |
| called | a sub-agent asked its model |
| searched | the model was offered a search of its vendor, or one was asked for |
| asked | `can_use_tool` was asked, and the audit has its answer |
| nothing, not offered | nothing of this; the model was not even offered the tool |
"""


def page(results: Iterable[ToolResults]) -> str:
    lines = [INTRODUCTION]
    by_key = {result.key: result for result in results}
    for agent in scripted_agents():
        if (result := by_key.get(usual(agent))) is None:
            continue
        tools = {tool.name: tool for tool in catalog.agent(agent).tools}
        lines += [f"## {catalog.agent(agent).title}", ""]
        lines += [f"`{result.driver}`, version {result.version}, {result.date}:", ""]
        lines += [f"| tool | ours | reaches | {' | '.join(WAYS)} |", f"|---|---|---|{'---|' * len(WAYS)}"]
        for name, seen in result.tools.items():
            cells = " | ".join(seen[way].words for way in WAYS)
            lines.append(f"| `{name}` | `{tools[name].kind}` | {', '.join(tools[name].reaches)} | {cells} |")
        unseen = [f"`{name}`: {trial.why}" for name, trial in trials()[agent].items() if trial.why]
        lines += ["", "No effect of these can be seen from outside, where they run either:", ""] if unseen else []
        lines += [f"- {line}." for line in unseen]
        others = [by_key[key] for key in accepted(agent)[1:] if key in by_key]
        lines += ["", "Also played:", ""] if others else []
        lines += [f"- {_compared(other, result)}." for other in others]
        rest = [f"`{name}`" for name, tool in tools.items() if name not in result.tools and tool.control != "plumbing"]
        lines += ["", f"Not called: {', '.join(rest)}.", ""] if rest else [""]
    return "\n".join(lines)


def _compared(other: ToolResults, shown: ToolResults) -> str:
    """How another driver or version differs from the one in the table."""
    differing = [
        f"{way}, `{tool}`: {seen.words}"
        for tool, ways in other.tools.items()
        for way, seen in ways.items()
        if seen.words != shown.tools[tool][way].words
    ]
    parts = [f"the same but for {'; '.join(differing)}" if differing else "the same"]
    if other.unsupported:
        parts.append(f"refused before start: {', '.join(other.unsupported)}")
    return f"`{other.driver}`, version {other.version}, {other.date}: {'; '.join(parts)}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.own_tools", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="AGENT[:DRIVER[:VERSION]]")
    parser.add_argument("--clis", type=Path, default=Path(".clis"))
    parser.add_argument("--all", action="store_true", help="the other drivers and the oldest accepted versions too")
    parser.add_argument("--page", action="store_true", help="only write the page again")
    arguments = parser.parse_args()
    fresh: list[ToolResults] = []
    for agent, driver, version in [] if arguments.page else chosen(arguments.names, everything=arguments.all):
        fresh.append(asyncio.run(run(agent, driver, version, program(agent, version, arguments.clis))))
        print(f"{agent} {driver} {version}: {len(fresh[-1].tools)} tools", flush=True)
        for line in broken(fresh[-1:]):
            print(f"RED {line}", flush=True)
    results = {result.key: result for result in (*load(), *fresh)}
    ordered = [results[key] for agent in scripted_agents() for key in accepted(agent) if key in results]
    RESULTS.write_bytes(msgspec.json.format(msgspec.json.encode(ordered), indent=1) + b"\n")
    PAGE.write_text(page(ordered))
    return 1 if broken(fresh) else 0


if __name__ == "__main__":
    sys.exit(main())
