"""Which rule decides, and why: for one command, and for the calls of past sessions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from stagedoor.unified.events import Event, Init, PermissionRequest, PermissionResolved, Risk, ToolResult, ToolUse

from .paths import Folder, Ground, as_ground
from .policy import Policy, Ruling
from .remember import rules_for
from .risk.judge import judge_command
from .rules import Action, Rule


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One simple command, and every rule that spoke of it."""

    command: str
    rules: tuple[Rule, ...] = ()


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The whole decision about one command line."""

    command: str
    cwd: str
    action: Action
    risk: Risk
    reasons: tuple[str, ...]
    rule: Rule | None
    why: str
    steps: tuple[Step, ...] = ()
    also_matched: tuple[Rule, ...] = ()
    understood: bool = True
    remembered_as: tuple[Rule, ...] = ()
    """The rules that “don't ask again” would make of it, in this folder."""

    @property
    def text(self) -> str:
        """The explanation as lines for a terminal."""
        lines = [f"{self.action}: {self.why}", f"risk: {self.risk}"]
        lines += [] if self.understood else ["understood: no, so no allow rule speaks for it, and every deny rule may"]
        lines += [f"  - {reason}" for reason in self.reasons]
        lines += [f"runs: {step.command}" for step in self.steps]
        lines += [f"also matched: {rule.label}" for rule in self.also_matched]
        lines += [f"remembered as: {rule.label}" for rule in self.remembered_as] or [
            "remembered as: nothing, it is asked about each time"
        ]
        return "\n".join(lines)


def explain(policy: Policy, command: str, cwd: Folder, *, agent: str = "", home: str | None = None) -> Explanation:
    """What ``policy`` says about a shell command, and which rule says it."""
    request = ToolUse(
        tool_use_id="explain",
        name="shell",
        operation="execute",
        target=command,
        input={"command": command},
        agent=agent,
    )
    ground = as_ground(cwd, home)
    ruling = policy.decide(request, ground)
    verdict = judge_command(command, cwd=ground)
    commands = verdict.commands
    parts = dict.fromkeys([*(one.text for one in commands if one.text), *(match.part for match in ruling.matched)])
    steps = tuple(
        Step(command=part.replace("\0", "…"), rules=tuple(m.rule for m in ruling.matched if m.part == part))
        for part in parts
    )
    others = dict.fromkeys(match.rule for match in ruling.matched if match.rule is not ruling.rule)
    return Explanation(
        command=command,
        cwd=ground.workspace,
        action=ruling.action,
        risk=ruling.risk,
        reasons=ruling.reasons,
        rule=ruling.rule,
        why=ruling.why,
        steps=steps,
        also_matched=tuple(others),
        understood=verdict.understood,
        remembered_as=rules_for(_question(request), ground),
    )


def _question(call: ToolUse) -> PermissionRequest:
    return PermissionRequest(
        request_id=call.tool_use_id,
        tool_name=call.name,
        operation=call.operation,
        target=call.target,
        input=call.input,
        agent=call.agent,
    )


class Simulated(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a past session: what the policy would say now, and what happened then."""

    session: str
    tool_use_id: str
    tool: str
    target: str
    ruling: Ruling
    then: Literal["allow", "deny", "ran", "unknown"]

    @property
    def changed(self) -> bool:
        """Whether the policy would have decided otherwise."""
        ran = self.then in ("allow", "ran")
        return self.then != "unknown" and (self.ruling.action == "allow") != ran


def simulate(policy: Policy, events: Iterable[Event], *, cwd: Folder = ".", home: str | None = None) -> list[Simulated]:
    """Hold every tool call of some sessions against a policy. The workspace is the one each session says it had."""
    recorded = list(events)
    then = _what_happened(recorded)
    ground = as_ground(cwd, home)
    folders: dict[str, Ground] = {}
    seen: set[tuple[str, str]] = set()
    simulated: list[Simulated] = []
    for event in recorded:
        if isinstance(event, Init):
            folders[event.session_id] = replace(ground, workspace=event.cwd or ground.workspace)
        elif isinstance(event, ToolUse | PermissionRequest):
            call = event.tool_use_id or (event.request_id if isinstance(event, PermissionRequest) else "")
            if (event.session_id, call) in seen:
                continue
            seen.add((event.session_id, call))
            ruling = policy.decide(event, folders.get(event.session_id, ground))
            simulated.append(
                Simulated(
                    session=event.session_id,
                    tool_use_id=call,
                    tool=event.name if isinstance(event, ToolUse) else event.tool_name,
                    target=event.target,
                    ruling=ruling,
                    then=then.get((event.session_id, call), "unknown"),
                )
            )
    return simulated


def _what_happened(events: Sequence[Event]) -> dict[tuple[str, str], Literal["allow", "deny", "ran", "unknown"]]:
    call_of_request: dict[tuple[str, str], str] = {}
    then: dict[tuple[str, str], Literal["allow", "deny", "ran", "unknown"]] = {}
    for event in events:
        if isinstance(event, PermissionRequest):
            call_of_request[(event.session_id, event.request_id)] = event.tool_use_id or event.request_id
        elif isinstance(event, PermissionResolved):
            call = call_of_request.get((event.session_id, event.request_id), event.request_id)
            then[(event.session_id, call)] = event.decision
        elif isinstance(event, ToolResult):
            outcome: Literal["deny", "ran"] = "deny" if event.status == "denied" else "ran"
            then.setdefault((event.session_id, event.tool_use_id), outcome)
    return then
