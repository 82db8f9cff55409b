"""What the agent asks of us."""

from __future__ import annotations

# A session that the CLI names itself takes the place of the one we know:
# pyright: reportIncompatibleMethodOverride=false
from typing import Any, Literal, TypeAlias

import msgspec

from stagedoor.wire.jsonrpc import Id
from stagedoor.wire.stamps import Stamped

from .updates import ToolCallUpdate

PermissionKind: TypeAlias = Literal["allow_once", "allow_always", "reject_once", "reject_always"]


class PermissionOption(msgspec.Struct, frozen=True, rename="camel"):
    option_id: str
    name: str = ""
    kind: str = ""


class RequestPermission(Stamped, frozen=True, rename="camel"):
    """May this tool call run? Answer with :class:`~stagedoor.agents.acp.commands.AnswerPermissionRequest`."""

    session_id: str
    tool_call: ToolCallUpdate
    options: list[PermissionOption] = []
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")
    request_id: Id = None

    def option(self, kind: PermissionKind, *, broad: tuple[str, ...] = ()) -> PermissionOption | None:
        """The option that means this kind of answer, never one that allows more than that.

        "Always" falls back to "once"; "once" never becomes "always", except that a refusal may be any refusal.
        Options named in ``broad`` are taken only when there is no other of the kind.
        """
        for acceptable in _ACCEPTABLE[kind]:
            options = [option for option in self.options if option.kind == acceptable]
            if options:
                return min(options, key=lambda option: option.option_id in broad)
        return None


_ACCEPTABLE: dict[PermissionKind, tuple[PermissionKind, ...]] = {
    "allow_once": ("allow_once",),
    "allow_always": ("allow_always", "allow_once"),
    "reject_once": ("reject_once", "reject_always"),
    "reject_always": ("reject_always", "reject_once"),
}


class ReadTextFile(Stamped, frozen=True, rename="camel"):
    session_id: str
    path: str
    line: int | None = None
    limit: int | None = None
    request_id: Id = None


class WriteTextFile(Stamped, frozen=True, rename="camel"):
    session_id: str
    path: str
    content: str
    request_id: Id = None


class EnvVariable(msgspec.Struct, frozen=True):
    name: str
    value: str


class CreateTerminal(Stamped, frozen=True, rename="camel"):
    session_id: str
    command: str
    args: list[str] | None = None
    env: list[EnvVariable] | None = None
    cwd: str | None = None
    output_byte_limit: int | None = None
    request_id: Id = None


class TerminalOutput(Stamped, frozen=True, rename="camel"):
    session_id: str
    terminal_id: str
    request_id: Id = None


class ReleaseTerminal(Stamped, frozen=True, rename="camel"):
    session_id: str
    terminal_id: str
    request_id: Id = None


class WaitForTerminalExit(Stamped, frozen=True, rename="camel"):
    session_id: str
    terminal_id: str
    request_id: Id = None


class KillTerminal(Stamped, frozen=True, rename="camel"):
    session_id: str
    terminal_id: str
    request_id: Id = None


class CreateElicitation(Stamped, frozen=True, rename="camel"):
    """A question to the user: a form after ``requested_schema``, or a page to open at ``url``."""

    message: str = ""
    mode: str = "form"
    requested_schema: dict[str, Any] | None = None
    url: str | None = None
    elicitation_id: str | None = None
    session_id: str = ""
    tool_call_id: str | None = None
    for_request: Id = msgspec.field(default=None, name="requestId")
    request_id: Id = msgspec.field(default=None, name="_requestId")


FileRequest: TypeAlias = ReadTextFile | WriteTextFile
TerminalRequest: TypeAlias = CreateTerminal | TerminalOutput | ReleaseTerminal | WaitForTerminalExit | KillTerminal
AgentRequest: TypeAlias = RequestPermission | FileRequest | TerminalRequest | CreateElicitation

REQUESTS: dict[str, type[AgentRequest]] = {
    "session/request_permission": RequestPermission,
    "fs/read_text_file": ReadTextFile,
    "fs/write_text_file": WriteTextFile,
    "terminal/create": CreateTerminal,
    "terminal/output": TerminalOutput,
    "terminal/release": ReleaseTerminal,
    "terminal/wait_for_exit": WaitForTerminalExit,
    "terminal/kill": KillTerminal,
    "elicitation/create": CreateElicitation,
}
