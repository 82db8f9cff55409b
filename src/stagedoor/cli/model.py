"""``stagedoor model``: a scripted model on loopback, for trying and testing the real CLIs without a key."""

from __future__ import annotations

import sys
from pathlib import Path

from .command import Parser, report


def main(argv: list[str]) -> int:
    parser = Parser(
        prog="stagedoor model",
        description="Serve a YAML script as an Anthropic, OpenAI and Gemini API on 127.0.0.1 until Ctrl-C.",
        examples=("stagedoor model script.yaml --port 8765",),
        closing="exit code 1: the agents did not use the whole script",
    )
    parser.add_argument("script", type=Path)
    parser.add_argument("--port", type=int, default=0, help="0 (the default) chooses a free port")
    parser.add_argument(
        "--home", type=Path, help="the folder for the isolated homes of the agents (default: a new one)"
    )
    parser.add_argument("--cwd", type=Path, default=Path.cwd(), help="the workspace of the agents")
    arguments = parser.parse_args(argv)
    try:
        from ..testing.script_server import serve_script
        from ..testing.yaml_script import ScriptError
    except ModuleNotFoundError as missing:
        report("model", missing)
        return 2
    try:
        return serve_script(arguments.script, arguments.port, home=arguments.home, cwd=arguments.cwd)
    except (OSError, ScriptError) as error:
        print(f"stagedoor model: {error}", file=sys.stderr)
        return 2
