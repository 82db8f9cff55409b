"""The four answers that every permission callback of every native library may return as they are."""

from __future__ import annotations

import enum


class PermissionBehavior(enum.Enum):
    """``allow_always`` and ``deny_always`` hold for the same call for the rest of the session: by the agent's own means
    where it has them, else because we remember."""

    allow = "allow"
    deny = "deny"
    allow_always = "allowAlways"
    deny_always = "denyAlways"
