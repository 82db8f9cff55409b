"""The short list of what is understood of shell, construct by construct; and the words that say why not."""

from __future__ import annotations

import pytest

from stagedoor.permissions.shell.reader import read_script

UNDERSTOOD: list[tuple[str, list[str]]] = [
    ("ls -la | head -n 5", ["ls -la", "head -n 5"]),
    ("a && b || c; d & e", ["a", "b", "c", "d", "e"]),
    ("echo 'a b'\"c\"\\ d", ["echo 'a bc d'"]),
    ("x=src; ls $x \"$x/a b\"", ["ls src 'src/a b'"]),
    ("for f in a b; do cat $f; done", ["cat a", "cat b"]),
    ("if a; then b; elif c; then d; else e; fi", ["a", "b", "c", "d", "e"]),
    ("(cd src; ls)", ["cd src", "ls"]),
    ("cat <<'X'\n`rm` $(rm)\nX\nls", ["cat", "ls"]),
    ("git commit -m \"$(cat <<'X'\nit's done\nX\n)\"", ["cat", "git commit -m 'it'\\''s done'"]),
    ("timeout 5 env a=1 sh -c 'ls; pwd'", [
        "timeout 5 env a=1 sh -c 'ls; pwd'", "env a=1 sh -c 'ls; pwd'", "a=1 sh -c 'ls; pwd'", "ls", "pwd"]),
    ("find . -name '*.py' -exec grep -l x {} +", ["find . -name *.py -exec grep -l x {} +", "grep -l x ./found"]),
    ("npm test 2>&1 | tee log", ["npm test", "tee log"]),
    ("python3 -c 'print(1)'", ["python3 -c print(1)"]),
    ("tmux ls", ["tmux ls"]),
]  # fmt: skip
REFUSED: list[tuple[str, str]] = [
    ("cat <<X\n`ls`\nX", "it has a here-document with expansions; put its end mark into single quotes"),
    ("echo $(ls)", "it uses the output of a command as words, `$(…)`"),
    ("echo \"$(ls)\"", "it uses the output of a command, `$(…)`, which is known only at run time"),
    ("echo `ls`", "it uses backticks"),
    ("echo ${x:-y}", "it uses `${…}` for more than a name"),
    ("echo $x", "it uses the variable $x, whose value is known only at run time"),
    ("x='a b'; ls $x", "it uses $x without quotes, and its value may become several words"),
    ("false && x=a; ls $x", "it uses the variable $x, whose value is known only at run time"),
    ("echo $((1+1))", "it calculates with `$((…))`"),
    ("((x))", "it calculates with `((…))`"),
    ("f() { ls; }; f", "it defines a function, or uses brackets inside a word"),
    ("while true; do ls; done", "it uses `while`"),
    ("PATH=/x ls", "it sets PATH, which may change what programs do"),
    ("eval ls", "it uses `eval`, which changes how the rest is read or runs text"),
    ("echo ls | sh", "it lets sh run its input"),
    ("nu -c ls", "it runs nu, which may read its text in another way"),
    ("osh -c ls", "it runs osh, which may read its text in another way"),
    ("pwsh -Command ls", "it runs pwsh, which may read its text in another way"),
    ("xonsh -c ls", "it runs xonsh, which may read its text in another way"),
    ("hg --config ui.ssh=ls pull", "it uses hg with `--config`, which was not looked at"),
    ("gcc -wrapper ls a.c", "it uses gcc with `-wrapper`, which was not looked at"),
    ("tmux new -d ls", "it runs a program through tmux"),
    ("hyperfine ls", "it runs a program through hyperfine"),
    ("go test -exec ls ./...", "it runs a program through go"),
    ("sqlite3 a.db '.shell ls'", "it runs a program through sqlite3"),
    ("socat - EXEC:ls", "it runs a program through socat"),
    ("python3 -c 'import os; os.system(\"ls\")'", "it gives python code that may run programs"),
    ("python3 -Ic 'getattr(o, n)()'", "it gives python code that may run programs"),
    ("node -e 'require(\"child_process\")'", "it gives node code that may run programs"),
    ("perl -e '`ls`'", "it gives perl code that may run programs"),
    ("python3 - <<'X'\nimport subprocess\nX", "it gives python code that may run programs"),
    ("sort *", "it has a pattern of file names that may match an option; begin it with `./`"),
    ("xargs -a x ls", "it uses xargs with `-a`, which was not looked at"),
    ("git -c a=b log", "it uses git with `-c`, which was not looked at"),
    ("ls\rrm", "it contains a carriage return"),
    ("ls\xa0-l", "it has the character '\\xa0' outside of quotes"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "commands"), UNDERSTOOD)
def test_what_is_understood(line: str, commands: list[str]) -> None:
    script = read_script(line, "/home/me/work")
    assert (script.understood, script.problems, [command.text for command in script.commands]) == (True, (), commands)


@pytest.mark.parametrize(("line", "why"), REFUSED)
def test_what_is_not_understood_says_why(line: str, why: str) -> None:
    script = read_script(line, "/home/me/work")
    assert (script.understood, script.problems[0]) == (False, f"not understood: {why}")
