"""Make lines of shell at random and hold the judge against what a real bash does with them.

``python -m tools.shell_fuzz --seconds 3600`` prints every disagreement as a row for ``tests/permissions/tricks.yaml``
and ends with status 1 if there was one. ``make fuzz`` runs it.
"""

from __future__ import annotations

import argparse
import json
import random
import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import yaml

from stagedoor.permissions.risk.judge import judge_command

from .shell_oracle import FORBIDDEN, Disagreement, Jail, can_trace, disagreement, jail

TRICKS = Path(__file__).parent.parent / "tests/permissions/tricks.yaml"
SPELLINGS = ("evil 1", "'ev'il 2", "e\\vil 3", '"evil" 4', "nice evil 5", "A=1 evil 6")
PIECES = (
    "$(evil)", "`evil`", "${x:-$(evil)}", "$((a[$(evil)]))", '"', "'", "\\", "\n", "\\\n", ";", "&&", "||", "|", "&",
    "(", ")", "{ ", "; }", "<<X\n", "\nX\n", "<<'X'\n", "<<-X\n", "<<<", "<(evil)", ">(evil)", ">", ">>", "2>&1",
    "&>", "$x", "${x}", "$@", "$1", "$'", '$"', "~", "*", "?", "[", "]", "{a,b}", "#", "!", "=", "x=evil", "x=1",
    " ", "\t", "evil", " evil ", "-exec evil {} ;", "| xargs evil", "eval ", "env ", "time ", "then ", "do ", "done",
    "fi", "if ", "for x in ", "in ", "case ", "esac", "[[ ", " ]]", "((", "))", "function f ", "f() ", "set ",
    "exec ", "trap evil EXIT;", "alias ls=evil\n", "\r", "\x01", "\x7f", "\u00a0", "\u2028", "é", "$[", "${", "}",
    "+=", "[0]=", "--", "-", "%", "^", "@(", "+(", "|&", ";;", "<>", ">|", ">&", "<&", "2>", "10>", "{x}>", "-n",
    "-i", "-o", "w t", "e evil", "-delete", "-c", "sh -c ", "bash -c ", "xargs ",
)  # fmt: skip
READING = (
    "ls", "ls -la", "cat a", "cat a b.txt", "head -n 1 a", "tail -1 a", "wc -l a", "grep -n x b.txt", "sort a",
    "uniq a", "cut -c1 a", "tr a b", "echo hi", "echo 'a b' \"c d\"", "printf '%s\\n' a", "true", "false", "pwd",
    "test -f a", "[ -f a ]", "git status", "git log --oneline", "find . -name 'a*'", "find . -type f", "sed -n 1p a",
    "sed 's/a/b/' a", "awk '{print $1}' a", "date", "seq 3", "cd src", "basename a/b", "nl a", "tac a", "rev a",
    "du -sh .", "stat a", "diff a b.txt", "jq . a", "cat src/*.py", "ls ./*", "wc -l -- *", "xargs -n 1 echo",
    "timeout 2 cat a", "env ls", "nice -n 1 head a", "cat -", "cat",
)  # fmt: skip
ACTING = (
    "evil", "evil 1", "evil 'a b'", "npm test", "make", "git push", "rm a", "touch t", "tee t", "sort -o t a",
    "sed -i s/3/4/ a", "find . -name a -delete", "find . -fprint t", "find . -exec evil {} \\;", "uniq a t",
    "awk 'BEGIN{system(\"evil\")}'", "xargs evil", "sh -c 'evil 2'", "bash -c 'cat a; evil'", "env evil",
    "timeout 2 evil", "cp a t", "dd if=a of=t", "split a", "bash run.sh", "sort --output=t a", "sort -ot a",
    "tar cf t a", "sed 'w t' a", "sed -n 'w t' a", "awk '{print > \"t\"}' a", "shuf -o t a", "mkdir t", "date -s x",
    "xxd a t", "tr a b > t", "csplit a 1", "truncate -s 0 a", "mktemp", "ln -s a t",
)  # fmt: skip


