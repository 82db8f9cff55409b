"""The params of the methods: by name, in camelCase (snake_case works too)."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from stagedoor.service.views import State
from stagedoor.unified.events import Remember
from stagedoor.unified.options import Approval, Confine, McpServer, PermissionMode, Tier

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
PageSize: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=1000)]
Dialect: TypeAlias = Literal["stagedoor", "ues", "lifecycle", "board", "notify", "chat"]
Watched: TypeAlias = Literal["git", "files"]
Unset: TypeAlias = msgspec.UnsetType


class RpcParams(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Params by name. An unknown name is refused: else it would silently have no effect."""


class NoParams(RpcParams, frozen=True, kw_only=True):
    pass


class SelectParams(RpcParams, frozen=True, kw_only=True):
    type: str


class ConfigureParams(RpcParams, frozen=True, kw_only=True):
    """A value replaces, ``null`` clears, what is left out stays. It applies to the selected agent."""

    sandbox: str | Unset | None = msgspec.UNSET
    model: str | Unset | None = msgspec.UNSET
    auto_approve: tuple[str, ...] | Unset | None = msgspec.UNSET
    tier: Tier | Unset | None = msgspec.UNSET
    approval: Approval | PermissionMode | Unset | None = msgspec.UNSET


class RpcRunOptions(RpcParams, frozen=True, kw_only=True):
    sandbox: str | None = None
    confine: Confine | None = None
    model: str | None = None
    effort: str | None = None
    mode: str | None = None
    allowed_tools: tuple[str, ...] | None = None
    disallowed_tools: tuple[str, ...] = ()
    auto_approve: tuple[str, ...] | None = None
    protected: tuple[str, ...] = ()
    tier: Tier | None = None
    approval: Approval | PermissionMode | None = None
    trust: bool | None = None
    driver: str | None = None
    max_turns: Annotated[int, msgspec.Meta(ge=1, le=1000)] | None = None
    max_budget_usd: Annotated[float, msgspec.Meta(gt=0)] | None = None
    system_prompt: str | None = None
    append_system_prompt: str | None = None
    output_schema: dict[str, Any] | None = None
    mcp_servers: dict[str, McpServer] = {}
    timeout: Annotated[float, msgspec.Meta(gt=0)] | None = None
    permission_timeout: Annotated[float, msgspec.Meta(gt=0)] | None = None
    worktree: bool = False
    from_branch: str = ""


class RunParams(RpcParams, frozen=True, kw_only=True):
    """``continue`` continues ``sessionId``, else the session this client ran last. ``last`` is the agent's newest
    one in the folder, whoever ran it. ``needs`` and ``place`` say where a new one runs: labels of the machine,
    ``host:NAME`` or ``git:ADDRESS@REF``."""

    prompt: str
    mode: Literal["new", "continue"] = "new"
    session_id: str = ""
    type: str = ""
    cwd: str = ""
    project_id: str = ""
    title: str = ""
    group: str = ""
    keep_open: bool = True
    needs: tuple[str, ...] = ()
    place: str = ""
    subscribe: bool = True
    dialect: Dialect = "notify"
    options: RpcRunOptions = RpcRunOptions()


class StopParams(RpcParams, frozen=True, kw_only=True):
    """``turn``: end only the running turn; the session stays."""

    session_id: str = ""
    turn: bool = False


class RespondParams(RpcParams, frozen=True, kw_only=True):
    """``response`` answers what the agent itself asks, and is a yes or a no to a request for permission. ``isError``
    denies; the agent receives ``response``. Without ``toolUseId``: the only question that is open."""

    tool_use_id: str = ""
    response: str = ""
    is_error: bool = False
    session_id: str = ""


class StatusParams(RpcParams, frozen=True, kw_only=True):
    session_id: str = ""


class SessionListParams(RpcParams, frozen=True, kw_only=True):
    """``stored``: also those that the agents' own programs keep and nobody has continued here; they come last."""

    state: State | None = None
    agent: str = ""
    project_id: str = ""
    group: str = ""
    search: str = ""
    archived: bool | None = None
    ended: bool | None = None
    stored: bool = True
    cursor: str = ""
    offset: Count = 0
    limit: PageSize = 50


class SessionGetParams(RpcParams, frozen=True, kw_only=True):
    session_id: str


class SettingsParams(RpcParams, frozen=True, kw_only=True):
    """Left out: the session this client ran last."""

    session_id: str = ""


class SetParams(RpcParams, frozen=True, kw_only=True):
    """``id``: of a setting, or ``mode``, ``model``, ``effort``."""

    id: str
    value: str
    session_id: str = ""


