"""docs/options.md: every option with its type, default, meaning and the agents that take it, read from the code.

python -m tools.options_page     # writes the page
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

from stagedoor import catalog
from stagedoor.unified import options
from stagedoor.unified.capabilities import CAPABILITY_OF_OPTION, Capabilities
from stagedoor.unified.options import OpenOptions, Options

PAGE = Path(__file__).parent.parent / "docs" / "options.md"
INTRODUCTION = """\
# Options

`stagedoor.run`, `open`, `result`, `run_sync`, `run_parallel` and `Task(options=…)` take these keyword arguments, typed
(`stagedoor.OpenOptions`): an editor completes them, and mypy and pyright refuse a wrong one. Every option is checked
before anything starts: a wrong value raises `BadRequest`, and an option that the agent cannot honour raises
`NotSupported`. None is ignored. With a server ([client](client.md)) some of them belong to the server.

This page is generated from the code: `python -m tools.options_page`.

| option | type | default | meaning | agents |
|---|---|---|---|---|
"""


def page() -> str:
    types = {name: ast.unparse(node) for name, node in _annotations(OpenOptions)}
    meanings = _meanings()
    rows = [
        f"| `{name}` | {_code(types[name])} | {_code(repr(default))} | {meanings[name]} | {_agents(name)} |"
        for name, default in zip(Options.__struct_fields__, _defaults(), strict=True)
    ]
    return INTRODUCTION + "\n".join(rows) + "\n\n" + _choices()


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|").replace("PathLike[str]", "Path")


def _choices() -> str:
    choices: dict[str, Any] = {"tier": options.Tier, "approval": options.Approval, "sandbox": options.Sandbox}
    lines = [f"- `{name}`: " + " · ".join(f"`{value}`" for value in get_args(kind)) for name, kind in choices.items()]
    sandboxes = [
        f"| {name} | {driver} | {', '.join(entry.capabilities.sandbox) or 'none'} |"
        for name in catalog.BUILT_IN
        for driver, entry in catalog.agent(name).drivers.items()
    ]
    table = "| agent | driver | sandbox modes |\n|---|---|---|\n" + "\n".join(sandboxes)
    return "Values:\n\n" + "\n".join(lines) + "\n\n" + table + "\n"


def _annotations(kind: type) -> list[tuple[str, ast.expr]]:
    body = _class_body(kind)
    return [(node.target.id, node.annotation) for node in body if _is_field(node)]  # type: ignore[attr-defined]


def _meanings() -> dict[str, str]:
    body = _class_body(Options)
    return {
        field.target.id: " ".join(ast.literal_eval(text.value).split())  # type: ignore[attr-defined]
        for field, text in pairwise(body)
        if _is_field(field) and isinstance(text, ast.Expr)
    }


def _class_body(kind: type) -> list[ast.stmt]:
    tree = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(tree, ast.ClassDef)
    return tree.body


def _is_field(node: ast.stmt) -> bool:
    return isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)


def _defaults() -> list[object]:
    default = Options()
    return [getattr(default, name) for name in Options.__struct_fields__]


def _agents(option: str) -> str:
    """All, or those whose drivers take it."""
    if option not in (*CAPABILITY_OF_OPTION, "sandbox", "can_use_tool"):
        return "all"
    names: list[str] = []
    for name in catalog.BUILT_IN:
        drivers = catalog.agent(name).drivers
        able = [driver for driver, entry in drivers.items() if _can(entry.capabilities, option)]
        if able:
            names.append(name if len(able) == len(drivers) else f"{name} ({', '.join(able)})")
    return "all" if len(names) == len(catalog.BUILT_IN) and not any("(" in name for name in names) else ", ".join(names)


def _can(capabilities: Capabilities, option: str) -> bool:
    match option:
        case "sandbox":
            return len(capabilities.sandbox) > 1
        case "can_use_tool":
            return capabilities.permissions != "none"
        case _:
            return bool(getattr(capabilities, CAPABILITY_OF_OPTION[option]))


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"wrote {PAGE}")
