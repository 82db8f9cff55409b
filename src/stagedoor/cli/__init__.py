"""The command line. Each command is a module, imported only when it is called."""

from __future__ import annotations

import sys
from importlib import import_module

COMMANDS: dict[str, str] = {
    "run": "run one prompt on an agent and show what it does",
    "chat": "talk with an agent at the terminal, turn by turn",
    "parallel": "run one prompt on several agents, each in its own git worktree, and compare",
    "agents": "list the agents: installed, version, signed in, what they can do",
    "sessions": "list, show, export and resume the stored sessions of all agents",
    "trust": "trust a folder: let the project's own settings, hooks and tool servers take part",
    "acp": "be an agent in your editor: speak the Agent Client Protocol on stdin and stdout",
    "mcp": "let a model use agents: serve the Model Context Protocol on stdin and stdout",
    "rpc": "speak JSON-RPC on stdin and stdout", "doctor": "diagnose problems and show fixes",
    "policy": "explain and try out permission policies", "audit": "verify and show the log of permission decisions",
    "serve": "run sessions for many clients and store them: REST, WebSocket, JSON-RPC, a web page",
    "pair": "pair a phone or a browser with the running server", "devices": "list and revoke the paired devices",
    "worker": "run sessions on this machine for servers that share its database",
    "workers": "list the machines that run sessions; let one in, drain or revoke one",
    "config": "show, check and edit the configuration of the server",
    "log": "copy the server's log into PostgreSQL and back; say which roles may use it",
    "translate": "turn an agent's native output (stdin) into unified events",
    "demo": "watch an agent work in a scratch repository: no key, no CLI, a few seconds",
    "model": "serve a scripted model on this machine, to test real CLIs without a key",
    "completion": "print a completion script for bash, zsh or fish",
}  # fmt: skip
"""Command, which is also its module → what it does."""
STARTING_AGENTS = ("run", "chat", "parallel", "agents", "sessions", "acp", "mcp", "rpc", "doctor", "serve", "worker")
EXIT_SUCCESS, EXIT_FAILED, EXIT_USAGE, EXIT_NOT_INSTALLED, EXIT_NOT_SIGNED_IN, EXIT_LIMIT, EXIT_INTERRUPTED = (
    0, 1, 2, 3, 4, 5, 130,
)  # fmt: skip


def usage() -> str:
    width = max(map(len, COMMANDS))
    rows = "\n".join(f"  {name:{width}}  {about}" for name, about in COMMANDS.items())
    return f"""usage: stagedoor COMMAND …

One door to every coding agent.

{rows}

examples:
  stagedoor demo
  stagedoor chat claude
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
        hint = f"did you mean {near[0]!r}?" if near else "run stagedoor --help"
        print(f"stagedoor: unknown command {words[0]!r}: {hint}", file=sys.stderr)
        return EXIT_USAGE
    if words[0] in STARTING_AGENTS:
        from .state import find_installed_clis

        find_installed_clis()
    command = import_module(f".{words[0]}", __package__)
    try:
        code: int = command.main(words[1:])
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has closed it (`stagedoor … | head`): end quietly, and keep Python quiet at exit.
        import os

        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    except Exception as fault:
        import os

        if os.environ.get("STAGEDOOR_DEBUG"):
            raise
        from .command import code_of_error, error_line

        print(f"stagedoor {words[0]}: {error_line(fault)} (STAGEDOOR_DEBUG=1 shows a traceback)", file=sys.stderr)
        return code_of_error(fault)
    return code
