"""Nothing a test does may touch the user's own folders, and nothing it leaves behind may touch another test.

Each process of the suite has a home, a temporary folder and a working directory of its own, which nobody else writes
to. All three must be empty at the end: what a test leaves there, it would have left in the user's.

A test that leaves a process running fails, and the process is ended before the next one begins; what a failed test
leaves half done is cleared away at once, so that no other test is blamed for it.
"""

from __future__ import annotations

import gc
import itertools
import logging
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from pathlib import Path

import hypothesis
import pytest

from tests.dealing import deal
from tests.leftovers import clear_mount_points, has_failed, let_go, note_failure, watch_children

# A busy machine is no fault, and what failed once fails again: make test tries the same examples each time.
hypothesis.settings.register_profile(
    "here", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow],
    derandomize="STAGEDOOR_RANDOM" not in os.environ,
)  # fmt: skip
hypothesis.settings.load_profile("here")

AGENTS_OWN = (".claude", ".claude.json", ".codex", ".gemini", ".config/opencode", ".local/share/opencode", ".opencode")
"""Where the CLIs keep their things, in the home of whoever is signed in: some look it up past ``HOME``."""

SLOW = (
    "agents/acp/test_client.py", "agents/acp/test_endings.py", "agents/acp/test_properties.py",
    "agents/claude/test_client.py", "agents/codex/test_bad_input.py", "agents/opencode/test_server.py",
    "cli/", "dialects/test_properties.py", "docs/", "remote/", "server/test_attacks.py", "server/test_auth.py",
    "seeds/", "server/test_fuzz.py", "server/test_hostile_ground.py", "shadow_git/",
    "server/test_jsonrpc", "server/test_kill.py", "server/test_pairing.py",
    "server/test_rest", "server/test_streams", "service/test_killed.py", "service/test_questions.py",
    "service/test_sessions.py", "service/test_unbroken.py", "service/test_waking.py", "testing/", "test_parallel.py",
    "test_readme.py", "test_session.py", "test_surroundings.py", "tools/", "transports/test_process.py", "typing/",
    "understudy/", "web/",
)  # fmt: skip
"""What starts programs or servers, or tries hundreds of inputs: measured at more than a second each, and left out by
``make quick``. ``make test`` runs everything."""

PATIENCE = 60.0
"""How long what was abandoned may take to be cleared away."""


class Surroundings:
    """Remembers after which test something was first seen."""

    def __init__(self, folder: Path, workspaces: Path) -> None:
        self._workspaces = re.sub(r"[^A-Za-z0-9]", "-", str(workspaces))
        self.home, self.temporary, self.cwd = (folder / name for name in ("home", "tmp", "cwd"))
        for place in (self.home, self.temporary, self.cwd):
            place.mkdir()
        self._states = folder / "state"
        self._states.mkdir()
        self._numbers = itertools.count()
        self._real_home = Path("~").expanduser()
        self._before = self._agents_own()
        self._since: dict[str, str] = {}
        self._excused: set[str] = set()

    def new_state_folder(self) -> Path:
        """Numbered here: pytest would read the names of thousands of folders for each test, to find the next number."""
        folder = self._states / f"stagedoor-home{next(self._numbers)}"
        folder.mkdir(mode=0o700)
        return folder

    def look(self, after: str, *, has_failed: bool = False) -> None:
        """What a failed test has left is no further fault: it was cut off before it could clear away."""
        left = self._leftovers()
        if has_failed:
            self._excused.update(name for name in left if name not in self._since)
        self._since = {name: self._since.get(name, after) for name in left}

    def complaints(self) -> list[str]:
        until = time.monotonic() + PATIENCE
        while set(self._leftovers()) - self._excused and time.monotonic() < until:
            time.sleep(0.05)
        self.look("the last test")
        faults = sorted((name, test) for name, test in self._since.items() if name not in self._excused)
        return [f"{name}, first seen after {test}" for name, test in faults]

    def _leftovers(self) -> list[str]:
        own = [str(path) for place in (self.home, self.temporary, self.cwd) for path in place.iterdir()]
        # Elsewhere somebody may use an agent of their own meanwhile.
        agents_own = sorted(self._agents_own() - self._before) if os.environ.get("CI") == "true" else []
        return [*own, *agents_own, *self._claudes_scratch()]

    def _agents_own(self) -> set[str]:
        return {str(self._real_home / name) for name in AGENTS_OWN if (self._real_home / name).exists()}

    def _claudes_scratch(self) -> list[str]:
        """Claude Code calls a folder after each working directory, and only some of its versions ask for ``TMPDIR``."""
        return [str(path) for path in Path("/tmp").glob(f"claude-*/{self._workspaces}*")]


