"""``stagedoor completion``: a script for bash, zsh or fish, made from the help texts of the commands."""

from __future__ import annotations

import contextlib
import io
import re
from importlib import import_module

from . import COMMANDS
from .command import Parser

VERBS: dict[str, tuple[str, ...]] = {
    "sessions": ("list", "show", "export", "resume", "undo"),
    "policy": ("explain", "simulate", "check"),
    "audit": ("verify", "show"),
    "devices": ("list", "revoke"),
    "log": ("copy", "grant"),
    "workers": ("list", "drain", "undrain", "revoke"),
    "config": ("show", "check", "edit", "path"),
    "completion": ("bash", "zsh", "fish"),
}
AGENT_FLAGS = {"--agent", "--agents"}
TAKES_AGENT = ("run", "agents", "doctor", "translate")
_FLAG = re.compile(r"(--[a-z][a-z-]+)(?:[ ,]+\{([^}]+)\})?")

_EXAMPLES = re.compile(r"^(examples:|exit codes?:)(.|\n)*?(?=^usage:|\Z)", re.MULTILINE)

BASH = """\
_stagedoor() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} words=""
  if [ "$COMP_CWORD" -eq 1 ]; then
    words="{commands} --help --version"
  else
    case "${{COMP_WORDS[1]}} $before" in
{choices}
    esac
    if [ -z "$words" ]; then
      case "${{COMP_WORDS[1]}}" in
{flags}
      esac
      if [[ "$word" != -* ]]; then
        words=""
        if [ "$COMP_CWORD" -eq 2 ]; then
          case "${{COMP_WORDS[1]}}" in
{first}
          esac
        fi
        [ -n "$words" ] || return 0
      fi
    fi
  fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _stagedoor stagedoor
"""
ZSH = """\
#compdef stagedoor
(( $+functions[compdef] )) || { autoload -U compinit && compinit -i }
autoload -U +X bashcompinit && bashcompinit
"""
FISH = """\
function __stagedoor_words
    set -l words (commandline -opc)
    test (count $words) -eq $argv[1]; and test "$words[2]" = "$argv[2]"
end
function __stagedoor_runs
    set -l words (commandline -opc)
    test "$words[2]" = "$argv[1]"
end
complete -c stagedoor -n '__stagedoor_words 1' -l help
complete -c stagedoor -n '__stagedoor_words 1' -l version
"""


def main(argv: list[str]) -> int:
    parser = Parser(
        prog="stagedoor completion",
        description="Print a completion script for your shell.",
        examples=(
            'eval "$(stagedoor completion bash)"                                      # in ~/.bashrc',
            'eval "$(stagedoor completion zsh)"                                       # in ~/.zshrc',
            "stagedoor completion fish > ~/.config/fish/completions/stagedoor.fish",
        ),
    )
    parser.add_argument("shell", choices=VERBS["completion"])
    shell = parser.parse_args(argv).shell
    flags = {command: flags_of(command) for command in COMMANDS}
    print(_fish(flags) if shell == "fish" else (ZSH if shell == "zsh" else "") + _bash(flags), end="")
    return 0


def flags_of(command: str) -> dict[str, list[str]]:
    """Every flag of a command with its choices, read from its help text."""
    help_text = io.StringIO()
    module = import_module(f".{command}", __package__)
    for verb in ((), *((verb,) for verb in VERBS.get(command, ()) if command != "completion")):
        with contextlib.redirect_stdout(help_text), contextlib.suppress(SystemExit):
            module.main([*verb, "--help"])
    flags: dict[str, list[str]] = {}
    for flag, choices in _FLAG.findall(_EXAMPLES.sub("", help_text.getvalue())):
        flags[flag] = flags.get(flag) or (choices.split(",") if choices else [])
    for flag in AGENT_FLAGS & flags.keys():
        from .. import catalog

        flags[flag] = list(catalog.names())
    return flags


def _first(command: str) -> list[str]:
    from .. import catalog

    return list(catalog.names()) if command in TAKES_AGENT else list(VERBS.get(command, ()))


def _bash(flags_by_command: dict[str, dict[str, list[str]]]) -> str:
    choices = [
        f'      "{command} {flag}") words="{" ".join(values)}";;'
        for command, flags in flags_by_command.items()
        for flag, values in flags.items()
        if values
    ]
    return BASH.format(
        commands=" ".join(COMMANDS),
        choices="\n".join(choices),
        flags="\n".join(
            f'        {command}) words="{" ".join(flags)}";;' for command, flags in flags_by_command.items()
        ),
        first="\n".join(f'            {name}) words="{" ".join(_first(name))}";;' for name in COMMANDS if _first(name)),
    )


def _fish(flags_by_command: dict[str, dict[str, list[str]]]) -> str:
    lines: list[str] = []
    for command, about in COMMANDS.items():
        condition = f"-n '__stagedoor_runs {command}'"
        lines.append(
            f"complete -c stagedoor -n '__stagedoor_words 1' -f -a {command} -d '{about.replace(chr(39), '’')}'"
        )
        if _first(command):
            lines.append(
                f"complete -c stagedoor -n '__stagedoor_words 2 {command}' -f -a '{' '.join(_first(command))}'"
            )
        for flag, values in flags_by_command[command].items():
            offered = f" -x -a '{' '.join(values)}'" if values else ""
            lines.append(f"complete -c stagedoor {condition} -l {flag.removeprefix('--')}{offered}")
    return FISH + "\n".join(lines) + "\n"
