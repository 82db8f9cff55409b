"""The native libraries: what every client, event and callback of theirs has."""

from datetime import datetime

from stagedoor.agents.acp import AcpClient, AcpSessionConfig, RequestPermission
from stagedoor.agents.claude import CanUseTool, ClaudeClient, ClaudeSessionConfig
from stagedoor.agents.codex import CodexClient, CodexSessionConfig, PermissionBehavior, Question
from stagedoor.agents.gemini import GeminiClient
from stagedoor.agents.opencode import OpenCodeClient


async def ask_claude(request: CanUseTool) -> PermissionBehavior:
    return PermissionBehavior.deny if request.turn_id > 1 else PermissionBehavior.allow_always


def ask_codex(question: Question) -> PermissionBehavior:
    return PermissionBehavior.deny_always


def ask_acp(request: RequestPermission) -> PermissionBehavior:
    return PermissionBehavior.allow


def answer_in_words(request: CanUseTool) -> str:
    return "allow"


ClaudeSessionConfig(can_use_tool=ask_claude)
CodexSessionConfig(can_use_tool=ask_codex)
AcpSessionConfig(can_use_tool=ask_acp)
ClaudeSessionConfig(can_use_tool=answer_in_words)  # wrong


async def converse(client: ClaudeClient) -> None:
    async with await client.create_session("Go.", ClaudeSessionConfig(can_use_tool=ask_claude)) as session:
        async for event in session.events:
            when: datetime = event.timestamp
            print(event.session_id.upper(), event.turn_id + 1, when.year)
        await session.wait()


async def list_all(
    claude: ClaudeClient, codex: CodexClient, gemini: GeminiClient, opencode: OpenCodeClient, acp: AcpClient
) -> list[str]:
    return [
        *(stored.session_id for stored in await claude.list_sessions()),
        *(stored.session_id for stored in await codex.list_sessions()),
        *(stored.session_id for stored in await gemini.list_sessions()),
        *(stored.session_id for stored in await opencode.list_sessions()),
        *(stored.session_id for stored in await acp.list_sessions()),
    ]
