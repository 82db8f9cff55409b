"""From the description of an ACP agent to an agent of the catalog. Those that we know by name are made here, too."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping

from msgspec.structs import replace

from ...agents.acp import AcpClient, AcpProfile, AcpSession, AcpSessionConfig, RequestPermission
from ...agents.acp.commands import ClientCapabilities
from ...agents.acp.protocol import AcpProtocol
from ...errors import AgentRefused, NotSupported
from ...transports.executables import find_executable
from ...unified.capabilities import Capabilities
from ...unified.decisions import Ask
from ...unified.events import Event
from ...unified.options import Options, Tier
from ...unified.settings import AgentSetting
from ...unified.tool_lists import AgentTool
from ..agent import Agent, Driver, Presence, StateFolders, StoredSession
from ..confinement import confinement_of, environ_of
from ..inspection import inspected_program
from .call_details import exit_code_in, tool_name_in
from .definition import AcpAgent
from .dictionary import AcpDictionary, Manner
from .opening import CAPABILITIES, config, prompt_blocks
from .recording import AcpRecordingReader, recognize_acp
from .settings import AcpSettings, promises_nothing
from .stored import ListedSessions
from .trial import try_agent

DRIVER = "acp"
UNKNOWN_STATE = StateFolders(())
FORMS = ClientCapabilities(elicitation_forms=True)
SERVED = ClientCapabilities(read_files=True, write_files=True, terminals=True, elicitation_forms=True)
MANNER = Manner(
    tools={
        "Bash": "shell", "Shell": "shell", "run_shell_command": "shell", "Write": "write_file",
        "write_file": "write_file", "Edit": "edit_file", "edit": "edit_file", "replace": "edit_file",
        "Read": "read_file", "read_file": "read_file", "Grep": "search_content", "grep_search": "search_content",
        "Glob": "find_files", "glob": "find_files", "WebFetch": "web_fetch", "web_fetch": "web_fetch",
        "WebSearch": "web_search", "Task": "task", "Agent": "task",
    },
    profile=AcpProfile(tool_name_in_id=r"([A-Za-z][A-Za-z_]*[A-Za-z])(?:-\d{6,}.*|__\d+)$"),
    exit_code=exit_code_in,
    name=tool_name_in,
)  # fmt: skip
"""How agents speak of which nothing more is known: the names and places that several of them use."""


def acp_agent(
    definition: AcpAgent,
    *,
    manner: Manner | None = None,
    capabilities: Capabilities | None = None,
    dictionary: Callable[[], AcpDictionary] | None = None,
    mode_of: Callable[[Options], str | None] | None = None,
    configured: Callable[[AcpSessionConfig, Options], AcpSessionConfig] = lambda config, options: config,
    command_of: Callable[[Options], tuple[str, ...]] | None = None,
    environment: Callable[[Options], Mapping[str, str]] = lambda options: {},
    offered: ClientCapabilities | None = None,
    state: Callable[[Mapping[str, str]], StateFolders] = lambda env: UNKNOWN_STATE,
    tools: tuple[AgentTool, ...] = (),
    list_stored: Callable[[str, Mapping[str, str] | None], Iterable[StoredSession]] | None = None,
    read_stored: Callable[[StoredSession, Mapping[str, str]], Iterable[Event]] | None = None,
    inspect: Callable[[Mapping[str, str] | None], Awaitable[Presence]] | None = None,
) -> Agent:
    """The agent that ``definition`` describes, with one driver, ``acp``.

    Only the first argument is needed; the others are what we know of an agent by name. What the factory has no
    argument for (``package``, ``versions``, ``scripted``, ``protected``, ``project_paths``, ``arguments``) is set with
    ``dataclasses.replace(acp_agent(…), …)``.

    ``manner``: how it speaks (tool names, exit codes, its profile). ``capabilities``: instead of those that follow
    from ``definition.modes``. ``dictionary``: one of its own, for more than a manner can say. ``mode_of``: its mode for
    these options, instead of ``definition.modes`` by tier. ``configured``: the last word on how a session is set up
    (config options, callbacks). ``command_of``: the command line for these options, program first, instead of
    ``definition.command`` (``options.executable`` and ``options.extra_args`` are put in afterwards). ``environment``:
    more variables for these options; the caller's ``env`` goes over them. ``offered``: the files and terminals that we
    serve, by default all of them, each under our rules; none when it is confined. ``state``: its own folders, which a
    confined one may write.
    """
    ways = manner or MANNER
    able = capabilities or capabilities_of(definition)
    served = SERVED if offered is None else offered
    new_dictionary = dictionary or (lambda: AcpDictionary(ways))

    async def open_session(prompt: str, options: Options, ask: Ask, words: AcpDictionary) -> AcpSession:
        confinement = confinement_of(options, state)
        command = definition.command if command_of is None else command_of(options)
        argv = (options.executable or command[0], *command[1:], *options.extra_args)
        env = {**environ_of(options), **definition.env, **environment(options), **options.env}
        find_executable(argv[0], executable=argv[0] if "/" in argv[0] else None, env=env, install=definition.install)
        client = AcpClient(
            argv,
            options.cwd,
            env,
            capabilities=served if confinement is None else FORMS,
            profile=ways.profile,
            quiet=options.stall_after,
            confinement=confinement,
        )
        settings = config(
            options,
            ask,
            words,
            mode=chosen_mode(options),
            edits=allows_edits(options),
            free=asks_nobody(options),
            serve=True,
            waits=5.0,
        )
        settings = configured(replace(settings, options={**definition.options, **settings.options}), options)
        blocks = await asyncio.to_thread(prompt_blocks, prompt, options)
        if options.resume is None:
            return await client.create_session(blocks, settings)
        if options.fork:
            return await client.fork_session(options.resume, blocks, settings)
        return await client.resume_session(options.resume, blocks, settings)

    def chosen_mode(options: Options) -> str | None:
        kept_by = definition.modes.get(tier_of(options)) if mode_of is None else mode_of(options)
        return options.mode or kept_by

    def check(options: Options) -> None:
        """A mode that was configured for a tier keeps it, so another one would not."""
        kept_by = definition.modes.get(tier_of(options)) if mode_of is None else mode_of(options)
        if options.mode is None or options.mode == kept_by or promises_nothing(options):
            return
        kept = f"by its mode {kept_by!r}" if kept_by is not None else "without one"
        raise NotSupported(
            f"mode={options.mode!r}: {definition.name} keeps this session's promises {kept}: leave mode out, "
            "or use tier='autonomous' without policy, hooks and lists of tools"
        )

    async def offered_settings(env: Mapping[str, str] | None) -> tuple[AgentSetting, ...]:
        trial = await try_agent(definition, env=env)
        if trial.problem:
            raise AgentRefused(f"{definition.name}: {trial.problem}")
        return trial.settings

    async def look(env: Mapping[str, str] | None) -> Presence:
        environ = {**(os.environ if env is None else env), **definition.env}
        return await inspected_program(agent, definition.command[0], environ)

    agent = Agent(
        name=definition.name,
        title=definition.title or " ".join(definition.command[:1]),
        install=definition.install,
        drivers={
            DRIVER: Driver(
                DRIVER,
                able,
                new_dictionary,
                lambda: AcpProtocol(profile=ways.profile),
                open_session,
                (RequestPermission,),
                lambda _: AcpRecordingReader(),
                recognize=recognize_acp(definition.name),
                check=check,
                settings=AcpSettings(),
            )
        },
        choose_driver=lambda options: DRIVER,
        list_stored=list_stored or ListedSessions(definition).of_folder,
        read_stored=read_stored,
        inspect=inspect or look,
        tools=tools,
        state=state,
        offered_settings=offered_settings,
    )
    return agent


def capabilities_of(definition: AcpAgent) -> Capabilities:
    """What can be promised of an agent of which we know only how it is started, and what its owner says of its modes.

    The protocol leaves it to an agent what it asks about; its owner's word that a mode asks, or changes nothing, is
    taken. See docs/decisions/0019.
    """
    modes = definition.modes
    notes = dict(CAPABILITIES.notes)
    if "supervised" in modes:
        notes["supervised"] = f"by its mode {modes['supervised']!r}, which was configured for this tier"
    if "dry-run" in modes:
        notes["dry_run"] = f"by its mode {modes['dry-run']!r}, which was configured for this tier"
    return replace(
        CAPABILITIES,
        images=True,
        confine=True,
        effort=True,
        mode=True,
        dry_run="dry-run" in modes,
        supervised="supervised" in modes,
        notes={
            **notes,
            "images": "where the agent accepts them",
            "effort": "where the agent offers it",
            "mode": "where the agent has modes and the tier does not decide",
            "resume": "where the agent offers it",
            "confine": "its own folders are not known: name those it has to write with confine_write",
        },
    )


def tier_of(options: Options) -> Tier:
    """The tier whose mode keeps what these options promise."""
    if options.tier == "dry-run" or options.sandbox == "readOnly":
        return "dry-run"
    return "autonomous" if (options.approval or options.tier) in ("autonomous", "autoAll") else "supervised"


def asks_nobody(options: Options) -> bool:
    """Whether every question of the agent is answered with yes, and nobody is asked: as the tier says."""
    return tier_of(options) == "autonomous" and options.policy is None


def allows_edits(options: Options) -> bool:
    """Whether edits of the workspace run without a question."""
    if options.policy is not None or tier_of(options) != "supervised":
        return False
    return options.approval in (None, "autoEdit")
