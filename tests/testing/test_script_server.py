"""A script served from the command line, and the pytest plugin."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from stagedoor.testing import ScriptError, serve_script

SCRIPT = "- [{shell: ls}]\n- say: Done.\n"


class Serving:
    def __init__(self, path: Path, home: Path) -> None:
        self.out, self.stop, self.code = io.StringIO(), threading.Event(), -1
        self._thread = threading.Thread(target=self._run, args=(path, home))
        self._thread.start()
        while not (match := re.search(r"# scripted model on (\S+)", self.out.getvalue())):
            assert self._thread.is_alive()
            self._thread.join(0.01)
        self.url = match.group(1)

    def _run(self, path: Path, home: Path) -> None:
        self.code = serve_script(path, home=home, out=self.out, until=self.stop)

    def end(self) -> list[str]:
        self.stop.set()
        self._thread.join(60)
        return self.out.getvalue().splitlines()


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script.yaml"
    path.write_text(SCRIPT)
    return path


def test_a_served_script_tells_addresses_requests_and_the_end(tmp_path, script, clients):
    serving = Serving(script, tmp_path / "homes")
    talk = clients["chat"](serving.url, tools=("bash",))
    talk.ask("Go")
    assert talk.give("README").text == "Done."
    lines = serving.end()
    assert serving.code == 0
    assert [line for line in lines if not line.startswith(("#", "  "))] == [
        "chat m 'Go' -> reply 1 calls bash",
        "chat m 'Go' -> reply 2",
    ]
    exports = next(line for line in lines if "ANTHROPIC_BASE_URL" in line)
    assert f"ANTHROPIC_BASE_URL={serving.url}" in exports
    assert lines[-1] == "# the whole script was used"


def test_a_script_not_consumed_is_said_and_fails(tmp_path, script, clients):
    serving = Serving(script, tmp_path / "homes")
    clients["chat"](serving.url).ask("Go")
    lines = serving.end()
    assert serving.code == 1
    assert "chat m 'Go' -> reply 1 calls bash (not offered: bash)" in lines
    assert lines[-1] == "# not asked for: script, reply 2 of 2"


def test_a_script_that_cannot_be_read_is_an_error(tmp_path):
    with pytest.raises(ScriptError, match="No such file"):
        serve_script(tmp_path / "none.yaml")


def test_ctrl_c_ends_it(tmp_path, script):
    code = f"import sys; from stagedoor.testing import serve_script; sys.exit(serve_script({str(script)!r}))"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process, process.stdout:
        while not process.stdout.readline().startswith("# opencode"):
            pass
        process.send_signal(2)
        rest = process.stdout.read()
    assert process.returncode == 1
    assert rest.endswith("# not asked for: script, reply 1 of 2; not asked for: script, reply 2 of 2\n")


def test_the_plugin_and_the_package_import_nothing_heavy():
    code = "import sys, stagedoor.testing.plugin; print(sorted({'h11', 'yaml', 'asyncio'} & set(sys.modules)))"
    environ = {"PATH": "/usr/bin:/bin"}
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environ
    ).stdout
    assert loaded == "[]\n"


def test_the_fixture_stops_its_models(scripted_model):
    first, second = scripted_model([]), scripted_model([])
    assert first.url != second.url
