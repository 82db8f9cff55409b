"""``stagedoor serve``, ``pair`` and ``devices`` as a user meets them."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import signal
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from stagedoor.cli import main as command
from stagedoor.server.running import is_loopback, own_address

BOUND = 240.0


class Running:
    """A server in the background; its first lines are read."""

    def __init__(self, cli: Any, *words: str) -> None:
        self.process = subprocess.Popen(
            [*shlex.split(cli.command), "serve", "--port", "0", *words],
            cwd=cli.workspace,
            env=cli.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.output = ""
        while "Ctrl-C stops it." not in self.output:
            line = self.process.stdout.readline()
            assert line, (self.output, self.process.communicate(timeout=BOUND))
            self.output += line
        match = re.search(r"listens on (\S+)", self.output)
        assert match, self.output
        self.url = match[1]

    def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=BOUND)
        return self.process.returncode, errors


@pytest.fixture
def start(stagedoor: Any) -> Iterator[Callable[..., Running]]:
    servers: list[Running] = []

    def start(*words: str) -> Running:
        servers.append(Running(stagedoor, *words))
        return servers[-1]

    yield start
    for server in servers:
        if server.process.poll() is None:
            server.process.kill()
            server.process.communicate()


def post(url: str, body: object) -> Any:
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"Content-Type": "application/json"}, method="POST"
    )
    with urllib.request.urlopen(request, timeout=BOUND) as answer:
        return json.load(answer)


def test_from_the_first_start_to_the_last_device(stagedoor: Any, start: Callable[..., Running]) -> None:
    server = start("--log-format", "json")
    assert f"folders  {stagedoor.workspace}" in server.output
    assert "#pair=" not in server.output, "a link that pairs a device does not belong into a pipe"

    invited = json.loads(stagedoor.run("pair", "--scope", "watch", "--name", "phone", "--json").stdout)
    assert invited["url"] == f"{server.url}/#pair={invited['code']}"
    paired = post(f"{server.url}/api/pair", {"code": invited["code"]})
    assert (paired["name"], paired["scopes"]) == ("phone", ["watch"])

    shown = stagedoor.run("pair")
    assert re.search(r"^code  \w{4}-\w{4}$", shown.stdout, re.MULTILINE)
    assert "this machine only" in shown.stderr
    assert "stagedoor serve --lan" in shown.stderr
    assert "stagedoor serve --lan" in server.output

    listed = stagedoor.run("devices")
    assert "phone" in listed.stdout
    assert paired["token"] not in listed.stdout
    assert stagedoor.run("devices", "revoke", "phone").stdout == "revoked phone\n"
    assert stagedoor.run("devices", "revoke", "phone").returncode == 2
    assert "no devices" in stagedoor.run("devices", "list").stderr

    second = stagedoor.run("serve", "--port", "0")
    assert (second.returncode, "in use by another Stagedoor" in second.stderr) == (2, True)
    taken = stagedoor.run(
        "serve", "--port", server.url.rpartition(":")[2], env={"STAGEDOOR_HOME": str(stagedoor.home / "other")}
    )
    assert (taken.returncode, "is already in use" in taken.stderr) == (2, True)

    code, logged = server.stop()
    assert code == 0
    token = (stagedoor.home / ".local" / "state" / "stagedoor" / "token").read_text().strip()
    messages = [json.loads(line)["message"] for line in logged.splitlines()]
    assert next(message for message in messages if "POST" in message) == "POST /api/pairing"
    assert messages[-1].startswith("stopping")
    assert not any(secret in logged for secret in (token, paired["token"], invited["code"]))
    gone = stagedoor.run("pair")
    assert (gone.returncode, "stagedoor serve" in gone.stderr) == (2, True)


def test_at_a_terminal_it_shows_a_link_that_works_once(stagedoor: Any) -> None:
    terminal = stagedoor.terminal("serve", "--port", "0")
    terminal.until("Ctrl-C stops it.")
    url, code = re.findall(r"(http://\S+)/#pair=(\S+)", terminal.text)[0]
    assert post(f"{url}/api/pair", {"code": code})["scopes"] == ["admin"]
    terminal.type("\x03")
    assert terminal.end() == 0
    assert "stopping" in terminal.text


@pytest.mark.skipif(is_loopback(own_address()), reason="this machine is in no network")
def test_a_phone_in_the_same_network_is_paired_over_tls(stagedoor: Any) -> None:
    terminal = stagedoor.terminal("serve", "--lan", "--port", "0")
    terminal.until("Ctrl-C stops it.")
    [shown] = re.findall(r"SHA-256\s+((?:[0-9A-F]{2}:){31}[0-9A-F]{2})", terminal.text)
    digest = shown.replace(":", "").lower()
    assert "\u2580" in terminal.text or "\u2588" in terminal.text, "a QR code"
    invited = json.loads(stagedoor.run("pair", "--json").stdout)
    host, port = urlsplit(invited["url"]).hostname or "", urlsplit(invited["url"]).port or 0
    assert (host, invited["reachable"], invited["fingerprint"]) == (own_address(), True, digest)
    assert invited["url"] == f"https://{host}:{port}/#pair={invited['code']}&sha256={digest}"
    assert "<svg" in invited["qr"]
    presented = ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate((host, port), timeout=BOUND))
    assert hashlib.sha256(presented).hexdigest() == digest
    pinned = ssl.create_default_context(cadata=presented)
    request = urllib.request.Request(
        f"https://{host}:{port}/api/pair",
        json.dumps({"code": invited["code"]}).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=BOUND, context=pinned) as answer:
        assert json.load(answer)["scopes"] == ["run"]
    terminal.type("\x03")
    assert terminal.end() == 0


def test_sessions_that_run_are_ended_when_it_stops(stagedoor: Any, start: Callable[..., Running]) -> None:
    server = start()
    token = (stagedoor.home / ".local" / "state" / "stagedoor" / "token").read_text().strip()
    prompt = json.dumps({"script": [[{"shell": f"touch begun; sleep {BOUND}"}]]})
    request = urllib.request.Request(
        f"{server.url}/api/sessions",
        json.dumps({"prompt": prompt, "agent": "understudy", "tier": "autonomous"}).encode(),
        {"Content-Type": "application/json", "Authorization": f"Bearer {token}"},
    )
    with urllib.request.urlopen(request, timeout=BOUND) as answer:
        assert answer.status == 201
    until = time.monotonic() + BOUND
    while not (stagedoor.workspace / "begun").exists():
        assert time.monotonic() < until
        time.sleep(0.02)
    code, _ = server.stop(signal.SIGINT)
    assert code == 0


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STAGEDOOR_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "no-certificate").write_text("nothing of the kind\n")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--host", "0.0.0.0"], "--insecure"),
        (["--host", "192.0.2.1"], "--insecure"),
        (["--tls-cert", "no-certificate"], "server.tls_key"),
        (["--tls-cert", "no-certificate", "--tls-key", "no-certificate"], "cannot use the certificate"),
        (["--lan", "--host", "127.0.0.1"], "a phone cannot reach 127.0.0.1"),
        (["--lan", "--host", "box.local"], "needs an address of this machine"),
        (["--lan", "--insecure"], "always uses TLS"),
        (["--root", "nowhere"], "is not a folder"),
        (["--root", "/"], "whole disk"),
        (["--config", "missing.yaml"], "missing.yaml"),
        (["--port", "70000"], "65535"),
    ],
)
def test_what_it_refuses_to_start_with(
    folder: Path, capsys: pytest.CaptureFixture[str], words: list[str], problem: str
) -> None:
    assert command(["serve", *words]) == 2
    errors = capsys.readouterr().err
    assert problem in errors.replace("65,535", "65535")
    assert "Traceback" not in errors
    assert not (folder / "home" / "log.db").exists()


def test_a_home_that_cannot_be_made_is_reported(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "home").write_text("a file")
    assert command(["serve", "--port", "0"]) == 2
    assert "as Stagedoor's folder: File exists; set STAGEDOOR_HOME to another one" in capsys.readouterr().err


def test_a_token_file_that_others_can_read_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "home").mkdir()
    (folder / "home" / "token").write_text("stagedoor_that-everybody-could-have-read\n")
    (folder / "home" / "token").chmod(0o644)
    assert command(["serve", "--port", "0"]) == 2
    assert "not secret any more" in capsys.readouterr().err
