"""Gemini CLI: a complete native library, over ``stream-json`` (a process for each turn) and over ``--acp``."""

from .acp import GeminiAcpSession
from .client import MINIMUM_VERSION, GeminiClient
from .commands import Interrupt, literal
from .config import ApprovalMode, Driver, GeminiConfig, HttpServer, McpServer, SseServer, StdioServer
from .events import (
    Content,
    Done,
    Error,
    ErrorDetail,
    Event,
    Init,
    Message,
    ModelStats,
    Paused,
    Result,
    Retry,
    Stats,
    ToolCall,
    ToolResult,
    ToolUse,
    Truncated,
)
from .history import History, StoredSession, list_sessions
from .policy import Decision, PolicyRule, allow, check_policy, deny, policy_toml
from .protocol import StreamProtocol
from .records import FileDiff, Replay, ToolDetails
from .session import GeminiSession

__all__ = [
    "MINIMUM_VERSION",
    "ApprovalMode",
    "Content",
    "Decision",
    "Done",
    "Driver",
    "Error",
    "ErrorDetail",
    "Event",
    "FileDiff",
    "GeminiAcpSession",
    "GeminiClient",
    "GeminiConfig",
    "GeminiSession",
    "History",
    "HttpServer",
    "Init",
    "Interrupt",
    "McpServer",
    "Message",
    "ModelStats",
    "Paused",
    "PolicyRule",
    "Replay",
    "Result",
    "Retry",
    "SseServer",
    "Stats",
    "StdioServer",
    "StoredSession",
    "StreamProtocol",
    "ToolCall",
    "ToolDetails",
    "ToolResult",
    "ToolUse",
    "Truncated",
    "allow",
    "check_policy",
    "deny",
    "list_sessions",
    "literal",
    "policy_toml",
]
