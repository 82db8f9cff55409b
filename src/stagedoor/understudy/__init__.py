"""The understudy: a small agent that speaks ACP and plays a script with real tools in a real workspace.

It runs as ``python -m stagedoor.understudy [--script FILE.yaml]``. Its tool calls have ids like ``shell__7``, say the
exit code of a command in ``rawOutput.exitCode``, and a sub-agent's name their call in ``_meta.parentToolCallId``.
"""

from __future__ import annotations

import sys


def command(script: str | None = None, home: str | None = None, *, executable: str | None = None) -> tuple[str, ...]:
    """The command line that starts it, with this Python. ``-P``: nothing in the workspace is imported by mistake.

    ``executable`` is a program that takes the place of all that, and gets the same arguments.
    """
    more = (("--script", script) if script else ()) + (("--home", home) if home else ())
    return (executable, *more) if executable else (sys.executable, "-P", "-m", "stagedoor.understudy", *more)
