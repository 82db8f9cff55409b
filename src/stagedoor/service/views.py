"""What the service knows, as values: the rows of the log, and what the doors show."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self, TypeAlias

import msgspec

from stagedoor.unified.decisions import Decision
from stagedoor.unified.events import Event, PermissionRequest, Status, Usage, encode
from stagedoor.unified.options import Approval, Confine, McpServer, PermissionMode, Sandbox, Tier

State: TypeAlias = Literal["running", "done", "failed", "cancelled"]
Activity: TypeAlias = Literal["starting", "working", "waiting", "idle", "asleep", "ended"]
"""What a session does now: ``waiting`` for an answer, ``idle`` between turns, ``asleep`` with its CLI put away."""
Fate: TypeAlias = Literal["", "open", "kept", "removed"]
"""What became of a session's own worktree: it stands, its work is a commit on the branch, or all of it is gone."""
By: TypeAlias = Literal["day", "agent", "project", "session", "model"]
"""What sums of usage are made by."""
Scope: TypeAlias = Literal["watch", "answer", "run", "admin", "call"]


class Record(msgspec.Struct, frozen=True):
    """One stored event. ``body`` is the canonical JSON, as it goes out."""

    seq: int
    at: int
    type: str
    body: bytes

    @classmethod
    def of(cls, event: Event) -> Record:
        return cls(event.seq, event.timestamp, str(event.__struct_config__.tag), encode(event))


class AttachedFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file that goes with a prompt: a picture where the agent takes them, else text. ``content`` is base64."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    content: str


class SessionSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What a client asks of a new session. ``agent`` empty: the server's default; ``cwd`` wins over ``project_id``."""

    prompt: str
    agent: str = ""
    project_id: str = ""
    cwd: str = ""
    title: str = ""
    model: str | None = None
    effort: str | None = None
    """How much the model thinks, by the agent's own word for it."""
    mode: str | None = None
    """The agent's own mode, where the tier does not decide it."""
    driver: str | None = None
    tier: Tier | None = None
    approval: Approval | PermissionMode | None = None
    sandbox: Sandbox | None = None
    confine: Confine | None = None
    """A sandbox of ours around the agent; never less than what the server's configuration says."""
    trust: bool | None = None
    """Whether the project's own settings, hooks and tool servers take part. Left out: what is recorded."""
    container: str = ""
    """A container the agent's program makes around itself, where it can: ``docker``, ``podman``."""
    max_turns: int | None = None
    max_budget_usd: float | None = None
    allowed_tools: tuple[str, ...] | None = None
    disallowed_tools: tuple[str, ...] = ()
    auto_approve: tuple[str, ...] = ()
    """Tools that are allowed without a question, beside those of the server's configuration."""
    only_refusing: bool = False
    """Of the server's policy and approved tools only what refuses or asks counts, as at a terminal of one's own."""
    protected: tuple[str, ...] = ()
    """Patterns of files that are asked about before they are written, beside the server's own."""
    system_prompt: str | None = None
    append_system_prompt: str | None = None
    output_schema: dict[str, Any] | None = None
    mcp_servers: dict[str, McpServer] = {}
    timeout: float | None = None
    permission_timeout: float | None = None
    keep_open: bool = False
    """False: the session ends when its prompt (and what was queued behind it) is done. True: it waits for more."""
    group: str = ""
    worktree: bool = False
    """Run in a git worktree of its own, on a new branch."""
    from_branch: str = ""
    """With ``worktree``: the branch that the new one begins at. Empty: what is checked out in ``cwd``."""
    attachments: tuple[AttachedFile, ...] = ()
    """Files that go with the prompt."""
    needs: tuple[str, ...] = ()
    """Labels that the machine must have, where there are several."""
    place: str = ""
    """``host:NAME``: on that machine. ``git:ADDRESS@REF``: in a clone of that repository, on any machine that may bring
    it. Empty: in a folder, on any machine that has what it needs."""


class SessionView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One session as the log knows it."""

    id: str
    agent: str
    cwd: str
    state: State = "running"
    activity: Activity = "starting"
    title: str = ""
    prompt: str = ""
    project_id: str = ""
    model: str = ""
    driver: str = ""
    tier: Tier = "supervised"
    approval: Approval | None = None
    sandbox: Sandbox | None = None
    confine: Confine = "off"
    native_id: str = ""
    agent_version: str = ""
    parent_id: str | None = None
    parent: str = ""
    """The session whose model started this one; ``parent_id`` is the one that this one continues."""
    caller: str = ""
    """The device whose model started it, through the MCP door."""
    forked: bool = False
    imported: bool = False
    keep_open: bool = False
    archived: bool = False
    group: str = ""
    branch: str = ""
    worktree: Fate = ""
    base: str = ""
    """The commit the workspace stood at when the session began; what has changed since is told against it."""
    created_at: int = 0
    updated_at: int = 0
    first_seq: int = 1
    last_seq: int = 0
    turn: int = 0
    turn_seq: int = 0
    """Where the last turn began."""
    status: Status | None = None
    """How the last turn ended, and in the end the session."""
    result: str = ""
    error: str = ""
    usage: Usage = Usage()
    cost_usd: float | None = None
    tool_uses: int = 0
    messages: int = 0
    """Prompts and the agent's own messages; what its sub-agents say does not count."""
    lines_added: int = 0
    lines_removed: int = 0
    """By all edits that were told, one after the other; what is left of them is in the diff."""
    open_questions: int = 0
    queued: int = 0
    queue_paused: bool = False
    """A person stopped the turn: what is queued waits until somebody sends a message or says so."""
    spec: SessionSpec | None = msgspec.field(default=None, name="wanted")
    """What was asked for."""
    worker: str = ""
    """The id of the worker that runs it, or ran it last; empty while nobody does."""
    epoch: int = 0
    """Of its owner: a new one with each change of hands, and none is ever given twice."""
    needs: tuple[str, ...] = ()
    """The labels that a worker must have to run it."""
    place: str = ""
    """Where its files are: ``host:NAME``, or ``git:ADDRESS@REF``; empty: wherever it was started."""

    @property
    def ended(self) -> bool:
        return self.activity == "ended"


