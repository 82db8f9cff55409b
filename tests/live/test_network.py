"""No agent, run as our tests run it, sends anything beyond this machine."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.live

QUIET_TURN = Path(__file__).with_name("quiet_turn.py")


@functools.cache
def namespace() -> list[str] | None:
    """The command that starts another in an empty network namespace, where the machine allows it."""
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return None
    for options in (["--net"], ["--map-root-user", "--net"]):
        argv = ["unshare", *options]
        tried = subprocess.run([*argv, "ip", "link", "set", "lo", "up"], capture_output=True, check=False)
        if tried.returncode == 0:
            return argv
    return None


def test_a_turn_in_an_empty_network(rig: Any, cases: Any, tmp_path: Path) -> None:
    inside = namespace()
    if inside is None:
        pytest.skip("this machine does not allow network namespaces")
    given = {"agent": rig.agent, "driver": rig.driver, "executable": rig.executable, "folder": str(tmp_path)}
    with cases("no network but loopback"):
        ran = subprocess.run(
            [*inside, sys.executable, str(QUIET_TURN)],
            input=json.dumps(given),
            env={**os.environ, "PYTHONWARNINGS": "default"},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr[-3000:]
        told = json.loads(ran.stdout)
        assert (told["status"], told["result"]) == ("success", "Not a word."), told
        assert told["attempts"] in ([], None), told  # None: the machine cannot show what left
    cases.settle()
