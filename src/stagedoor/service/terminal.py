"""A terminal of the same user on the same machine: who proves what to whom, and whether a session here would be the
same as one there.

A terminal runs its sessions in the server only where nothing changes by it: not the agent's program and settings, not
its environment, not what it may do without a question.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec.structs import replace

from stagedoor import catalog
from stagedoor.errors import NotAllowed

from .config.settings import AgentSettings, Settings
from .opening import environment
from .workspaces import check_allowed

NONCE = re.compile(r"[0-9a-f]{64}")
# What differs from one terminal window to the next, and means nothing to an agent.
_OF_A_WINDOW = re.compile(
    r"_|PWD|OLDPWD|SHLVL|SHELL|TERM|TERM_.*|TERMINFO.*|TERMINAL_.*|COLORTERM|COLORFGBG|COLUMNS|LINES|PS[1-4]|PROMPT.*|"
    r"LS_COLORS|LSCOLORS|CLICOLOR.*|NO_COLOR|FORCE_COLOR|LESS.*|PAGER|MANPAGER|EDITOR|VISUAL|HIST.*|MAIL|LOGNAME|HOSTNAME|"
    r"TMUX.*|STY|WINDOW|WINDOWID|WINDOWPATH|DISPLAY|WAYLAND_DISPLAY|XAUTHORITY|SESSION_MANAGER|DESKTOP_.*|GDMSESSION|"
    r"XDG_(?:SESSION|SEAT|VTNR|CURRENT|MENU|GREETER|DATA_DIRS|ACTIVATION).*|DBUS_.*|SSH_(?:CLIENT|CONNECTION|TTY)|"
    r"GPG_TTY|INVOCATION_ID|JOURNAL_STREAM|SYSTEMD_.*|MANAGERPID|NOTIFY_SOCKET|ITERM_.*|LC_TERMINAL.*|VTE_.*|KITTY_.*|"
    r"ALACRITTY_.*|WEZTERM_.*|KONSOLE_.*|GNOME_.*|VSCODE_.*|PYTEST_.*|PYTHONWARNINGS|COVERAGE_.*|COV_.*"
)


def proof_of(token: str, nonce: str) -> str:
    """What only a holder of the server's own token can answer to ``nonce``; the token is not in it."""
    key = hashlib.sha256(token.encode(errors="surrogateescape")).hexdigest()
    return proof_by_hash(key, nonce)


def proof_by_hash(token_hash: str, nonce: str) -> str:
    return hmac.new(token_hash.encode(), b"stagedoor proof " + nonce.encode(), "sha256").hexdigest()


def digests(salt: str, env: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables an agent would get, each as a digest: they are compared, not passed on."""
    return {
        name: hashlib.sha256(f"{salt}\0{name}\0{value}".encode(errors="surrogateescape")).hexdigest()
        for name, value in environment(env).items()
        if not _OF_A_WINDOW.fullmatch(name)
    }


class TerminalBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``environment``: name → digest with ``salt``, as ``digests`` makes it."""

    agent: str
    cwd: str
    salt: str
    environment: dict[str, str]


class TerminalAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """``why`` a session here would not be the same as one at the terminal; empty: it would."""

    why: str = ""


def why_not_here(body: TerminalBody, settings: Settings, env: Mapping[str, str] = os.environ) -> str:
    agent = catalog.canonical_name(body.agent)
    configured = settings.agents.get(agent, AgentSettings())
    if not configured.enabled:
        return f"{agent} is switched off in the server's configuration"
    if replace(configured, acp=None, trusted_folders=()) != AgentSettings():
        return f"the server's configuration has settings of its own for {agent}"
    try:
        check_allowed(Path(body.cwd).resolve(), settings)
    except NotAllowed:
        return "this folder is outside the folders that the server works in"
    here = digests(body.salt, env)
    differing = sorted(
        name for name in here.keys() | body.environment.keys() if here.get(name) != body.environment.get(name)
    )
    if differing:
        names = ", ".join(differing[:3]) + (f" and {len(differing) - 3} more" if len(differing) > 3 else "")
        return f"this terminal's environment is another than the server's ({names})"
    return ""
