"""What agents put into and beside their tool calls, read: names, commands, exit codes, outputs. Pure."""

from __future__ import annotations

import re
import shlex
from pathlib import PurePath
from typing import Any, cast

import msgspec

from ...agents.acp import requests
from ...agents.acp.config import ServedRequest
from ...unified.events import ShownImage, ToolName
from ...unified.images import images_in, with_marks
from ...wire.fitting import whole_number

SHELLS = ("bash", "sh", "zsh", "dash")
_EXIT_LINE = re.compile(r"Exit code (\d{1,3})(?:\n|$)")
_FENCE = re.compile(r"```[a-z]*\n(.*?)\n?```\s*", re.DOTALL)


def output_text(raw_output: Any, *, understood: bool = False) -> str:
    """The text of a raw output. ``understood``: it was read otherwise, and without a text it is not shown whole."""
    match raw_output:
        case None:
            return ""
        case str():
            return raw_output
        case {"formatted_output": str(text)} | {"aggregated_output": str(text)} | {"output": str(text)}:
            return text
        case {"error": str(text)} | {"message": str(text)} | {"content": str(text)} if not understood:
            return text
        case {"stdout": str(out), "stderr": str(err)}:
            return out + err
        case _:
            return "" if understood else msgspec.json.encode(raw_output).decode()


def raw_images(raw_output: Any) -> list[ShownImage]:
    """Images that an agent keeps out of what it shows."""
    if not isinstance(raw_output, dict):
        return images_in(raw_output)
    fields = cast("dict[str, object]", raw_output)
    lists = [fields[name] for name in ("contents", "content", "attachments") if isinstance(fields.get(name), list)]
    return images_in(lists[0] if lists else None)


def words_beside(text: str, raw_output: Any, images: list[ShownImage]) -> str:
    """``text`` with these images named, and without their bytes, which some agents show as JSON."""
    if not images:
        return text
    if isinstance(raw_output, list) and text.lstrip().startswith("["):
        blocks = cast("list[object]", raw_output)
        text = "\n".join(words for block in blocks if (words := _words_of(block)))
    return with_marks(text, images)


def _words_of(block: object) -> str:
    match block:
        case {"text": str(words)}:
            return words
        case _:
            return ""


def exit_code_in(raw_output: Any) -> int | None:
    """The exit code of a command, where agents put it."""
    match raw_output:
        case {"exitCode": code} | {"exit_code": code} | {"contents": [{"exitCode": code}, *_]}:
            return whole_number(code)
        case _:
            return None


def tool_name_in(meta: Any) -> str:
    """A tool's own name, where agents put it."""
    match meta:
        case {"toolName": str(name)} | {"claudeCode": {"toolName": str(name)}} if name:
            return name
        case _:
            return ""


def served_as(request: ServedRequest) -> tuple[ToolName, dict[str, Any]]:
    """What the agent wants of us, as a tool and its input."""
    match request:
        case requests.ReadTextFile(path=path):
            return "read_file", {"file_path": path}
        case requests.WriteTextFile(path=path, content=content):
            return "write_file", {"file_path": path, "content": content}
        case requests.CreateTerminal():
            return "shell", {"command": command_line(request)}


def command_line(request: requests.CreateTerminal) -> str:
    """The command of a terminal as a shell would be given it, with the variables that it gets."""
    words = shlex.join([request.command, *request.args]) if request.args else request.command
    assigned = [f"{variable.name}={shlex.quote(variable.value)}" for variable in request.env or ()]
    return " ".join([*assigned, words])


def arguments_in(text: str) -> dict[str, Any] | None:
    """The input of a call that is told as text, once it is whole."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError:
        return None


def with_plain_command(arguments: dict[str, Any]) -> dict[str, Any]:
    """The same with the command as one text: some give the words of a program, mostly a shell and its script."""
    words: object = arguments.get("command")
    if not isinstance(words, list) or not words:
        return arguments
    return {**arguments, "command": script_of([str(word) for word in cast("list[object]", words)])}


def script_of(words: list[str]) -> str:
    """What a command line runs: the script, where it starts a shell for one."""
    if len(words) == 3 and PurePath(words[0]).name in SHELLS and words[1] in ("-c", "-lc"):
        return words[2]
    return shlex.join(words)


def terminal_output_in(meta: Any) -> str:
    """Output of a command that runs in a terminal of the agent's own, a piece at a time."""
    match meta:
        case {"terminal_output": {"data": str(text)}} | {"terminal_output_delta": {"data": str(text)}}:
            return text
        case _:
            return ""


def terminal_exit_in(meta: Any) -> int | None:
    match meta:
        case {"terminal_exit": {"exit_code": code}}:
            return whole_number(code)
        case _:
            return None


def failure_in(raw_output: Any) -> tuple[int, str] | None:
    """The exit code and the output of a command that failed, where its first line says so."""
    if not isinstance(raw_output, str) or (line := _EXIT_LINE.match(raw_output)) is None:
        return None
    return int(line[1]), raw_output[line.end() :]


def unfenced(text: str, raw_output: Any) -> str:
    """``text`` without the fence that some put around an output for display."""
    fenced = _FENCE.fullmatch(text)
    if fenced is None:
        return text
    plain = output_text(raw_output, understood=True)
    return plain if fenced[1].strip() == plain.strip() else text
