"""The guard: a small process between us and an agent that holds the promise *nothing is left running*.

It is the agent's parent. It is told what to do over a socket. When that socket closes, because we closed it, were
collected, crashed or were killed with ``kill -9``, it kills everything that the agent has started, shells in their own
process session included, and ends. If we are gone by then, the folders that were made for the agent are removed, too.

The guard may be killed itself. So its own parent is a second process, its *keeper*, which does nothing but wait for it:
what a dead guard leaves, the keeper kills, and says ``lost``; a guard whose keeper is killed does the same. Where both
are killed at once, we end the rest (on Linux the agent dies of it at once).

This file is run on its own (``python -I -S guard.py``): standard library only, and only what starts fast. What it needs
of its neighbours it imports as Python has compiled them.

    guard.py CONTROL:LAYERS:STRATEGY:MARK CWD COUNT FOLDER… PROGRAM ARGUMENT…
    guard.py series:0:STRATEGY:MARK FOLDER…

    ours → guard     ``signal N`` · ``signal-group N`` · ``end``           (one a line)
    guard → ours     ``started PID`` · ``failed ERRNO`` · ``exited CODE`` · ``left N`` · ``lost``, then it closes

With the word ``series`` it runs short programs for us, one after the other (see ``programs``): each request is its
length (four bytes), then working directory, argument count, arguments and environment, NUL between them; it carries the
three descriptors the program gets. A length of zero kills the program that runs, if one does; the largest length ends
all. If the socket closes without that word, we are gone, and the folders that were made for the programs go too.
"""

from __future__ import annotations

import os
import sys


def _as_a_package() -> None:
    """Nobody has imported the package we lie in, and ``stagedoor`` takes longer to import than all of this."""
    package = type(sys)("stagedoor_guard")
    package.__path__ = [os.path.dirname(os.path.abspath(__file__))]  # noqa: PTH100, PTH120 (pathlib starts slowly)
    sys.modules[package.__name__] = package


if __name__ == "__main__":
    _as_a_package()
    __package__ = "stagedoor_guard"
    from .roles import main

    main(sys.argv)
