"""docs/team.md is walked: its blocks run as they stand, with a process for each machine, on a PostgreSQL with TLS where
one that can do it is installed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import plistlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest
import yaml

from stagedoor.agents.opencode.client import free_port
from tools.postgres import USER, Cluster, NoPostgres, installs

ROOT = Path(__file__).parents[2]
TEAM = ROOT / "docs" / "team"
PAGE = (ROOT / "docs" / "team.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```bash\n# on ([^\n]+)\n(.*?)```", PAGE, re.MULTILINE | re.DOTALL)
ELSEWHERE = ("sudo ", "docker compose up", "pip ", "systemctl ")
"""Lines that need a machine of their own."""
TLS = re.compile(r"\?sslmode=verify-full&sslrootcert=[^\"\s]*")
BOUND = 240.0


def with_tls() -> Path | None:
    """A PostgreSQL of the system that was built with OpenSSL; the one that the tests bring along was not."""
    for program in sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), reverse=True):
        with contextlib.suppress(OSError):
            config = subprocess.run([program.parent / "pg_config", "--configure"], capture_output=True, check=False)
            linked = subprocess.run(["ldd", program], capture_output=True, check=False)
            if b"openssl" in config.stdout or b"libssl" in linked.stdout:
                return program.parent.parent
    return None


class Walk:
    """``install``: of PostgreSQL. Without ``tls`` the addresses are the page's but for what they say of it."""

    def __init__(self, folder: Path, install: Path, *, tls: bool) -> None:
        self.folder = folder
        self.install = install
        self.tls = tls
        self.place = Path(tempfile.mkdtemp(prefix="sd-pg-", dir="/tmp"))  # a socket's name must be short
        self.port = free_port()
        self.database: Cluster | None = None
        self.addresses: dict[str, str] = {}
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def env(self, machine: str) -> dict[str, str]:
        home = self.folder / machine
        home.mkdir(exist_ok=True)
        return {
            "PATH": f"{Path(sys.executable).parent}:{self.install / 'bin'}:/usr/bin:/bin",
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "PGPORT": str(self.port),
            "STAGEDOOR_MACHINE__NAME": machine,
            "STAGEDOOR_SERVER__PORT": "0",
            "STAGEDOOR_UNDERSTUDY_HOME": str(home / "understudy"),
        }

    def text(self, block: str) -> str:
        lines = [line for line in block.splitlines() if not line.startswith(ELSEWHERE)]
        text = "\n".join(lines).replace("docker compose exec -T db", f"env PGHOST={self.place}")
        text = text.replace("db.example.org", "localhost").replace("--port 16181", "--port 0")
        text = text.replace("http://127.0.0.1:16180", self.addresses.get("one", ""))
        return text if self.tls else TLS.sub("", text)

    def run(self, machine: str, block: str) -> str:
        done = subprocess.run(
            ["bash", "-eu", "-o", "pipefail", "-c", self.text(block)], cwd=self._shared(machine), env=self.env(machine),
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=BOUND, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"on {machine}:\n{self.text(block)}\n{done.stdout}{done.stderr}"
        return done.stdout

    def start(self, machine: str, block: str) -> None:
        """A program that stays; returns when it has said where it is."""
        out = self.folder / f"{machine}.out"
        with out.open("wb") as file:
            program = subprocess.Popen(
                ["bash", "-c", f"exec {self.text(block).strip()}"], cwd=self._shared(machine), env=self.env(machine),
                stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
            )  # fmt: skip
        self._running[machine] = program
        until = time.monotonic() + BOUND
        while not (found := re.search(r"^Stagedoor (?:listens on|works as) (\S+).*\n", out.read_text(), re.MULTILINE)):
            assert program.poll() is None, f"{machine} ended: {out.read_text()}"
            assert time.monotonic() < until, out.read_text()
            time.sleep(0.05)
        self.addresses[machine] = found[1]

    def start_database(self) -> None:
        """What ``docker compose up`` does with compose.yaml."""
        compose = yaml.safe_load((TEAM / "compose.yaml").read_text())
        words = compose["services"]["db"]["command"]
        settings = dict(word.split("=", 1) for word in words[2::2])
        mounted = [one.split(":")[:2] for one in compose["services"]["db"]["volumes"] if one.startswith("./")]
        for name, inside in mounted:
            source = TEAM / name if (TEAM / name).exists() else self._shared("one") / name
            target = self.place / Path(inside).name
            shutil.copyfile(source, target)
            target.chmod(0o600)
            if os.geteuid() == 0:
                shutil.chown(target, "nobody")
            settings = {key: value.replace(inside, str(target)) for key, value in settings.items()}
        if not self.tls:
            hba = self.place / "pg_hba.conf"
            hba.write_text(hba.read_text().replace("hostssl", "host   "))
            settings = {"hba_file": settings["hba_file"]}
        settings |= {"listen_addresses": "127.0.0.1", "port": str(self.port)}
        self.database = Cluster(self.place, settings, install=self.install)
        self.database.start()
        password = (self._shared("one") / "owner.password").read_text().strip()

        async def prepare() -> None:
            db = await asyncpg.connect(f"postgresql://{USER}@/postgres?host={self.place}&port={self.port}")
            try:
                await db.execute(f"ALTER ROLE {USER} PASSWORD '{password}'")
                await db.execute("CREATE DATABASE stagedoor ENCODING 'UTF8' TEMPLATE template0")
            finally:
                await db.close()

        asyncio.run(prepare())

    def rows(self, database: str, sql: str) -> list[str]:
        async def read() -> list[str]:
            db = await asyncpg.connect(f"postgresql://{USER}@/{database}?host={self.place}&port={self.port}")
            try:
                *first, last = sql.split("; ")
                for statement in first:
                    await db.execute(statement)
                return [row[0] for row in await db.fetch(last)]
            finally:
                await db.close()

        return asyncio.run(read())

    def stop(self, *machines: str) -> None:
        programs = [self._running.pop(name) for name in machines or list(self._running)]
        for program in programs:
            program.send_signal(signal.SIGTERM)
        for program in programs:
            try:
                program.wait(BOUND)
            except subprocess.TimeoutExpired:
                program.kill()
                program.wait()

    def clear(self) -> None:
        try:
            self.stop()
        finally:
            if self.database is not None:
                self.database.crash()
            shutil.rmtree(self.place, ignore_errors=True)

    def _shared(self, machine: str) -> Path:
        """The folder that the page works in; what it says to hand to other machines is there for all of them."""
        folder = self.folder / "stagedoor"
        folder.mkdir(exist_ok=True)
        return folder


@pytest.fixture
def walk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Walk]:
    install = with_tls()
    try:
        walk = Walk(tmp_path, install or installs()[0], tls=install is not None)
    except NoPostgres as fault:
        if sys.platform == "linux":
            raise
        pytest.skip(str(fault))
    monkeypatch.setenv("PGPORT", str(walk.port))  # of pg_isready
    try:
        yield walk
    finally:
        walk.clear()