@pytest.fixture(scope="session")
def surroundings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Surroundings]:
    clear_mount_points()
    folder = tmp_path_factory.mktemp("own").resolve()  # a short name: sockets need it
    found = Surroundings(folder, tmp_path_factory.getbasetemp())
    came_from, called = Path.cwd(), tempfile.tempdir
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("XDG_")]:
            patch.delenv(name)
        patch.setenv("HOME", str(found.home))
        patch.setenv("TMPDIR", str(found.temporary))
        tempfile.tempdir = None  # it remembers the first answer
        os.chdir(found.cwd)
        yield found
    os.chdir(came_from)
    tempfile.tempdir = called
    complaints = found.complaints()
    shutil.rmtree(folder, ignore_errors=True)
    assert not complaints, "\n".join(["the tests left something outside their temporary folders:", *complaints])


@pytest.fixture
def no_repository_above() -> None:
    """The folders of a test that asks what belongs together are in no repository."""
    clear_mount_points()


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """A command that runs in this process logs to the standard error of its test, which is closed afterwards: whoever
    logged there later, in a thread of another test, would print a traceback each time."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level


@pytest.fixture(autouse=True)
def nothing_left_running(request: pytest.FixtureRequest) -> Iterator[None]:
    """A file whose tests share a server has one for all of them."""
    yield from watch_children(request.node)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        note_failure(item)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    result = yield
    if has_failed(item):
        let_go()
    return result


@pytest.fixture(autouse=True)
def stagedoor_home(
    nothing_left_running: None,
    surroundings: Surroundings,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Path]:
    """Stagedoor's own state goes to a scratch folder."""
    folder = surroundings.new_state_folder()
    monkeypatch.setenv("STAGEDOOR_HOME", str(folder))
    yield folder
    surroundings.look(request.node.nodeid, has_failed=has_failed(request.node))


WAYS = [os.environ["STAGEDOOR_GUARD"]] if os.environ.get("STAGEDOOR_GUARD") else ["linux", "portable"]
"""``make portable`` names one; a Mac has no other than the portable one."""


@pytest.fixture(params=WAYS if sys.platform == "linux" else ["portable"])
def each_strategy(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every guard of the test knows its tree by this strategy: what must hold of one must hold of the other."""
    monkeypatch.setenv("STAGEDOOR_GUARD", request.param)
    return str(request.param)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what is slow, and deal the tests out so that the workers begin with what takes longest."""
    here = Path(__file__).parent
    for item in items:
        if str(item.path.relative_to(here)).startswith(SLOW) or item.get_closest_marker("live"):
            item.add_marker("slow")
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if workers > 1:
        items[:] = deal(items, workers, group=_group, seconds=_seconds)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test that collects garbage must find its own alone: what an earlier one forgot would be called its fault."""
    module = item.getparent(pytest.Module)
    if module is not None and hasattr(module.obj, "gc"):
        let_go()


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: no collection of garbage needs to look at it again."""
    gc.collect()
    gc.freeze()


def _group(item: pytest.Item) -> str:
    """The tests of a file of ``web`` share a browser and a server, which take longer to start than a test."""
    return str(item.path) if "/web/" in item.nodeid else item.nodeid


def _seconds(item: pytest.Item) -> float:
    """How long a test takes, roughly: OpenCode needs seconds to start, and waits long before it tries again."""
    name = item.nodeid
    if "test_kill.py" in name:
        return 60
    if item.get_closest_marker("live"):
        return (16 if "opencode" in name else 8) * (2 if "test_faults" in name or "test_limits" in name else 1)
    return 3 if "/web/" in name else 1 if item.get_closest_marker("slow") else 0
