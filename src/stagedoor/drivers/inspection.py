"""What is there of an agent's program: asked in one way for all, and never for longer than a while."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from msgspec.structs import replace

from ..errors import StagedoorError
from ..transports.executables import find_executable
from ..transports.versions import CheckedVersion
from .agent import Agent, Presence

PATIENCE = 30.0

SignIn: TypeAlias = tuple[bool | None, str, str]
"""Whether it is signed in (``None``: cannot be told without a model call), what is wrong, and what mends it."""


async def inspected(
    agent: Agent,
    find: Callable[[], str],
    version: Callable[[], Awaitable[CheckedVersion]],
    sign_in: Callable[[], SignIn | Awaitable[SignIn]],
    *,
    patience: float = PATIENCE,
) -> Presence:
    """Each is asked only when the one before it has answered; the first that fails says what is wrong."""
    found = Presence(
        agent=agent.name, title=agent.title, drivers={name: one.capabilities for name, one in agent.drivers.items()}
    )
    try:
        async with asyncio.timeout(patience):
            found = replace(found, executable=find(), installed=True)
            found = replace(found, version=(await version()).version)
            outcome = sign_in()
            signed_in, problem, fix = outcome if isinstance(outcome, tuple) else await outcome
    except TimeoutError:
        problem = f"{found.executable} did not answer within {patience:g} s"
        return replace(found, problem=problem, fix=f"{found.executable} --version")
    except (StagedoorError, OSError) as error:
        return replace(found, problem=str(error), fix=agent.install)
    return replace(found, signed_in=signed_in, problem=problem, fix=fix)


def inspection(
    agent: Callable[[], Agent],
    find: Callable[[str | None, Mapping[str, str] | None], str],
    sign_in: Callable[[Mapping[str, str]], SignIn],
    program_of: Callable[[str], str] = str,
) -> Callable[[Mapping[str, str] | None], Awaitable[Presence]]:
    """How an agent with proven versions is inspected. ``program_of``: what its launcher starts, where it has one."""

    async def inspect(env: Mapping[str, str] | None) -> Presence:
        async def version() -> CheckedVersion:
            versions = agent().versions
            assert versions is not None
            return await versions.check(program_of(find(None, env)), env=env)

        return await inspected(
            agent(), lambda: find(None, env), version, lambda: sign_in(os.environ if env is None else env)
        )

    return inspect


async def inspected_program(agent: Agent, program: str, env: Mapping[str, str]) -> Presence:
    """Only whether it is there: nothing is known of its version and of whom it knows without starting it."""
    presence = Presence(
        agent=agent.name, title=agent.title, drivers={name: one.capabilities for name, one in agent.drivers.items()}
    )
    try:
        executable = find_executable(
            program, executable=program if "/" in program else None, env=env, install=agent.install
        )
    except StagedoorError as error:
        return replace(presence, problem=str(error), fix=agent.install)
    return replace(presence, executable=executable, installed=True)
