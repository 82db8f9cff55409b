"""``stagedoor config``: which values are in effect and where they come from, check them, edit them."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, cast

from . import EXIT_SUCCESS, EXIT_USAGE
from .command import Parser, report

if TYPE_CHECKING:
    from ..service.config.load import Loaded, Value


def main(argv: list[str]) -> int:
    parser = Parser(
        prog="stagedoor config",
        description="Show, check and edit the configuration of stagedoor serve. Values come from a file; environment "
        "variables (STAGEDOOR_SERVER__PORT=8000) override it, and flags override both.",
        examples=(
            "stagedoor config show",
            "stagedoor config check --config server.yaml",
            "stagedoor config edit",
            "STAGEDOOR_SESSIONS__TIER=dry-run stagedoor config show",
        ),
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="show|check|edit|path")
    showing = verbs.add_parser("show", help="show every value and where it comes from")
    showing.add_argument("--json", action="store_true", help="print one JSON object per value")
    checking = verbs.add_parser("check", help="report mistakes, with line numbers")
    editing = verbs.add_parser("edit", help="open the file in $VISUAL or $EDITOR; mistakes are not saved")
    path = verbs.add_parser("path", help="print which file is used")
    for command in (showing, checking, editing, path):
        command.add_argument("--config", type=Path, metavar="FILE", help="use this file instead of the default")
    arguments = parser.parse_args(argv)
    from ..errors import StagedoorError

    try:
        match arguments.verb:
            case "show":
                return _show(arguments.config, json=arguments.json)
            case "check":
                return _check(arguments.config)
            case "edit":
                return _edit(arguments.config)
            case _:
                return _path(arguments.config)
    except StagedoorError as fault:
        return report("config", fault)


def _show(config: Path | None, *, json: bool) -> int:
    import msgspec

    from ..service.config.load import load
    from .terminal.output import Cell, style_for, table

    loaded = load(config)
    if json:
        for value in loaded.values:
            row = {"key": value.path, "value": _hidden(value), "from": value.origin}
            print(msgspec.json.encode(row).decode())
        return EXIT_SUCCESS
    style = style_for(sys.stdout)
    rows: list[list[Cell]] = [
        [value.path, _written(value), ("dim" if value.origin == "default" else "ok", value.origin)]
        for value in loaded.values
    ]
    print(table(["key", "value", "from"], rows, style))
    _warn(loaded)
    return EXIT_SUCCESS


def _check(config: Path | None) -> int:
    from ..errors import ConfigError
    from ..service.config.load import load

    try:
        loaded = load(config)
    except ConfigError as fault:
        print(fault, file=sys.stderr)
        return EXIT_USAGE
    _warn(loaded)
    count = sum(value.origin != "default" for value in loaded.values)
    print(f"{loaded.file or 'no file'}: {count} values set, no mistakes")
    return EXIT_SUCCESS


def _path(config: Path | None) -> int:
    from ..register import config_files
    from ..service.config.load import find

    file = find(config)
    print(file or config_files()[0])
    if file is None:
        print("stagedoor config: this file does not exist yet: stagedoor config edit creates it", file=sys.stderr)
    return EXIT_SUCCESS


def _edit(config: Path | None) -> int:
    from ..errors import ConfigError
    from ..register import config_files
    from ..service.config.keys import template
    from ..service.config.load import find, parse
    from ..whole_file import replace_file

    named = config or (Path(os.environ["STAGEDOOR_CONFIG"]) if os.environ.get("STAGEDOOR_CONFIG") else None)
    target = (named or find() or config_files()[0]).resolve()
    before = target.read_text(encoding="utf-8") if target.exists() else template()
    text = before
    while True:
        changed = _edited(text)
        if changed is None:
            return EXIT_USAGE
        if changed == before and target.exists():
            print(f"{target}: unchanged")
            return EXIT_SUCCESS
        try:
            _warn(parse(changed, source=str(target), file=target))
        except ConfigError as fault:
            print(fault, file=sys.stderr)
            if not _again():
                print(f"stagedoor config: {target} was not changed", file=sys.stderr)
                return EXIT_USAGE
            text = changed
            continue
        replace_file(target, changed)
        print(f"{target}: saved")
        return EXIT_SUCCESS


def _edited(text: str) -> str | None:
    editor = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")
    with tempfile.TemporaryDirectory(prefix="stagedoor-config-") as folder:
        path = Path(folder) / "config.yaml"
        path.write_text(text, encoding="utf-8")
        try:
            code = subprocess.run([*editor, str(path)], check=False).returncode
        except OSError as fault:
            print(f"stagedoor config: cannot start the editor: {fault} (set $EDITOR to another one)", file=sys.stderr)
            return None
        if code:
            print(f"stagedoor config: the editor failed with exit code {code}: nothing was saved", file=sys.stderr)
            return None
        return path.read_text(encoding="utf-8", errors="replace")


def _again() -> bool:
    """Whether the user wants to fix it; without a terminal, no."""
    if not sys.stdin.isatty():
        return False
    try:
        return input("edit again? [Y/n] ").strip().lower() not in ("n", "no")
    except EOFError:
        return False


def _warn(loaded: Loaded) -> None:
    for warning in loaded.warnings:
        print(f"warning: {warning}", file=sys.stderr)


def _written(value: Value) -> str:
    from ..service.config.keys import as_written

    return as_written(value.path, _hidden(value))


def _hidden(value: Value) -> object:
    from ..service.postgres.address import redacted

    content: object = value.value
    if not value.secret or not content:
        return content
    if value.path == "log.database":
        return redacted(str(content))
    return dict.fromkeys(cast("dict[str, str]", content), "(hidden)") if isinstance(content, dict) else "(hidden)"
