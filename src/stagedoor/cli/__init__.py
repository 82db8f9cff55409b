"""The command line. Each command is a module of its own, imported only when it is called."""

from __future__ import annotations

import sys
from importlib import import_module

COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("run", "run one prompt on an agent and show what it does"),
    "parallel": ("parallel", "run one prompt on several agents, each in its own git worktree, and compare"),
    "agents": ("agents", "list the agents: installed, version, signed in, what they can do"),
    "sessions": ("sessions", "list, show, export and resume the stored sessions of all agents"),
    "rpc": ("rpc", "speak JSON-RPC on stdin and stdout, here or with a running server"),
    "doctor": ("doctor", "say what is wrong here and the command that mends it"),
    "policy": ("policy", "explain and try out permission policies"),
    "audit": ("audit", "verify and show the log of permission decisions"),
    "serve": ("serve", "run sessions for any number of clients, and keep all of it: REST, WebSocket, JSON-RPC"),
    "pair": ("pair", "let a phone or a browser into the running server"),
    "devices": ("devices", "list and revoke the devices that were let in"),
    "config": ("config", "show, check and edit the configuration of the server"),
    "translate": ("translate", "turn an agent's native output (stdin) into unified events"),
    "demo": ("demo", "watch an agent work in a scratch repository: no key, no CLI, seconds"),
    "model": ("model", "serve a scripted model on loopback, to try and test real CLIs without a key"),
    "completion": ("completion", "print a completion script for bash, zsh or fish"),
}
EXIT_SUCCESS, EXIT_FAILED, EXIT_USAGE, EXIT_NOT_INSTALLED, EXIT_NOT_SIGNED_IN, EXIT_LIMIT, EXIT_INTERRUPTED = (
    0, 1, 2, 3, 4, 5, 130,
)  # fmt: skip


def usage() -> str:
    width = max(map(len, COMMANDS))
    rows = "\n".join(f"  {name:{width}}  {about}" for name, (_, about) in COMMANDS.items())
    return f"""usage: stagedoor COMMAND …

One door to every coding agent.

{rows}

examples:
  stagedoor demo
  stagedoor run claude "Explain this repository"
  stagedoor run codex - < task.md --tier autonomous --json
  stagedoor translate claude < capture.jsonl

Every command has its own --help.
exit codes: 0 success · 1 the agent failed · 2 usage · 3 not installed · 4 not signed in · 5 limit reached
            130 interrupted
"""


def main(argv: list[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    if not words or words[0] in ("-h", "--help", "help"):
        print(usage(), end="")
        return EXIT_SUCCESS if words else EXIT_USAGE
    if words[0] in ("-V", "--version"):
        from .. import __version__

        print(f"stagedoor {__version__}")
        return EXIT_SUCCESS
    if words[0] not in COMMANDS:
        import difflib

        near = difflib.get_close_matches(words[0], COMMANDS, 1)
        hint = f"did you mean {near[0]!r}?" if near else "stagedoor --help lists the commands"
        print(f"stagedoor: there is no command {words[0]!r}; {hint}", file=sys.stderr)
        return EXIT_USAGE
    command = import_module(f".{COMMANDS[words[0]][0]}", __package__)
    try:
        code: int = command.main(words[1:])
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output is gone (`stagedoor … | head`): end quietly, and keep Python from saying so at exit.
        import os

        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    except Exception as fault:
        import os

        if os.environ.get("STAGEDOOR_DEBUG"):
            raise
        from .exits import code_of_error, sentence

        print(f"stagedoor {words[0]}: {sentence(fault)} (STAGEDOOR_DEBUG=1 shows where)", file=sys.stderr)
        return code_of_error(fault)
    return code
