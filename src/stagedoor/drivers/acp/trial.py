"""An agent started once to see what it is: who it says it is, what it offers, whether it lets anybody in."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from ...agents.acp import AcpClient
from ...agents.acp.responses import InitializeResponse, way_in
from ...errors import LaunchError, NotSignedIn, StagedoorError
from ...transports.executables import find_executable
from ...unified.settings import AgentSetting
from .definition import AcpAgent
from .settings import settings_in

PATIENCE = 60.0


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen. ``problem``: why there is no session; what was learned before that is here all the same."""

    executable: str = ""
    name: str = ""
    version: str = ""
    offers: tuple[str, ...] = ()
    sign_in: tuple[str, ...] = ()
    settings: tuple[AgentSetting, ...] = ()
    problem: str = ""
    not_signed_in: bool = False

    def setting(self, name: str) -> AgentSetting | None:
        """By its id, else by its kind."""
        by_id = (setting for setting in self.settings if setting.id == name)
        by_kind = (setting for setting in self.settings if setting.kind == name)
        return next(by_id, None) or next(by_kind, None)


async def try_agent(definition: AcpAgent, *, patience: float = PATIENCE, env: Mapping[str, str] | None = None) -> Trial:
    """Start it in an empty folder, shake hands, open a session, look, and end it. No prompt is sent.

    Raises ``NotInstalled`` when there is no such program, and ``LaunchError`` when it does not speak the protocol.
    """
    env = {**(os.environ if env is None else env), **definition.env}
    program = definition.command[0]
    executable = find_executable(
        program, executable=program if "/" in program else None, env=env, install=definition.install
    )
    trial = Trial(executable=executable)
    with tempfile.TemporaryDirectory(prefix="stagedoor-trial-") as folder:
        client = AcpClient(definition.command, folder, env, start_timeout=patience, share_process=True)
        try:
            async with asyncio.timeout(2 * patience):
                async with client.connected() as connection:
                    trial = _greeted(trial, connection.agent)
                    async with await client.create_session() as session:
                        return replace(trial, settings=settings_in(session.opened, session.config_options))
        except NotSignedIn as fault:
            return replace(trial, problem=str(fault), not_signed_in=True)
        except TimeoutError:
            if not trial.offers:
                raise LaunchError(
                    f"{executable} opened no session within {2 * patience:g} s: try it yourself"
                ) from None
            return replace(trial, problem=f"it opened no session within {2 * patience:g} s")
        except StagedoorError as fault:
            if not trial.offers:
                raise
            return replace(trial, problem=str(fault))


def _greeted(trial: Trial, agent: InitializeResponse) -> Trial:
    about, can = agent.agent_info, agent.capabilities
    offers = {
        "load": bool(can.load_session), "resume": can.session.resume is not None, "list": can.session.list is not None,
        "fork": can.session.fork is not None, "close": can.session.close is not None,
        "images": can.prompt.image, "audio": can.prompt.audio, "resources": can.prompt.embedded_context,
        "MCP over HTTP": can.mcp.http, "MCP over SSE": can.mcp.sse,
    }  # fmt: skip
    return replace(
        trial,
        name=about.title or about.name if about is not None else "",
        version=about.version if about is not None else "",
        offers=("new", *(name for name, offered in offers.items() if offered)),
        sign_in=tuple(way_in(method, trial.executable) for method in agent.auth_methods or ()),
    )
