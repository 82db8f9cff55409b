"""Run in an empty network namespace: one turn of an agent, and everything it sent anywhere but to this machine.

    unshare --net python quiet_turn.py < {"agent", "driver", "executable", "folder"}

All that is not for loopback leaves through an interface of our own, where we read it. Prints one JSON object.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import ipaddress
import json
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import stagedoor
from stagedoor.testing import ScriptedModel, say, shell

INTERFACE = "watched0"
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
PROBED = "192.0.2.1"
SET_UP = (
    f"addr add 10.99.0.1/24 dev {INTERFACE}",
    f"link set {INTERFACE} up",
    f"route add default dev {INTERFACE}",
)
SET_UP_6 = (f"-6 addr add fd99::1/64 dev {INTERFACE} nodad", f"-6 route add default dev {INTERFACE}")


def watch() -> int | None:
    """An interface through which everything leaves, to read what does; ``None`` where the machine has no such thing."""
    try:
        device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", INTERFACE.encode(), IFF_TUN | IFF_NO_PI))
        for words in SET_UP:
            subprocess.run(["ip", *words.split()], check=True, capture_output=True)
        for words in SET_UP_6:
            subprocess.run(["ip", *words.split()], check=False, capture_output=True)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.sendto(b"seen?", (PROBED, 9))
    except (OSError, subprocess.CalledProcessError):
        return None
    return device if PROBED in seen(device) else None


def seen(device: int) -> set[str]:
    """Where the packets that have left were going; what the kernel says to its neighbours does not count."""
    found: set[str] = set()
    with contextlib.suppress(BlockingIOError):
        while packet := os.read(device, 65536):
            address = ipaddress.ip_address(packet[24:40] if packet[0] >> 4 == 6 else packet[16:20])
            if not address.is_multicast and not address.is_link_local:
                found.add(str(address))
    return found


async def turn(given: dict[str, Any]) -> stagedoor.Done:
    folder = Path(given["folder"])
    workspace = folder / "workspace"
    workspace.mkdir()
    with ScriptedModel([shell("echo quiet"), say("Not a word.")]) as model:
        options: dict[str, Any] = {"cwd": str(workspace), "driver": given["driver"], "tier": "autonomous"}
        prompt = "Be quiet."
        if given["executable"] is None:
            options["env"] = {"STAGEDOOR_UNDERSTUDY_HOME": str(folder / "home")}
            prompt = json.dumps({"script": [[{"shell": "echo quiet"}], [{"say": "Not a word."}]]})
        else:
            env = model.environment(given["agent"], home=folder / "home", cwd=workspace).env
            options |= {"env": env, "inherit_env": False, "executable": given["executable"]}
        async with asyncio.timeout(120):
            events = [event async for event in stagedoor.run(given["agent"], prompt, **options)]
    done = events[-1]
    assert isinstance(done, stagedoor.Done)
    return done


def main() -> None:
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    device = watch()
    done = asyncio.run(turn(json.load(sys.stdin)))
    attempts = None if device is None else sorted(seen(device))
    json.dump({"status": done.status, "result": done.result, "attempts": attempts}, sys.stdout)


if __name__ == "__main__":
    main()
