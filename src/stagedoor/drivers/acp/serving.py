"""Files and terminals that we serve an agent, under the rules that hold for its questions.

An agent mostly asks first and then uses what it was allowed: the question counts for that, once, and for nothing else.
What it asks us to do carries no id of a call, so what was allowed is bound to everything else: the session, the turn,
the files as they were found when it was asked about, the text that was shown, the command line and its folder. Whatever
does not fit is asked about again.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from ...agents.acp.config import ServedRequest
from ...agents.acp.requests import CreateTerminal, EnvVariable, ReadTextFile, WriteTextFile
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
_PLAIN_VALUE = re.compile(r"[\w.@+-]*")
_SYSTEM_FOLDERS = ("/bin", "/usr/bin", "/usr/local/bin", "/opt/homebrew/bin")
_WHOLE = ("content", "file_text", "new_content", "contents", "text")
_REPLACED = (("old_string", "new_string"), ("old_str", "new_str"), ("oldText", "newText"), ("oldString", "newString"))
_EVERYWHERE = ("replace_all", "replaceAll")
_PROSE = frozenset({"description", "title", "explanation", "reason", "instruction", "summary"})
_STEP_FIELDS = frozenset({*(name for pair in _REPLACED for name in pair), *_EVERYWHERE, *_PROSE})
_FIELDS = frozenset({*_WHOLE, *_STEP_FIELDS, "edits", "diff"})
_VALUES = {
    "mode": ("overwrite", "append"),
    "command": ("create", "write", "str_replace"),
    **dict.fromkeys(("kind", "type"), ("create", "edit", "write")),
}
"""Fields that may say how a text is put into a file: these values say nothing but what we do."""
_ABOVE_HUNKS = ("--- ", "+++ ", "Index: ", "====", "diff ", "index ", "new file mode ")
_HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+\d{1,9}(?:,(\d{1,9}))? @@.*")
_NO_NEWLINE = "\\ No newline at end of file"


class Grant(msgspec.Struct):
    """What one answer allowed. ``paths``: where those of the call led when it was shown. A file may be read once before
    it is written."""

    request: PermissionRequest
    session_id: str
    turn: int
    paths: tuple[str, ...]
    was_read: bool = False

    def covers(self, question: ServedRequest, cwd: str) -> bool:
        """Whether this may be it; of a file that is written, :func:`is_as_shown` has to look at the text as well."""
        operation = self.request.operation
        match question:
            case CreateTerminal():
                return operation == "execute" and _is_same_command(question, self.request.input, cwd)
            case WriteTextFile():
                return operation == "write" and question.path in self.paths
            case ReadTextFile():
                return operation in ("read", "write") and question.path in self.paths and not self.was_read


def grant_of(request: PermissionRequest, session_id: str, turn: int, cwd: str) -> Grant | None:
    from ...permissions.risk.fields import paths_of

    if request.operation == "execute":
        return Grant(request, session_id, turn, ())
    if request.tool_name not in ("read_file", "write_file", "edit_file"):
        return None
    paths = paths_of(request.tool_name, request.input) or ((request.target,) if request.target else ())
    return Grant(request, session_id, turn, tuple(os.path.realpath(Path(cwd, one)) for one in paths))


class ServedCalls:
    """``call_of``: the id of the call that it is part of. ``edits``: those of the workspace need no question; ``free``:
    nothing does. ``turn_of``: the number of the turn that runs, with which what was allowed goes. ``interrupt``:
    somebody who was asked wants the turn to end."""

    def __init__(
        self,
        options: Options,
        ask: Ask,
        call_of: Callable[[ServedRequest], str],
        *,
        edits: bool,
        free: bool,
        turn_of: Callable[[], int] = lambda: 0,
        interrupt: Callable[[], None] = lambda: None,
    ) -> None:
        self._options = options
        self._call_of = call_of
        self._ask = ask
        self._edits = edits
        self._free = free
        self._interrupt = interrupt
        self._turn_of = turn_of
        self._granted: list[Grant] = []

    def grant(self, request: PermissionRequest, session_id: str) -> None:
        """The agent was allowed this; what it now asks us to do may be the same. ``request`` is what was shown."""
        grant = grant_of(request, session_id, self._turn_of(), self._options.cwd)
        if grant is not None:
            self._granted.append(grant)

    async def authorize(self, question: ServedRequest) -> str:
        request = request_of(question, self._options.cwd, self._call_of(question))
        if self._free or await self._is_granted(question, request) or self._needs_no_question(request):
            return ""
        decision = await self._ask(request)
        if isinstance(decision, Allow):
            return ""
        if decision.interrupt:
            self._interrupt()
        return decision.message or "not allowed"

    def _needs_no_question(self, request: PermissionRequest) -> bool:
        if self._options.policy is not None:
            return False
        if request.operation != "read":
            return self._edits and is_free_edit(request, self._options)
        from ...permissions.risk.judge import judge

        verdict = judge(request.tool_name, request.operation, request.input, cwd=ground_of(self._options))
        return verdict.risk == "low" or (verdict.risk == "medium" and self._options.approval != "ask")

    async def _is_granted(self, question: ServedRequest, request: PermissionRequest) -> bool:
        """What was allowed is spent by the first that may be it, also where it turns out to be something else."""
        session_id, turn, cwd = question.session_id, self._turn_of(), self._options.cwd
        self._granted = [grant for grant in self._granted if grant.turn == turn]
        fitting = (grant for grant in self._granted if grant.session_id == session_id and grant.covers(question, cwd))
        grant = next(fitting, None)
        if grant is None:
            return False
        if isinstance(question, ReadTextFile) and grant.request.operation == "write":
            grant.was_read = True  # reading before the write is part of what was allowed
        else:
            self._granted.remove(grant)
        if isinstance(question, CreateTerminal):
            return True
        policy = self._options.policy
        if policy is not None and policy.decide(request, cwd=ground_of(self._options)).action == "deny":
            return False
        if isinstance(question, ReadTextFile):
            return True
        if len(set(grant.paths)) != 1:
            return False  # of several files nobody knows which text is whose
        return await asyncio.to_thread(is_as_shown, grant.request.input, question, cwd)


def request_of(question: ServedRequest, cwd: str, tool_use_id: str) -> PermissionRequest:
    """What the agent wants of us, as a question about a tool."""
    name, arguments = served_as(question)
    if isinstance(question, CreateTerminal) and folder_of(question, cwd) != os.path.realpath(cwd):
        arguments["command"] = f"cd {shlex.quote(folder_of(question, cwd))} && {arguments['command']}"
    return PermissionRequest(
        request_id="",
        tool_use_id=tool_use_id,
        tool_name=name,
        native_name=SERVED_NAMES[name],
        operation=operation_of(name),
        target=target_of(name, arguments),
        input=arguments,
    )


# ------------------------------------------------------------------------------------------------------- files


def is_as_shown(input: Mapping[str, Any], question: WriteTextFile, cwd: str) -> bool:
    """Whether the text that is to be written is the one that the call showed. It reads the file as it is.

    What was shown has to lead to the whole text, letter by letter. Where it can be read in two ways (a place that is
    not told, fields that nobody knows, two fields that say different things) it was not shown. ``cwd``: where paths of
    the call begin."""
    if not all(_is_known(name, value, question.path, cwd) for name, value in input.items()):
        return False
    texts = list(_shown_texts(input, _text_at(question.path)))
    return bool(texts) and all(text == question.content for text in texts)


def _text_at(path: str) -> str | None:
    """None: there is something that is no text."""
    try:
        return Path(path).read_bytes().decode()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError):
        return None


def _is_known(name: str, value: object, path: str, cwd: str) -> bool:
    if name in _FIELDS or value is None or value is False or value == "":
        return True
    if not isinstance(value, str):
        return False
    return value in _VALUES.get(name, ()) or ("\0" not in value and os.path.realpath(Path(cwd, value)) == path)


def _shown_texts(input: Mapping[str, Any], before: str | None) -> Iterator[str | None]:
    """The whole text after the call, once for each way in which its fields tell it; None where they do not say it."""
    appends = input.get("mode") == "append"
    for name in _WHOLE:
        if (text := input.get(name)) is not None:
            whole = text if isinstance(text, str) else None
            yield whole if not appends else None if whole is None or before is None else before + whole
    if (edits := input.get("edits")) is not None:
        many = cast("Sequence[object]", edits) if isinstance(edits, list) else ()
        yield _edited(before, many) if many else None
    if any(input.get(name) is not None for pair in _REPLACED for name in pair):
        yield _edited(before, [{name: value for name, value in input.items() if name in _STEP_FIELDS}])
    elif any(input.get(name) for name in _EVERYWHERE):
        yield None  # it belongs to no replacement
    if (diff := input.get("diff")) is not None:
        yield _patched(before, diff) if isinstance(diff, str) and before is not None else None


# ------------------------------------------------------------------------------------------------ replacements


def _edited(before: str | None, steps: Sequence[object]) -> str | None:
    text = before
    for step in steps:
        if text is None or not isinstance(step, Mapping):
            return None
        text = _replaced(text, cast("Mapping[str, object]", step))
    return text


def _replaced(text: str, step: Mapping[str, object]) -> str | None:
    """One that replaces nothing makes a file. Without ``replace_all`` there has to be one place only."""
    given = [pair for pair in _REPLACED if any(step.get(name) is not None for name in pair)]
    if len(given) != 1 or not step.keys() <= _STEP_FIELDS:
        return None
    old, new = (step.get(name) for name in given[0])
    everywhere = [step[name] for name in _EVERYWHERE if step.get(name) is not None]
    if not isinstance(old, str) or not isinstance(new, str) or any(not isinstance(one, bool) for one in everywhere):
        return None
    if not old:
        return None if text else new
    if old not in text or len(set(everywhere)) > 1:
        return None
    if True in everywhere:
        return text.replace(old, new)
    return text.replace(old, new) if text.find(old) == text.rfind(old) else None


# ------------------------------------------------------------------------------------------------------- diffs


def _patched(before: str, diff: str) -> str | None:
    """The diff of one file, applied where it says and nowhere else."""
    lines = diff.removesuffix("\n").split("\n")
    start = next((number for number, line in enumerate(lines) if line.startswith("@@")), len(lines))
    above = lines[:start]
    if start == len(lines) or not all(line.startswith(_ABOVE_HUNKS) for line in above):
        return None
    if sum(line.startswith("--- ") for line in above) > 1:
        return None
    old = _lines_of(before)
    new: list[str] = []
    done = 0
    while start < len(lines):
        head = _HUNK.fullmatch(lines[start])
        if head is None:
            return None
        at, goes, comes = (int(number or "1") for number in head.groups())
        hunk = _hunk(lines[start + 1 :], goes, comes)
        place = at - 1 if goes else at
        if hunk is None or place < done or old[place : place + goes] != hunk[0] or place > len(old):
            return None
        new += [*old[done:place], *hunk[1]]
        done, start = place + goes, start + 1 + hunk[2]
    new += old[done:]
    return "".join(new) if all(line.endswith("\n") for line in new[:-1]) else None


def _hunk(lines: Sequence[str], goes: int, comes: int) -> tuple[list[str], list[str], int] | None:
    """The lines that have to be there, those that stand there afterwards, and how many lines of the diff say so."""
    old: list[str] = []
    new: list[str] = []
    number = 0
    while number < len(lines) and (len(old) < goes or len(new) < comes):
        sign, text = lines[number][:1] or " ", lines[number][1:]
        number += 1
        if number < len(lines) and lines[number] == _NO_NEWLINE:
            number += 1
        else:
            text += "\n"
        if sign not in (" ", "-", "+"):
            return None
        if sign != "+":
            old.append(text)
        if sign != "-":
            new.append(text)
    return (old, new, number) if (len(old), len(new)) == (goes, comes) else None


def _lines_of(text: str) -> list[str]:
    """With their ends, of which there is one kind: whatever else breaks a line on a screen is a letter here."""
    return [line for line in re.split(r"(?<=\n)", text) if line]


# ---------------------------------------------------------------------------------------------------- commands


def folder_of(question: CreateTerminal, cwd: str) -> str:
    return os.path.realpath(Path(cwd, question.cwd or "."))


def _is_same_command(question: CreateTerminal, input: Mapping[str, Any], cwd: str) -> bool:
    from ...permissions.risk.fields import FOLDERS, command_text, unknown_fields

    script = command_text(input)
    if not script or script.rstrip().endswith("\\") or any(unknown_fields(input)):
        return False
    folders = {os.path.realpath(Path(cwd, str(input[name]))) for name in FOLDERS if input.get(name)}
    if (folders or {os.path.realpath(cwd)}) != {folder_of(question, cwd)}:
        return False
    if not all(_is_harmless(variable, question) for variable in question.env or ()):
        return False
    return script.strip() in scripts_of(question, cwd)


def _is_harmless(variable: EnvVariable, question: CreateTerminal) -> bool:
    """Also the name of the shell that runs the command anyway."""
    if variable.name == "SHELL":
        return variable.value == question.command
    return variable.name in HARMLESS and _PLAIN_VALUE.fullmatch(variable.value) is not None


def scripts_of(question: CreateTerminal, cwd: str) -> list[str]:
    """The texts that all mean this command: the line itself, and the script where a shell of the machine is started for
    it, also without the step into the folder ``cwd``, where it starts."""
    words = list(question.args or ())
    scripts = [(shlex.join([question.command, *words]) if words else question.command).strip()]
    if _is_shell(question.command) and len(words) == 2 and words[0] in ("-c", "-lc"):
        scripts.append(words[1].strip())
        scripts += [words[1].removeprefix(step).strip() for step in _steps_into(cwd) if words[1].startswith(step)]
    return scripts


def _is_shell(command: str) -> bool:
    """A file of the workspace may have any name."""
    folder, name = os.path.split(command)
    return name in SHELLS and (folder in ("", *_SYSTEM_FOLDERS) or command == shutil.which(name))


def _steps_into(cwd: str) -> list[str]:
    places = {str(Path(cwd).absolute()), os.path.realpath(cwd)}
    return [f"cd {form} && " for place in places for form in (f"'{place}'", shlex.quote(place)) if "'" not in place]
