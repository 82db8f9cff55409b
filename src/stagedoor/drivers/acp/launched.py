"""An agent that we know by name, started by a launch of its own: private files, variables that must not be there."""

from __future__ import annotations

import weakref

from msgspec.structs import replace

from ...agents.acp import AcpClient, AcpSession, AcpSessionConfig
from ...agents.acp.commands import ClientCapabilities
from ...agents.acp.config import AcpProfile, AskPermission
from ...transports.launch import Launch
from ...unified.options import Options
from .opening import prompt_blocks
from .questions import AcpQuestions


async def open_launched(
    start: Launch,
    prompt: str,
    options: Options,
    settings: AcpSessionConfig,
    questions: AcpQuestions,
    *,
    offered: ClientCapabilities | None = None,
    profile: AcpProfile | None = None,
    decide: AskPermission | None = None,
) -> AcpSession:
    """Start or resume a session; ``questions`` learns of it. ``decide``: who answers in its place."""
    env = None if options.inherit_env else dict(options.env)
    if options.inherit_env:
        start = replace(start, env={**options.env, **start.env})
    client = AcpClient(
        start,
        options.cwd,
        env,
        capabilities=offered if start.confinement is None else None,
        profile=profile,
        quiet=options.stall_after,
    )
    settings = replace(settings, can_use_tool=decide or questions.decide)
    blocks = prompt_blocks(prompt, options)
    if options.resume is None:
        session = await client.create_session(blocks, settings)
    elif options.fork:
        session = await client.fork_session(options.resume, blocks, settings)
    else:
        session = await client.resume_session(options.resume, blocks, settings)
    questions.session.set_result(weakref.ref(session))
    return session
