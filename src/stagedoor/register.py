"""Which session was whose: so that one can be resumed by its id alone, from anywhere, and never with more than it had.

A line per session in ``$STAGEDOOR_HOME/sessions.jsonl`` (by default ``stagedoor`` in the user's state folder).
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from .errors import NotAllowed, SessionNotFound
from .machine.folders import user_folder, user_folders
from .unified.options import Approval, Confine, Options, Sandbox, Tier

NAME = "sessions.jsonl"


CONFIG_NAME = "config.yaml"


class RegisterEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What was known when the session began."""

    session_id: str
    native_id: str
    agent: str
    driver: str = ""
    cwd: str = ""
    tier: Tier = "supervised"
    approval: Approval | None = None
    sandbox: Sandbox | None = None
    confine: Confine = "off"
    confine_hide: tuple[str, ...] = ()
    ruled: bool = False
    """A policy was over its tier and modes."""
    policy: str = ""
    """Its file, where it came from one."""
    allowed_tools: tuple[str, ...] | None = None
    disallowed_tools: tuple[str, ...] = ()
    started_ms: int = 0


def entry_of(
    options: Options, *, session_id: str, native_id: str, agent: str, driver: str, started_ms: int = 0
) -> RegisterEntry:
    """``options``: as the caller gave them."""
    return RegisterEntry(
        session_id=session_id,
        native_id=native_id,
        agent=agent,
        driver=driver,
        cwd=options.cwd,
        tier=options.tier,
        approval=options.approval,
        sandbox=options.sandbox,
        confine=options.confine,
        confine_hide=options.confine_hide,
        ruled=options.policy is not None,
        policy=str(Path(options.policy).resolve()) if isinstance(options.policy, str | Path) else "",
        allowed_tools=options.allowed_tools,
        disallowed_tools=options.disallowed_tools,
        started_ms=started_ms,
    )


def home(env: Mapping[str, str] = os.environ) -> Path:
    """Stagedoor's own folder."""
    if named := env.get("STAGEDOOR_HOME"):
        return Path(named)
    return user_folder("state", env) / "stagedoor"


def config_files(env: Mapping[str, str] = os.environ) -> list[Path]:
    """Where the configuration is looked for when nobody names a file; the first that is there counts."""
    own = [Path(env["STAGEDOOR_HOME"]) / CONFIG_NAME] if env.get("STAGEDOOR_HOME") else []
    return [*own, *(folder / "stagedoor" / CONFIG_NAME for folder in user_folders("config", env))]


class Register:
    def __init__(self, folder: Path | None = None) -> None:
        self._path = (folder or home()) / NAME

    def add(self, entry: RegisterEntry) -> None:
        """A session that cannot be written down can still be run: it is only not found again by Stagedoor's id."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with self._path.open("ab") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                file.write(msgspec.json.encode(entry) + b"\n")
        except OSError:
            return

    def find(self, session_id: str) -> RegisterEntry | None:
        """The latest entry under Stagedoor's or the agent's own id."""
        try:
            lines = self._path.read_bytes().splitlines()
        except OSError:
            return None
        needle = session_id.encode()
        for line in reversed(lines):
            if needle not in line:
                continue
            try:
                entry = msgspec.json.decode(line, type=RegisterEntry)
            except msgspec.MsgspecError:
                continue
            if session_id in (entry.session_id, entry.native_id):
                return entry
        return None


def resumed(options: Options, named: frozenset[str], agent: str, entry: RegisterEntry | None) -> Options:
    """The options for going on with a session: what the caller did not name is as it was, and nothing is wider.

    ``named`` are the options the caller gave.
    """
    if entry is None:
        return options
    if entry.agent != agent:
        raise SessionNotFound(f"session {options.resume!r} belongs to {entry.agent}, not to {agent}")
    kept = {name: getattr(entry, name) for name in ("tier", "approval", "sandbox", "confine") if name not in named}
    if "tier" in named and "approval" not in named:
        kept.pop("approval")
    if "cwd" not in named and entry.cwd:
        kept["cwd"] = entry.cwd
    if "driver" not in named and entry.driver:
        kept["driver"] = entry.driver
    going_on = msgspec.structs.replace(options, resume=entry.native_id, **kept)
    before = msgspec.structs.replace(
        options,
        tier=entry.tier,
        approval=entry.approval,
        sandbox=entry.sandbox,
        confine=entry.confine,
    )
    if (
        reach(going_on) > reach(before)
        or _room(going_on) > _room(before)
        or _CONFINES[going_on.confine] > _CONFINES[entry.confine]
    ):
        raise _wider(options, _described(before), _described(going_on))
    if going_on.confine != "off":  # what was hidden stays hidden
        hidden = dict.fromkeys((*entry.confine_hide, *going_on.confine_hide))
        going_on = msgspec.structs.replace(going_on, confine_hide=tuple(hidden))
    going_on = _within(going_on, entry)
    if entry.ruled and going_on.policy is None and going_on.tier != "dry-run":
        return msgspec.structs.replace(going_on, approval="ask")  # what its rules would have denied is unknown
    return going_on


def _within(options: Options, entry: RegisterEntry) -> Options:
    """The tools and the rules it had hold on: a list may only get shorter, and a policy file is not exchanged."""
    had = entry.allowed_tools
    allowed = had if options.allowed_tools is None else options.allowed_tools
    if had is not None and not set(allowed or ()) <= set(had):
        raise _wider(options, _tools(had), _tools(allowed))
    policy = options.policy if options.policy is not None else entry.policy or None
    if entry.policy and isinstance(policy, str | Path) and str(Path(policy).resolve()) != entry.policy:
        raise _wider(options, f"the policy {entry.policy}", f"the policy {policy}")
    denied = (
        *options.disallowed_tools,
        *(one for one in entry.disallowed_tools if one not in options.disallowed_tools),
    )
    return msgspec.structs.replace(options, allowed_tools=allowed, disallowed_tools=denied, policy=policy)


def _wider(options: Options, before: str, now: str) -> NotAllowed:
    return NotAllowed(
        f"session {options.resume!r} ran with {before}; it cannot be resumed with {now}. Open a new session instead"
    )


_TIERS: dict[Tier, int] = {"dry-run": 0, "supervised": 2, "autonomous": 4}
_APPROVALS: dict[Approval, int] = {"ask": 1, "autoEdit": 2, "askDangerous": 3, "autoAll": 4}
_SANDBOXES: dict[Sandbox | None, int] = {"readOnly": 0, "workspaceWrite": 1, "fullAccess": 2, "none": 2, None: 2}

_CONFINES: dict[Confine, int] = {"read-only": 0, "workspace": 1, "off": 2}


def reach(options: Options) -> int:
    """How much happens without a question."""
    if options.tier == "dry-run" or options.approval is None:
        return _TIERS[options.tier]
    return _APPROVALS[options.approval]


def _room(options: Options) -> int:
    return _SANDBOXES[options.sandbox]


def _tools(names: tuple[str, ...] | None) -> str:
    return f"the allowed tools {', '.join(names)}" if names else "no list of allowed tools"


def _described(options: Options) -> str:
    words = [f"tier {options.tier}"]
    words += [f"approval {options.approval}"] if options.approval is not None else []
    words += [f"sandbox {options.sandbox}"] if options.sandbox is not None else []
    words += [f"confine {options.confine}"] if options.confine != "off" else []
    return ", ".join(words)
