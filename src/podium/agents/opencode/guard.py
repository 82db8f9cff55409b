"""A plugin that makes OpenCode ask about every command.

OpenCode asks about the commands its parser finds in a script, and runs what has none without asking: ``> file``,
``cd . > file``, ``[[ x ]] > file``. A command that does nothing, put before each script, is always found.
"""

from __future__ import annotations

from podium.transports.launch import SCRATCH

FILE = "ask-every-command.js"
MARK = ":\n"
URL = f"file://{SCRATCH}/{FILE}"
SOURCE = b"""export default {
  id: "ask-every-command",
  server: async () => ({
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
