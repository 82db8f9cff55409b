"""A plugin that makes OpenCode ask about every command.

OpenCode asks about the commands its parser finds in a script, and runs what has none without asking: ``> file``,
``cd . > file``, ``[[ x ]] > file``. A command that does nothing, put before each script, is always found.

OpenCode goes on when a plugin is switched off or cannot be loaded, so this one leaves a proof beside itself, and no
prompt is sent without it.
"""

from __future__ import annotations

from pathlib import Path

from stagedoor.errors import LaunchError
from stagedoor.transports.launch import SCRATCH

FILE = "ask-every-command.js"
PROOF = "asks-every-command"
MARK = ":\n"
URL = f"file://{SCRATCH}/{FILE}"
SOURCE = b"""import { writeFileSync } from "node:fs"

export default {
  id: "ask-every-command",
  server: async () => ({
    // Called of the plugins that take part, once all are loaded.
    config: async () => writeFileSync(new URL("asks-every-command", import.meta.url), ""),
    "tool.execute.before": async (call, output) => {
      if (call.tool === "bash") output.args.command = ":\\n" + output.args.command
    },
    "tool.execute.after": async (call) => {
      if (call.tool === "bash" && call.args?.command?.startsWith(":\\n")) call.args.command = call.args.command.slice(2)
    },
  }),
}
"""


def without_mark(command: str) -> str:
    """The command as the model wrote it."""
    return command.removeprefix(MARK)


def require_proof(scratch: str) -> None:
    """Raise ``LaunchError`` unless the plugin in this folder takes part. OpenCode loads it before it answers."""
    if not (Path(scratch) / PROOF).is_file():
        raise LaunchError(
            "OpenCode has not loaded the plugin that makes it ask about every command, and would run some unasked; "
            "take away what turns plugins off (--pure, settings of your organisation) or let it act without asking"
        )
