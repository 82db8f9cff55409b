"""``opencode acp``: the protocol's own sessions, with OpenCode's peculiarities taken care of."""

from __future__ import annotations

from stagedoor.agents.acp.config import AcpConfig, AcpProfile, PermissionAnswer
from stagedoor.agents.acp.requests import RequestPermission

from .answering import decide
from .config import Allow, OpenCodeConfig

PROFILE = AcpProfile(undeclared_writes_are_echoes=True)


def acp_config(config: OpenCodeConfig) -> AcpConfig:
    """Permissions and MCP servers are the process's; the questions, the model and the mode are the session's."""

    async def request_permission(question: RequestPermission) -> PermissionAnswer:
        decision = await decide(config.can_use_tool, question)
        if isinstance(decision, Allow):
            return "allow_always" if decision.always else "allow_once"
        return "reject_once"

    return AcpConfig(
        model=config.model,
        mode=config.agent,
        request_permission=request_permission,
        permission_timeout=config.permission_timeout,
    )
