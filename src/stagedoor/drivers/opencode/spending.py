"""Tokens and money of a turn, counted step by step, sub-agents included."""

from __future__ import annotations

from ...agents.opencode.parts import StepFinishPart, Tokens
from ...unified.events import Usage, UsageReport, dollars, report_of


def usage_of(tokens: Tokens, cost: float) -> Usage:
    """OpenCode counts cached and reasoning tokens apart. Its cost is zero when it knows no prices."""
    cached, sent = int(tokens.cache.read), int(tokens.input + tokens.cache.read + tokens.cache.write)
    said, thought = int(tokens.output), int(tokens.reasoning)
    return Usage(
        input_tokens=sent,
        output_tokens=said,
        cached_tokens=cached,
        reasoning_tokens=thought,
        total_tokens=sent + said + thought,
        cost_usd=dollars(cost) or None,
    )


class Spending:
    def __init__(self) -> None:
        self.turn = Usage()

    def step(self, part: StepFinishPart) -> list[UsageReport]:
        usage = usage_of(part.tokens, part.cost)
        if usage == Usage():
            return []
        self.turn = self.turn + usage
        return [report_of(self.turn)]

    def end(self) -> Usage:
        turn, self.turn = self.turn, Usage()
        return turn
