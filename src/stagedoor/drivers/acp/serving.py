"""Files and terminals that we serve an agent, under the rules that hold for its questions.

An agent mostly asks first and then uses what it was allowed: the question counts for that, once, and for nothing else.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path

from ...agents.acp.config import ServedRequest
from ...agents.acp.requests import CreateTerminal, ReadTextFile, WriteTextFile
from ...permissions.ground import ground_of, is_free_edit
from ...unified.decisions import Allow, Ask
from ...unified.events import PermissionRequest
from ...unified.options import Options
from ...unified.tools import operation_of, target_of
from .call_details import SHELLS, served_as
from .dictionary import SERVED_NAMES

HARMLESS = frozenset(
    {"TERM", "NO_COLOR", "FORCE_COLOR", "GIT_TERMINAL_PROMPT", "CI", "LANG", "LC_ALL", "COLUMNS", "LINES"}
)
"""Variables of a terminal that change nothing of what its command does."""


class ServedCalls:
    """``call_of``: the id of the call that it is part of. ``edits``: those of the workspace need no question; ``free``:
    nothing does."""

    def __init__(
        self, options: Options, ask: Ask, call_of: Callable[[ServedRequest], str], *, edits: bool, free: bool
    ) -> None:
        self._options = options
        self._call_of = call_of
        self._ask = ask
        self._edits = edits
        self._free = free
        self._granted: list[PermissionRequest] = []

    def grant(self, request: PermissionRequest) -> None:
        """The agent was allowed this; what it now asks us to do may be the same."""
        if request.operation in ("write", "execute", "read"):
            self._granted.append(request)

    async def authorize(self, question: ServedRequest) -> str:
        request = request_of(question, self._options.cwd, self._call_of(question))
        if self._free or self._is_granted(question) or self._needs_no_question(request):
            return ""
        decision = await self._ask(request)
        return "" if isinstance(decision, Allow) else decision.message or "not allowed"

    def _needs_no_question(self, request: PermissionRequest) -> bool:
        if self._options.policy is not None:
            return False
        if request.operation != "read":
            return self._edits and is_free_edit(request, self._options)
        from ...permissions.risk.judge import judge

        verdict = judge(request.tool_name, request.operation, request.input, cwd=ground_of(self._options))
        return verdict.risk != "high"

    def _is_granted(self, question: ServedRequest) -> bool:
        grant = next((request for request in self._granted if self._is_same(question, request)), None)
        if grant is None:
            return False
        if not isinstance(question, ReadTextFile):  # reading before the write is part of what was allowed
            self._granted.remove(grant)
        return True

    def _is_same(self, question: ServedRequest, granted: PermissionRequest) -> bool:
        from ...permissions.risk.judge import paths_of

        match question:
            case CreateTerminal():
                plain = all(variable.name in HARMLESS for variable in question.env or ())
                plain = plain and _folder(question, self._options.cwd) == os.path.realpath(self._options.cwd)
                return granted.operation == "execute" and plain and granted.target.strip() in scripts_of(question)
            case WriteTextFile() if granted.operation != "write":
                return False
            case _:
                path = question.path
                paths = paths_of(granted.tool_name, granted.input) or ([granted.target] if granted.target else [])
                return path in [os.path.realpath(Path(self._options.cwd, one)) for one in paths]


def request_of(question: ServedRequest, cwd: str, tool_use_id: str) -> PermissionRequest:
    """What the agent wants of us, as a question about a tool."""
    name, arguments = served_as(question)
    if isinstance(question, CreateTerminal) and _folder(question, cwd) != os.path.realpath(cwd):
        arguments["command"] = f"cd {shlex.quote(_folder(question, cwd))} && {arguments['command']}"
    return PermissionRequest(
        request_id="",
        tool_use_id=tool_use_id,
        tool_name=name,
        native_name=SERVED_NAMES[name],
        operation=operation_of(name),
        target=target_of(name, arguments),
        input=arguments,
    )


def _folder(question: CreateTerminal, cwd: str) -> str:
    return os.path.realpath(Path(cwd, question.cwd or "."))


def scripts_of(question: CreateTerminal) -> list[str]:
    """The texts that all mean this command: the line itself, and the script where a shell is started for it."""
    words = list(question.args or ())
    line = shlex.join([question.command, *words]) if words else question.command
    scripts = [line.strip(), " ".join([question.command, *words]).strip()]
    if Path(question.command).name in SHELLS and len(words) == 2 and words[0] in ("-c", "-lc"):
        scripts.append(words[1].strip())
    return scripts