class EventsParams(RpcParams, frozen=True, kw_only=True):
    """Events with ``seq > after``. ``offset`` means the same."""

    session_id: str
    after: Count = 0
    offset: Count | None = None
    limit: PageSize = 100
    dialect: Dialect = "stagedoor"


class SendParams(RpcParams, frozen=True, kw_only=True):
    """``steer``: added to the running turn where the agent supports that; else it waits for its own turn."""

    session_id: str
    prompt: str
    steer: bool = False


class SubscribeParams(RpcParams, frozen=True, kw_only=True):
    """One session, from ``after`` on; without ``sessionId`` the changes of all sessions and questions."""

    session_id: str = ""
    after: Count = 0
    dialect: Dialect = "notify"
    watch: tuple[Watched, ...] = ()


class UnsubscribeParams(RpcParams, frozen=True, kw_only=True):
    session_id: str = ""


class ListenParams(RpcParams, frozen=True, kw_only=True):
    """``all``: the events of every session that runs come by themselves, as at the start of a connection.
    ``subscribed``: only those of the sessions this client subscribes to."""

    to: Literal["all", "subscribed"]


class ResumeParams(RpcParams, frozen=True, kw_only=True):
    """``fork``: leave the old session as it is, and continue in a new one. ``sessionId`` ``last``: the newest one of
    an agent (``type``, else the selected one) in a folder."""

    session_id: str
    prompt: str
    type: str = ""
    cwd: str = ""
    project_id: str = ""
    fork: bool = False
    subscribe: bool = True
    dialect: Dialect = "notify"


class UndoParams(RpcParams, frozen=True, kw_only=True):
    """The state before ``turn`` (left out: the last one), or any ``checkpoint``, of all files or of ``paths`` alone."""

    session_id: str = ""
    turn: Annotated[int, msgspec.Meta(ge=1, le=2**53)] | None = None
    checkpoint: str = ""
    paths: tuple[str, ...] = ()


class GitStatusParams(RpcParams, frozen=True, kw_only=True):
    session_id: str = ""


class GitDiffParams(RpcParams, frozen=True, kw_only=True):
    """``path``: only this file or folder."""

    session_id: str = ""
    path: str = ""


class GitPathsParams(RpcParams, frozen=True, kw_only=True):
    """``paths`` are files and folders of the workspace; none: all of it."""

    session_id: str = ""
    paths: tuple[str, ...] = ()


class GitDiscardParams(RpcParams, frozen=True, kw_only=True):
    """``paths`` are files and folders of the workspace. What is not tracked is left alone."""

    paths: tuple[str, ...]
    session_id: str = ""


class GitCommitParams(RpcParams, frozen=True, kw_only=True):
    """``all``: everything that has changed in the workspace, new files too; else what is staged."""

    message: str
    all: bool = False
    session_id: str = ""


class GitCheckoutParams(RpcParams, frozen=True, kw_only=True):
    """``create``: a new branch, which begins at the commit that is checked out."""

    branch: str
    create: bool = False
    session_id: str = ""


class GitPushParams(RpcParams, frozen=True, kw_only=True):
    """Left out: the branch that is checked out, to the remote it follows, else ``origin``."""

    branch: str = ""
    remote: str = ""
    session_id: str = ""


class FileListParams(RpcParams, frozen=True, kw_only=True):
    session_id: str = ""
    path: str = ""


class FileReadParams(RpcParams, frozen=True, kw_only=True):
    """Lines count from 1; without them the whole file."""

    path: str
    session_id: str = ""
    first_line: Annotated[int, msgspec.Meta(ge=1, le=2**53)] | None = None
    last_line: Annotated[int, msgspec.Meta(ge=1, le=2**53)] | None = None


class PermissionListParams(RpcParams, frozen=True, kw_only=True):
    """The oldest first; ``open: false`` also returns the answered ones."""

    session_id: str = ""
    open: bool = True
    offset: Count = 0
    limit: PageSize = 500


class PermissionAnswerParams(RpcParams, frozen=True, kw_only=True):
    """Name the question by ``id``, or by ``sessionId`` and ``requestId``. ``answer`` is the text that answers what the
    agent itself asks."""

    decision: Literal["allow", "deny"]
    id: str = ""
    session_id: str = ""
    request_id: str = ""
    remember: Remember = "once"
    updated_input: dict[str, Any] | None = None
    answer: str | None = None
    message: str = ""
    interrupt: bool = False