class Question(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A permission request as a row: open until it is answered, once, by somebody or by time."""

    id: str
    session_id: str
    agent: str
    request: PermissionRequest
    asked_at: int
    expires_at: int | None = None
    open: bool = True
    rearmed: bool = False
    """The server stopped while it waited: an answer now wakes the session and counts there."""
    decision: Decision | None = None
    by: str = ""
    who: str = ""
    """The device or person that answered."""
    answer_id: str = ""
    """Of the answer: it follows from the ``Idempotency-Key`` it came with."""
    message: str = ""
    resolved_at: int | None = None
    applied: bool = False
    """The agent has been told."""


class WorkerRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A process that runs sessions: who it is, what it can run, and until when it holds what it holds."""

    id: str
    name: str = ""
    incarnation: str
    """New at each start of the process: what an older one held is free at once."""
    until: int
    """When its lease ends, in milliseconds; it is renewed long before."""
    labels: tuple[str, ...] = ()
    seats: int = 0
    version: str = ""
    draining: bool = False
    """It takes nothing new."""
    revoked: bool = False
    """It may not come back under this id."""
    enrolled: bool = True
    """Somebody at a door has let it in; one that is not is refused like one that was revoked."""
    seen_at: int = 0


class OneTimeCode(msgspec.Struct, frozen=True, kw_only=True):
    """Lets somebody in, once: a device with ``scope``, or a worker. Only the digest of the code is kept."""

    digest: bytes
    scope: Scope | Literal["worker"]
    name: str = ""
    by: str = ""
    """The device that has made it."""
    dialect: str = ""


class Command(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Something that a door wants of the owner of a session, or of a worker. ``body`` and ``outcome`` are JSON."""

    id: str
    kind: str
    session_id: str = ""
    worker: str = ""
    """For what is wanted of a machine and not of a session's life: its files, its git."""
    body: bytes = b""
    key: str = ""
    """Of the request it comes from, if that had one: the same key finds the same command again, at any door."""
    who: str = ""
    at: int = 0
    taken_epoch: int = 0
    """The life of the session in which it was begun: it is begun once, whatever happens then."""
    done: bool = False
    outcome: bytes = b""


class Carried(msgspec.Struct, frozen=True, kw_only=True):
    """What a session that may go on elsewhere needs there: how its files and its agent's transcript stood after
    ``turn`` (``body``, see ``machines.carrying``)."""

    session_id: str
    turn: int
    at: int
    body: bytes


class NoticeRow(msgspec.Struct, frozen=True, kw_only=True):
    """Something to be told to receivers (``notify.notices``), by whoever can reach them."""

    id: str
    session_id: str
    at: int
    body: bytes
    taken: tuple[str, ...] = ()
    """Receivers that were told, or are being told by somebody; given by the store."""


class PolicyRules(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The rules that an answer for good adds to a policy ``file``, as they are written there."""

    file: str
    rules: tuple[dict[str, Any], ...] = ()


class QueuedPrompt(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A follow-up prompt: accepted, then sent when the turn before it is over."""

    id: str
    session_id: str
    prompt: str
    at: int
    state: Literal["queued", "sent", "dropped"] = "queued"
    taken_epoch: int = 0
    """The life of the session in which it went to the agent: it goes there once, whatever becomes of that life."""
    who: str = ""
    images: tuple[str, ...] = ()
    """Pictures that go with it: files of the server's own."""


class TurnUsage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What one turn used, for sums by day, agent, project and session."""

    session_id: str
    turn: int
    at: int
    agent: str
    project: str
    model: str = ""
    usage: Usage = Usage()


class UsageSum(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``key``: a day (``2026-11-15``), or the name of an agent, project, session or model."""

    key: str = ""
    sessions: int = 0
    turns: int = 0
    usage: Usage = Usage()


class Device(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Somebody who may come in. Only the hash of the token is kept."""

    id: str
    name: str
    scopes: tuple[Scope, ...]
    token_hash: str
    created_at: int
    seen_at: int = 0
    revoked_at: int | None = None
    dialect: str = ""
    """What its streams speak where the request does not say; empty: what the server speaks."""


class IdempotentReply(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a request with an idempotency key was answered with."""

    key: str
    fingerprint: str
    status: int
    body: bytes
    at: int


class FollowVerdict(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The first word to a follower: ``ok``, or ``gap`` with what retention has removed."""

    verdict: Literal["ok", "gap"] = "ok"
    session_id: str = ""
    after: int = 0
    last_seq: int = 0
    missing_from: int | None = None
    missing_to: int | None = None

    @classmethod
    def of(cls, view: SessionView, after: int) -> Self:
        """Whether everything after ``after`` can be read."""
        if after + 1 >= view.first_seq:
            return cls(session_id=view.id, after=after, last_seq=view.last_seq)
        return cls(
            verdict="gap",
            session_id=view.id,
            after=after,
            last_seq=view.last_seq,
            missing_from=after + 1,
            missing_to=view.first_seq - 1,
        )


class VerdictMessage(FollowVerdict, frozen=True, kw_only=True, rename="camel", tag="verdict", tag_field="type"):
    """A verdict as a message of a stream."""
