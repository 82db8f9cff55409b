"""The ground a session stands on, from its options; and which edits need no question there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from .paths import Ground
from .protected import as_patterns

if TYPE_CHECKING:
    from ..unified.events import PermissionRequest
    from ..unified.options import Options


def home_of(options: Options) -> str | None:
    """The agent's home: what ``~`` means in a command."""
    return options.env.get("HOME") or (os.environ.get("HOME") if options.inherit_env else None)


def ground_of(options: Options) -> Ground:
    return Ground(options.cwd, home_of(options), as_patterns(options.protected), on_disk=True)


def is_free_edit(request: PermissionRequest, options: Options) -> bool:
    """Whether a call changes files of the workspace alone, links followed, and none from which something runs later.

    Where a tier lets edits run, the agents that can ask about them do, and we answer these at once.
    """
    from .risk.fields import paths_of
    from .risk.judge import judge

    if request.operation != "write" or request.tool_name not in ("write_file", "edit_file"):
        return False
    paths = paths_of(request.tool_name, request.input)
    root = os.path.realpath(options.cwd)
    real = [os.path.realpath(Path(root, path)) for path in paths]
    if not real or not all(path.startswith(root.rstrip("/") + "/") for path in real):
        return False
    verdict = judge(request.tool_name, request.operation, request.input, cwd=ground_of(options))
    return verdict.risk != "high"
