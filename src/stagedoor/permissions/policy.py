"""Ordered rules that decide without asking anybody: deny always wins, else the first rule that speaks."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from stagedoor.unified.events import PermissionRequest, Risk, ToolName, ToolUse
from stagedoor.unified.options import Approval, Sandbox, Tier

from .globs import Match
from .paths import Folder, as_ground
from .risk.judge import RiskVerdict, judge
from .rules import Action, PolicyCall, Rule, Unit, call_of, is_conditional, is_neutral, matches, may_speak

_SAY_IT_PLAINLY = "write it as plain commands: literal words, quotes, pipes, && and redirections to named files"
_SEVERITY: dict[Action, int] = {"allow": 0, "ask": 1, "deny": 2}


class Matched(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that spoke of one part of the call; ``certain`` is false where something unknown stands in between."""

    rule: Rule
    part: str
    certain: bool = True


class Ruling(msgspec.Struct, frozen=True, kw_only=True):
    """What the policy says, which rule decided (none: the default did), and what else was looked at."""

    action: Action
    rule: Rule | None
    why: str
    risk: Risk
    reasons: tuple[str, ...] = ()
    matched: tuple[Matched, ...] = ()

    @property
    def message(self) -> str:
        """What the agent is told when it is refused."""
        return (self.rule.message if self.rule is not None else "") or self.why


