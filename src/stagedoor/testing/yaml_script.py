"""Scripts as YAML files, for the command line.

    script:
      - - think: Let me run the tests.
        - shell: pytest -q
      - when:
          - contains: passed
            reply: {say: All green.}
          - reply: {say: Not yet.}
    routes:
      "the sub job": [{say: Sub-agent here.}]

A part is one key with its arguments below it, named as in Python; a single argument may stand alone.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec
import yaml

from . import script as words
from .script import Case, Part, Reply, Script, ScriptedCall, When

_WORDS: Mapping[str, Callable[..., Part]] = {
    word.__name__: word
    for word in (
        words.say,
        words.half_emoji,
        words.think,
        words.shell,
        words.read_file,
        words.write_file,
        words.edit_file,
        words.delete_file,
        words.search_content,
        words.find_files,
        words.web_fetch,
        words.web_search,
        words.question,
        words.stop,
        words.usage,
        words.http_error,
        words.stream_error,
        words.context_overflow,
        words.cut,
        words.stall,
        words.endless,
        words.empty,
    )
}
_NULL = "tag:yaml.org,2002:null"
_SPECIAL = ("call", "native", "mcp", "task", "plan", "structured", "when", "forever")


PartT = TypeVar("PartT")


class ScriptError(ValueError):
    """The script cannot be read; the message says where and why."""


class LoadedScript(msgspec.Struct, frozen=True):
    script: Script
    routes: Mapping[str, Script] = {}


def load_script(source: Path | str) -> LoadedScript:
    """Read a script from a file (a ``Path``, or a string with no line break that names one) or from YAML text."""
    if isinstance(source, Path) or ("\n" not in source and source.endswith((".yaml", ".yml"))):
        path = Path(source)
        try:
            return _YamlScriptReader(path.read_text(encoding="utf-8"), str(path)).document()
        except OSError as error:
            raise ScriptError(f"cannot read {path}: {error.strerror or error}") from error
    return _YamlScriptReader(source, "<script>").document()


class _YamlScriptReader:
    def __init__(self, text: str, name: str) -> None:
        self._source, self._name = text, name

    def document(self) -> LoadedScript:
        try:
            self._loader = yaml.SafeLoader(self._source)
            root: yaml.Node | None = self._loader.get_single_node()
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            line = f":{mark.line + 1}" if mark else ""
            raise ScriptError(f"{self._name}{line}: {getattr(error, 'problem', None) or error}") from error
        if root is None:
            raise ScriptError(f"{self._name}: the script is empty")
        if isinstance(root, yaml.SequenceNode):
            return LoadedScript(self._script(root))
        fields = self._fields(root, "a list of replies, or a mapping with `script` and `routes`")
        self._refuse_unknown(root, fields, ("script", "routes"))
        routes = self._fields(fields["routes"], "a mapping from prompt to script") if "routes" in fields else {}
        script = self._script(fields["script"]) if "script" in fields else ()
        return LoadedScript(script, {mark: self._script(node) for mark, node in routes.items()})

    def _script(self, node: yaml.Node) -> tuple[Reply, ...]:
        return tuple(self._reply(reply) for reply in self._items(node, "a list of replies"))

    def _reply(self, node: yaml.Node) -> Reply:
        if isinstance(node, yaml.SequenceNode):
            return tuple(self._part(part) for part in self._items(node, "a list of parts"))
        if isinstance(node, yaml.MappingNode):
            fields = self._fields(node, "a part")
            if set(fields) == {"when"}:
                return When(tuple(self._case(case) for case in self._items(fields["when"], "a list of cases")))
            if set(fields) == {"forever"}:
                return words.forever(self._reply(fields["forever"]))
        return self._part(node)

    def _case(self, node: yaml.Node) -> Case:
        fields = self._fields(node, "a case: `contains`, `matches` or `error`, and `reply`")
        self._refuse_unknown(node, fields, ("contains", "matches", "error", "reply"))
        if "reply" not in fields:
            raise self._error(node, "this case has no `reply`")
        hints = get_type_hints(Case)
        conditions = {name: value for name, value in fields.items() if name != "reply"}
        return self._build(
            node,
            lambda: Case(
                self._reply(fields["reply"]),
                **{name: self._typed(value, hints[name]) for name, value in conditions.items()},
            ),
        )

    def _part(self, node: yaml.Node) -> Part:
        if isinstance(node, yaml.ScalarNode):
            name, value = str(node.value), None
            if name not in _WORDS:
                raise self._error(node, f"{name!r} is not a part: to send it as text, write `say: …`")
        else:
            fields = self._fields(node, "a part")
            if len(fields) != 1:
                raise self._error(node, f"a part has one key, this has {', '.join(fields) or 'none'}")
            ((name, value),) = fields.items()
        if name in _WORDS:
            return self._word(node, name, value)
        match name:
            case "structured" if value is not None:
                return words.structured(self._value(value))
            case "plan" if value is not None:
                items = [self._item(item) for item in self._items(value, "a list of items")]
                return self._build(node, lambda: words.plan(items))
            case "call" | "native" | "mcp" | "task" if value is not None:
                return self._call(name, value)
            case _:
                names = ", ".join(sorted([*_WORDS, *_SPECIAL]))
                raise self._error(node, f"unknown part {name!r}: choose from {names}")

    def _word(self, node: yaml.Node, name: str, value: yaml.Node | None) -> Part:
        word = _WORDS[name]
        names = list(inspect.signature(word).parameters)
        arguments: dict[str, yaml.Node]
        if value is None or value.tag == _NULL:
            arguments = {}
        elif isinstance(value, yaml.MappingNode):
            arguments = self._fields(value, "arguments")
        elif names:
            arguments = {names[0]: value}
        else:
            raise self._error(node, f"{name} takes no argument")
        self._refuse_unknown(node, arguments, names)
        hints = get_type_hints(word)
        return self._build(
            node, lambda: word(**{key: self._typed(argument, hints[key]) for key, argument in arguments.items()})
        )

    def _typed(self, node: yaml.Node, hint: Any) -> Any:
        if str in (hint, *get_args(hint)):
            return msgspec.convert(self._text(node), hint)
        return msgspec.convert(self._value(node), hint)

    def _text(self, node: yaml.Node) -> Any:
        """A word where text is expected is text, though YAML would read `Yes` or `42` otherwise."""
        return node.value if isinstance(node, yaml.ScalarNode) and node.tag != _NULL else self._value(node)

    def _call(self, name: str, node: yaml.Node) -> ScriptedCall:
        fields = self._fields(node, f"the arguments of {name}")
        if name == "task":
            self._refuse_unknown(node, fields, ("prompt", "description", "script"))
            script = self._script(fields.pop("script")) if "script" in fields else ()
            arguments = {key: self._text(value) for key, value in fields.items()}
            return self._build(node, lambda: words.task(script=script, **arguments))
        if name == "mcp":
            self._refuse_unknown(node, fields, ("server", "tool", "arguments"))
        else:
            self._refuse_unknown(node, fields, ("tool", "input"))
        arguments = {key: self._value(value) for key, value in fields.items()}
        missing = [key for key in (("server", "tool") if name == "mcp" else ("tool",)) if key not in arguments]
        if missing:
            raise self._error(node, f"{name} needs {' and '.join(missing)}")
        if name == "mcp":
            return words.mcp(arguments["server"], arguments["tool"], **arguments.get("arguments", {}))
        make = words.native if name == "native" else words.call
        return make(arguments["tool"], **arguments.get("input", {}))

    def _item(self, node: yaml.Node) -> Mapping[str, str]:
        fields = self._fields(node, "an item") if isinstance(node, yaml.MappingNode) else {"text": node}
        return {key: str(self._text(value)) for key, value in fields.items()}

    # ------------------------------------------------------------------------------------------------ nodes

    def _build(self, node: yaml.Node, make: Callable[[], PartT]) -> PartT:
        try:
            return make()
        except (TypeError, KeyError, msgspec.ValidationError) as error:
            problem = f"{error} is missing" if isinstance(error, KeyError) else str(error).replace("()", "")
            raise self._error(node, problem) from error

    def _fields(self, node: yaml.Node, expected: str) -> dict[str, yaml.Node]:
        if not isinstance(node, yaml.MappingNode):
            raise self._error(node, f"expected {expected}")
        return {str(key.value): value for key, value in node.value}

    def _items(self, node: yaml.Node, expected: str) -> list[yaml.Node]:
        if not isinstance(node, yaml.SequenceNode):
            raise self._error(node, f"expected {expected}")
        return list(node.value)

    def _refuse_unknown(
        self, node: yaml.Node, fields: Mapping[str, object], names: tuple[str, ...] | list[str]
    ) -> None:
        if strange := [name for name in fields if name not in names]:
            raise self._error(node, f"unknown key {', '.join(strange)}: choose from {', '.join(names)}")

    def _value(self, node: yaml.Node) -> Any:
        return self._loader.construct_document(node)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]

    def _error(self, node: yaml.Node, message: str) -> ScriptError:
        return ScriptError(f"{self._name}:{node.start_mark.line + 1}: {message}")
