"""``run`` and ``chat`` beside a server of the same user: its sessions are those of the terminal, and nothing else
changes."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

BOUND = 240.0
SAY = '- say: "Hello, **you**."\n'
ASK = '- shell: touch made\n- say: "Over."\n'
NEW_LINE = "\x1b\r"


class Server:
    """``stagedoor serve`` with the home of the command line it is given."""

    def __init__(self, cli: Any, *words: str, **env: str) -> None:
        self.process = subprocess.Popen(
            [*shlex.split(cli.command), "serve", "--port", "0", *words],
            cwd=cli.workspace,
            env={**cli.env, **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if "Ctrl-C stops it." in line:
                break
        home = cli.home / ".local" / "state" / "stagedoor"
        self.file = home / "server.json"
        self._token = (home / "token").read_text().strip()
        self._url = json.loads(self.file.read_text())["url"]

    def request(self, method: str, path: str, body: object = None) -> Any:
        request = urllib.request.Request(
            self._url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=BOUND) as answer:
            return json.load(answer)

    def sessions(self) -> list[dict[str, Any]]:
        sessions: list[dict[str, Any]] = self.request("GET", "/api/sessions")["sessions"]
        return sessions

    def stop(self, number: int = signal.SIGTERM) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            self.process.wait(BOUND)
        finally:
            self.process.kill()
            assert self.process.stdout is not None
            self.process.stdout.close()


@pytest.fixture
def server(stagedoor: Any) -> Iterator[Server]:
    running = Server(stagedoor)
    yield running
    running.stop()


def typed(script: str) -> str:
    return NEW_LINE.join(script.rstrip("\n").split("\n")) + "\r"


def shape(output: str) -> list[tuple[str, str]]:
    return [(event["type"], event.get("status", "")) for event in map(json.loads, output.splitlines())]


OUTCOMES = {
    "an answer": (SAY,),
    "a question without a terminal": (ASK, "--approval", "ask"),
    "a command that fails": ("- shell: exit 3\n- say: Over.\n", "--tier", "autonomous"),
    "no script": ("Hello?",),
}


def test_run_says_the_same_in_the_server(stagedoor: Any, server: Server) -> None:
    for count, words in enumerate(OUTCOMES.values(), 1):
        there = stagedoor.run("run", "understudy", *words, "--json")
        (stagedoor.workspace / "made").unlink(missing_ok=True)
        here = stagedoor.run("run", "understudy", *words, "--json", "--local")
        assert (there.returncode, shape(there.stdout), there.stderr) == (
            here.returncode,
            shape(here.stdout),
            here.stderr,
        )
        assert len(server.sessions()) == count
    quiet = stagedoor.run("run", "understudy", SAY, "--quiet")
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, "Hello, **you**.\n", "")
    newest = server.sessions()[0]
    assert (newest["state"], newest["result"], newest["keepOpen"]) == ("done", "Hello, **you**.", False)
    assert not (stagedoor.workspace / "made").exists()


ONLY_HERE = {
    "told so": ({}, ("--local",), ""),
    "told so by the environment": ({"STAGEDOOR_LOCAL": "1"}, (), ""),
    "an option that has a meaning only here": ({}, ("--no-watch-files",), "--no-watch-files has a meaning only here"),
    "another environment": (
        {"SOME_KEY": "1"},
        (),
        "this terminal's environment is another than the server's (SOME_KEY)",
    ),
    "another folder": ({}, ("-C", "../home"), "this folder is outside the folders that the server works in"),
}


def test_what_would_be_another_session_runs_here_and_says_why(stagedoor: Any, server: Server) -> None:
    for env, words, why in ONLY_HERE.values():
        terminal = stagedoor.terminal("run", "understudy", SAY, "--tier", "dry-run", *words, env=env)
        assert terminal.end() == 0
        notice = f"stagedoor run: not in the running server: {why}\n" if why else ""
        first = terminal.text.partition("\n")[0]
        assert (first + "\n" == notice) if why else ("running server" not in terminal.text)
    assert server.sessions() == []


def test_the_servers_policy_allows_nothing_more(stagedoor: Any, tmp_path: Path) -> None:
    rules = tmp_path / "policy.yaml"
    rules.write_text("rules:\n- {tool: shell, command: 'touch no*', action: deny}\n- {tool: shell, action: allow}\n")
    config = stagedoor.home / ".config" / "stagedoor" / "config.yaml"
    config.parent.mkdir(parents=True)
    config.write_text(f"policy: {{file: {rules}}}\n")
    server = Server(stagedoor)
    try:
        ended = stagedoor.run("run", "understudy", "- shell: touch yes\n- shell: touch no\n- say: Over.\n")
        assert ended.returncode == 0
        assert sorted(path.name for path in stagedoor.workspace.iterdir()) == []
        assert len(server.sessions()) == 1
        # The same request of a device, which the server's own rules are for:
        server.request("POST", "/api/sessions", {"prompt": "- shell: touch yes\n", "agent": "understudy"})
        end = time.monotonic() + BOUND
        while server.sessions()[0]["state"] == "running":
            assert time.monotonic() < end
            time.sleep(0.05)
        assert [path.name for path in stagedoor.workspace.iterdir()] == ["yes"]
    finally:
        server.stop()


def test_a_dead_servers_file_changes_nothing(stagedoor: Any) -> None:
    server = Server(stagedoor)
    content = server.file.read_text()
    server.stop(signal.SIGKILL)
    assert server.file.exists()
    ended = stagedoor.run("run", "understudy", SAY, "--quiet")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "Hello, **you**.\n", "")
    for wrong in ("", "{}", "[]", content.replace(str(server.process.pid), "1"), content.replace("http", "ftp")):
        server.file.write_text(wrong)
        ended = stagedoor.run("run", "understudy", SAY, "--quiet")
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "Hello, **you**.\n", "")


def test_a_stranger_on_the_port_gets_no_token_and_no_prompt(stagedoor: Any) -> None:
    server = Server(stagedoor)
    server.stop(signal.SIGKILL)
    received: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as stranger:

        def serve() -> None:
            while True:
                try:
                    connection, _ = stranger.accept()
                except OSError:
                    return
                with connection:
                    received.append(connection.recv(65536))
                    body = b'{"status":"ok","proof":"' + b"0" * 64 + b'"}'
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            port = stranger.getsockname()[1]
            # A process that lives stands for the dead server's, whose number another one may have by now.
            living = {"pid": os.getpid(), "url": f"http://127.0.0.1:{port}", "public": ""}
            server.file.write_text(json.dumps(living))
            ended = stagedoor.run("run", "understudy", SAY, "--quiet")
        finally:
            stranger.shutdown(socket.SHUT_RDWR)
            thread.join(BOUND)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "Hello, **you**.\n", "")
    token = (stagedoor.home / ".local" / "state" / "stagedoor" / "token").read_bytes().strip()
    assert len(received) == 1
    assert received[0].startswith(b"GET /healthz?nonce=")
    assert token not in received[0]
    assert b"Hello" not in received[0]


def test_two_terminals_and_a_device_share_a_session(stagedoor: Any, server: Server) -> None:
    stagedoor.repository()
    first = stagedoor.terminal("chat", "understudy", "--approval", "ask")
    first.until_display("❯")
    assert "· in the server ·" in " ".join(first.display.split())  # a long folder breaks the line
    first.type(typed(ASK))
    first.until_display("allow?")
    [session] = server.sessions()
    second = stagedoor.terminal("chat", "--attach", session["id"][:8])
    second.until_display("allow?")
    second.type("y")
    second.until_display("\nOver.")
    first.until_display("allowed by a client of the server\n")  # the other is told
    first.until_display("\nOver.")
    # A device asks, a terminal answers; then the other way round.
    path = f"/api/sessions/{session['id']}"
    marks = len(first.text), len(second.text)
    server.request("POST", f"{path}/messages", {"prompt": '- shell: touch two\n- say: "Two."\n'})
    first.until("allow?", after=marks[0])
    second.until("allow?", after=marks[1])
    second.type("y")
    first.until_display("\nTwo.")
    second.until_display("\nTwo.")
    first.until_display("\nTwo.")
    marks = len(first.text), len(second.text)
    first.type(typed('- shell: touch three\n- say: "Three."\n'))
    second.until("allow?", after=marks[1])
    first.until("allow?", after=marks[0])
    [question] = server.request("GET", f"{path}/permissions?open=true")["permissions"]
    server.request("POST", f"{path}/permissions/{question['id']}", {"decision": "deny", "message": "not now"})
    second.until_display("denied by a client of the server")
    first.until_display("\nThree.")
    second.until_display("\nThree.")
    second.type("\x04")
    assert second.end() == 0
    first.type("/diff\r")
    first.until_display("2 files changed")
    first.until_gone("Ctrl-C interrupts")
    first.type("/undo 2\r")
    first.until_display("restored 1 file as before turn 2")
    first.type("/model nonsense\r")
    first.until_display("unknown model 'nonsense'. Available: understudy")
    first.type("/mode read-only\r")
    first.until_display("mode: Read-only")
    first.type("\x04")
    assert first.end() == 0
    assert first.display.splitlines()[-1] == f"to go on: stagedoor chat --attach {session['id']}"
    [left] = server.sessions()
    assert (left["state"], left["tier"], left["openQuestions"]) == ("running", "dry-run", 0)
    assert sorted(path.name for path in stagedoor.workspace.glob("t*")) == []


def test_a_session_that_has_ended_is_continued(stagedoor: Any, server: Server) -> None:
    assert stagedoor.run("run", "understudy", SAY).returncode == 0
    [session] = server.sessions()
    terminal = stagedoor.terminal("chat", "--attach", "last")
    terminal.until_display("❯")
    assert "it has ended: your next message continues it in a new one" in terminal.display
    terminal.type(typed('- say: "Once more."\n'))
    terminal.until_display("\nOnce more.")
    terminal.type("\x04")
    assert terminal.end() == 0
    assert [view["parentId"] for view in server.sessions()] == [session["id"], None]


def test_a_session_that_never_began_is_not_in_the_way(stagedoor: Any, server: Server) -> None:
    terminal = stagedoor.terminal("chat", "understudy")
    terminal.until_display("in the server")
    terminal.type("/model nonsense\r" + typed(SAY))
    terminal.until_display("/model NAME chooses another model")
    assert terminal.display.count("unknown model 'nonsense'. Available: understudy") == 1
    terminal.type("/model understudy\r" + typed(SAY))  # read at once: the session that failed may still be ending
    terminal.until_display("\nHello, you.")
    terminal.type("/model nonsense\r")
    terminal.until_display("\nunknown model 'nonsense'. Available: understudy")
    terminal.type("\x04")
    assert terminal.end() == 0
    going_on = terminal.display.splitlines()[-1].split()[-1]
    assert [one["model"] for one in server.sessions() if one["id"] == going_on] == ["understudy"]


def test_attach_needs_a_server_and_a_session(stagedoor: Any) -> None:
    terminal = stagedoor.terminal("chat", "--attach", "last")
    assert terminal.end() == 1
    assert "no server is running" in terminal.text
    server = Server(stagedoor)
    try:
        terminal = stagedoor.terminal("chat", "--attach", "nonsense")
        assert terminal.end() == 2
        assert "session 'nonsense' not found" in terminal.text
    finally:
        server.stop()
