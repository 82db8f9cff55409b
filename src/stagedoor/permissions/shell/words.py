"""What the words of a shell command become: quotes, escapes, braces, variables.

A word can have several readings (a variable may hold one of several values), and one reading several fields (an
unquoted value is split). What cannot be known stands in the text as a :data:`HOLE`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import pairwise, product
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from tree_sitter import Node, Parser, Tree

HOLE = "\0"
LOOPS = ("for_statement", "c_style_for_statement", "while_statement", "until_statement", "select_statement")
BRANCHES = ("if_statement", "case_statement", *LOOPS)
# The grammar takes the brace after these for a word.
_MISREAD_BRACE = re.compile(r"(?:(?<=[\s;&|({])|^)(?:!\s+|coproc\s+(?:\w+\s+)?)+(?=\{\s)")
_RARE = re.compile(r"[^\x04-\x7e]")
_ARMOURED = re.compile(r"\x02([0-9a-f]+)\x03")


def parsed(text: str) -> Tree:
    """Raises ``ImportError`` when the parser is not installed; never on content."""
    return _parser().parse(armoured(text))


def bare(raw: bytes) -> str:
    """The inverse of :func:`armoured`, for a part of the text."""
    return _ARMOURED.sub(lambda match: chr(int(match.group(1), 16)), raw.decode(errors="replace"))


@cache
def _parser() -> Parser:
    # Loaded with the first command that is judged: most programs that import Stagedoor never judge one.
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


def armoured(text: str) -> bytes:
    """Text as the parser can bear it: its scanner reads beyond its tables, and crashes, on rare characters.

    A hole becomes a variable nobody has set, so that the parser sees a word.
    """
    text = _MISREAD_BRACE.sub("", text.replace(HOLE, "${_}"))
    return _RARE.sub(lambda match: f"\2{ord(match.group()):x}\3", text).encode()


MAX_READINGS = 8
MAX_FIELDS = 64
MAX_WORD = 100_000
MAX_BRACED = 1000  # characters of a word in which braces are still looked for

Kind = Literal["quoted", "plain", "value"]


class Piece(NamedTuple):
    text: str
    kind: Kind


class WordScope(Protocol):
    """What a word needs to know of the script around it."""

    def values_of(self, name: str) -> Sequence[str]:
        """Every value a variable may hold; a lone hole when nothing is known."""
        ...

    def substitute(self, node: Node) -> str:
        """Look into ``$(…)``; the text it prints, or a hole."""
        ...

    def separators(self) -> str:
        """The characters at which unquoted values are split."""
        ...


def readings(node: Node, scope: WordScope) -> list[tuple[str, ...]]:
    """The fields one word becomes, once for each thing it may mean."""
    return [tuple(_fields(pieces, scope.separators())) for pieces in _read(node, scope, quoted=False)]


def texts(node: Node, scope: WordScope) -> list[str]:
    """The readings of a word where nothing is split: an assignment, a here-doc, the target of a redirection."""
    return ["".join(piece.text for piece in pieces) for pieces in _read(node, scope, quoted=False)]


def assigned(value: Node | None, scope: WordScope) -> list[str]:
    """What a variable may hold after ``name=value``; an array is its words in a row."""
    if value is None:
        return [""]
    if value.type != "array":
        return texts(value, scope)
    fields = [readings(child, scope) for child in value.named_children]
    return [" ".join(word for reading in fields for word in (reading[0] if len(reading) == 1 else (HOLE,)))]


def heredoc(node: Node, scope: WordScope) -> str:
    """The body of a here-doc with its expansions made."""
    return _joined(_between(node, node.children, scope, quoted=True))


def source(node: Node) -> str:
    return bare(node.text or b"")


# "$@" and "${a[@]}" stay several fields inside their quotes.
_ALL_ARGUMENTS = re.compile(r"^\$(@|\{@\}|\{\w+\[@\]\})$")


def _joined(alternatives: list[tuple[Piece, ...]]) -> str:
    return "".join(piece.text for piece in alternatives[0]) if len(alternatives) == 1 else HOLE


def _read(node: Node, scope: WordScope, *, quoted: bool) -> list[tuple[Piece, ...]]:
    value: Kind = "quoted" if quoted else "value"
    match node.type:
        case "word" | "number" | "variable_name" | "special_variable_name" | "brace_expression" if not quoted:
            return [tuple(_unescaped(source(node)))]
        case "raw_string":
            return [(Piece(source(node)[1:-1], "quoted"),)]
        case "ansi_c_string":
            return [(Piece(ansi_c(source(node)[2:-1]), "quoted"),)]
        case "string":
            inside = node.named_children
            if len(inside) == 1 and _ALL_ARGUMENTS.search(source(inside[0])):
                return _read(inside[0], scope, quoted=False)
            return _between(node, inside, scope, quoted=True)
        case "translated_string" if node.named_children:
            return _read(node.named_children[0], scope, quoted=quoted)
        case "concatenation" | "command_name":
            return _between(node, node.children, scope, quoted=quoted)
        case "string_content" | "heredoc_content":
            return [(Piece(_double_quoted(source(node)), "quoted"),)]
        case "simple_expansion":
            return [(Piece(text, value),) for text in scope.values_of(source(node)[1:])]
        case "expansion":
            return [(Piece(text, value),) for text in _expanded(node, scope)]
        case "command_substitution":
            return [(Piece(scope.substitute(node), value),)]
        case "process_substitution":
            scope.substitute(node)
            return [(Piece("/dev/fd/63", value),)]
        case _:
            if substitutions := _substitutions(node):
                for inner in substitutions:
                    scope.substitute(inner)
                return [(Piece(HOLE, value),)]
            if node.type == "arithmetic_expansion":
                return [(Piece(HOLE, value),)]
            return [(Piece(_double_quoted(source(node)), "quoted"),)] if quoted else [tuple(_unescaped(source(node)))]


def _between(node: Node, children: Sequence[Node], scope: WordScope, *, quoted: bool) -> list[tuple[Piece, ...]]:
    """The children in order with the text between them, which the grammar does not always make a node of."""
    raw = node.text or b""
    parts: list[list[tuple[Piece, ...]]] = []
    at = node.start_byte
    edge = 1 if node.type == "string" else 0
    at += edge

    def gap(until: int) -> None:
        text = bare(raw[at - node.start_byte : until - node.start_byte])
        if text:
            parts.append([(Piece(_double_quoted(text), "quoted"),)] if quoted else [tuple(_unescaped(text))])

    for child in children:
        gap(child.start_byte)
        parts.append(_read(child, scope, quoted=quoted))
        at = child.end_byte
    gap(node.end_byte - edge)
    combined: list[tuple[Piece, ...]] = []
    for choice in product(*parts):
        combined.append(tuple(piece for pieces in choice for piece in pieces))
        if len(combined) > MAX_READINGS or sum(len(piece.text) for piece in combined[-1]) > MAX_WORD:
            return [(Piece(HOLE, "quoted" if quoted else "value"),)]
    return combined or [(Piece("", "quoted"),)]


def _expanded(node: Node, scope: WordScope) -> Sequence[str]:
    """``${…}``: the forms that can be followed; a hole for the rest."""
    for inner in _substitutions(node):
        scope.substitute(inner)
    named = [child for child in node.children if child.is_named]
    operators = [source(child) for child in node.children if not child.is_named][1:-1]
    if not named:
        return [HOLE]
    name = source(named[0])
    if named[0].type == "subscript":
        array, _, index = name.partition("[")
        if operators:
            return [HOLE]
        return scope.values_of(array) if index in ("@]", "*]", "0]") else [HOLE]
    if not operators and len(named) == 1:
        return scope.values_of(name)
    if operators == ["!"] and len(named) == 1:
        return [value for target in scope.values_of(name) for value in scope.values_of(target)][:MAX_READINGS]
    if operators[:1] and operators[0] in (":-", "-", ":=", "=", ":+", "+") and len(named) <= 2:
        other = [text for child in named[1:] for text in texts(child, scope)] or [""]
        return [*scope.values_of(name), *other][:MAX_READINGS]
    return [HOLE]


def _substitutions(node: Node) -> list[Node]:
    found: list[Node] = []
    for child in node.children:
        if child.type in ("command_substitution", "process_substitution"):
            found.append(child)
        else:
            found.extend(_substitutions(child))
    return found


def _unescaped(text: str) -> Iterable[Piece]:
    """A bare word: a backslash makes the next character an ordinary one and joins lines."""
    for match in re.finditer(r"\\(\n|\r\n|.|$)|[^\\]+", text, re.DOTALL):
        if match.group(0).startswith("\\"):
            kept = match.group(1)
            yield Piece("" if kept in ("\n", "\r\n") else kept, "quoted")
        else:
            yield Piece(match.group(0), "plain")


def _double_quoted(text: str) -> str:
    return re.sub(r'\\([$`"\\]|\r?\n)', lambda match: "" if "\n" in match.group(1) else match.group(1), text)


_ANSI_C = {
    "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "\\": "\\", "'": "'", '"': '"', "?": "?",
}  # fmt: skip
_ANSI_C_ESCAPE = re.compile(
    r"\\(?:x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|([0-7]{1,3})|c(.)|(.))", re.DOTALL
)


def ansi_c(text: str) -> str:
    """The inside of ``$'…'``; also what ``echo -e`` and ``printf`` understand."""

    def expansion(match: re.Match[str]) -> str:
        hexadecimal, short, long, octal, control, letter = match.groups()
        if letter:
            return _ANSI_C.get(letter, "\\" + letter)
        if control:
            return chr(ord(control[0]) & 0x1F)
        code = int(octal, 8) & 0xFF if octal else int(hexadecimal or short or long, 16)
        return chr(code) if 0 < code < 0x110000 and not 0xD800 <= code < 0xE000 else ""

    return _ANSI_C_ESCAPE.sub(expansion, text)


def _fields(pieces: Iterable[Piece], separators: str) -> list[str]:
    fields: list[str] = []
    for word in _braces([(char, piece.kind) for piece in pieces for char in (piece.text or ("\1",))]):
        current: str | None = None
        for char, kind in word:
            if char == "\1":  # an empty piece: "" is a field, an empty variable is none
                current = (current or "") if kind == "quoted" else current
            elif kind == "value" and char in separators:
                if current is not None:
                    fields.append(current)
                current = None
            else:
                current = (current or "") + char
        if current is not None:
            fields.append(current)
    return fields


_Chars = list[tuple[str, Kind]]


def expand_braces(word: str) -> list[str]:
    """``{a,b}c`` as the shell makes it, for a word without quotes."""
    return ["".join(char for char, _ in chars) for chars in _braces([(char, "plain") for char in word])]


def _braces(chars: _Chars) -> list[_Chars]:
    done: list[_Chars] = []
    waiting = [chars]
    while waiting:
        word = waiting.pop(0)
        opened = _first_brace(word) if len(word) <= MAX_BRACED else None
        if opened is None or len(done) + len(waiting) > MAX_FIELDS:
            done.append(word)
            continue
        start, end, commas = opened
        cuts = [start, *commas, end]
        inner: list[_Chars]
        if commas:
            inner = [word[a + 1 : b] for a, b in pairwise(cuts)]
        else:
            inner = [
                [(char, "plain") for char in text] for text in _sequence("".join(c for c, _ in word[start + 1 : end]))
            ]
        waiting[:0] = [word[:start] + choice + word[end + 1 :] for choice in inner]
    return done


def _first_brace(word: _Chars) -> tuple[int, int, list[int]] | None:
    for start, (char, kind) in enumerate(word):
        if char != "{" or kind != "plain":
            continue
        depth, commas = 0, list[int]()
        for at in range(start, len(word)):
            char, kind = word[at]
            if kind != "plain":
                continue
            if char == "{":
                depth += 1
            elif char == "," and depth == 1:
                commas.append(at)
            elif char == "}":
                depth -= 1
                if depth == 0:
                    if commas or _sequence("".join(c for c, _ in word[start + 1 : at])):
                        return start, at, commas
                    break
    return None


def _sequence(text: str) -> list[str]:
    if match := re.fullmatch(r"(-?\d{1,6})\.\.(-?\d{1,6})", text):
        low, high = int(match.group(1)), int(match.group(2))
        step = 1 if high >= low else -1
        return [str(number) for number in range(low, high + step, step)[:MAX_FIELDS]]
    if match := re.fullmatch(r"([a-zA-Z])\.\.([a-zA-Z])", text):
        low, high = ord(match.group(1)), ord(match.group(2))
        step = 1 if high >= low else -1
        return [chr(number) for number in range(low, high + step, step)]
    return []
