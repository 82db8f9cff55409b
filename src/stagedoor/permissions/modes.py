"""Tiers, approval modes and sandbox modes as policies.

The agents enforce these with their own means; these policies say the same to the questions that reach us.
"""

from __future__ import annotations

from stagedoor.unified.options import Approval, Sandbox, Tier

from .policy import Policy
from .rules import Rule

_NOTHING_HAPPENS = Rule(action="allow", name="plans", tool=("plan",))
_READS = Rule(action="allow", name="reading", operation=("read",), risk=("low", "medium"), tool=(
    "read_file", "search_content", "find_files"))  # fmt: skip
_LOW = Rule(action="allow", name="low risk", risk=("low",))
_EDITS = Rule(
    action="allow", name="edits", operation=("write",), risk=("low", "medium"), tool=("write_file", "edit_file")
)
_ONLY_READS = "this session may only read; say what you would do instead"
_NO_COMMANDS = Rule(
    action="deny",
    name="no commands that do more than read",
    operation=("execute",),
    risk=("medium", "high"),
    message=_ONLY_READS,
)

TIERS: dict[Tier, Policy] = {
    "dry-run": Policy(
        name="tier dry-run",
        rules=(
            _NOTHING_HAPPENS,
            Rule(action="deny", name="no writing", operation=("write",), message=_ONLY_READS),
            _READS,
            _LOW,
            _NO_COMMANDS,
            Rule(action="deny", name="no unknown tools", tool=("mcp", "other"), message=_ONLY_READS),
            Rule(action="deny", name="no dangerous reading", risk=("high",), message=_ONLY_READS),
        ),
        default="ask",
    ),
    "supervised": Policy(name="tier supervised", rules=(_NOTHING_HAPPENS, _READS, _EDITS), default="ask"),
    "autonomous": Policy(name="tier autonomous", default="allow"),
}  # fmt: skip

APPROVALS: dict[Approval, Policy] = {
    "ask": Policy(name="approval ask", rules=(_NOTHING_HAPPENS,), default="ask"),
    "askDangerous": Policy(
        name="approval askDangerous",
        rules=(Rule(action="ask", name="dangerous", risk=("high",)),),
        default="allow",
    ),
    "autoEdit": Policy(name="approval autoEdit", rules=(_NOTHING_HAPPENS, _READS, _EDITS), default="ask"),
    "autoAll": Policy(name="approval autoAll", default="allow"),
}

_STAYS_INSIDE = "this session may not change anything outside its workspace"
SANDBOXES: dict[Sandbox, Policy] = {
    "none": Policy(name="sandbox none"),
    "readOnly": Policy(
        name="sandbox readOnly",
        rules=(
            Rule(action="deny", name="no writing", operation=("write",), message=_ONLY_READS),
            _NO_COMMANDS,
        ),
    ),
    "workspaceWrite": Policy(
        name="sandbox workspaceWrite",
        rules=(
            Rule(action="deny", name="no writing outside", operation=("write",), outside=True, message=_STAYS_INSIDE),
            Rule(action="deny", name="no danger outside", operation=("execute",), outside=True, risk=("high",),
                 message=_STAYS_INSIDE),
        ),
    ),
    "fullAccess": Policy(name="sandbox fullAccess"),
}  # fmt: skip


def built_in(*, tier: Tier = "supervised", approval: Approval | None = None, sandbox: Sandbox | None = None) -> Policy:
    """The policy of a session's options: an approval mode takes the place of the tier, a sandbox mode adds its denials.

    ``dry-run`` gives way to neither.
    """
    policy = TIERS[tier] if approval is None or tier == "dry-run" else APPROVALS[approval]
    return policy if sandbox is None else SANDBOXES[sandbox].over(policy)
