"""Disguises made at random and run by a real bash: what it ran, the judge must have seen.

``rm`` is a stub that only writes down how it was called, nothing else that deletes is on the path, and the folder it
is pointed at does not exist.
"""

from __future__ import annotations

import random
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from stagedoor.permissions.risk.judge import judge_command

PROGRAMS = ("bash", "sh", "cat", "env", "nice", "timeout", "xargs", "find", "printf")
TARGET = "/no-such-folder-of-stagedoor"
Make = Callable[[str, str], str]
q = shlex.quote

WRAPPERS: list[Make] = [
    lambda c, n: f"sh -c {q(c)}",
    lambda c, n: f"bash -ec {q(c)}",
    lambda c, n: f"eval {q(c)}",
    lambda c, n: f"( {c} )",
    lambda c, n: f"{{ {c}\n}}",
    lambda c, n: f"true && {{ {c}\n}}",
    lambda c, n: f"false || ( {c} )",
    lambda c, n: f"echo $( {c} )",
    lambda c, n: f'echo "$( {c} )"',
    lambda c, n: f"{n}() {{\n{c}\n}}; {n}",
    lambda c, n: f"function {n} {{\n{c}\n}}\n{n}",
    lambda c, n: f"if true; then\n{c}\nfi",
    lambda c, n: f"for i in 1; do\n{c}\ndone",
    lambda c, n: f"while true; do\n{c}\nbreak; done",
    lambda c, n: f"case x in x)\n{c}\n;; esac",
    lambda c, n: f"! {{ {c}\n}}",
    lambda c, n: f"bash <<'{n}'\n{c}\n{n}",
    lambda c, n: f"cat <<'{n}' | sh\n{c}\n{n}",
    lambda c, n: f"bash <<< {q(c)}",
    lambda c, n: f". /dev/stdin <<< {q(c)}",
    lambda c, n: f'x={q(c)}; eval "$x"',
    lambda c, n: f'x=({q(c)}); eval "${{x[0]}}"',
    lambda c, n: f"{n}={q(c)} bash -c 'eval \"${n}\"'",
    lambda c, n: f"printf %s {q(c)} | bash",
    lambda c, n: f'eval "$(printf %s {q(c)})"',
    lambda c, n: f"bash -c \"$(cat <<'{n}'\n{c}\n{n}\n)\"",
    lambda c, n: f"env A=1 sh -c {q(c)}",
    lambda c, n: f"nice -n 1 timeout 9 bash -c {q(c)}",
    lambda c, n: f"find . -maxdepth 0 -exec sh -c {q(c)} \\;",
    lambda c, n: f": ${{Z:-$( {c} )}}",
    lambda c, n: f"a{n}=$( {c} )",
    lambda c, n: f"[[ -z $( {c} ) ]]",
    lambda c, n: f"cat <( {c} )",
    lambda c, n: f"set -- {q(c)}; eval \"$1\"",
    lambda c, n: f"exec bash -c {q(c)}",
    lambda c, n: f"{{ {c}\n}} > /dev/null 2>&1",
]  # fmt: skip


def _disguised(word: str, chance: random.Random) -> str:
    at = chance.randint(1, len(word) - 1)
    before, after = word[:at], word[at:]
    return chance.choice([
        word, f'"{word}"', f"'{word}'", f'{before}""{after}', f'"{before}"{after}', f"{before}$@{after}",
        f"{before}\\\n{after}", "$'" + "".join(f"\\x{ord(char):02x}" for char in word) + "'",
    ])  # fmt: skip


def _command(chance: random.Random) -> str:
    program, flags, target = (_disguised(word, chance) for word in ("rm", "-rf", TARGET))
    made = chance.choice([
        f"{program} {flags} {target}", f"v=rm; $v {flags} {target}", f'v={TARGET}; {program} {flags} "$v"',
        f"rm${{IFS}}{flags} {target}", f'a=(rm -rf {TARGET}); "${{a[@]}}"', f"{{rm,-rf,{TARGET}}}",
    ])  # fmt: skip
    for number in range(chance.randint(0, 4)):
        made = chance.choice(WRAPPERS)(made, f"n{number}")
    return made


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_what_bash_runs_the_judge_has_seen(tmp_path: Path) -> None:
    for name in PROGRAMS:
        if (found := shutil.which(name)) is not None:
            (tmp_path / name).symlink_to(found)
    log = tmp_path / "log"
    stub = tmp_path / "rm"
    stub.write_text(f'#!/bin/sh\necho "$*" >> {log}\n')
    stub.chmod(0o755)
    chance, ran, missed = random.Random(2), 0, list[str]()
    for _ in range(150):
        command = _command(chance)
        log.write_text("")
        subprocess.run(
            [shutil.which("bash") or "bash", "-c", command],
            env={"PATH": str(tmp_path)},
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
            check=False,
        )
        if f"-rf {TARGET}" in log.read_text():
            ran += 1
            if judge_command(command, cwd="/home/me/work").risk != "high":
                missed.append(command)
    assert missed == []
    assert ran > 100, "most disguises are ones that bash sees through"
