"""``stagedoor model``: a scripted model on loopback, for trying and testing the real CLIs without a key."""

from __future__ import annotations

import sys
from pathlib import Path

from .parsing import Parser


def main(argv: list[str]) -> int:
    parser = Parser(
        prog="stagedoor model",
        description="Serve a script (YAML) as an Anthropic, OpenAI and Gemini API on 127.0.0.1 until Ctrl-C.",
        examples=("stagedoor model script.yaml --port 8765",),
        ends="exit code 1: the script was not played to its end",
    )
    parser.add_argument("script", type=Path)
    parser.add_argument("--port", type=int, default=0, help="0 (the default) takes a free one")
    parser.add_argument("--home", type=Path, help="where the agents' isolated homes are made (default: a new folder)")
    parser.add_argument("--cwd", type=Path, default=Path.cwd(), help="the workspace the agents will run in")
    options = parser.parse_args(argv)
    try:
        from ..testing.serve import serve_script
        from ..testing.yaml_script import ScriptError
    except ImportError as missing:  # an extra; it says which
        print(f"stagedoor model: {missing}", file=sys.stderr)
        return 2
    try:
        return serve_script(options.script, options.port, home=options.home, cwd=options.cwd)
    except (OSError, ScriptError) as error:
        print(f"stagedoor model: {error}", file=sys.stderr)
        return 2
