"""The rules of the house that no linter knows."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stagedoor.cli import COMMANDS

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "stagedoor"
FILES = sorted(SOURCE.rglob("*.py"))
LIMIT = 700
MOST_FILES = 16
AGENTS = ("claude", "codex", "gemini", "opencode")
FORBIDDEN_WORDS = re.compile(r"(^|_)(handlers?|managers?|processors?|helpers?|utils?|base|common|impl|info)(_|$)")
# Where an agent's name may stand: its own two rooms, the catalog, and where it is a word of somebody else's protocol
# (the vendors' APIs that the scripted model speaks, the documents whose vocabularies the dialects speak).
MAY_NAME = (
    "agents/", "drivers/", "catalog.py", "testing/apis/", "testing/model.py", "testing/__init__.py", "cli/model.py",
    "dialects/",
    "permissions/risk/agents.py",  # programs that a shell line may start, like any other
)  # fmt: skip


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_module_outgrows_one_idea(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LIMIT


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_modules_are_named_for_what_they_hold(path: Path) -> None:
    assert not FORBIDDEN_WORDS.search(path.stem)


def test_the_shared_core_names_no_agent() -> None:
    named = [
        f"{path.relative_to(SOURCE)}:{number}"
        for path in FILES
        if not str(path.relative_to(SOURCE)).startswith(MAY_NAME)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(
            rf"\b({'|'.join(AGENTS)})\b",
            re.sub(r'""".*|#.*|>>>.*|\.\.\. .*|stagedoor [a-z]+ .*', "", line),
            re.IGNORECASE,
        )
    ]
    assert named == []


RIDDLES = frozenset(
    {
        "told", "asked", "said", "heard", "wish", "wishes", "wanted", "spoken", "meant", "untold", "unsaid", "overhear",
        "overheard", "begun", "errand", "errands", "tale",
    }
)  # fmt: skip
"""Participles that could mean anything: refused as any identifier."""
VAGUE = frozenset(
    {
        "known", "found", "given", "kept", "made", "shown", "left", "gone", "seen", "held", "noted", "settled", "one",
        "here", "there", "over", "how", "what",
    }
)  # fmt: skip
"""Tolerable for a local that lives a line or two; refused for what others use: classes, functions, fields."""


def _identifiers(tree: ast.AST) -> Iterator[tuple[int, str, bool]]:
    """Line, name, and whether others see it."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, lineno=line):
                yield line, name, False
            case ast.MatchAs(name=str(name), lineno=line) | ast.ExceptHandler(name=str(name), lineno=line):
                yield line, name, False
            case ast.Attribute(attr=name, lineno=line) | ast.arg(arg=name, lineno=line):
                yield line, name, True
            case ast.keyword(arg=str(name), value=value):
                yield value.lineno, name, True
            case ast.FunctionDef(name=name, lineno=line) | ast.AsyncFunctionDef(name=name, lineno=line):
                yield line, name, True
            case ast.ClassDef(name=name, lineno=line):
                yield line, name, True
            case _:
                pass


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_names_say_what_a_thing_is(path: Path) -> None:
    refused = [
        f"line {line}: {name}"
        for line, name, public in _identifiers(ast.parse(path.read_text()))
        if (bare := name.strip("_").lower()) in RIDDLES or (public and bare in VAGUE)
    ]
    assert refused == []


def test_class_names_are_unique() -> None:
    places: dict[str, list[str]] = {}
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(f"{path.relative_to(SOURCE)}:{node.lineno}")
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_every_task_has_an_owner() -> None:
    """Tasks are started by a TaskGroup (called ``group``) or by a TaskOwner, which alone may call asyncio for it."""
    free = [
        f"{path.relative_to(SOURCE)}:{node.lineno}"
        for path in FILES
        if path != SOURCE / "transports" / "tasks.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and getattr(node.func, "attr", getattr(node.func, "id", "")) in ("create_task", "ensure_future")
        and getattr(getattr(node.func, "value", None), "id", "") != "group"
    ]
    assert free == []


def test_a_folder_shows_its_contents_at_a_glance() -> None:
    folders = {path.parent for path in FILES}
    ignored = {"__init__", *COMMANDS}  # one module per command is a list that nobody needs to learn
    crowded = {
        str(folder.relative_to(SOURCE)): count
        for folder in folders
        if (count := len([path for path in folder.glob("*.py") if path.stem not in ignored])) > MOST_FILES
    }
    assert crowded == {}


def test_import_stagedoor_is_light() -> None:
    heavy = (
        "pydantic",
        "mcp",
        "httpx",
        "websockets",
        "starlette",
        "uvicorn",
        "rich",
        "yaml",
        "sqlite3",
        "asyncio",
        "h11",
    )
    code = f"import sys, stagedoor; print([name for name in {heavy!r} if name in sys.modules])"
    # What counts the lines of tests is no part of us.
    env = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True, env=env)
    assert done.stdout.strip() == "[]"


def test_every_public_name_can_be_imported() -> None:
    code = "import stagedoor; [getattr(stagedoor, name) for name in stagedoor.__all__]; print(len(stagedoor.__all__))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 40


def _tracked_with(pattern: re.Pattern[bytes]) -> list[str]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    names = [name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]
    return [name for name in names if pattern.search(name.encode() + b"\n" + (ROOT / name).read_bytes())]


def test_no_tracked_file_names_this_machine_or_a_registry() -> None:
    pattern = re.compile(rb"registry\.npmjs|pypi\.org|files\.pythonhosted|\"resolved\": *\"http")
    assert [name for name in _tracked_with(pattern) if name != "tests/test_house.py"] == []


def test_no_trace_of_the_old_name() -> None:
    """Others own it. It is spelled in two halves here, so that this file passes too."""
    assert _tracked_with(re.compile(b"pod" + b"ium", re.IGNORECASE)) == []


# The ways to start a process, and who may use them beside ``transports/process`` and ``transports/programs``, which put
# every program under a guard.
STARTS = re.compile(
    r"\b(?:subprocess\.\w+|create_subprocess_\w+|asyncio\.subprocess|posix_spawnp?|forkpty|os\.fork|os\.(?:system|popen"
    r"|startfile)|os\.(?:exec|spawn)\w+|pty\.(?:spawn|fork)|multiprocessing|ProcessPoolExecutor)\b|import subprocess"
)
MAY_START = {
    "transports/process.py": "agents, each under its guard",
    "transports/programs.py": "our own short programs, under a guard",
    "transports/guard/roles.py": "the guard itself",
    "transports/guard/ps_table.py": "ps, by the guard, which waits for it",
    "transports/confinement/inside.py": "becomes the agent, under the guard that started it",
    "cli/terminal/questions.py": "the user's editor in the user's terminal, which a guard would take from it",
    "cli/config.py": "the user's editor in the user's terminal, which a guard would take from it",
    "mcp/tools_only.py": "part of an agent, which is under a guard itself",
    "understudy/mcp.py": "part of an agent, which is under a guard itself",
    "understudy/workspace.py": "part of an agent, which is under a guard itself",
}


def test_every_process_has_a_guard() -> None:
    starting = {
        str(path.relative_to(SOURCE))
        for path in FILES
        if any(STARTS.search(line.partition("#")[0]) for line in path.read_text().splitlines())
    }
    assert starting == set(MAY_START)
