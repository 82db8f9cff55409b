"""What Claude Code asks of its host over the control channel. Each waits for exactly one answer under its id."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from ...wire.shapes import Shapes
from .blocks import NOTHING


class Rule(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One permission rule, such as ``Bash(git status:*)``."""

    tool_name: str
    rule_content: str | None = None


class PermissionUpdate(msgspec.Struct, frozen=True, omit_defaults=True):
    """A change of the permissions: suggested with a question, and sent back to answer "always".

    ``destination``: ``session`` lasts as long as the process, ``localSettings``, ``projectSettings`` and
    ``userSettings`` are written to the settings files.
    """

    type: str
    destination: str
    behavior: str | None = None
    rules: tuple[Rule, ...] | None = None
    mode: str | None = None
    directories: tuple[str, ...] | None = None


class CanUseTool(msgspec.Struct, frozen=True):
    """May this call run? ``AskUserQuestion`` and ``ExitPlanMode`` come this way too."""

    tool_name: str
    input: dict[str, Any]
    request_id: str = ""
    tool_use_id: str = ""
    display_name: str = ""
    title: str = ""
    description: str = ""
    permission_suggestions: tuple[msgspec.Raw, ...] = ()
    blocked_path: str | None = None
    decision_reason: str | None = None
    decision_reason_type: str | None = None
    agent_id: str | None = None

    def suggestions(self) -> list[PermissionUpdate]:
        """The changes Claude Code offers for "always allow"; what we cannot read is left out."""
        found: list[PermissionUpdate] = []
        for raw in self.permission_suggestions:
            try:
                found.append(msgspec.json.decode(raw, type=PermissionUpdate))
            except msgspec.DecodeError:
                continue
        return found


class HookCallback(msgspec.Struct, frozen=True):
    """A hook that ``initialize`` registered fires. ``input["hook_event_name"]`` says which."""

    callback_id: str
    input: dict[str, Any] = {}
    tool_use_id: str | None = None
    request_id: str = ""


class McpMessage(msgspec.Struct, frozen=True):
    """A JSON-RPC message for an MCP server that lives in the host process."""

    server_name: str
    message: msgspec.Raw = NOTHING
    request_id: str = ""


class Elicitation(msgspec.Struct, frozen=True):
    """An MCP server asks the user to fill in a form or to visit an address."""

    mcp_server_name: str
    message: str = ""
    mode: str | None = None
    url: str | None = None
    elicitation_id: str | None = None
    requested_schema: dict[str, Any] | None = None
    request_id: str = ""


class RequestUserDialog(msgspec.Struct, frozen=True):
    """Claude Code wants the host to show a dialog of its own."""

    dialog_kind: str
    payload: dict[str, Any] = {}
    tool_use_id: str | None = None
    request_id: str = ""


Question: TypeAlias = CanUseTool | HookCallback | McpMessage | Elicitation | RequestUserDialog

QUESTIONS: Shapes[Question] = Shapes(
    {
        "can_use_tool": CanUseTool,
        "hook_callback": HookCallback,
        "mcp_message": McpMessage,
        "elicitation": Elicitation,
        "request_user_dialog": RequestUserDialog,
    },
    fields=("subtype",),
)
