"""``run``, ``open`` and their relatives: everything a caller needs, over any agent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Any, Unpack

import msgspec
from msgspec.structs import replace

from . import catalog
from .cancel import CancelToken, ends_with
from .drivers.acp.definition import AcpAgent
from .drivers.agent import Agent, Presence, StoredSession
from .drivers.confinement import environ_of
from .errors import BadRequest, NotSupported, SessionNotFound
from .permissions.ground import home_of
from .register import Register, resumed
from .session import Session
from .trust.project import standing_of
from .unified.events import Done, Event, Status, Text, TurnCompleted, Usage
from .unified.options import HostedOptions, OpenOptions, Options, check_options, without_modes

LAST = "last"
"""``resume="last"``: the agent's newest session in this folder."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one prompt."""

    text: str
    status: Status
    usage: Usage = Usage()
    cost_usd: float | None = None
    events: list[Event] = []
    structured: Any = None


class Task(msgspec.Struct, frozen=True):
    """One prompt for one agent, for ``run_parallel``. ``options`` go over those all tasks share."""

    agent: str | AcpAgent
    prompt: str
    options: OpenOptions = {}
    name: str = ""


def open(agent: str | AcpAgent, **options: Unpack[OpenOptions]) -> Session:
    """A conversation with ``agent``; nothing starts before the first ``send``. The options: docs/options.md.

    >>> async with stagedoor.open("codex", cwd=".", tier="supervised", can_use_tool=ask) as session:
    ...     async for event in session.send("Write the test first"): ...
    """
    return conversation(agent, options)


def conversation(
    agent: str | AcpAgent,
    options: Mapping[str, Any],
    *,
    attended: bool = False,
    session_id: str | None = None,
    host: Callable[[str, Mapping[str, Any]], Awaitable[Mapping[str, Any] | None]] | None = None,
) -> Session:
    """``open`` for those who answer questions from outside (``attended``), give the session its id, or have an editor
    that files and terminals could be used of (``host``)."""
    entry = catalog.agent(agent)
    requested = _requested(options, entry)
    effective = _with_policy(_with_protected_files(requested))
    if host is not None:
        effective = HostedOptions(**{name: getattr(effective, name) for name in Options.__struct_fields__}, host=host)
    driver = catalog.driver(entry, effective)
    ruled = requested.policy is not None or bool(requested.before_tool_call)
    if ruled and driver.capabilities.permissions == "none":
        others = [name for name, other in entry.drivers.items() if other.capabilities.permissions != "none"]
        raise NotSupported(
            f"{entry.name} ({driver.name}) does not ask before it acts, so no policy or hook can be enforced: "
            f"leave them out, or use driver={' or '.join(map(repr, others))}"
        )
    identity: dict[str, Any] = {} if session_id is None else {"new_id": lambda: session_id}
    return Session(
        agent=entry.name,
        options=effective,
        requested=requested,
        driver=driver,
        standing=lambda: standing_of(effective, entry.project_paths, home_of(effective)),
        title=entry.title,
        attended=attended,
        lists=entry.tool_lists(effective),
        **identity,
    )


async def run(
    agent: str | AcpAgent, prompt: str, *, cancel: CancelToken | None = None, **options: Unpack[OpenOptions]
) -> AsyncGenerator[Event]:
    """One prompt: yields every event from ``init`` to ``done``. Leaving the loop stops the agent.

    ``cancel`` stops it too, from anywhere; the stream then ends as ``interrupted``.
    """
    async with open(agent, **options) as session, ends_with(session, cancel) as started:
        events = session.events
        await session.post(prompt)
        started.set()
        turn = session.turn
        while await events.news():
            for event in events.ready():
                yield event
                if type(event) is TurnCompleted and event.turn >= turn:
                    await session.close()  # what is left to say, up to ``done``, is read all the same


async def result(agent: str | AcpAgent, prompt: str, **options: Unpack[OpenOptions]) -> Result:
    """The same when only the outcome matters: waits, and returns the whole result."""
    return collect([event async for event in run(agent, prompt, **options)])


def run_sync(agent: str | AcpAgent, prompt: str, **options: Unpack[OpenOptions]) -> Result:
    """``result`` for scripts without an event loop."""
    return without_loop(result(agent, prompt, **options))


