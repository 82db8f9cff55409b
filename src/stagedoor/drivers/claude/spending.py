"""What a turn used and cost. Claude Code's figures are partly of the turn, partly of the whole process."""

from __future__ import annotations

from msgspec.structs import replace

from ...agents.claude import blocks
from ...agents.claude.events import Result
from ...unified.events import Notice, Usage, UsageReport, dollars, report_of

_NOTHING = Usage()


class Spending:
    def __init__(self) -> None:
        self._of_process = _NOTHING
        self._cost_of_process = 0.0
        self._turn = _NOTHING
        self._running = _NOTHING
        self._told = False

    def call(self, begun: blocks.Usage, ended: blocks.Usage) -> UsageReport:
        """One call to the model is over; the turn so far. Its cost comes with the result."""
        usage = _tokens(
            ended.input_tokens or begun.input_tokens,
            ended.output_tokens or begun.output_tokens,
            ended.cache_read_input_tokens or begun.cache_read_input_tokens or 0,
            ended.cache_creation_input_tokens or begun.cache_creation_input_tokens or 0,
        )
        self._running = self._running + usage
        return report_of(self._turn + self._running)

    def result(self, result: Result) -> list[UsageReport | Notice]:
        """One run of the model is over; the turn so far, and once per session how the figures were corrected."""
        tokens, share = self._tokens(result), self._cost(result)
        self._turn = self._turn + replace(tokens, cost_usd=share)
        cost = self._turn.cost_usd
        self._running = _NOTHING
        out: list[UsageReport | Notice] = [report_of(self._turn)]
        total = _total_cost(result)
        if not self._told and cost is not None and total is not None and total - cost > 1e-9:
            self._told = True
            message = (
                f"Claude Code counts from the start of its process ({total:.6g} USD by now); usage and cost are told "
                f"per turn here ({cost:.6g} USD for this one)"
            )
            out.append(Notice(level="info", code="cumulative_usage", message=message))
        return out

    def settle(self) -> Usage:
        """The whole turn's; the next one begins at nothing."""
        turn, self._turn, self._running = self._turn + self._running, _NOTHING, _NOTHING
        return turn

    def _tokens(self, result: Result) -> Usage:
        """By model where it is told: only that counts sub-agents, compaction and broken-off answers too."""
        own = result.usage or blocks.Usage()
        if not result.model_usage:
            return _of(own)
        total = _NOTHING
        for used in result.model_usage.values():
            total = total + _tokens(
                used.input_tokens,
                used.output_tokens,
                used.cache_read_input_tokens,
                used.cache_creation_input_tokens,
            )
        before, self._of_process = self._of_process, total
        if total.input_tokens < before.input_tokens or total.output_tokens < before.output_tokens:
            return total  # another process has begun to count
        return Usage(
            input_tokens=total.input_tokens - before.input_tokens,
            output_tokens=total.output_tokens - before.output_tokens,
            cached_tokens=max(0, total.cached_tokens - before.cached_tokens),
            total_tokens=total.total_tokens - before.total_tokens,
        )

    def _cost(self, result: Result) -> float | None:
        total = _total_cost(result)
        if total is None:
            return None
        before, self._cost_of_process = self._cost_of_process, total
        return total if total < before else dollars(total - before)


def _total_cost(result: Result) -> float | None:
    return result.cost_usd if result.total_cost_usd is None else result.total_cost_usd


def _of(usage: blocks.Usage) -> Usage:
    return _tokens(
        usage.input_tokens,
        usage.output_tokens,
        usage.cache_read_input_tokens or 0,
        usage.cache_creation_input_tokens or 0,
    )


def _tokens(fresh: int, output: int, read: int, written: int) -> Usage:
    sent = fresh + read + written
    return Usage(input_tokens=sent, output_tokens=output, cached_tokens=read, total_tokens=sent + output)
