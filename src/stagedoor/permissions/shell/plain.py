"""The short list of shell that is understood: a parser that knows nothing else, and refuses the rest.

Literal words, plain quoting, variables that the line itself set, pipes, lists, groups, ``if`` and ``for``, redirections
and here-documents without expansions. A line is understood when every character of it is accounted for here; what
bash, dash and zsh read differently is left out. The oracle is bash itself (``tools/shell_fuzz.py``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

MAX_NESTING = 20


class NotUnderstood(Exception):
    """Why a text is not on the list, in words that follow “it is not understood: it …”."""


class VariableUse(NamedTuple):
    """``$name`` in a word."""

    name: str
    quoted: bool


class CommandOutput(NamedTuple):
    """``"$(…)"`` in a word."""

    body: Chain


Part = str | VariableUse | CommandOutput


class Word(NamedTuple):
    """One word; ``bare`` when nothing in it is quoted, ``glob`` when it may become the names of files."""

    parts: tuple[Part, ...]
    bare: bool
    glob: bool = False

    @property
    def literal(self) -> str | None:
        return "".join(map(str, self.parts)) if all(isinstance(part, str) for part in self.parts) else None

    @property
    def keyword(self) -> str:
        return (self.literal or "") if self.bare else ""


class Opened(NamedTuple):
    """A redirection: a file, or text that becomes the input."""

    operator: str
    target: Word
    number: str = ""  # what is opened, where it is not the usual input or output


class Simple(NamedTuple):
    assignments: tuple[tuple[str, Word], ...]
    words: tuple[Word, ...]
    redirects: tuple[Opened, ...]


class Pipe(NamedTuple):
    stages: tuple[Statement, ...]


class Chain(NamedTuple):
    """Statements, each with the operator before it: ``;``, ``&&`` or ``||``; ``background`` when ``&`` follows."""

    items: tuple[tuple[str, Statement, bool], ...]


class Group(NamedTuple):
    body: Chain
    redirects: tuple[Opened, ...]
    subshell: bool


class Loop(NamedTuple):
    name: str
    words: tuple[Word, ...]
    body: Chain
    redirects: tuple[Opened, ...]


class Choice(NamedTuple):
    """``if``: every condition with what follows it; the last condition is empty for ``else``."""

    branches: tuple[tuple[Chain, Chain], ...]
    redirects: tuple[Opened, ...]


Statement = Simple | Pipe | Group | Loop | Choice


def joined_files(opened: Sequence[Opened]) -> str:
    """What of these joins or closes files that are open already, where that is more than to show what is printed."""
    joined = [f"{number}{operator}{target.literal}" for operator, target, number in opened if operator in (">&", "<&")]
    shown = len(joined) == len(opened) and all(one in ("2>&1", ">&2") for one in joined)
    return "" if shown else " ".join(joined)


def understand(text: str) -> Chain:
    """Raises :class:`NotUnderstood`."""
    if bad := _UNREADABLE.search(text):
        code = ord(bad.group())
        raise NotUnderstood(
            "contains a carriage return" if code == 13 else f"contains the control character U+{code:04X}"
        )
    return _Parser(list(_Tokens(text))).whole()


# Not a control character, and none of the marks by which bash protects characters inside itself.
_UNREADABLE = re.compile(r"[^\t\n\x20-\x7e\xa0-\ud7ff\ue000-\U0010ffff]")
_BLANKS = re.compile(r"[ \t]+")
_COMMENT = re.compile(r"#[^\n]*")
_LITERAL = re.compile(r"[A-Za-z0-9_./,:@%+=^-]+")
_GLOB = re.compile(r"[*?]+|\[[A-Za-z0-9_.-]+\]")
_SINGLE = re.compile(r"'([^']*)'")
_ESCAPE = re.compile(r"\\([!-~ ])")
_TILDE_INSIDE = re.compile(r"(?<=[A-Za-z0-9^])~")
_TILDE_FIRST = re.compile(r"~(?=/|[ \t\n;&|)]|\Z)")
_NAME = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})", re.ASCII)
_IN_DOUBLE = re.compile(r'[^"\\$`]+')
_ALONE = re.compile(r"(?:\{\}|!=|!)(?=[ \t\n;&|)]|\Z)|[{\[](?=[ \t\n])|[}\]](?=[ \t\n;&|)<>]|\Z)")
_REDIRECT = re.compile(r"(\d*)(&>>|&>|>>|>\||>&|<&|<<<|<<-|<<|<>|>|<)")
_DUPLICATE = re.compile(r"(?:\d{1,3}|-)(?=[ \t\n;&|)<>]|\Z)")
_DELIMITER = re.compile(
    r"[ \t]*(?:'([A-Za-z0-9_.-]+)'|\"([A-Za-z0-9_.-]+)\"|([A-Za-z_][A-Za-z0-9_]*))(?=[ \t\n;&|)<>]|\Z)"
)
_OPERATOR = re.compile(r"&&|\|\||\|&|[|;&()\n]")
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)=", re.ASCII)
_LIKE_ASSIGNED = re.compile(r"[A-Za-z_]\w*(\+=|\[)", re.ASCII)
_LITERAL_DOLLAR = re.compile(r'\$(?=["|/ ])')

Token = Word | Opened | str

_WHAT = {
    "`": "uses backticks",
    "{": "uses braces",
    "}": "uses braces",
    "(": "defines a function, or uses brackets inside a word",
    "!": "uses `!`",
    "#": "uses `#` inside a word",
    "~": "uses `~` in an unusual place",
    "[": "uses brackets",
    "]": "uses brackets",
}


def _dollar(text: str, at: int) -> NotUnderstood:
    following = text[at + 1 : at + 3]
    if following.startswith("(("):
        return NotUnderstood("calculates with `$((…))`")
    if following.startswith("("):
        return NotUnderstood("uses the output of a command as words, `$(…)`")
    if following.startswith("{"):
        return NotUnderstood("uses `${…}` for more than a name")
    if following.startswith(("'", '"')):
        return NotUnderstood("uses the quoting `$'…'` or `$\"…\"`")
    return NotUnderstood(f"uses the special variable `${following[:1]}`")


class _Document(NamedTuple):
    """A here-document to come: its end mark, whether tabs are cut, and whether it has no expansions."""

    delimiter: str
    cut: bool
    literal: bool


class _Tokens:
    def __init__(self, text: str, at: int = 0, nesting: int = 0) -> None:
        if nesting > MAX_NESTING:
            raise NotUnderstood("is nested too deeply")
        self._nesting = nesting
        self.text = text
        self.at = at
        self._documents: list[_Document] = []

    def __iter__(self) -> Iterator[Token]:
        pending: list[Token] = []  # tokens since the first here-document of this line: its text comes later
        while True:
            token = self._next()
            if token is None:
                break
            if self._documents or pending:
                if token == ")":
                    raise NotUnderstood("closes a bracket before its here-document has begun")
                pending.append(token)
                if token != "\n":
                    continue
                texts = iter([self._document(document) for document in self._documents])
                self._documents.clear()
                for each in pending:
                    if isinstance(each, Opened) and each.operator in ("<<", "<<-"):
                        yield Opened("<<", Word((next(texts),), bare=False))
                    else:
                        yield each
                pending.clear()
                continue
            yield token
        if pending:
            raise NotUnderstood("has a here-document without an end")

    def _next(self) -> Token | None:
        text = self.text
        while self.at < len(text):
            if blank := _BLANKS.match(text, self.at):
                self.at = blank.end()
            elif text.startswith("\\\n", self.at) and (self.at == 0 or text[self.at - 1] in " \t\n"):
                if self._documents:
                    raise NotUnderstood("continues a line that has a here-document")
                self.at += 2
            elif text[self.at] == "#":
                comment = _COMMENT.match(text, self.at)
                assert comment is not None
                self.at = comment.end()
            else:
                break
        if self.at >= len(text):
            return None
        if redirect := _REDIRECT.match(text, self.at):
            self.at = redirect.end()
            number, symbol = redirect.groups()
            if (
                len(number) > 2
                or (number and symbol[0] == "&")
                or (symbol.startswith("<<") and number not in ("", "0"))
            ):
                raise NotUnderstood("redirects an unusual number")
            opened = self._opened(symbol)
            usual = "0" if symbol.startswith("<") else "1"
            return opened if number in ("", usual) else opened._replace(number=number)
        if text.startswith("((", self.at):
            raise NotUnderstood("calculates with `((…))`")
        if operator := _OPERATOR.match(text, self.at):
            self.at = operator.end()
            return operator.group()
        return self.word()

    def _opened(self, operator: str) -> Opened:
        text = self.text
        if operator in (">&", "<&"):
            if number := _DUPLICATE.match(text, self.at):
                self.at = number.end()
                return Opened(operator, Word((number.group(),), bare=True))
            raise NotUnderstood(f"redirects with `{operator}` to something that is not a number")
        if operator in ("<<", "<<-"):
            delimiter = _DELIMITER.match(text, self.at)
            if delimiter is None:
                raise NotUnderstood("has a here-document with an unusual end mark")
            self.at = delimiter.end()
            name = delimiter.group(1) or delimiter.group(2) or delimiter.group(3)
            self._documents.append(_Document(name, operator == "<<-", delimiter.group(3) is None))
            return Opened(operator, Word((), bare=True))
        if blank := _BLANKS.match(text, self.at):
            self.at = blank.end()
        if text.startswith("(", self.at):
            raise NotUnderstood("uses the input or output of a command as a file, `<(…)`")
        if self.at >= len(text) or text[self.at] in "\n;&|<>()\\#":
            raise NotUnderstood("has a redirection without a target")
        target = self.word()
        if target.glob:
            raise NotUnderstood("redirects to a pattern of file names")
        return Opened(operator, target)

    def _document(self, document: _Document) -> str:
        delimiter, cut, literal = document
        lines: list[str] = []
        while True:
            if self.at >= len(self.text):
                raise NotUnderstood("has a here-document without an end")
            end = self.text.find("\n", self.at)
            end = len(self.text) if end < 0 else end
            line = self.text[self.at : end]
            self.at = end + 1
            line = line.lstrip("\t") if cut else line
            if line == delimiter:
                break
            lines.append(line)
        body = "".join(line + "\n" for line in lines)
        if not literal and re.search(r"[$`\\]", body):
            raise NotUnderstood("has a here-document with expansions; put its end mark into single quotes")
        return body

    def word(self) -> Word:
        text, parts, glob, start = self.text, list[Part](), False, self.at
        bare = True
        if alone := _ALONE.match(text, self.at):
            self.at = alone.end()
            return Word((alone.group(),), bare=True)
        while self.at < len(text):
            at = self.at
            char = text[at]
            if char in " \t\n;&|<>)":
                break
            if literal := _LITERAL.match(text, at):
                found = literal.group()
                if at == start and found[0] == "=" and not re.match(r"==?(?=[ \t\n]|\Z)", text[at : at + 3]):
                    raise NotUnderstood("has a word that begins with `=`")
                parts.append(found)
                self.at = literal.end()
            elif char == "'":
                single = _SINGLE.match(text, at)
                if single is None:
                    raise NotUnderstood("has a quote without an end")
                self._no_lines_in_quotes(single.group())
                parts.append(single.group(1))
                self.at, bare = single.end(), False
            elif char == '"':
                self.at, bare = at + 1, False
                parts.extend(self._double())
            elif escape := _ESCAPE.match(text, at):
                parts.append(escape.group(1))
                self.at, bare = escape.end(), False
            elif found_glob := _GLOB.match(text, at):
                parts.append(found_glob.group())
                self.at, glob = found_glob.end(), True
            elif tilde := (_TILDE_FIRST if at == start else _TILDE_INSIDE).match(text, at):
                parts.append("~")
                self.at = tilde.end()
            elif char == "$" and (name := _NAME.match(text, at)):
                parts.append(VariableUse(name.group(1) or name.group(2), quoted=False))
                self.at, bare = name.end(), False
            elif char == "$":
                raise _dollar(text, at)
            elif char == "\\":
                raise NotUnderstood("continues a word on the next line")
            elif char > "~":
                raise NotUnderstood(f"has the character {char!r} outside of quotes")
            else:
                raise NotUnderstood(_WHAT.get(char, f"uses `{char}`"))
        return Word(_joined(parts), bare, glob)

    def _no_lines_in_quotes(self, quoted: str) -> None:
        if self._documents and "\n" in quoted:
            raise NotUnderstood("has several lines in quotes beside a here-document")

    def _double(self) -> Iterator[Part]:
        text = self.text
        yield ""  # so that "" is a word
        while self.at < len(text):
            at = self.at
            char = text[at]
            if char == '"':
                self.at += 1
                return
            if plain := _IN_DOUBLE.match(text, at):
                self._no_lines_in_quotes(plain.group())
                yield plain.group()
                self.at = plain.end()
            elif char == "\\" and text[at + 1 : at + 2] not in ("", "\n"):
                following = text[at + 1]
                yield following if following in '$`"\\' else "\\" + following
                self.at += 2
            elif char == "$" and (name := _NAME.match(text, at)):
                yield VariableUse(name.group(1) or name.group(2), quoted=True)
                self.at = name.end()
            elif _LITERAL_DOLLAR.match(text, at):
                yield "$"
                self.at += 1
            elif text.startswith("$(", at) and not text.startswith("$((", at):
                yield self._output()
            elif char == "`":
                raise NotUnderstood("uses backticks")
            elif char == "$":
                raise _dollar(text, at)
            else:
                raise NotUnderstood("continues a word on the next line")
        raise NotUnderstood("has a quote without an end")

    def _output(self) -> CommandOutput:
        if self._documents:
            raise NotUnderstood("uses the output of a command beside a here-document")
        inner = _Tokens(self.text, self.at + 2, self._nesting + 1)
        tokens: list[Token] = []
        depth = 0
        for token in inner:
            depth += {"(": 1, ")": -1}.get(token, 0) if isinstance(token, str) else 0
            if depth < 0:
                self.at = inner.at
                return CommandOutput(_Parser(tokens).whole())
            tokens.append(token)
        raise NotUnderstood("has a quote without an end")


def _joined(parts: list[Part]) -> tuple[Part, ...]:
    """Neighbouring pieces of text in one; none stays for ``""``."""
    joined: list[Part] = []
    for part in parts:
        if isinstance(part, str) and joined and isinstance(joined[-1], str):
            joined[-1] += part
        else:
            joined.append(part)
    return tuple(joined)


# What a shell reads as its own word where a command may stand; some of zsh's among them.
_KEYWORDS = frozenset(
    [
        "if", "then", "else", "elif", "fi", "case", "esac", "for", "select", "while", "until", "do", "done", "in",
        "function", "time", "{", "}", "!", "[[", "]]", "coproc", "repeat", "foreach", "end", "nocorrect", "noglob",
        "always", "namespace", "-",
    ]
)  # fmt: skip


class _Parser:
    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._nesting = 0

    def whole(self) -> Chain:
        chain = self._chain(())
        if self._at < len(self._tokens):
            raise NotUnderstood(f"has `{self._token_text()}` in an unexpected place")
        return chain

    def _token_text(self) -> str:
        token = self._peek()
        if token is None:
            return "the end"
        return "a line break" if token == "\n" else token if isinstance(token, str) else self._keyword() or "a word"

    def _peek(self) -> Token | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _keyword(self) -> str:
        token = self._peek()
        return token.keyword if isinstance(token, Word) else ""

    def _skip_lines(self) -> None:
        while self._peek() == "\n":
            self._at += 1

    def _expect(self, keyword: str) -> None:
        if self._keyword() != keyword:
            raise NotUnderstood(f"has `{self._token_text()}` where `{keyword}` is expected")
        self._at += 1

    def _chain(self, ends: tuple[str, ...]) -> Chain:
        """Statements up to one of the keywords, a closing bracket, or the end."""
        self._nesting += 1
        if self._nesting > MAX_NESTING:
            raise NotUnderstood("is nested too deeply")
        items: list[tuple[str, Statement, bool]] = []
        operator = ";"
        self._skip_lines()
        while self._peek() not in (None, ")") and self._keyword() not in ends:
            statement = self._pipe()
            token = self._peek()
            items.append((operator, statement, token == "&"))
            if token in (";", "&", "\n"):
                self._at += 1
                operator = ";"
                self._skip_lines()
            elif token in ("&&", "||"):
                operator = str(token)
                self._at += 1
                self._skip_lines()
                if self._peek() in (None, ")") or self._keyword() in ends:
                    raise NotUnderstood(f"ends with `{operator}`")
            elif token is None or token == ")":
                break
            else:
                raise NotUnderstood(f"has `{self._token_text()}` in an unexpected place")
        self._nesting -= 1
        return Chain(tuple(items))

    def _body(self, *ends: str) -> Chain:
        chain = self._chain(ends)
        if not chain.items or self._keyword() not in ends:
            raise NotUnderstood(f"has no `{ends[-1]}` where it is expected")
        return chain

    def _pipe(self) -> Statement:
        negated = False
        while self._keyword() in ("!", "time"):
            negated = negated or self._keyword() == "!"
            self._at += 1
            following = self._peek()
            if not isinstance(following, Word) or (following.literal or "-").startswith("-"):
                raise NotUnderstood("uses `time` or `!` in an unusual way")
        stages = [self._stage()]
        while self._peek() in ("|", "|&"):
            self._at += 1
            self._skip_lines()
            if self._keyword() in ("!", "time"):
                raise NotUnderstood("uses `time` or `!` inside a pipe")
            stages.append(self._stage())
        if negated and len(stages) == 1 and _may_change_folder(stages[0]):
            raise NotUnderstood("goes on where a `cd` has failed")
        return stages[0] if len(stages) == 1 else Pipe(tuple(stages))

    def _stage(self) -> Statement:
        keyword = self._keyword()
        if self._peek() == "(":
            self._at += 1
            body = self._chain(())
            if not body.items or self._peek() != ")":
                raise NotUnderstood("uses brackets in an unusual way")
            self._at += 1
            return Group(body, self._redirects(), subshell=True)
        if keyword == "{":
            self._at += 1
            group = self._body("}")
            self._at += 1
            return Group(group, self._redirects(), subshell=False)
        if keyword == "for":
            return self._loop()
        if keyword == "if":
            return self._choice()
        if keyword in _KEYWORDS:
            raise NotUnderstood(f"uses `{keyword}`")
        return self._simple()

    def _redirects(self) -> tuple[Opened, ...]:
        found: list[Opened] = []
        while isinstance(token := self._peek(), Opened):
            found.append(token)
            self._at += 1
        return tuple(found)

    def _loop(self) -> Loop:
        self._at += 1
        name = self._keyword()
        if not is_own_name(name):
            raise NotUnderstood(f"has a loop over the variable {name or 'without a name'}, which may mean something")
        self._at += 1
        self._expect("in")
        words: list[Word] = []
        while isinstance(token := self._peek(), Word):
            words.append(token)
            self._at += 1
        if self._peek() not in (";", "\n"):
            raise NotUnderstood("has a loop without `do`")
        self._at += 1
        self._skip_lines()
        self._expect("do")
        body = self._body("done")
        self._at += 1
        return Loop(name, tuple(words), body, self._redirects())

    def _choice(self) -> Choice:
        branches: list[tuple[Chain, Chain]] = []
        keyword = "if"
        while keyword in ("if", "elif"):
            self._at += 1
            condition = self._body("then")
            self._at += 1
            branches.append((condition, self._body("elif", "else", "fi")))
            keyword = self._keyword()
        if keyword == "else":
            self._at += 1
            branches.append((Chain(()), self._body("fi")))
        self._at += 1
        return Choice(tuple(branches), self._redirects())

    def _simple(self) -> Simple:
        assignments: list[tuple[str, Word]] = []
        words: list[Word] = []
        redirects: list[Opened] = []
        while True:
            token = self._peek()
            if isinstance(token, Opened):
                redirects.append(token)
            elif not isinstance(token, Word):
                break
            elif not words and (assigned := _assignment(token)) is not None:
                assignments.append(assigned)
            elif token.keyword in ("{", "}"):
                raise NotUnderstood("uses braces")
            else:
                words.append(token)
            self._at += 1
        if self._peek() == "(":
            raise NotUnderstood("defines a function, or uses brackets inside a command")
        if words:
            _check_program(words[0])
        elif not assignments and not redirects:
            raise NotUnderstood(f"has `{self._token_text()}` in an unexpected place")
        return Simple(tuple(assignments), tuple(words), tuple(redirects))


def _assignment(word: Word) -> tuple[str, Word] | None:
    first = word.parts[0] if word.parts else ""
    if not isinstance(first, str):
        return None
    if _LIKE_ASSIGNED.match(first):
        raise NotUnderstood("adds to a variable or sets a part of one")
    match = _ASSIGNED.match(first)
    if match is None:
        return None
    if word.glob:
        raise NotUnderstood("sets a variable to a pattern of file names")
    return match.group(1), Word((first[match.end() :], *word.parts[1:]), word.bare)


def _may_change_folder(statement: Statement) -> bool:
    match statement:
        case Simple(words=(word, *_)):
            return word.literal in (None, "cd", "chdir", "pushd", "popd", "command", "builtin")
        case Simple() | Pipe() | Group(subshell=True):
            return False
        case _:
            return True


def _check_program(word: Word) -> None:
    literal = word.literal
    if literal is None:
        raise NotUnderstood("runs a program that a variable names")
    if word.glob and literal != "[":
        raise NotUnderstood("runs a program that a pattern of file names names")
    if literal[:1] in ("", "-", "+", "%", "=", "^", "@", ":", ",") and literal != ":":
        raise NotUnderstood(f"runs a program with the unusual name `{literal}`")
    if word.bare and literal in _KEYWORDS:
        raise NotUnderstood(f"uses `{literal}`")


# Names that no program and no shell gives a meaning to (zsh has `path`, `status`, `prompt`, `commands` …).
_OWN_NAMES = frozenset(
    [
        "file", "files", "dir", "dirs", "folder", "name", "names", "src", "dst", "dest", "out", "item", "line", "num",
        "idx", "index", "key", "val", "value", "url", "arg", "base", "root", "pkg", "module", "mod", "test", "msg",
        "tmp", "text", "target", "version", "branch", "commit", "pattern", "count", "total", "result", "res", "ext",
        "year", "FILE", "FILES", "DIR", "NAME", "SRC", "DST", "PKG",
    ]
)  # fmt: skip
_OWN_LETTER = re.compile(r"[a-z][0-9]?|[a-z]{2}")
# Variables that programs read, and that only change how they print or how much.
_HARMLESS = re.compile(
    r"(?:NO_COLOR|FORCE_COLOR|CLICOLOR|CI|NODE_ENV|RUST_BACKTRACE|PYTHONUNBUFFERED|PYTHONDONTWRITEBYTECODE|COLUMNS|"
    r"DEBIAN_FRONTEND)=[A-Za-z0-9]{0,32}|(?:LANG|LC_[A-Z]+)=[A-Za-z_]{0,10}(?:\.[A-Za-z0-9-]{1,10})?"
)


def is_own_name(name: str) -> bool:
    """Whether a variable of this name means something to the line alone."""
    return name in _OWN_NAMES or bool(_OWN_LETTER.fullmatch(name))


def is_harmless_setting(assignment: str) -> bool:
    """Whether ``NAME=value`` for one program changes nothing of what it does."""
    return is_own_name(assignment.partition("=")[0]) or bool(_HARMLESS.fullmatch(assignment))
