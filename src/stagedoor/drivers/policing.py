"""What a policy of the caller's means for tools that an agent never asks about. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ..unified.options import Options
from ..unified.tool_lists import AgentTool


def is_policed(options: Options) -> bool:
    """Whether the caller brings rules beside those of the tier and the modes."""
    if options.policy is None:
        return False
    from ..permissions.policy import built_in

    return bool(options.policy != built_in(tier=options.tier, approval=options.approval, sandbox=options.sandbox))


def without_denied_tools(options: Options, table: Sequence[AgentTool], agent: str) -> Options:
    """The options, with each tool on the list of those that are not allowed that no tier asks about and of which the
    policy denies every call: no question would ever come before one. A policy that follows its file counts as the file
    is now."""
    if not is_policed(options):
        return options
    policy = options.policy
    denied = [
        tool.name
        for tool in table
        if tool.control == "free"
        and (tool.reaches or tool.kind == "task")
        and any(policy.denies_every(word, tool.name, agent) for word in (tool.kind, *tool.also))
    ]
    return replace(options, disallowed_tools=(*options.disallowed_tools, *denied)) if denied else options
