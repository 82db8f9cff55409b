"""What the live tests share: which program of which version is driven, and what was proven about it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import tempfile
import time
import traceback
import uuid
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import stagedoor
from stagedoor import catalog
from stagedoor.drivers.agent import Driver
from stagedoor.testing.clis import find_cli, path_with_node
from stagedoor.transports.executables import read_version
from stagedoor.unified.capabilities import Capabilities
from tests.processes import command_lines
from tools.clis import FOLDER, SECOND, second_executable
from tools.compatibility import Outcome, Record, write

CHECKOUT = Path(__file__).resolve().parents[2]


class Rig(msgspec.Struct, frozen=True):
    """One agent × driver × version. ``second``: the other version, brought along so that drift shows."""

    agent: str
    driver: str
    second: bool = False

    @property
    def id(self) -> str:
        return f"{self.agent}-{self.driver}" + ("-second" if self.second else "")

    @property
    def is_embedded(self) -> bool:
        return catalog.agent(self.agent).install == ""

    @property
    def executable(self) -> str | None:
        if self.is_embedded:
            return None
        if self.second:
            return second_executable(_clis(), self.agent)
        found = find_cli(self.agent)
        return str(found) if found else None

    @property
    def missing(self) -> str:
        """Why it cannot be driven here, in one line."""
        if self.is_embedded or self.executable is not None:
            return ""
        which = f"the second version of {self.agent}" if self.second else self.agent
        return f"{which} is not installed: run `make clis`"

    @property
    def capabilities(self) -> Capabilities:
        return self._driver.capabilities

    @property
    def _driver(self) -> Driver:
        return catalog.agent(self.agent).drivers[self.driver]

    @property
    def version(self) -> str:
        return stagedoor.__version__ if self.is_embedded else _version_of(str(self.executable), self.agent)


def _clis() -> Path:
    return Path(os.environ.get("STAGEDOOR_CLIS") or CHECKOUT / FOLDER)


@functools.cache
def _version_of(executable: str, agent: str) -> str:
    with tempfile.TemporaryDirectory() as home:  # without one, some would write into the user's
        env = {"PATH": path_with_node(agent=agent), "HOME": home, "GEMINI_CLI_NO_RELAUNCH": "true"}
        return ".".join(map(str, asyncio.run(read_version(executable, env=env))))


def _rigs() -> list[Rig]:
    rigs: list[Rig] = []
    for name in catalog.names():
        drivers = list(catalog.agent(name).drivers)
        rigs += [Rig(name, driver) for driver in drivers]
        rigs += [Rig(name, driver, second=True) for driver in drivers if name in SECOND]
    return rigs


RIGS = _rigs()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "drift: also drives the second versions")


COVERING: dict[str, tuple[str, ...]] = {
    "copilot": (
        "test_scenes",
        "test_conversation",
        "test_permissions",
        "test_faults",
        "test_hooks_that_no_switch_stops_are_refused",
        "test_functions_as_tools",
    ),
    "qwen": (
        "test_scenes",
        "test_permissions",
        "test_nothing_of_an_untrusted_project_runs",
        "test_functions_as_tools",
    ),
    "kimi": ("test_scenes", "test_permissions", "test_functions_as_tools"),
}
"""What these agents play in ``make test``: what is theirs alone. ``make contract`` lets them play everything."""


def _plays(rig: Rig, name: str) -> bool:
    return os.environ.get("STAGEDOOR_CONTRACT") == "1" or name in COVERING.get(rig.agent, (name,))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """``rig`` is every agent × driver; with the mark ``drift`` also the second versions."""
    if "rig" in metafunc.fixturenames:
        with_second = metafunc.definition.get_closest_marker("drift") is not None
        name = metafunc.function.__name__
        chosen = [rig for rig in RIGS if (with_second or not rig.second) and _plays(rig, name)]
        metafunc.parametrize("rig", chosen, ids=[rig.id for rig in chosen], indirect=True)


@pytest.fixture
def rig(request: pytest.FixtureRequest) -> Rig:
    chosen: Rig = request.param
    if chosen.missing:
        pytest.fail(chosen.missing) if os.environ.get("CI") == "true" else pytest.skip(chosen.missing)
    return chosen


class Cases:
    """The things one scenario tries. Each is recorded; one that fails does not hide those after it.

    >>> with cases("plan", able=rig.capabilities.plan): ...
    """

    def __init__(self, rig: Rig, version: str, test: str, file: Path | None) -> None:
        self._rig = rig
        self._version = version
        self._test = test
        self._file = file
        self.failures: list[str] = []

    @contextlib.contextmanager
    def __call__(self, capability: str, *, able: bool = True, field: str = "", note: str = "") -> Iterator[None]:
        """``able``: whether the driver says that it can; the body asserts what follows from that either way."""
        outcome: Outcome = "yes" if able else "no"
        try:
            yield
        except (Exception, pytest.fail.Exception) as failure:
            outcome = "failed"
            line = traceback.extract_tb(failure.__traceback__)[-1].lineno
            self.failures.append(f"{capability}: line {line}: {type(failure).__name__}: {failure}")
        self._record(capability, outcome, note or (self._rig.capabilities.notes.get(field, "") if field else ""))

    def do_not_arise(self, *capabilities: str) -> None:
        for capability in capabilities:
            self._record(capability, "n/a", "")

    def _record(self, capability: str, outcome: Outcome, note: str) -> None:
        if self._file is None:
            return
        rig = self._rig
        record = Record(
            agent=rig.agent,
            driver=rig.driver,
            version=self._version,
            capability=capability,
            outcome=outcome,
            note=note,
            test=self._test,
            at=time.time_ns() // 1_000_000,
        )
        write(record, self._file)

    def settle(self) -> None:
        if self.failures:
            pytest.fail(f"{len(self.failures)} failed:\n" + "\n\n".join(self.failures), pytrace=False)


@pytest.fixture
def cases(rig: Rig, request: pytest.FixtureRequest) -> Cases:
    cache: pytest.Cache | None = getattr(request.config, "cache", None)
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    file = cache.mkdir("compatibility") / f"{worker}.jsonl" if cache else None
    return Cases(rig, rig.version, request.node.nodeid, file)


def running(marker: str) -> list[str]:
    """The command lines, anywhere on this machine, that contain the marker."""
    return [line for pid, line in command_lines().items() if marker in line and pid != os.getpid()]


class Napping:
    """A command that runs until it is stopped, and can be told from all others."""

    def __init__(self) -> None:
        self.marker = f"sleep 98{uuid.uuid4().int % 10**7:07d}"

    @property
    def is_running(self) -> bool:
        return bool(running(self.marker))

    async def until(self, state: bool) -> None:
        while self.is_running != state:
            await asyncio.sleep(0.05)


@pytest.fixture
def napping() -> type[Napping]:
    return Napping