class Lines:
    """Lines of shell by a grammar of everything bash knows, and by changing lines that are there."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        tricks = cast("list[str]", yaml.safe_load(TRICKS.read_text()))
        self._seeds = [line for template in tricks for line in spelled(template, self._chance.choice(SPELLINGS))]
        self._seeds += [*READING, *ACTING]

    def __iter__(self) -> Iterator[str]:
        while True:
            kind = self._chance.random()
            line = (
                self.line(self._chance.randint(0, 3)) if kind < 0.5 else self.changed(READING if kind < 0.7 else None)
            )
            if len(line) < 1500:
                yield line

    def pick(self, *choices: str) -> str:
        return self._chance.choice(choices)

    def simple(self) -> str:
        return self.pick(*READING) if self._chance.random() < 0.7 else self.pick(*ACTING)

    def word(self, depth: int) -> str:
        plain = self.pick(
            "a", "b.txt", "src", "-n", "'a b'", '"c d"', "x", "./a", "--", "1", "a\\ b", "''", "{}", "HEAD~1", "~"
        )
        if depth <= 0 or self._chance.random() < 0.5:
            return plain
        inner = self.line(depth - 1)
        return self._chance.choice([
            f"$({inner})", f'"$({inner})"', f"`{self.simple()}`", f"${{x:-$({inner})}}",
            f"$(( $({inner}; echo 1) ))", "$x", '"$x"', "${x}", f"<({inner})", "{a,b}", "*", "./*", "src/*.py",
            "$'a\\x41'", '$"a"', f'"`{self.simple()}`"', f"${{x[$({inner})]}}", f"x=$({inner})", "${x@P}", "$@",
            '"$@"', "$1", f'"$(cat <<\'X\'\n{inner}\nX\n)"', "[a-b]*", "?", f"'{plain}'\"{plain}\"",
        ])  # fmt: skip

    def line(self, depth: int) -> str:
        if depth <= 0:
            return self.simple()
        one, two = self.line(depth - 1), self.line(depth - 1)
        quoted = shlex.quote(one)
        return self._chance.choice([
            f"{one}; {two}", f"{one} && {two}", f"{one} || {two}", f"{one} | {two}", f"{one} & {two}",
            f"{one}\n{two}", f"({one})", f"{{ {one}; }}", f"if {one}; then {two}; fi",
            f"if {one}; then {two}; else {one}; fi", f"for x in a b.txt; do {one}; done",
            f"for x in {self.word(1)} evil; do {one}; $x; done", f"for x in src/*; do cat \"$x\"; {one}; done",
            f"while {one}; do {two}; break; done", f"case {self.word(1)} in *) {one};; esac", f"f() {{ {one}; }}; f",
            f"! {one}", f"time {one}", f"{one} {self.word(depth)}",
            f"{self.simple()} {self.word(depth)} {self.word(depth)}", f"{one} > /dev/null", f"{one} 2>&1",
            f"{one} > t", f"{one} < a", f"{one} <<< {self.word(1)}", f"{one} <<X\n{two}\nX",
            f"{one} <<'X'\n{two}\nX", f"{one} <<X\n`{self.simple()}`\nX\n{two}", f"sh -c {quoted}",
            f"bash -c {quoted}", f"eval {quoted}", f"x={quoted}; eval $x", f"x={self.word(1)}; {one} $x",
            f"x={self.word(1)}; {one} \"$x\"", f"x=evil; {one}; $x", f"A=1 {one}", f"x={self.word(depth)}",
            f"env {one}", f"timeout 2 {one}", f"{one} | xargs {two}", f"xargs {one} < a", f"echo {quoted} | sh",
            f"trap {quoted} EXIT", f"set -- {one}; \"$@\"", f"find . -name a -exec {one} \\;",
            f"find . | xargs -I{{}} {one}", f"[[ -z {self.word(depth)} ]]", f"x[{self.word(1)}]={self.word(1)}",
            f"echo ${{x:-{self.word(depth)}}}", f"nice {one}", f"coproc {one}", f"{one} \\\n {two}",
            f"# {one}\n{two}", f"{one} # {two}", f"cat() {{ {one}; }}; {two}", f"exec {one}",
            f"PATH=../../bin:$PATH; {one}", f"x=1; if {one}; then x={self.word(1)}; fi; {two} $x", f"{one} &> t",
            f"{one} |& {two}", f"command {one}", f"nohup {one}", f"IFS=l; {one}",
            f"shopt -s expand_aliases\nalias ls={quoted}\n{two}", f"export x={self.word(1)}; {one}",
        ])  # fmt: skip

    def changed(self, seeds: tuple[str, ...] | None = None) -> str:
        """A line of the seeds with a few characters, pieces or other lines put in, taken out or doubled."""
        line = self._chance.choice(seeds or self._seeds)
        for _ in range(self._chance.randint(1, 4 if seeds is None else 2)):
            at = self._chance.randint(0, len(line))
            match self._chance.randint(0, 5):
                case 0:
                    line = line[:at] + line[at + self._chance.randint(1, 3) :]
                case 1:
                    line = line[:at] + self._chance.choice(PIECES) + line[at:]
                case 2:
                    line = line[:at] + self._chance.choice(PIECES) + line[at + 1 :]
                case 3:
                    other = self._chance.choice(self._seeds)
                    cut = self._chance.randint(0, len(other))
                    line = line[:at] + other[cut:]
                case 4:
                    line = (
                        line + self._chance.choice([";", "\n", " && ", " | ", " "]) + self._chance.choice(self._seeds)
                    )
                case _:
                    end = min(len(line), at + self._chance.randint(1, 6))
                    line = line[:end] + line[at:end] + line[end:]
        return line


def spelled(template: str, command: str) -> list[str]:
    """A template of the table with one spelling of the forbidden command; nothing where the spelling does not fit."""
    line = template.replace("«Q»", shlex.quote(command)).replace("«C»", command).replace("«P»", FORBIDDEN)
    return [] if "'" in command and "'" in template and "«C»" in template else [line]


def explore(place: Jail, seed: int, seconds: float, count: int) -> Iterator[Disagreement]:
    """Try lines until the time or the count is used up."""
    end = time.monotonic() + seconds
    for number, line in enumerate(Lines(seed)):
        if number >= count or time.monotonic() > end:
            return
        if "\0" in line or any(0xD800 <= ord(char) < 0xE000 for char in line):
            continue
        if number and number % 1000 == 0 and count == sys.maxsize:
            print(f"{number} lines", flush=True)
        if (found := disagreement(line, place)) is not None:
            yield found


def shortest(found: Disagreement, place: Jail) -> Disagreement:
    """The same disagreement in fewer characters."""
    changed = True
    while changed:
        changed = False
        for size in (8, 4, 2, 1):
            for at in range(0, len(found.line), max(1, size // 2)):
                shorter = found.line[:at] + found.line[at + size :]
                if shorter and (again := disagreement(shorter, place)) is not None:
                    found, changed = again, True
                    break
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to try lines (default: 60)")
    parser.add_argument("--seed", type=int, default=None, help="the first seed (default: from the clock)")
    parser.add_argument(
        "--show", metavar="LINE", help="try this line only, and say what bash ran and what the judge says"
    )
    parser.add_argument(
        "--shell", default="bash", help="the shell that runs the lines (default: bash; try zsh and dash)"
    )
    arguments = parser.parse_args()
    trace = can_trace()
    with jail(trace=trace, shell=arguments.shell) as place:
        if arguments.show is not None:
            print(judge_command(arguments.show, cwd=str(place.work)))
            print(place.run(arguments.show))
            print(disagreement(arguments.show, place))
            return 0
        seed = arguments.seed if arguments.seed is not None else int(time.time())
        print(
            f"seed {seed}, {'every execve is traced' if trace else 'no strace: only programs of the jail are seen'}",
            flush=True,
        )
        total = 0
        for found in explore(place, seed, arguments.seconds, sys.maxsize):
            small = shortest(found, place)
            total += 1
            print(f"- {json.dumps(small.line, ensure_ascii=False)}  # {small.why}", flush=True)
        print(f"{total} disagreements", flush=True)
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