def test_three_machines_share_a_log(walk: Walk) -> None:
    walk.start("one", "stagedoor serve")  # as it was before: one machine, its log in a file
    start = next(block for where, block in BLOCKS if where == "one" and "/api/sessions" in block)
    first = json.loads(walk.run("one", start.replace(', "place": "host:two"', "")))
    walk.stop("one")
    printed: dict[str, str] = {}
    for where, block in BLOCKS:
        if where.endswith("all stopped"):
            walk.stop()
        for machine in re.findall(r"one|two|three|four", where):
            if where.endswith("stays"):
                if machine == "four":  # with a configuration like that of the first one
                    shutil.copytree(walk.folder / "one" / ".config", walk.folder / "four" / ".config")
                code = walk.run("one", "stagedoor workers enrol").strip() if "CODE" in block else ""
                walk.start(machine, block.replace("CODE", code))
            else:
                printed[block] = walk.run(machine, block)
        if "docker compose up" in block:
            walk.start_database()
    outputs = list(printed.values())
    assert [text for text in outputs if "copied, read back and found the same" in text]
    [listed] = [text for block, text in printed.items() if block.strip() == "stagedoor workers"]
    assert re.findall(r"^\w{8}  (\w+) +ready", listed, re.MULTILINE) == ["one", "three", "two"]
    second = json.loads(printed[start])
    assert (second["place"], second["agent"]) == ("host:two", "understudy")
    assert [text for text in outputs if "two: takes nothing new" in text and re.search(r"two +draining", text)]
    assert [text for text in outputs if "two: takes work again" in text]
    assert walk.rows("restored", "SELECT id FROM stagedoor.sessions ORDER BY created") == [first["id"], second["id"]]
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        walk.rows("restored", "SET ROLE worker; SELECT id FROM stagedoor.devices")


@pytest.mark.parametrize("unit", sorted(TEAM.glob("*.service")), ids=lambda unit: unit.name)
def test_a_unit_is_one(unit: Path, tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed")
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text().replace("%h/.local/bin/stagedoor", "/bin/true"))
    done = subprocess.run(
        [program, "verify", "--man=no", copy], capture_output=True, text=True, timeout=BOUND, check=False
    )
    about_it = [line for line in (done.stdout + done.stderr).splitlines() if unit.name in line]
    assert (done.returncode, about_it) == (0, [])


@pytest.mark.parametrize("file", sorted(TEAM.iterdir()), ids=lambda file: file.name)
def test_what_a_file_starts_exists(file: Path) -> None:
    """The words after ``stagedoor`` are understood, and the page names the file."""
    assert f"](team/{file.name})" in PAGE
    if file.suffix == ".plist":
        words = plistlib.loads(file.read_bytes())["ProgramArguments"][1:]
    elif file.suffix == ".service":
        words = re.findall(r"^ExecStart=\S+ (.*)$", file.read_text(), re.MULTILINE)[0].split()
    else:
        return
    done = subprocess.run(
        [Path(sys.executable).parent / "stagedoor", *words, "--help"], capture_output=True, timeout=BOUND, check=False
    )
    assert done.returncode == 0
