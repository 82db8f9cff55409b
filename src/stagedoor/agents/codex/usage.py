"""Token counts, as Codex counts them: always for the whole thread so far, never for one turn."""

from __future__ import annotations

import msgspec


class Usage(msgspec.Struct, frozen=True):
    """``input_tokens`` includes the cached ones; ``output_tokens`` includes the reasoning."""

    input_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_input_tokens: int = 0
    output_tokens: int = 0
    reasoning_output_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def since(self, earlier: Usage) -> Usage:
        """What was used after ``earlier``. Never negative: a thread that was rolled back counts from zero again."""
        return Usage(
            max(0, self.input_tokens - earlier.input_tokens),
            max(0, self.cached_input_tokens - earlier.cached_input_tokens),
            max(0, self.cache_write_input_tokens - earlier.cache_write_input_tokens),
            max(0, self.output_tokens - earlier.output_tokens),
            max(0, self.reasoning_output_tokens - earlier.reasoning_output_tokens),
        )


class TokenUsageBreakdown(msgspec.Struct, frozen=True, rename="camel"):
    """The app-server's spelling of the same counts."""

    total_tokens: int = 0
    input_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_input_tokens: int = 0
    output_tokens: int = 0
    reasoning_output_tokens: int = 0

    def usage(self) -> Usage:
        return Usage(
            self.input_tokens,
            self.cached_input_tokens,
            self.cache_write_input_tokens,
            self.output_tokens,
            self.reasoning_output_tokens,
        )


class ThreadTokenUsage(msgspec.Struct, frozen=True, rename="camel"):
    """``total`` is the thread so far, ``last`` the newest model call."""

    total: TokenUsageBreakdown = TokenUsageBreakdown()
    last: TokenUsageBreakdown = TokenUsageBreakdown()
    model_context_window: int | None = None