def without_loop(outcome: Coroutine[Any, Any, Result]) -> Result:
    """Wait for ``outcome`` where no event loop runs; inside one, say what to write instead of asyncio's bare error."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(outcome)
    outcome.close()
    raise RuntimeError("run_sync cannot run inside an event loop: use await stagedoor.result(…)")


def collect(events: list[Event]) -> Result:
    """The result that a finished stream adds up to."""
    done = next((event for event in reversed(events) if isinstance(event, Done)), Done(status="error"))
    turn = next((event for event in reversed(events) if isinstance(event, TurnCompleted)), None)
    texts = [event.text for event in events if isinstance(event, Text) and event.parent_tool_use_id is None]
    return Result(
        text=(turn.result if turn is not None else "") or (texts[-1] if texts else ""),
        status=done.status,
        usage=done.usage,
        cost_usd=done.cost_usd,
        events=events,
        structured=turn.structured if turn is not None else None,
    )


async def discover(agents: Iterable[str] | None = None, *, env: Mapping[str, str] | None = None) -> list[Presence]:
    """Every agent: installed? where? which version? signed in? what can it do?"""
    names = list(catalog.names() if agents is None else agents)
    return list(await asyncio.gather(*(catalog.agent(name).inspect(env) for name in names)))


def history(
    cwd: str | Path = ".", agent: str | None = None, *, env: Mapping[str, str] | None = None
) -> list[StoredSession]:
    """What the agents have stored on disk for a directory, newest first."""
    folder = str(Path(cwd).resolve())
    names = [agent] if agent is not None else list(catalog.names())
    sessions = [stored for name in names for stored in catalog.agent(name).list_stored(folder, env)]
    return sorted(sessions, key=lambda stored: stored.updated_ms, reverse=True)


def _requested(arguments: Mapping[str, Any], entry: Agent) -> Options:
    arguments = without_modes(arguments)
    options = check_options(arguments)
    if options.resume == LAST:
        options = replace(options, resume=_last_session(entry, options))
    if options.resume is not None:
        options = resumed(options, frozenset(arguments), entry.name, Register().find(options.resume))
    return replace(options, cwd=str(Path(options.cwd).resolve()))


def _last_session(entry: Agent, options: Options) -> str:
    folder = str(Path(options.cwd).resolve())
    stored = list(entry.list_stored(folder, environ_of(options)))
    if not stored:
        raise SessionNotFound(
            f"resume={LAST!r}: {entry.name} has no session in {folder}; start one without resume, or name another cwd"
        )
    return max(stored, key=lambda session: session.updated_ms).session_id


def _with_protected_files(options: Options) -> Options:
    """Every agent's own files are protected from each of them, beside what the caller names."""
    return replace(options, protected={**catalog.protected(), **options.protected})


def _with_policy(options: Options) -> Options:
    """With a policy, every call has to reach us: the agent asks about all of them, and the rules decide.

    Where the rules are silent, what was asked for by tier and modes holds. Without a policy, ours is needed for two
    modes that no agent knows, and with a list of tools: an agent may have to ask about those that it has.
    """
    if options.before_tool_call and options.policy is None:
        from .permissions.policy import Policy

        options = replace(options, policy=Policy())  # then every call is asked about, and reaches the hook
    listed = options.allowed_tools is not None or bool(options.disallowed_tools)
    if options.policy is None and not listed and options.tier != "dry-run" and options.approval != "askDangerous":
        return options
    from .permissions.policy import built_in
    from .permissions.policy_file import load_policy

    policy = built_in(tier=options.tier, approval=options.approval, sandbox=options.sandbox)
    if options.policy is None:
        return replace(options, policy=policy)
    policy_of_caller = load_policy(Path(options.policy)) if isinstance(options.policy, str | Path) else options.policy
    if not hasattr(policy_of_caller, "over_modes"):
        raise BadRequest(f"policy={policy_of_caller!r}: give the path of a policy file, or a Policy")
    approval = options.approval if options.tier == "dry-run" else "ask"
    file = options.remember_in or (str(options.policy) if isinstance(options.policy, str | Path) else None)
    return replace(options, policy=policy_of_caller.over_modes(policy), approval=approval, remember_in=file)
