"""What the server is told: one frozen value. ``config.py`` reads it from a file, the environment and flags."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from stagedoor.drivers.acp.definition import AcpAgent
from stagedoor.unified.options import Approval, Confine, Sandbox, Tier


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How one agent is run. Empty: as the agent itself would."""

    enabled: bool = True
    acp: AcpAgent | None = None
    """What it is, where the configuration adds it."""
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    model: str | None = None
    effort: str | None = None
    driver: str | None = None
    tier: Tier | None = None
    approval: Approval | None = None
    sandbox: Sandbox | None = None
    confine: Confine = "off"
    """The least a session of this agent is confined."""
    confine_write: tuple[str, ...] = ()
    confine_hide: tuple[str, ...] = ()
    auto_accept: tuple[str, ...] = ()
    """Tools that are allowed without a question, by normalized or own name."""
    trusted_folders: tuple[str, ...] = ()
    """Folders whose own settings, hooks and tool servers take part when this agent runs there."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What the server takes on at once. Beyond it a request is refused with ``TooMany``, never half done."""

    awake: int = 32
    """Sessions whose CLI runs."""
    queued: int = 20
    """Follow-ups that wait in one session."""
    prompt: int = 100_000
    body: int = 4 * 1024 * 1024
    connections: int = 1000
    subscriptions: int = 100
    """Sessions one JSON-RPC client follows."""
    depth: int = 3
    """How deep sessions that start sessions may be nested."""
    children: int = 8
    """Open sessions that one session, or one caller at the MCP door, has started."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    home: str = ""
    """Stagedoor's own folder: log, token, audit. Empty: ``register.home()``."""
    host: str = "127.0.0.1"
    port: int = 16180
    dialect: str = "stagedoor"
    """What streams and pages of events speak where neither the request nor the device says."""
    hosts: tuple[str, ...] = ()
    """More names this server is reached by (``Host`` and ``Origin`` are checked against them)."""
    tls_cert: str = ""
    tls_key: str = ""
    roots: tuple[str, ...] = ()
    """Sessions run, and files are read, only under these folders."""
    projects: Mapping[str, str] = {}
    push: tuple[str, ...] = ()
    """Addresses that branches may be pushed to; one that ends with ``/`` or ``:`` stands for all that begin so."""
    clone: tuple[str, ...] = ()
    """Addresses of repositories that sessions may be placed in (``git:ADDRESS@REF``), named in the same way."""
    clone_megabytes: int = 4000
    """Of a clone; 0: no limit."""
    clone_files: int = 500_000
    """And folders, of a clone; 0: no limit."""
    checkpoints: bool = True
    """Before each turn it is kept how the workspace stands, so that the turn can be undone."""
    trusted_folders: tuple[str, ...] = ()
    """Folders whose own settings, hooks and tool servers take part, whichever agent runs there."""
    default_agent: str = ""
    agents: Mapping[str, AgentSettings] = {}
    policy: str = ""
    """A policy file; read again when it changes."""
    before_tool_call: tuple[str, ...] = ()
    """A command that decides about every call of every agent before it runs."""
    after_tool_call: tuple[str, ...] = ()
    """A command that is told of every call when it is over."""
    on_event: Mapping[str, tuple[str, ...]] = {}
    """Commands that are told of the events of every session, by the type of event."""
    hook_timeout: int = 60
    protected: tuple[str, ...] = ()
    """Patterns of files that are asked about before they are written, beside the built-in ones."""
    tier: Tier = "supervised"
    sleep_after: float | None = 900.0
    """Seconds without a turn before an open session's CLI is put to sleep."""
    answer_within: float | None = 86_400.0
    """Seconds a question waits before it is denied."""
    keep_days: float | None = None
    """Ended sessions lose their records after this many days. ``None``: never."""
    durable: Literal["process", "power"] = "process"
    """``process``: what is acknowledged survives our death. ``power``: the machine's too, at the price of a sync."""
    database: str = ""
    """The log is in this PostgreSQL database (``postgresql://…``) and may be used by several. Empty: in a file."""
    database_password_file: str = ""
    webhooks: tuple[str, ...] = ()
    """Addresses that are told of questions, ends and failures with a signed request."""
    webhook_secret: str = ""
    """What those requests are signed with (``whsec_`` and base64)."""
    ntfy: tuple[str, ...] = ()
    """Topics of ntfy servers that are told the same."""
    ntfy_token: str = ""
    push_contact: str = ""
    """Whom push services may write to (``mailto:`` or ``https:``); empty: where the page is."""
    push_hosts: tuple[str, ...] = ()
    """Push services of one's own: in this network, or without TLS."""
    notify_on: tuple[str, ...] = ("question", "done", "failed")
    notify_content: bool = False
    """Whether titles, commands and results go out with it."""
    machine_name: str = ""
    """What this machine is called where several share a log. Empty: its host name."""
    labels: tuple[str, ...] = ()
    """What sessions may ask for, beside this machine's name and its agents."""
    lease: int = 15
    """Seconds after which the sessions of a machine that nobody hears of may be taken by others."""
    limits: Limits = Limits()

    def added_agents(self) -> dict[str, AcpAgent]:
        """Those that are agents by this configuration only."""
        return {name: one.acp for name, one in self.agents.items() if one.acp is not None}
