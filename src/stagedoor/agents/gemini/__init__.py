"""Gemini CLI: a complete native library, over ``stream-json`` (a process for each turn) and over ``--acp``."""

from stagedoor.wire.permission import PermissionBehavior

from .acp import GeminiAcpSession
from .client import VERSIONS, GeminiClient
from .commands import GeminiInterrupt, literal
from .config import (
    ApprovalMode,
    GeminiDriver,
    GeminiSessionConfig,
    HttpMcpServer,
    McpServer,
    SseMcpServer,
    StdioMcpServer,
)
from .events import (
    ErrorDetail,
    Event,
    GeminiContent,
    GeminiDone,
    GeminiError,
    GeminiInit,
    GeminiMessage,
    GeminiResult,
    GeminiRetry,
    GeminiToolCall,
    GeminiToolResult,
    GeminiToolUse,
    ModelStats,
    Paused,
    Stats,
    Truncated,
)
from .history import GeminiHistory, GeminiStoredSession, list_sessions
from .policy import Decision, PolicyRule, allow, check_policy, deny, policy_toml
from .protocol import StreamProtocol
from .records import FileDiff, SessionFileReplay, ToolDetails
from .session import GeminiSession

__all__ = [
    "VERSIONS",
    "ApprovalMode",
    "Decision",
    "ErrorDetail",
    "Event",
    "FileDiff",
    "GeminiAcpSession",
    "GeminiClient",
    "GeminiContent",
    "GeminiDone",
    "GeminiDriver",
    "GeminiError",
    "GeminiHistory",
    "GeminiInit",
    "GeminiInterrupt",
    "GeminiMessage",
    "GeminiResult",
    "GeminiRetry",
    "GeminiSession",
    "GeminiSessionConfig",
    "GeminiStoredSession",
    "GeminiToolCall",
    "GeminiToolResult",
    "GeminiToolUse",
    "HttpMcpServer",
    "McpServer",
    "ModelStats",
    "Paused",
    "PermissionBehavior",
    "PolicyRule",
    "SessionFileReplay",
    "SseMcpServer",
    "Stats",
    "StdioMcpServer",
    "StreamProtocol",
    "ToolDetails",
    "Truncated",
    "allow",
    "check_policy",
    "deny",
    "list_sessions",
    "literal",
    "policy_toml",
]  # fmt: skip