class Policy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Rules in order, lists in short form, and what happens when nothing speaks (asking, unless it is said).

    ``of_caller``: the caller's part of it, where it stands on the rules of a session's tier and modes.
    """

    rules: tuple[Rule, ...] = ()
    auto_approve: tuple[str, ...] = ()
    deny_patterns: tuple[str, ...] = ()
    default: Action | None = None
    name: str = ""
    of_caller: Policy | None = None

    @property
    def all_rules(self) -> tuple[Rule, ...]:
        """The rules with the short lists written out: denials first, approvals last."""
        denials = tuple(
            Rule(action="deny", name=f"never run {pattern}", command=(pattern,)) for pattern in self.deny_patterns
        )
        approvals = tuple(Rule(action="allow", name=f"always allow {tool}", tool=(tool,)) for tool in self.auto_approve)
        return (*denials, *self.rules, *approvals)

    def decide(
        self,
        request: PermissionRequest | ToolUse,
        cwd: Folder,
        *,
        home: str | None = None,
        verdict: RiskVerdict | None = None,
    ) -> Ruling:
        """Never raises on content. ``verdict``: on a call whose author has said what it does."""
        tool = request.tool_name if isinstance(request, PermissionRequest) else request.name
        ground = as_ground(cwd, home)
        verdict = verdict or judge(tool, request.operation, request.input, cwd=ground)
        call = call_of(request, verdict, ground, verdict.problems)
        return _decide(self, call)

    def denies_every(self, tool: ToolName, native_name: str, agent: str) -> bool:
        """Whether no call of this tool is allowed or asked about, whatever it is given. What the caller denies by his
        default stays denied where his tier allows it: no question would come that could tell one call from another."""
        if self.of_caller is not None and self.of_caller.denies_every(tool, native_name, agent):
            return True
        speaking = [rule for rule in self.all_rules if may_speak(rule, tool, native_name, agent)]
        if any(rule.action == "deny" and not is_conditional(rule) for rule in speaking):
            return True
        return self.default == "deny" and all(rule.action == "deny" for rule in speaking)

    def with_rule(self, rule: Rule) -> Policy:
        """The same policy with one more rule, before all others."""
        return msgspec.structs.replace(self, rules=(rule, *self.rules))

    def only_refusing(self) -> Policy:
        """What it refuses or wants asked about, and nothing that it allows."""
        return Policy(
            rules=tuple(rule for rule in self.all_rules if rule.action != "allow"),
            default=None if self.default == "allow" else self.default,
            name=self.name,
        )

    def over_modes(self, modes: Policy) -> Policy:
        """This policy, a caller's, on the rules of a session's tier and modes: what it denies is known as his."""
        return msgspec.structs.replace(self.stacked_on(modes), of_caller=self)

    def stacked_on(self, other: Policy) -> Policy:
        """This policy first, then another: its denials still win, its other rules speak where ours are silent."""
        return Policy(
            rules=(*self.all_rules, *other.all_rules),
            default=self.default if self.default is not None else other.default,
            name=" over ".join(name for name in (self.name, other.name) if name),
        )


def _decide(policy: Policy, call: PolicyCall) -> Ruling:
    rules = policy.all_rules
    hits_of_unit = [(unit, _hits(rules, unit, call)) for unit in call.units]
    matched = tuple(
        Matched(rule=rule, part=unit.text, certain=found == "yes")
        for unit, hits in hits_of_unit
        for rule, found in hits
    )
    decided = [_decide_unit(policy, unit, hits, call) for unit, hits in hits_of_unit]
    # Of two that are as strict, the certain one is told.
    action, rule, why, _ = max(decided, key=lambda candidate: (_SEVERITY[candidate[0]], candidate[3]))
    return Ruling(
        action=action, rule=rule, why=why, risk=call.verdict.risk, reasons=call.verdict.reasons, matched=matched
    )


def _hits(rules: Sequence[Rule], unit: Unit, call: PolicyCall) -> list[tuple[Rule, Match]]:
    found: list[tuple[Rule, Match]] = [(rule, matches(rule, unit, call)) for rule in rules]
    return [hit for hit in found if hit[1] != "no"]


def _decide_unit(
    policy: Policy, unit: Unit, hits: Sequence[tuple[Rule, Match]], call: PolicyCall
) -> tuple[Action, Rule | None, str, bool]:
    """The action, whose rule it is, why, and whether that is certain."""
    part = describe(unit)
    for rule, found in hits:
        if rule.action == "deny" and found == "yes":
            return "deny", rule, f"rule “{rule.label}” denies {part}", True
    for rule, found in hits:
        if rule.action == "deny" and found == "maybe":
            return "deny", rule, f"rule “{rule.label}” may apply to {part}; {_SAY_IT_PLAINLY}", False
    for rule, _ in hits:
        if rule.action != "deny":
            verb = "allows" if rule.action == "allow" else "asks about"
            return rule.action, rule, f"rule “{rule.label}” {verb} {part}", True
    if is_neutral(unit, call.ground):
        return "allow", None, f"{part} does nothing by itself", True
    default: Action = policy.default or "ask"
    return default, None, f"no rule matches {part}, and the default is to {default}", True


def describe(unit: Unit) -> str:
    text = unit.text.replace("\0", "…")
    text = text if len(text) <= 120 else text[:119] + "…"
    match unit.kind:
        case "command":
            return f"`{text}`"
        case "file":
            return f"{unit.operation} of {text}"
        case "unclear":
            return f"a line that cannot be analyzed ({text})"
        case "call":
            return f"“{text}”"


# Tiers, approval modes and sandbox modes as policies. The agents enforce these with their own means; these say the same
# to the questions that reach us.

_NOTHING_HAPPENS = Rule(action="allow", name="plans", tool=("plan",))
_READS = Rule(action="allow", name="reading", operation=("read",), risk=("low", "medium"), tool=(
    "read_file", "search_content", "find_files"))  # fmt: skip
_READERS = Rule(  # no other server is believed, so its calls are never of low risk
    action="allow", name="functions that only read", operation=("read",), risk=("low",), tool=("mcp",)
)
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
            Rule(action="deny", name="no network", operation=("network",), message=_ONLY_READS),
            # Of low risk is only a function of the calling program that only reads.
            Rule(action="deny", name="no unknown tools", tool=("mcp", "other"), risk=("medium", "high"),
                 message=_ONLY_READS),
            Rule(action="deny", name="no dangerous reading", risk=("high",), message=_ONLY_READS),
        ),
        default="ask",
    ),
    "supervised": Policy(name="tier supervised", rules=(_NOTHING_HAPPENS, _READS, _READERS, _EDITS), default="ask"),
    "autonomous": Policy(name="tier autonomous", default="allow"),
}  # fmt: skip

APPROVALS: dict[Approval, Policy] = {
    "ask": Policy(name="approval ask", rules=(_NOTHING_HAPPENS, _READERS), default="ask"),
    "askDangerous": Policy(
        name="approval askDangerous",
        rules=(
            Rule(action="ask", name="dangerous", risk=("high",)),
            Rule(action="ask", name="not understood", understood=False),
        ),
        default="allow",
    ),
    "autoEdit": Policy(name="approval autoEdit", rules=(_NOTHING_HAPPENS, _READS, _READERS, _EDITS), default="ask"),
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
    return policy if sandbox is None else SANDBOXES[sandbox].stacked_on(policy)
