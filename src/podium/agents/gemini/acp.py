"""One conversation with ``gemini --acp``: the protocol's own session, with Gemini's peculiarities taken care of."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from types import TracebackType

from podium.agents.acp.config import AcpConfig
from podium.agents.acp.content import KnownBlock, TextContent
from podium.agents.acp.events import Event as AcpEvent
from podium.agents.acp.profile import AcpProfile
from podium.agents.acp.protocol import Reply
from podium.agents.acp.session import AcpSession

from .commands import literal_over_acp
from .config import ApprovalMode, GeminiConfig
from .home import PrivateHome
from .records import ToolDetails
from .store import SessionFile, session_files, sweep_stubs

PROFILE = AcpProfile(
    # "<name>__<name>_<ms>_<n>", or "<name>__<id>" when the model gave its call an id.
    tool_name_in_id=r"(.+?)__(?:\1_\d+_\d+|(?:(?!__).)+)$",
    mode_prefix="[MODE_UPDATE]",
    replays_after_load=10.0,
    missing_files_are_empty=True,
    # "Always" for a whole server, or for good, is more than was asked.
    broad_options=("proceed_always_server", "proceed_always_and_save"),
)

MODE_IDS = {
    ApprovalMode.DEFAULT: "default",
    ApprovalMode.AUTO_EDIT: "autoEdit",
    ApprovalMode.PLAN: "plan",
    ApprovalMode.YOLO: "yolo",
}


def acp_config(config: GeminiConfig) -> AcpConfig:
    """Mode, model, policy and MCP servers are the process's; only the questions are left for the session."""
    return AcpConfig(request_permission=config.can_use_tool, permission_timeout=config.permission_timeout)


def blocks(prompt: str | Sequence[KnownBlock], config: GeminiConfig) -> tuple[KnownBlock, ...]:
    """A prompt, taken literally unless the config says otherwise: text that begins with ``/`` would run a command."""
    if not isinstance(prompt, str):
        return tuple(prompt)
    return (TextContent(prompt if config.expand_prompt else literal_over_acp(prompt)),)


def seconds_to_wait(files: Sequence[Path], now: float) -> float:
    """How long a stored session may not be loaded, for it would be lost: at most a minute.

    ``session/load`` begins a new file, named by the clock minute and the short id, *before* it reads the old one. In
    the minute the session was created in, both names are the same, and the conversation is replaced by an empty one.
    """
    minute = time.strftime("session-%Y-%m-%dT%H-%M-", time.gmtime(now))
    return 60.2 - now % 60 if any(path.name.startswith(minute) for path in files) else 0.0


async def past_its_minute(files: Sequence[Path]) -> None:
    await asyncio.sleep(seconds_to_wait(files, time.time()))


class GeminiAcpSession:
    """Made by :class:`~podium.agents.gemini.client.GeminiClient`. ``acp`` is the protocol's own session."""

    def __init__(self, acp: AcpSession, config: GeminiConfig, *, cwd: str, folder: Path, home: PrivateHome) -> None:
        self.acp = acp
        self.session_id = acp.session_id
        self._config = config
        self._cwd = cwd
        self._folder = folder
        self._home = home
        self._file = SessionFile(self._conversation_file)

    @property
    def events(self) -> AsyncIterator[AcpEvent]:
        """Events of the Agent Client Protocol, to the end of the session. Each use is a reader of its own."""
        return self.acp.events

    @property
    def received(self) -> AsyncIterator[tuple[bytes, AcpEvent]]:
        return self.acp.received

    @property
    def running(self) -> bool:
        return self.acp.running

    async def send(self, prompt: str | Sequence[KnownBlock]) -> None:
        """Begin a turn; its events end with ``PromptResponse``, ``RequestFailed`` or ``Unanswered``."""
        await self.acp.send(blocks(prompt, self._config))

    async def turn_ended(self) -> Reply:
        return await self.acp.turn_ended()

    async def interrupt(self) -> None:
        """End the running turn and its commands. Open questions are answered first: the CLI does not stop before."""
        await self.acp.interrupt()

    async def set_mode(self, mode: ApprovalMode) -> None:
        await self.acp.set_mode(MODE_IDS[mode])

    async def set_model(self, model: str) -> None:
        await self.acp.set_model(model)

    async def cancel(self) -> None:
        await self.acp.cancel()
        self._clean_up()

    async def close(self) -> None:
        await self.acp.close()
        self._clean_up()

    def tool_name(self, tool_call_id: str) -> str:
        """The protocol does not say which tool a call is of; its id does."""
        return PROFILE.tool_name(tool_call_id) or ""

    def tool_details(self, tool_call_id: str) -> ToolDetails | None:
        """What the session file knows of a finished call: exit code, diff, what the model was told."""
        return self._file.tool_details(tool_call_id)

    async def __aenter__(self) -> GeminiAcpSession:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await (self.close() if kind is None else self.cancel())

    def _conversation_file(self) -> Path | None:
        return next(iter(session_files(self._folder, self._cwd, self.session_id)), None)

    def _clean_up(self) -> None:
        sweep_stubs(self._folder, self._cwd, self.session_id)
        self._home.remove()
