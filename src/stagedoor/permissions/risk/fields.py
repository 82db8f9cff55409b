"""What the fields of a call say: the command line, the folder, every file. Agents name them as they like, and new ones
come with any version: of a command, a field that was not looked at makes the call one that is not understood."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from stagedoor.unified.events import ToolName
from stagedoor.unified.tools import target_of

_TEXTS = ("command", "cmd", "script", "input", "code")
_ARGUMENTS = ("args", "arguments", "argv", "parameters")
FOLDERS = ("workdir", "cwd", "directory", "dir", "dir_path", "working_directory", "workingDirectory", "working_dir",
           "workingDir", "folder")  # fmt: skip
_PATCHED = re.compile(r"^\*\*\* (?:Add|Update|Delete) File: (.+)$|^\*\*\* Move to: (.+)$", re.MULTILINE)
_COMPARED = re.compile(r"^--- ([^\t\n]+).*\n\+\+\+ ([^\t\n]+)|^rename to (.+)$|^copy to (.+)$", re.MULTILINE)
_PATCH_FIELD = re.compile(r"input|(.*_)?(patch|diff)(es|s)?(_text|_content|_string)?")
_SOUGHT = frozenset({"pattern", "patterns", "query", "queries", "regex", "search", "description", "prompt", "reason"})
"""Fields of a call that reads whose text is looked for, or is prose."""
_LIKE_A_PATH = re.compile(r"[^\s]*/|~|\.\.|\.\w|[\w-]+\.\w+$")
_LONGEST_PATH = 4_096
_PATH_FIELD = re.compile(
    r"(.*_)?(path|paths|file|files|filename|filenames|file_name|file_names|filepath|filepaths|dest|destination|target|targets|source|src|"
    r"directory|dir|folder|cwd|workdir|location|move_to|rename_to|moved_to|new_name|to|uri|save_as|save_to|output)"
)
_DEEPEST = 6
_MOST_FILES = 2_000
_HARMLESS_FIELDS = frozenset([
    *_TEXTS, *_ARGUMENTS, *FOLDERS,
    "description", "title", "explanation", "justification", "reason", "purpose", "goal", "intent", "thought", "comment",
    "summary", "id", "call_id", "callId", "tool_call_id", "toolCallId", "safe", "risk",
    "timeout", "timeout_ms", "timeoutMs", "timeout_s", "timeout_seconds", "timeoutSeconds", "max_wait", "wait", "delay",
    "initial_wait", "blocking", "async", "detach", "run_in_background", "is_background", "background",
    "runInBackground", "yield_time_ms", "max_output_tokens", "max_output_length", "max_output_chars", "output_limit",
    "outputByteLimit", "output_byte_limit", "tty", "login", "prefix_rule",
    "requires_approval", "is_read_only", "isReadOnly",
])  # fmt: skip
"""Fields of a call of a shell that were looked at: they change neither what runs nor where nor as whom."""
_HARMLESS_VALUES = {
    "mode": frozenset({"sync", "async"}),  # Copilot: whether it waits for the command
    **dict.fromkeys(("type", "kind", "name"), frozenset({"shell", "bash", "command", "exec", "execute"})),
}
"""The same for fields that may say how a command runs, too: these values do not."""
_WEB_FIELDS = frozenset({"url", "prompt", "query", "format", "timeout", "description", "type", "max_length"})
_SANDBOX = re.compile(r"sandbox|confine|isolat", re.IGNORECASE)


def command_text(input: Mapping[str, Any]) -> str | None:
    """The command line of a shell call, whatever the agent calls it; a list of words is quoted into one. Where several
    fields have one, all of them count."""
    texts = list(dict.fromkeys(text for key in _TEXTS if (text := _as_line(input.get(key))) is not None))
    if not texts:
        return None
    words = [word for key in _ARGUMENTS for word in _as_words(input.get(key))]
    return "\n".join([f"{texts[0]} {shlex.join(words)}" if words else texts[0], *texts[1:]])


def _as_line(value: object) -> str | None:
    if isinstance(value, str):
        return value
    if isinstance(value, Sequence) and value:
        return shlex.join(str(word) for word in cast("Sequence[object]", value))
    return None


def _as_words(value: object) -> list[str]:
    if isinstance(value, str):
        return [value] if value else []
    return [str(word) for word in cast("Sequence[object]", value)] if isinstance(value, Sequence) else []


def unknown_fields(input: Mapping[str, Any]) -> Iterator[str]:
    """The fields of a call of a shell that may change what runs, as far as we know."""
    for key, value in input.items():
        if key in _HARMLESS_FIELDS or (isinstance(value, str) and value in _HARMLESS_VALUES.get(key, ())):
            continue
        if value or (value is not None and _SANDBOX.search(key)):
            yield key


def paths_of(tool_name: ToolName, input: Mapping[str, Any], workspace: str = "") -> tuple[str, ...]:
    """Every file a call names, however deep in its fields; one that its path and its diff name, once."""
    found = dict.fromkeys(_named_files(input, 0))
    for path in _in_patches(input, 0):  # a diff that is shown beside a path often has the end of that path only
        is_end = path in found or (path[:1] not in "/~" and any(one.endswith(f"/{path}") for one in found))
        if not is_end and not (workspace and path.removeprefix(f"{workspace.rstrip('/')}/") in found):
            found[path] = None
    pattern = input.get("pattern")
    if tool_name == "find_files" and isinstance(pattern, str):
        found |= dict.fromkeys(_beyond(pattern))
    return tuple(found)


def _beyond(pattern: str) -> Iterator[str]:
    """What of a pattern for names of files may lead out of the workspace."""
    for part in dict.fromkeys((pattern, *re.split(r"[{},]", pattern))):
        if part.startswith(("/", "~")) or ".." in part.split("/"):
            yield part


def is_cut(value: object, depth: int = 0) -> bool:
    """Whether a call has more in it than is looked at."""
    if isinstance(value, list):
        many = cast("list[object]", value)
        return bool(many) and (
            depth > _DEEPEST or len(many) > _MOST_FILES or any(is_cut(one, depth + 1) for one in many)
        )
    if isinstance(value, Mapping):
        fields = cast("Mapping[object, object]", value)
        return bool(fields) and (depth > _DEEPEST or any(is_cut(one, depth + 1) for one in fields.values()))
    return False


def other_texts(value: object, depth: int = 0) -> Iterator[str]:
    """The texts in a call that may be paths, whatever their fields are called."""
    if depth > _DEEPEST:
        return
    if isinstance(value, str):
        if "\n" in value or len(value) > _LONGEST_PATH:
            return
        if re.search(r"[*?\[{]", value):
            yield from _beyond(value)
        elif _LIKE_A_PATH.match(value):
            yield value
    elif isinstance(value, list):
        for one in cast("list[object]", value)[:_MOST_FILES]:
            yield from other_texts(one, depth + 1)
    elif isinstance(value, Mapping):
        for name, one in cast("Mapping[object, object]", value).items():
            if name not in _SOUGHT:
                yield from other_texts(one, depth + 1)


def _in_patches(value: object, depth: int) -> Iterator[str]:
    if depth > _DEEPEST:
        return
    if isinstance(value, list):
        for one in cast("list[object]", value)[:_MOST_FILES]:
            yield from _in_patches(one, depth + 1)
    elif isinstance(value, Mapping):
        for name, one in cast("Mapping[object, object]", value).items():
            if _PATCH_FIELD.fullmatch(_in_snake_case(str(name))):
                yield from _patched(one)
            yield from _in_patches(one, depth + 1)


def _in_snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).replace("-", "_").lower()


def _named_files(value: object, depth: int) -> Iterator[str]:
    if depth > _DEEPEST:
        return
    if isinstance(value, list):
        for one in cast("list[object]", value)[:_MOST_FILES]:
            yield from _named_files(one, depth + 1)
    elif isinstance(value, Mapping):
        for name, one in cast("Mapping[object, object]", value).items():
            yield from _in_field(str(name), one)
            yield from _named_files(one, depth + 1)


def _in_field(name: str, value: object) -> Iterator[str]:
    key = _in_snake_case(name)
    if key == "changes" and isinstance(value, Mapping):
        yield from (str(path) for path in cast("Mapping[object, object]", value))
    elif _PATH_FIELD.fullmatch(key):
        many = cast("list[object]", value) if isinstance(value, list) else [value]
        yield from (path for path in many if isinstance(path, str) and path)


def _patched(text: object) -> Iterator[str]:
    """The files that a patch names, in the form of either kind."""
    if not isinstance(text, str):
        return
    yield from (path for pair in _PATCHED.findall(text) for path in cast("tuple[str, ...]", pair) if path)
    for match in _COMPARED.finditer(text):
        for path in match.groups():
            if path and path.strip() != "/dev/null":
                yield re.sub(r"^[ab]/", "", path.strip().strip('"'))


def web_arguments(tool_name: ToolName, input: Mapping[str, Any]) -> str:
    """The address or the question, where that is all a call sends; else nothing."""
    return target_of(tool_name, input) if _WEB_FIELDS.issuperset(input) else ""
