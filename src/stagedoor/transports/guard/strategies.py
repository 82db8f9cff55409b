"""The ways to know a tree of processes."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

    from .linux import LinuxTree
    from .portable import PortableTree

    Tree: TypeAlias = LinuxTree | PortableTree

LINUX, PORTABLE = "linux", "portable"
TREES = {LINUX: ("linux", "LinuxTree"), PORTABLE: ("portable", "PortableTree")}
"""Name → module and class; only what is used is imported. The classes have one shape:

``keep()`` · ``guard(keeper)`` · ``belong(guard)``   called in the keeper before it forks, in the guard, in the agent
``adopts``                            what the guard leaves becomes a child of the keeper
``inherit(guard)``                    called in the keeper after the guard was killed
``environment``                       what has to be in the environment of everything that is started
``bells``                             descriptors that are readable once the keeper has died
``look()`` · ``pause``                remember who is there; the seconds until the next look, ``None``: never
``hold_still()``                      all that runs below, and it stays all until it is killed
``rest()``                            all that runs below
``children(pid)`` · ``descendants(pid)``
"""


def tree_of(strategy: str, mark: str) -> Tree:
    module, name = TREES[strategy]
    found: Tree = getattr(__import__(module, globals(), None, [name], 1), name)(mark)
    return found
