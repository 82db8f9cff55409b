"""Read a shell script with a real parser and say which simple commands it would run.

The reading follows what hides a command: wrappers, ``sh -c``, ``eval``, substitutions, here-docs, functions, aliases,
variables, ``cd``. It is a reading, not a run: where it cannot follow it says so, and the judge fails closed.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from contextlib import contextmanager
from itertools import islice, product
from typing import TYPE_CHECKING, NamedTuple

from . import plain
from . import words as shell_words
from .launchers import ANY_OPTION, launched
from .plain import NotUnderstood, understand
from .scope import Scope
from .script import DECODERS, NETWORK, NOWHERE, Redirect, Script, ShellCommand, printed
from .suspicion import (
    RESERVED,
    SENSITIVE,
    fork_bomb,
    guessed_commands,
    most_open,
    other_readings,
    runs_foreign_text,
    shell_text,
)
from .words import BRANCHES, HOLE, LOOPS, MAX_READINGS, parsed, source
from .wrappers import (
    FOLLOWED_SHELLS,
    SHELLS,
    changes_nothing,
    is_known_file,
    is_transparent,
    listed,
    nested,
    program_of,
    unwrap,
)

if TYPE_CHECKING:
    from collections.abc import Generator

    from tree_sitter import Node

MAX_TEXT = 100_000
MAX_OPEN = 100  # brackets open at once: beyond, the parser takes time by the square of their number
MAX_COMMANDS = 1000
MAX_DEPTH = 16
NOT_UNDERSTOOD = "not understood"
MAX_WORDS = 2000
MAX_ROUNDS = 50
_UNSPLIT = re.compile(r"[A-Za-z0-9_./,:@%+=-]+")


class _Field(NamedTuple):
    """One word as its program gets it; ``pattern`` when it stands for names of files."""

    text: str
    pattern: bool = False


def read_script(text: str, cwd: str | None) -> Script:
    """Never raises on content."""
    reader = _ScriptReader(cwd)
    try:
        reader.script(text)
        reader.uncalled()
    except RecursionError:
        reader.problem("it is nested too deeply to be analyzed")
    return Script(tuple(dict.fromkeys(reader.commands)), tuple(reader.problems), tuple(reader.alarms))


class _ScriptReader:
    def __init__(self, cwd: str | None) -> None:
        self.commands: list[ShellCommand] = []
        self.problems: dict[str, None] = {}
        self.alarms: dict[str, None] = {}
        self._functions: dict[str, Node] = {}
        self._called: set[str] = set()
        self._active: tuple[str, ...] = ()
        self._scope = Scope(cwd)
        self._fed_by: tuple[str, ...] = ()
        self._stdin: str | None = None
        self._listed: str | None = None  # paths that the command before in the pipe finds
        self._made_from: list[str] = []
        self._through = ""
        self._into_file = False
        self._conditional = 0
        self._depth = 0
        self._proven: dict[str, _Field] = {}  # the variables of which the value is certain

    def problem(self, why: str) -> None:
        self.problems[why] = None

    def unclear(self, why: NotUnderstood) -> None:
        """Say the first reason only: what comes after it is read by guessing."""
        if not any(problem.startswith(NOT_UNDERSTOOD) for problem in self.problems):
            self.problem(f"{NOT_UNDERSTOOD}: it {why}")

    def alarm(self, why: str) -> None:
        self.alarms[why] = None

    # -- what words need to know -------------------------------------------------------------------------------------

    def values_of(self, name: str) -> Sequence[str]:
        return self._scope.values_of(name)

    def separators(self) -> str:
        return self._scope.separators()

    def substitute(self, node: Node) -> str:
        before = len(self.commands)
        with self._apart(fed_by=(), stdin=None):
            self._statements(node)
        ran = self.commands[before:]
        self._made_from.extend(command.program for command in ran)
        output = printed(ran)
        return HOLE if output is None else output.rstrip("\n")

    # -- the tree ----------------------------------------------------------------------------------------------------

    def script(self, text: str) -> None:
        """Read a whole text, also one found inside a command."""
        if self._depth >= MAX_DEPTH:
            self.alarm("it is nested unusually deeply and may hide something")
            return
        if len(text) > MAX_TEXT or most_open(text) > MAX_OPEN:
            self.problem("it is too long or nested too deeply to be analyzed")
            self._crudely(text)
            return
        if self._understood(text):
            return
        try:
            tree = parsed(text)
        except ImportError:
            self.problem("the shell parser is not installed, so the command cannot be analyzed")
            self._crudely(text)
            return
        self._depth += 1
        try:
            self._statements(tree.root_node)
            for other in other_readings(text, failed=tree.root_node.has_error):
                self._statements(parsed(other).root_node)
            if tree.root_node.has_error:
                self.problem("part of it is not valid shell, or not shell that can be followed")
                self._crudely(text)
        finally:
            self._depth -= 1

    def uncalled(self) -> None:
        """Functions that nobody called: what they would do with arguments we do not know."""
        for name, body in list(self._functions.items()):
            if name not in self._called:
                self._call(body, None)

    def _statements(self, node: Node) -> None:
        for child in node.children:
            mark = self._scope.mark()
            self._visit(child)
            # Whether a `cd` worked is not known unless what follows hangs on it by `&&`.
            self._scope.unsure_since(mark)

    def _visit(self, node: Node) -> None:
        match node.type:
            case "command":
                self._command(node, [])
            case "redirected_statement":
                self._redirected(node)
            case "pipeline":
                self._pipeline(node.children)
            case "list":
                self._list(node)
            case "subshell":
                with self._apart(fed_by=self._fed_by, stdin=self._stdin):
                    self._statements(node)
            case "function_definition":
                self._define(node)
            case "variable_assignment":
                self._assign(node)
            case "variable_assignments":
                for child in node.named_children:
                    self._assign(child)
            case "declaration_command":
                self._declare(node)
            case "unset_command":
                self._emit(tuple(source(node).split()))
            case "comment" | "heredoc_body":
                pass
            case kind if kind in BRANCHES:
                self._branch(node)
            case "test_command" | "word" | "string" | "concatenation" | "simple_expansion" | "expansion":
                shell_words.texts(node, self)
            case _:
                self._statements(node)

    def _list(self, node: Node) -> None:
        mark = self._scope.mark()
        operator = next((child.type for child in node.children if child.type in ("&&", "||")), "&&")
        for number, child in enumerate(node.named_children):
            self._conditional += 1 if number else 0
            if number and (operator == "||" or b"||" in (node.named_children[0].text or b"")):
                self._scope.unsure_since(mark)
            self._visit(child)
            self._conditional -= 1 if number else 0

    def _branch(self, node: Node) -> None:
        self._conditional += 1
        try:
            if node.type == "for_statement":
                name = node.child_by_field_name("variable")
                values = [
                    v
                    for child in node.children_by_field_name("value")
                    for r in shell_words.readings(child, self)
                    for v in r
                ]
                if name is not None:
                    self._scope.variables[source(name)] = (
                        values if 0 < len(values) <= MAX_READINGS else [*values[:MAX_READINGS], HOLE]
                    )
            # A loop is read twice: what its end sets, its beginning sees.
            for _ in range(2 if node.type in LOOPS else 1):
                self._statements(node)
        finally:
            self._conditional -= 1

    def _pipeline(self, children: Sequence[Node]) -> None:
        fed_by, stdin = self._fed_by, self._stdin
        for stage in children:
            if not stage.is_named:
                continue
            before = len(self.commands)
            with self._apart(fed_by=fed_by, stdin=stdin):
                self._visit(stage)
            ran = self.commands[before:]
            self._listed = listed(ran[-1].words) if ran else None
            fed_by = (*fed_by, *(command.program for command in ran))
            stdin = printed(ran)
        self._listed = None

    def _redirected(self, node: Node) -> None:
        body = node.child_by_field_name("body")
        redirects: list[Redirect] = []
        later: list[Node] = []
        with self._input(self._fed_by, self._stdin):
            for redirect in node.children_by_field_name("redirect"):
                self._redirect(redirect, redirects, later)
            before = len(self.commands)
            if body is not None and body.type == "command":
                self._command(body, redirects)
            else:
                # The grammar hangs the redirection of `a && b > file` on the whole list, but it is opened where b runs.
                late = body is not None and body.type in ("list", "pipeline")
                if redirects and not late:
                    self._emit((), redirects=tuple(redirects))
                if body is not None:
                    self._visit(body)
                if redirects and late:
                    self._emit((), redirects=tuple(redirects))
        ran = self.commands[before:]
        for child in later:
            feeds = child.type == "pipeline"
            programs = tuple(command.program for command in ran)
            with self._input(programs if feeds else self._fed_by, printed(ran) if feeds else self._stdin):
                self._pipeline(child.children) if feeds else self._visit(child)

    def _redirect(self, node: Node, redirects: list[Redirect], later: list[Node]) -> None:
        if node.type == "file_redirect":
            operator = "".join(source(c) for c in node.children if not c.is_named or c.type == "ERROR")
            for destination in node.children_by_field_name("destination"):
                for target in shell_words.texts(destination, self):
                    if not (operator.endswith("&") and re.fullmatch(r"\d+-?|-", target)):
                        redirects.append(Redirect(operator, target))
                if destination.type == "process_substitution" and "<" in operator:
                    self._fed_by = (*self._fed_by, *self._made_from)
        elif node.type == "herestring_redirect":
            found = [text for child in node.named_children for text in shell_words.texts(child, self)]
            self._stdin = found[-1] if found else None
            self._fed_by = (*self._fed_by, *self._made_from)
        elif node.type == "heredoc_redirect":
            start = next((source(child) for child in node.children if child.type == "heredoc_start"), "")
            for child in node.children:
                if child.type == "heredoc_body":
                    literal = any(mark in start for mark in "'\"\\")
                    self._stdin = source(child) if literal else shell_words.heredoc(child, self)
                elif child.type in ("file_redirect", "herestring_redirect"):
                    self._redirect(child, redirects, later)
                elif child.is_named and child.type not in ("heredoc_start", "heredoc_end", "file_descriptor"):
                    later.append(child)

    def _define(self, node: Node) -> None:
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name is None or body is None:
            return
        self._functions[source(name)] = body
        if fork_bomb(source(name), body):
            self.alarm("it is a fork bomb: a function that starts itself again and again")
        redirects: list[Redirect] = []
        for child in node.children_by_field_name("redirect"):
            self._redirect(child, redirects, [])
        if redirects:
            self._emit((), redirects=tuple(redirects))

    def _assign(self, node: Node) -> str:
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        key = source(name).partition("[")[0] if name is not None else ""
        values = shell_words.assigned(value, self)
        if any(child.type == "+=" for child in node.children):
            old = self._scope.variables.get(key, [""] if value is not None and value.type == "array" else [HOLE])
            joint = " " if value is not None and value.type == "array" else ""
            values = [before + joint + after for before in old for after in values]
        self._scope.assign(key, values, certain=not self._conditional)
        text = f"{key}={values[-1] if values else ''}"
        if (
            SENSITIVE.match(key)
            and node.parent is not None
            and node.parent.type not in ("command", "declaration_command")
        ):
            self._emit((), assignments=(text,))
        return text

    def _declare(self, node: Node) -> None:
        words = [source(node.children[0])]
        for child in node.children[1:]:
            words.append(self._assign(child) if child.type == "variable_assignment" else source(child))
        self._emit(tuple(words))

    # -- what is understood for certain ------------------------------------------------------------------------------

    def _understood(self, text: str) -> bool:
        """Read a text by the short list alone; undone where it is not all on it."""
        before, scope, proven, self._proven = len(self.commands), self._scope.saved(), self._proven, {}
        self._depth += 1
        try:
            self._plain_chain(understand(text))
        except NotUnderstood as why:
            self.unclear(why)
            del self.commands[before:]
            self._scope.restore(scope)
            return False
        else:
            return True
        finally:
            self._depth -= 1
            self._proven = proven

    def _plain_chain(self, chain: plain.Chain) -> None:
        mark, sure = self._scope.mark(), True
        for operator, statement, background in chain.items:
            if operator != "&&" or not sure:
                self._scope.unsure_since(mark)
            sure = operator == ";" or (sure and operator == "&&")
            if background:
                with self._apart(fed_by=(), stdin=None), self._perhaps():
                    self._plain(statement)
            elif operator == ";":
                self._plain(statement)
            else:
                with self._perhaps():
                    self._plain(statement)
        self._scope.unsure_since(mark)

    def _plain(self, statement: plain.Statement) -> None:
        match statement:
            case plain.Simple():
                self._plain_command(statement)
            case plain.Pipe(stages):
                self._plain_pipe(stages)
            case plain.Group(body, redirects, subshell):
                with self._plain_input(redirects):
                    if subshell:
                        with self._apart(fed_by=self._fed_by, stdin=self._stdin), self._perhaps():
                            self._plain_chain(body)
                    else:
                        self._plain_chain(body)
            case plain.Loop(name, words, body, redirects):
                with self._plain_input(redirects), self._perhaps():
                    values = [value for word in words for value in self._plain_fields(word)]
                    if len(values) > MAX_ROUNDS:
                        raise NotUnderstood("has a loop over many words")
                    for value in values:
                        with self._perhaps():
                            self._proven[name] = value
                            self._plain_chain(body)
            case plain.Choice(branches, redirects):
                with self._plain_input(redirects):
                    for condition, body in branches:
                        with self._perhaps():
                            self._plain_chain(condition)
                        with self._perhaps():
                            self._plain_chain(body)

    def _plain_pipe(self, stages: Sequence[plain.Statement]) -> None:
        fed_by, stdin = self._fed_by, self._stdin
        for stage in stages:
            before = len(self.commands)
            with self._apart(fed_by=fed_by, stdin=stdin), self._perhaps():
                self._plain(stage)
            ran = self.commands[before:]
            self._listed = listed(ran[-1].words) if ran else None
            fed_by = (*fed_by, *(command.program for command in ran))
            stdin = printed(ran)
        self._listed = None

    def _plain_command(self, command: plain.Simple) -> None:
        fields = [field for word in command.words for field in self._plain_fields(word)]
        words = tuple(field.text for field in fields)
        self._check_patterns(words, [field.text for field in fields if field.pattern])
        settings: list[str] = []
        for name, word in command.assignments:
            value = self._plain_text(word)
            if words and not plain.is_harmless_setting(f"{name}={value.text}"):
                raise NotUnderstood(f"sets {name}, which may change what programs do")
            if not words and not plain.is_own_name(name):
                raise NotUnderstood(f"sets {name}, which may change what later programs do")
            if words:
                settings.append(f"{name}={value.text}")
                self._proven.pop(name, None)  # some shells keep it after some commands
            else:
                self._proven[name] = value
        redirects: list[Redirect] = []
        with self._input(self._fed_by, self._stdin), self._running_through(plain.joined_files(command.redirects)):
            self._plain_redirects(command.redirects, redirects)
            if words:
                self._run(words, tuple(settings), tuple(redirects))
            elif redirects:
                self._emit((), redirects=tuple(redirects))

    def _check_patterns(self, words: tuple[str, ...], patterns: list[str]) -> None:
        if not patterns:
            return
        if any(program_of((word,)) in SHELLS | {"ssh", "watch", "parallel", "env"} for word in words):
            raise NotUnderstood("gives the names of files to a shell")
        ends = words.index("--") if "--" in words else len(words)
        if program_of(words) not in ANY_OPTION and any(
            pattern[:1] in "*?[-" and words.index(pattern) < ends for pattern in patterns
        ):
            raise NotUnderstood("has a pattern of file names that may match an option; begin it with `./`")

    def _plain_redirects(self, opened: Sequence[plain.Opened], redirects: list[Redirect]) -> None:
        for operator, target, number in opened:
            if operator in (">&", "<&"):
                continue
            value = self._plain_text(target)
            if operator in ("<<", "<<<"):
                self._stdin = value.text
            elif value.pattern:
                raise NotUnderstood("redirects to a pattern of file names")
            else:
                redirects.append(Redirect(f"{number}{operator}", value.text))

    @contextmanager
    def _plain_input(self, opened: Sequence[plain.Opened]) -> Generator[None]:
        redirects: list[Redirect] = []
        with self._input(self._fed_by, self._stdin), self._running_through(plain.joined_files(opened)):
            self._plain_redirects(opened, redirects)
            if redirects:
                self._emit((), redirects=tuple(redirects))
            with self._writing(redirects):
                yield

    def _plain_text(self, word: plain.Word) -> _Field:
        text, pattern = "", word.glob
        for part in word.parts:
            match part:
                case str():
                    text += part
                case plain.VariableUse(name):
                    if name not in self._proven:
                        raise NotUnderstood(f"uses the variable ${name}, whose value is known only at run time")
                    text += self._proven[name].text
                    pattern = pattern or self._proven[name].pattern
                case plain.CommandOutput(body):
                    text += self._plain_output(body)
        return _Field(text, pattern)

    def _plain_fields(self, word: plain.Word) -> list[_Field]:
        for part in word.parts:
            if isinstance(part, plain.VariableUse) and not part.quoted:
                value = self._proven.get(part.name)
                if value is not None and (value.pattern or not _UNSPLIT.fullmatch(value.text)):
                    raise NotUnderstood(f"uses ${part.name} without quotes, and its value may become several words")
        return [self._plain_text(word)]

    def _plain_output(self, body: plain.Chain) -> str:
        """The output of ``cat`` with a here-document, which is certain."""
        before = len(self.commands)
        with self._apart(fed_by=(), stdin=None), self._perhaps():
            self._plain_chain(body)
        ran = self.commands[before:]
        if len(ran) != 1 or ran[0].words != ("cat",) or ran[0].redirects or ran[0].stdin is None:
            raise NotUnderstood("uses the output of a command, `$(…)`, which is known only at run time")
        return ran[0].stdin.rstrip("\n")

    @contextmanager
    def _perhaps(self) -> Generator[None]:
        """A part that may not run, or apart: of what it sets nothing is certain afterwards."""
        before = dict(self._proven)
        yield
        self._proven = {name: value for name, value in self._proven.items() if before.get(name) == value}

    # -- commands ----------------------------------------------------------------------------------------------------

    def _command(self, node: Node, redirects: list[Redirect]) -> None:
        made_from, self._made_from = self._made_from, []
        alternatives: list[list[tuple[str, ...]]] = []
        assignments: list[str] = []
        with self._input(self._fed_by, self._stdin):
            for child in node.children:
                if child.type == "variable_assignment":
                    saved = dict(self._scope.variables)
                    assignments.append(self._assign(child))
                    if node.child_by_field_name("name") is not None:
                        self._scope.variables = saved
                elif child.type.endswith("_redirect"):
                    self._redirect(child, redirects, [])
                elif child.type == "subshell" and node.child_by_field_name("name") is not None:
                    self._visit(child)
                elif child.is_named or child.type not in ("(", ")"):
                    alternatives.append(shell_words.readings(child, self))
            choices = list(islice(product(*alternatives), 2 * MAX_READINGS + 1))
            if len(choices) > 2 * MAX_READINGS:
                self.problem("its variables have too many possible values")
            for choice in choices:
                self._run(tuple(word for fields in choice for word in fields), tuple(assignments), tuple(redirects))
        self._made_from = made_from

    def _run(
        self, words: tuple[str, ...], assignments: tuple[str, ...] = (), redirects: tuple[Redirect, ...] = ()
    ) -> None:
        """One command with its words known: remember it, and look inside it."""
        while words and words[0] in RESERVED:  # the grammar takes `! {` for a program
            words = words[1:]
        if not words:
            if assignments or redirects:
                self._emit((), assignments, redirects)
            return
        if self._depth >= MAX_DEPTH:
            self.alarm("it is nested unusually deeply and may hide something")
            return
        name = words[0]
        body = self._functions.get(name)
        if body is not None and source(body) not in self._active:
            self._called.add(name)
            if redirects:
                self._emit((), assignments, redirects)
            self._call(body, words[1:])
            return
        alias = self._scope.aliases.get(name)
        if alias is not None and f"{name}={alias}" not in self._active:
            with self._calling(f"{name}={alias}"):
                self.script(" ".join([alias, *(shlex.quote(word) for word in words[1:])]))
            return
        program = program_of(words)
        given = self._stdin if self._stdin is not None else self._listed
        try:
            sure = launched(words, given)
        except NotUnderstood as why:
            self.unclear(why)
            inner = [*unwrap(words, given), *nested(words)]
        else:
            inner = nested(words) if sure is None else sure
        script = shell_text(program, words, self._stdin, fed=bool(self._fed_by))
        known = is_known_file(words[0]) and (program not in SHELLS or program in FOLLOWED_SHELLS)
        followed = known and ((bool(inner) and is_transparent(words)) or (script is not None and HOLE not in script))
        script = self._scope.script_run_by(words) if script is None else script
        self._emit(words, assignments, redirects, transparent=followed)
        own = self.commands[-1].text
        around = "" if followed and changes_nothing(words) else own
        self._depth += 1
        try:
            with self._running_through(around), self._writing(redirects):
                for found in inner:
                    mark = self._scope.mark()
                    if found.script is not None:
                        self.script(found.script)
                    else:
                        self._run(found.words, (*assignments, *found.assignments))
                    if program not in ("command", "builtin"):  # a program of that name, `env cd`, moves no shell
                        self._scope.unsure_since(mark)
            if script is not None:
                with self._running_through(around if followed or not known else ""), self._writing(redirects):
                    self._text_run(program, script, words, assignments)
            if foreign := runs_foreign_text(program, words, {*self._fed_by, *self._made_from}):
                self.alarm(foreign)
            if words[0] == program:  # a file of that name changes nothing here
                self._scope.builtin(program, words)
        finally:
            self._depth -= 1

    def _text_run(self, program: str, text: str, words: tuple[str, ...], assignments: tuple[str, ...]) -> None:
        origins = {*self._fed_by, *self._made_from}
        if text != HOLE:
            given = (self._fed_by, self._stdin) if text in words[1:] else ((), None)
            with self._input(*given), self._scope.inner_shell(program, text, words, assignments):
                self.script(text)
        if HOLE in text or text == "":
            if origins & NETWORK:
                self.alarm(f"{program} runs what {', '.join(sorted(origins & NETWORK))} downloads")
            else:
                self.problem(f"{program} runs text that is known only at run time")
        if origins & DECODERS:
            self.alarm(f"{program} runs text that {', '.join(sorted(origins & DECODERS))} decodes first")

    def _call(self, body: Node, arguments: tuple[str, ...] | None) -> None:
        saved, self._scope.arguments = self._scope.arguments, arguments
        with self._calling(source(body)):
            self._visit(body)
        self._scope.arguments = saved

    def _crudely(self, text: str) -> None:
        """A second look at text the parser could not follow, without grammar: better one suspicion too many."""
        if len(text) > 2 * MAX_TEXT:
            text = f"{text[:MAX_TEXT]}\n{text[-MAX_TEXT:]}"
        for words in guessed_commands(text)[:MAX_COMMANDS]:
            if (name := program_of(words)) in SHELLS or name == "eval":
                self.alarm(f"{name} runs text that cannot be analyzed")
            if self._depth < MAX_DEPTH:
                self._run(words)

    def _emit(
        self,
        words: tuple[str, ...],
        assignments: tuple[str, ...] = (),
        redirects: tuple[Redirect, ...] = (),
        *,
        transparent: bool = False,
    ) -> None:
        if len(self.commands) >= MAX_COMMANDS:
            self.problem("it has too many commands to be analyzed")
            return
        if len(words) > MAX_WORDS:
            self.problem("it has a command with too many words to be analyzed")
            words = (*words[: MAX_WORDS // 2], *words[-MAX_WORDS // 2 :])
        command = ShellCommand(
            words=words,
            assignments=assignments,
            redirects=redirects,
            stdin=self._stdin,
            fed_by=self._fed_by,
            made_from=tuple(dict.fromkeys(self._made_from)),
            cwds=self._scope.cwds,
            transparent=transparent,
            into_file=self._into_file,
            through=self._through,
        )
        self.commands.append(command)
        self._scope.written_by(command)

    # -- states that end with a part of the script -------------------------------------------------------------------

    @contextmanager
    def _running_through(self, text: str) -> Generator[None]:
        saved, self._through = self._through, " ".join(filter(None, (self._through, text)))
        try:
            yield
        finally:
            self._through = saved

    @contextmanager
    def _writing(self, redirects: Sequence[Redirect]) -> Generator[None]:
        """A part of which the output goes into files that are opened around it."""
        saved = self._into_file
        self._into_file = saved or any(one.writes and one.target not in NOWHERE for one in redirects)
        try:
            yield
        finally:
            self._into_file = saved

    @contextmanager
    def _input(self, fed_by: tuple[str, ...], stdin: str | None) -> Generator[None]:
        saved = self._fed_by, self._stdin
        self._fed_by, self._stdin = fed_by, stdin
        try:
            yield
        finally:
            self._fed_by, self._stdin = saved

    @contextmanager
    def _apart(self, *, fed_by: tuple[str, ...], stdin: str | None) -> Generator[None]:
        """A subshell: what it changes, the rest of the script does not see."""
        cwds, variables = self._scope.cwds, dict(self._scope.variables)
        with self._input(fed_by, stdin):
            yield
        self._scope.cwds, self._scope.variables = cwds, variables

    @contextmanager
    def _calling(self, text: str) -> Generator[None]:
        active, self._active = self._active, (*self._active, text)
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            self._active = active
