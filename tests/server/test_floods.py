"""The real server with few file descriptors, and many more connections without a token than it has of them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from websockets.asyncio.client import connect

from stagedoor.server.arrivals import Room, room_for
from stagedoor.server.certificate import lan_settings
from stagedoor.server.logs import LINES_OF_A_KIND
from stagedoor.service.config.settings import Settings
from tests.processes import open_descriptors

from .test_limits import UNFINISHED

BOUND = 240.0
DESCRIPTORS = 160
CONNECTIONS = 1600
LARGEST_LOG = 40_000
UNFINISHED_HANDSHAKES = {
    "nothing at all": b"",
    "the head of a greeting": bytes.fromhex("1603010200"),
    "half a greeting": bytes.fromhex("16030102000100") + b"x" * 100,
    "no TLS": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
}


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """For the attacker, which is this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = CONNECTIONS + 400
    if hard not in (resource.RLIM_INFINITY,) and hard < needed:
        pytest.skip(f"this machine lets a process open only {hard} files; the test needs {needed}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def real_server(folder: Path, *more: str) -> Iterator[tuple[subprocess.Popen[str], str, Path]]:
    """``stagedoor serve`` that may open ``DESCRIPTORS`` files, its address, and what it logs."""
    (folder / "workspace").mkdir()
    log = folder / "server.log"
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "STAGEDOOR_HOME": str(folder / "home")}
    arguments = [
        sys.executable,
        "-m",
        "stagedoor.cli",
        "serve",
        "--port",
        "0",
        "--root",
        str(folder / "workspace"),
        *more,
    ]
    limited = ["sh", "-c", f'ulimit -n {DESCRIPTORS} && exec "$@"', "sh", *arguments]
    with log.open("w") as errors:
        server = subprocess.Popen(limited, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True)
    assert server.stdout is not None
    try:
        first = server.stdout.readline()
        assert first.startswith("Stagedoor listens on "), (first, log.read_text())
        yield server, first.split()[3], log
    finally:
        server.terminate()
        server.wait(BOUND)
        server.stdout.close()


def test_a_flood_without_a_token_keeps_nobody_out_who_has_one_and_fills_no_log(
    tmp_path: Path, many_descriptors: None
) -> None:
    async def attack(host: str, port: int, sent: bytes) -> asyncio.StreamWriter | None:
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection(host, port)
            writer.write(sent)
            return writer
        return None

    async def main(server: subprocess.Popen[str], url: str) -> None:
        headers = {"Authorization": f"Bearer {(tmp_path / 'home' / 'token').read_text().strip()}"}
        host, port = "127.0.0.1", int(url.rpartition(":")[2])
        socket_url = url.replace("http", "ws", 1)
        async with connect(f"{socket_url}/ws", additional_headers=headers, open_timeout=BOUND) as inside:
            kinds = list(UNFINISHED.values())
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(attack(host, port, kinds[n % len(kinds)])) for n in range(CONNECTIONS)]
                for _ in range(10):  # each over a connection of its own, while they come
                    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=BOUND) as client:
                        answer = await client.get("/api/sessions")
                        assert answer.status_code == 200
            async with connect(f"{socket_url}/ws", additional_headers=headers, open_timeout=BOUND) as another:
                await (await another.ping())
            await (await inside.ping())
            assert open_descriptors(server.pid) < DESCRIPTORS * 3 // 4
            for writer in (task.result() for task in tasks):
                if writer is not None:
                    writer.close()

    with real_server(tmp_path) as (server, url, log):
        asyncio.run(asyncio.wait_for(main(server, url), BOUND))
    text = log.read_text()
    assert len(text) < LARGEST_LOG, text[-2000:]
    assert "without a token were closed" in text
    refusals = [line for line in text.splitlines() if "status=401" in line]
    assert len(refusals) <= 3 * LINES_OF_A_KIND, "each kind of refusal is counted after its first lines"


def test_the_same_where_every_connection_begins_with_a_handshake(tmp_path: Path, many_descriptors: None) -> None:
    """Fewer of them, because each handshake that is finished costs both sides; most are never finished."""
    made = lan_settings(Settings(), tmp_path / "keys", address="192.0.2.7")
    trusting = ssl.create_default_context(cafile=made.tls_cert)
    trusting.check_hostname = False
    kinds = [*UNFINISHED_HANDSHAKES.values()] * 2
    finished = list(UNFINISHED.values())

    async def attack(port: int, number: int) -> asyncio.StreamWriter | None:
        with contextlib.suppress(OSError):
            turn, kind = divmod(number, len(kinds) + 1)
            context = trusting if kind == len(kinds) else None
            _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
            writer.write(kinds[kind] if context is None else finished[turn % len(finished)])
            return writer
        return None

    async def main(server: subprocess.Popen[str], url: str) -> None:
        headers = {"Authorization": f"Bearer {(tmp_path / 'home' / 'token').read_text().strip()}"}
        port = int(url.rpartition(":")[2])
        client = httpx.AsyncClient(base_url=url, headers=headers, timeout=BOUND, verify=trusting)
        async with client, asyncio.TaskGroup() as group:
            assert (await client.get("/api/sessions")).status_code == 200
            tasks = [group.create_task(attack(port, number)) for number in range(DESCRIPTORS * 2)]
            async with httpx.AsyncClient(base_url=url, headers=headers, timeout=BOUND, verify=trusting) as another:
                assert (await another.get("/api/sessions")).status_code == 200
            await asyncio.wait(tasks)
            assert (await client.get("/api/sessions")).status_code == 200
            assert open_descriptors(server.pid) < DESCRIPTORS * 3 // 4
        for writer in (task.result() for task in tasks):
            if writer is not None:
                writer.transport.abort()

    with real_server(tmp_path, "--tls-cert", str(made.tls_cert), "--tls-key", str(made.tls_key)) as (server, url, log):
        assert url.startswith("https://")
        asyncio.run(asyncio.wait_for(main(server, url), BOUND))
    text = log.read_text()
    assert len(text) < LARGEST_LOG, text[-2000:]
    assert "without a token were closed" in text


@pytest.mark.parametrize(
    ("connections", "descriptors", "room"),
    [
        (1000, 65_536, Room(connections=1000, guests=256, guests_per_address=128)),
        (1000, 1024, Room(connections=512, guests=256, guests_per_address=128)),
        (1000, 160, Room(connections=80, guests=40, guests_per_address=20)),
        (4, 1024, Room(connections=4, guests=4, guests_per_address=2)),
        (1, 1024, Room(connections=1, guests=1, guests_per_address=1)),
    ],
)
def test_half_of_the_descriptors_are_left_to_the_sessions(connections: int, descriptors: int, room: Room) -> None:
    assert room_for(connections, descriptors) == room
