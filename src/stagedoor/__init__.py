"""One door to every coding agent.

>>> async for event in stagedoor.run("claude", "Fix the login bug", cwd=".", tier="supervised", can_use_tool=ask):
...     match event:
...         case stagedoor.TextDelta(text=t): print(t, end="")
...         case stagedoor.Done(status=s): print(s)

Names are loaded when they are first used, so that ``import stagedoor`` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .api import Result as Result
    from .api import Task as Task
    from .api import discover as discover
    from .api import history as history
    from .api import open as open
    from .api import result as result
    from .api import run as run
    from .api import run_sync as run_sync
    from .buffer import BufferOverflow as BufferOverflow
    from .buffer import EventBuffer as EventBuffer
    from .cancel import CancelToken as CancelToken
    from .drivers.acp.definition import AcpAgent as AcpAgent
    from .drivers.agent import Presence as Presence
    from .drivers.agent import StoredSession as StoredSession
    from .errors import AgentRefused as AgentRefused
    from .errors import AlreadyAnswered as AlreadyAnswered
    from .errors import BadRequest as BadRequest
    from .errors import ConnectionLost as ConnectionLost
    from .errors import LaunchError as LaunchError
    from .errors import MessageTooLarge as MessageTooLarge
    from .errors import NotAllowed as NotAllowed
    from .errors import NotInstalled as NotInstalled
    from .errors import NotSignedIn as NotSignedIn
    from .errors import NotSupported as NotSupported
    from .errors import PolicyError as PolicyError
    from .errors import ProcessExited as ProcessExited
    from .errors import ProtocolError as ProtocolError
    from .errors import ServiceError as ServiceError
    from .errors import SessionEnded as SessionEnded
    from .errors import SessionNotFound as SessionNotFound
    from .errors import StagedoorError as StagedoorError
    from .errors import TransportError as TransportError
    from .errors import UnsupportedVersion as UnsupportedVersion
    from .mcp.functions import Image as Image
    from .mcp.functions import Tool as Tool
    from .mcp.functions import ToolContext as ToolContext
    from .mcp.functions import tool as tool
    from .parallel import Tagged as Tagged
    from .parallel import run_parallel as run_parallel
    from .remote import Remote as Remote
    from .remote import RemoteSession as RemoteSession
    from .remote import connect as connect
    from .session import Session as Session
    from .unified.capabilities import Capabilities as Capabilities
    from .unified.decisions import Allow as Allow
    from .unified.decisions import Deny as Deny
    from .unified.events import Done as Done
    from .unified.events import Error as Error
    from .unified.events import Event as Event
    from .unified.events import FileChange as FileChange
    from .unified.events import FilesRestored as FilesRestored
    from .unified.events import Init as Init
    from .unified.events import Notice as Notice
    from .unified.events import PermissionRequest as PermissionRequest
    from .unified.events import PermissionResolved as PermissionResolved
    from .unified.events import Plan as Plan
    from .unified.events import PlanItem as PlanItem
    from .unified.events import Retry as Retry
    from .unified.events import ShownImage as ShownImage
    from .unified.events import Text as Text
    from .unified.events import TextDelta as TextDelta
    from .unified.events import Thinking as Thinking
    from .unified.events import ThinkingDelta as ThinkingDelta
    from .unified.events import ToolProgress as ToolProgress
    from .unified.events import ToolResult as ToolResult
    from .unified.events import ToolUse as ToolUse
    from .unified.events import TurnCompleted as TurnCompleted
    from .unified.events import TurnStarted as TurnStarted
    from .unified.events import Unrecognized as Unrecognized
    from .unified.events import Usage as Usage
    from .unified.events import UsageReport as UsageReport
    from .unified.options import McpServer as McpServer
    from .unified.options import OpenOptions as OpenOptions
    from .unified.options import Options as Options

__version__ = "0.1.0"

_HOMES: dict[str, tuple[str, ...]] = {
    "api": ("Result", "Task", "discover", "history", "open", "result", "run", "run_sync"),
    "buffer": ("BufferOverflow", "EventBuffer"),
    "cancel": ("CancelToken",),
    "drivers.acp.definition": ("AcpAgent",),
    "drivers.agent": ("Presence", "StoredSession"),
    "errors": (
        "AgentRefused", "AlreadyAnswered", "BadRequest", "ConnectionLost", "LaunchError", "MessageTooLarge",
        "NotAllowed", "NotInstalled", "NotSignedIn", "NotSupported", "StagedoorError", "PolicyError", "ProcessExited",
        "ProtocolError", "ServiceError", "SessionEnded", "SessionNotFound", "TransportError", "UnsupportedVersion",
    ),
    "mcp.functions": ("Image", "Tool", "ToolContext", "tool"),
    "parallel": ("Tagged", "run_parallel"),
    "remote": ("Remote", "RemoteSession", "connect"),
    "session": ("Session",),
    "unified.capabilities": ("Capabilities",),
    "unified.decisions": ("Allow", "Deny"),
    "unified.events": (
        "Done", "Error", "Event", "FileChange", "FilesRestored", "Init", "Notice", "PermissionRequest",
        "PermissionResolved", "Plan", "PlanItem", "Retry", "ShownImage", "Text", "TextDelta", "Thinking",
        "ThinkingDelta", "ToolProgress", "ToolResult", "ToolUse", "TurnCompleted", "TurnStarted", "Unrecognized",
        "Usage", "UsageReport",
    ),
    "unified.options": ("McpServer", "OpenOptions", "Options"),
}  # fmt: skip
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = ["__version__", *_HOME_OF]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'stagedoor' has no attribute {name!r}")
    value = getattr(import_module(f".{home}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
