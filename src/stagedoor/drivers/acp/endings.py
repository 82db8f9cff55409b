"""How calls, turns and requests of the Agent Client Protocol ended: what is said of them, read."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from ...agents.acp import events, responses
from ...unified.events import Usage


def said(raw_output: Any) -> str:
    match raw_output:
        case None:
            return ""
        case str():
            return raw_output
        case {"output": str(text)} | {"error": str(text)}:
            return text
        case _:
            return msgspec.json.encode(raw_output).decode()


def usage_of(native: responses.PromptResponse) -> Usage:
    if native.usage is not None:
        usage = native.usage
        cached, thought = usage.cached_read_tokens or 0, usage.thought_tokens or 0
        return Usage(
            input_tokens=usage.input_tokens + cached,
            output_tokens=usage.output_tokens,
            cached_tokens=cached,
            reasoning_tokens=thought,
            total_tokens=usage.total_tokens or usage.input_tokens + cached + usage.output_tokens + thought,
        )
    match native.meta:
        case {"quota": {"token_count": {"input_tokens": int(sent), "output_tokens": int(said)}}}:
            return Usage(input_tokens=sent, output_tokens=said, total_tokens=sent + said)
        case _:
            return Usage()


def reason_of(failed: events.RequestFailed) -> str:
    """The words of an error, and what it says more exactly beside them."""
    match failed.details:
        case {"details": str(details)}:
            more = [details]
        case {"_errors": [*errors]}:
            more = [str(error) for error in cast("list[object]", errors)]
        case [*issues]:
            more = [_issue(issue) for issue in cast("list[object]", issues)]
        case _:
            more = []
    exactly = "; ".join(one for one in more if one and one not in failed.message)
    return ": ".join(part for part in (failed.message, exactly) if part)


def _issue(issue: Any) -> str:
    """What is wrong with one field of a request."""
    match issue:
        case {"path": [str(field), *_], "message": str(message)}:
            return f"{field}: {message}"
        case _:
            return ""
