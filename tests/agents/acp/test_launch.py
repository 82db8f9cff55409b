"""Command line to launch value, and what is refused before anything starts."""

import asyncio
import signal
from pathlib import Path

import pytest

from stagedoor.agents.acp import AcpClient, launch
from stagedoor.errors import LaunchError, LocalProtocolError, NotInstalled
from stagedoor.transports.launch import EndInput, Launch, Signal

STOP = (EndInput(2.0), Signal(signal.SIGTERM, 2.0, group=True))


@pytest.mark.parametrize(
    ("argv", "more", "expected"),
    [
        (["agent"], {}, Launch(argv=("agent",), cwd="/w", stop=STOP)),
        (
            ["agent", "--acp"],
            {"executable": "/opt/agent"},
            Launch(argv=("/opt/agent", "--acp"), cwd="/w", stop=STOP),
        ),
        (
            ("agent",),
            {"env": {"A": "b"}, "unset": ["C*"]},
            Launch(argv=("agent",), cwd="/w", env={"A": "b"}, unset=("C*",), stop=STOP),
        ),
    ],
)
def test_launch(argv: list[str], more: dict, expected: Launch) -> None:  # type: ignore[type-arg]
    assert launch(argv, cwd="/w", **more) == expected


@pytest.mark.parametrize("argv", [[], [""]])
def test_an_empty_command_is_refused(argv: list[str]) -> None:
    with pytest.raises(LocalProtocolError, match="name a program"):
        launch(argv, cwd="/w")


def test_a_missing_program_and_a_missing_folder(tmp_path: Path) -> None:
    async def main() -> None:
        with pytest.raises(NotInstalled, match=r"no-such-agent was not found. Install no-such-agent, or name its file"):
            await AcpClient("no-such-agent", cwd=tmp_path).create_session()
        with pytest.raises(LaunchError, match="does not exist: create it"):
            await AcpClient("sh", cwd=tmp_path / "nowhere").create_session()

    asyncio.run(main())
