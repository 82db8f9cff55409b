"""``stagedoor config``: what is in force and who said so, what is wrong, and an editor that keeps nothing that is."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, cast

from . import EXIT_SUCCESS, EXIT_USAGE
from .parsing import Parser

if TYPE_CHECKING:
    from ..service.config import Loaded, Value


def main(argv: list[str]) -> int:
    parser = Parser(
        prog="stagedoor config",
        description="The configuration of stagedoor serve: a file, then the environment (STAGEDOOR_SERVER__PORT=8000), "
        "over that flags.",
        examples=(
            "stagedoor config show",
            "stagedoor config check --config server.yaml",
            "stagedoor config edit",
            "STAGEDOOR_SESSIONS__TIER=dry-run stagedoor config show",
        ),
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="show|check|edit|path")
    showing = verbs.add_parser("show", help="every value in force, and where it comes from")
    showing.add_argument("--json", action="store_true", help="one JSON object per value")
    checking = verbs.add_parser("check", help="say what is wrong, with line numbers")
    editing = verbs.add_parser("edit", help="open it in $VISUAL or $EDITOR; what is wrong is not kept")
    path = verbs.add_parser("path", help="print which file counts")
    for one in (showing, checking, editing, path):
        one.add_argument("--config", type=Path, metavar="FILE", help="this file, instead of the one that is found")
    given = parser.parse_args(argv)
    from ..errors import StagedoorError
    from .exits import report

    try:
        match given.verb:
            case "show":
                return _show(given.config, json=given.json)
            case "check":
                return _check(given.config)
            case "edit":
                return _edit(given.config)
            case _:
                return _path(given.config)
    except StagedoorError as fault:
        return report("config", fault)


def _show(config: Path | None, *, json: bool) -> int:
    import msgspec

    from ..service.config import load
    from .lines import style_for
    from .tables import Cell, table

    loaded = load(config)
    if json:
        for value in loaded.values:
            told = {"key": value.path, "value": _hidden(value), "from": value.origin}
            print(msgspec.json.encode(told).decode())
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
    from ..service.config import load

    try:
        loaded = load(config)
    except ConfigError as fault:
        print(fault, file=sys.stderr)
        return EXIT_USAGE
    _warn(loaded)
    said = sum(value.origin != "default" for value in loaded.values)
    print(f"{loaded.file or 'no file'}: {said} values given, fine")
    return EXIT_SUCCESS


def _path(config: Path | None) -> int:
    from ..service.config import find, places

    found = find(config)
    print(found or places()[0])
    if found is None:
        print("stagedoor config: this file is not there yet; stagedoor config edit makes it", file=sys.stderr)
    return EXIT_SUCCESS


def _edit(config: Path | None) -> int:
    from ..errors import ConfigError
    from ..service.config import find, parse, places
    from ..service.template import template
    from ..whole_file import replace_file

    named = config or (Path(os.environ["STAGEDOOR_CONFIG"]) if os.environ.get("STAGEDOOR_CONFIG") else None)
    target = (named or find() or places()[0]).resolve()
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
                print(f"stagedoor config: {target} was left as it was", file=sys.stderr)
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
            print(f"stagedoor config: the editor did not start: {fault}; set $EDITOR to one that does", file=sys.stderr)
            return None
        if code:
            print(f"stagedoor config: the editor ended with {code}; nothing was saved", file=sys.stderr)
            return None
        return path.read_text(encoding="utf-8", errors="replace")


def _again() -> bool:
    """Whether whoever sits there wants to mend it; where nobody does, the answer is no."""
    if not sys.stdin.isatty():
        return False
    try:
        return input("edit it again? [Y/n] ").strip().lower() not in ("n", "no")
    except EOFError:
        return False


def _warn(loaded: Loaded) -> None:
    for warning in loaded.warnings:
        print(f"warning: {warning}", file=sys.stderr)


def _written(value: Value) -> str:
    from ..service.template import shown

    return shown(value.path, _hidden(value))


def _hidden(value: Value) -> object:
    given: object = value.value
    return dict.fromkeys(cast("dict[str, str]", given), "(hidden)") if value.secret else given
