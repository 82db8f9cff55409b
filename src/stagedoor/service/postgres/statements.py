"""Changes as statements: what has gathered is put with a few of them, whatever number of sessions it is about.

The one that matters (``WRITE``) takes arrays. It moves the heads of all its sessions on, each only if it has the epoch
and the last number that the writer knows of, puts records and rows, and fails as a whole unless every head has moved.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, TypeAlias, assert_never

import msgspec
from msgspec.structs import replace

from stagedoor.errors import Fenced, SequenceConflict

from ..store import Append, Change, CommandDone, ConfigChange, Fence, Forget, Remember, Secret, Sweep, Trim
from ..views import (
    Carried,
    Command,
    Device,
    IdempotentReply,
    NoticeRow,
    Question,
    QueuedPrompt,
    SessionView,
    TurnUsage,
)
from .selection import grams, searchable, text_of
from .usage import put_turns

if TYPE_CHECKING:
    from .connections import EngineConnection

_json = msgspec.json.encode
_view = msgspec.json.Decoder(SessionView).decode
REMEMBERED = 10_000
MANY = 400
"""Records that are worth a COPY of their own: it takes half as long for each, and three more messages."""
_RECORDS = ("session", "epoch", "seq", "at", "type", "body")
NARROW = ("state", "ended", "archived", "agent", "project", "grouped", "native", "cwd", "created")
_KINDS = {"ended": "boolean", "archived": "boolean", "created": "bigint"}
_narrow = ", ".join(NARROW)
_narrow_types = ", ".join(f"${12 + at}::{_KINDS.get(name, 'text')}[]" for at, name in enumerate(NARROW, 5))
_NEEDS = "ARRAY(SELECT json_array_elements_text(s.needs::json))"
_APPENDING = """
WITH mine AS (UPDATE writers SET n=$3 WHERE id=$1 AND life=$2 RETURNING 1),
moves AS MATERIALIZED (
  SELECT * FROM unnest($4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[], $10::text[])
  AS moves(session, epoch, expected, last, at, new_epoch, new_worker)
),
moved AS (
  UPDATE heads SET last=CASE WHEN moves.expected<0 THEN heads.last ELSE moves.last END,
    at=CASE WHEN moves.expected<0 THEN heads.at ELSE moves.at END,
    epoch=CASE WHEN heads.epoch<0 THEN moves.new_epoch ELSE heads.epoch END,
    worker=CASE WHEN heads.epoch<0 THEN moves.new_worker ELSE heads.worker END
  FROM moves WHERE heads.session=moves.session AND (moves.epoch>=0 OR moves.expected>0)
    AND (moves.epoch<0 OR heads.epoch=moves.epoch) AND (moves.expected<0 OR heads.last=moves.expected)
  RETURNING 1
),
begun AS (
  INSERT INTO heads(session, epoch, worker, last, at)
  SELECT session, new_epoch, new_worker, last, at FROM moves WHERE epoch<0 AND expected<=0
  ON CONFLICT(session) DO UPDATE SET last=CASE WHEN excluded.last=0 THEN heads.last ELSE excluded.last END,
    at=CASE WHEN excluded.last=0 THEN heads.at ELSE excluded.at END,
    epoch=CASE WHEN heads.epoch<0 THEN excluded.epoch ELSE heads.epoch END,
    worker=CASE WHEN heads.epoch<0 THEN excluded.worker ELSE heads.worker END
  WHERE excluded.last=0 OR heads.last=0
  RETURNING 1
),
appended AS (
  INSERT INTO records(session, epoch, seq, at, type, body)
  SELECT * FROM unnest($11::text[], $12::bigint[], $13::bigint[], $14::bigint[], $15::text[], $16::bytea[])
)"""
_PUTTING = f"""lifted AS (
  UPDATE epochs SET last=highest.epoch FROM (
    SELECT max(new_epoch) AS epoch FROM moves
    WHERE new_epoch>0 AND NOT EXISTS(SELECT FROM heads WHERE heads.session=moves.session AND heads.epoch>=0)
  ) AS highest WHERE highest.epoch>epochs.last
),
s AS MATERIALIZED (
  SELECT * FROM unnest({_narrow_types}, $26::text[], $27::text[], $28::bigint[], $29::bigint[], $30::bigint[],
    $31::bigint[], $32::bytea[], $33::bytea[])
  AS s({_narrow}, id, needs, updated, first, last, removable, words, body)
),
narrow AS (
  INSERT INTO sessions(id, needs, {_narrow}) SELECT s.id, {_NEEDS}, {", ".join(f"s.{name}" for name in NARROW)} FROM s
  WHERE NOT EXISTS(
    SELECT FROM sessions AS stored WHERE stored.id=s.id AND stored.needs={_NEEDS}
    AND ({", ".join(f"stored.{name}" for name in NARROW)})=({", ".join(f"s.{name}" for name in NARROW)})
  )
  ON CONFLICT(id) DO UPDATE SET needs=excluded.needs, {", ".join(f"{name}=excluded.{name}" for name in NARROW)}
),
wide AS (
  INSERT INTO views(id, updated, first, last, removable, words, body)
  SELECT id, updated, first, last, removable, '', body FROM s
  ON CONFLICT(id) DO UPDATE SET updated=excluded.updated, first=excluded.first, last=excluded.last,
    removable=excluded.removable, body=excluded.body
  RETURNING id, words
)"""
_FOLLOWS = """(SELECT count(*) FROM mine)=1
    AND (SELECT count(*) FROM moved)+(SELECT count(*) FROM begun)=(SELECT count(*) FROM moves)"""
APPEND = f"{_APPENDING} SELECT CASE WHEN {_FOLLOWS} THEN true ELSE refuse() END"
WRITE = f"""{_APPENDING},
{_PUTTING}
SELECT CASE WHEN {_FOLLOWS}
  THEN ARRAY(SELECT wide.id FROM wide JOIN s USING(id) WHERE wide.words<>s.words)
  ELSE CASE WHEN refuse() THEN '{{}}'::text[] END END
"""
"""``APPEND`` is the first half of it, for the many writes that put no row of a session."""
_QUESTIONS = """
INSERT INTO questions SELECT * FROM unnest($1::text[], $2::text[], $3::boolean[], $4::bigint[], $5::bytea[])
ON CONFLICT(id) DO UPDATE SET session=excluded.session, open=excluded.open, asked=excluded.asked, body=excluded.body
"""
_MESSAGES = """
INSERT INTO messages SELECT * FROM unnest($1::text[], $2::text[], $3::boolean[], $4::bigint[], $5::bytea[])
ON CONFLICT(id) DO UPDATE SET session=excluded.session, queued=excluded.queued, at=excluded.at, body=excluded.body
"""
_CARRIED = """
INSERT INTO carried SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bytea[])
ON CONFLICT(session) DO UPDATE SET turn=excluded.turn, at=excluded.at, body=excluded.body
"""
_DEVICES = """
INSERT INTO devices SELECT * FROM unnest($1::text[], $2::bytea[]) ON CONFLICT(id) DO UPDATE SET body=excluded.body
WHERE position('"revokedAt":null' in convert_from(devices.body, 'UTF8'))>0
OR position('"revokedAt":null' in convert_from(excluded.body, 'UTF8'))=0
"""
"""Nobody takes back that one was revoked: a door that has not heard of it may put it as it was."""
_REPLIES = """
INSERT INTO done SELECT * FROM unnest($1::text[], $2::bigint[], $3::bytea[])
ON CONFLICT(key) DO UPDATE SET at=excluded.at, body=excluded.body
"""
_SETTINGS = """
INSERT INTO settings SELECT * FROM unnest($1::text[], $2::bytea[]) ON CONFLICT(name) DO UPDATE SET value=excluded.value
"""
_NOTICES = """
INSERT INTO notices SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bytea[]) ON CONFLICT DO NOTHING
"""
_REMOVE_SECRET = "DELETE FROM secrets WHERE name=$1 AND value=coalesce($2::bytea, value)"
_SECRETS = {
    True: "INSERT INTO secrets VALUES($1,$2) ON CONFLICT DO NOTHING",
    False: "INSERT INTO secrets VALUES($1,$2) ON CONFLICT(name) DO UPDATE SET value=excluded.value",
}
ADD_COMMAND = """
INSERT INTO commands(id, kind, session, worker, body, key, who, at, taken, done, outcome)
VALUES($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11) ON CONFLICT DO NOTHING
"""
_COMMAND_DONE = "UPDATE commands SET done=true, outcome=$2 WHERE id=$1 AND NOT done"
_WORDS = "INSERT INTO words VALUES($1,$2,$3) ON CONFLICT(id) DO UPDATE SET text=excluded.text, grams=excluded.grams"
_TRIM_RECORDS = """
DELETE FROM records USING unnest($1::text[], $2::bigint[]) AS trimmed(session, first)
WHERE records.session=trimmed.session AND records.seq<trimmed.first
"""
_TRIM_VIEWS = """
UPDATE views SET first=trimmed.first, removable=CASE WHEN trimmed.first<last THEN removable END, body=trimmed.body
FROM unnest($1::text[], $2::bigint[], $3::bytea[]) AS trimmed(id, first, body) WHERE views.id=trimmed.id
"""

Hard: TypeAlias = Forget | Sweep


def command_values(command: Command) -> tuple[Any, ...]:
    return (
        text_of(command.id), text_of(command.kind), text_of(command.session_id), text_of(command.worker), command.body,
        text_of(command.key), text_of(command.who), command.at, command.taken_epoch, command.done, command.outcome,
    )  # fmt: skip


class Move:
    """What is to happen to the head of one session."""

    __slots__ = ("at", "epoch", "expected", "last", "new_epoch", "new_worker")

    def __init__(self) -> None:
        self.epoch = -1
        self.expected = -1
        self.last = 0
        self.at = 0
        self.new_epoch = -1
        self.new_worker = ""


class SearchedTexts:
    """What each session was searched by when it was last put from here: most puts change nothing of that."""

    def __init__(self) -> None:
        self._texts: dict[str, tuple[tuple[str, ...], bytes]] = {}

    def digest(self, view: SessionView) -> tuple[bytes, bool]:
        """Of the texts, and whether they are the ones put last."""
        texts = (view.title, view.prompt, view.result, view.cwd)
        before = self._texts.get(view.id)
        if before is not None and before[0] == texts:
            return before[1], True
        digest = blake2b("\0".join(texts).encode("utf-8", "surrogatepass"), digest_size=16).digest()
        return digest, False

    def put(self, view: SessionView, digest: bytes) -> None:
        if view.ended:
            self._texts.pop(view.id, None)
            return
        if len(self._texts) >= REMEMBERED:
            self._texts.clear()
        self._texts[view.id] = ((view.title, view.prompt, view.result, view.cwd), digest)

    def doubt(self) -> None:
        self._texts.clear()


class WriteStage:
    """Changes of any number of writes that can be put together, in any order."""

    def __init__(self) -> None:
        self.moves: dict[str, Move] = {}
        self.records: tuple[list[str], list[int], list[int], list[int], list[str], list[bytes]] = [], [], [], [], [], []
        self.views: dict[str, SessionView] = {}
        self.rows: dict[str, dict[str, tuple[Any, ...]]] = {}
        self.removed: list[str] = []
        self.secrets: list[Secret] = []
        self.commands: list[Command] = []
        self.outcomes: list[CommandDone] = []
        self.turns: list[TurnUsage] = []
        self.changes: list[bytes] = []
        self.trims: dict[str, int] = {}
        """Up to where the records of sessions are removed, after all of this."""
        self.hard: Hard | None = None
        """What is done after all of this."""
        self.fits = True
        """False: two of them contradict each other; each must be carried out by itself."""

    def _move(self, session_id: str) -> Move:
        move = self.moves.get(session_id)
        if move is None:
            move = self.moves[session_id] = Move()
        return move

    def add(self, change: Change) -> None:
        match change:
            case Fence(session_id, epoch):
                move = self._move(text_of(session_id))
                self.fits = self.fits and epoch >= 0 and move.epoch in (-1, epoch)
                move.epoch = epoch
            case Append(session_id, records):
                if records:
                    self._append(text_of(session_id), change)
            case SessionView():
                name = text_of(change.id)
                self.views[name] = change
                move = self._move(name)
                if move.new_epoch < 0:
                    move.new_epoch, move.new_worker = max(change.epoch, 0), text_of(change.worker)
            case Question():
                row = (text_of(change.session_id), change.open, change.asked_at, _json(change))
                self._put(_QUESTIONS, change.id, row)
            case QueuedPrompt():
                row = (text_of(change.session_id), change.state == "queued", change.at, _json(change))
                self._put(_MESSAGES, change.id, row)
            case Carried():
                self._put(_CARRIED, change.session_id, (change.turn, change.at, change.body))
            case Device():
                self._put(_DEVICES, change.id, (_json(change),))
            case IdempotentReply():
                self._put(_REPLIES, change.key, (change.at, _json(change)))
            case Remember(name, None):
                self.rows.get(_SETTINGS, {}).pop(text_of(name), None)
                self.removed.append(text_of(name))
            case Remember(name, value):
                if (name := text_of(name)) in self.removed:
                    self.removed.remove(name)
                self._put(_SETTINGS, name, (value,))
            case NoticeRow():
                self._put(_NOTICES, change.id, (text_of(change.session_id), change.at, change.body))
            case Secret():
                self.secrets.append(change)
            case Command():
                self.commands.append(change)
            case CommandDone():
                self.outcomes.append(change)
            case TurnUsage():
                self.turns.append(change)
            case ConfigChange():
                self.changes.append(_json(change))
            case Trim(session_id, seq):
                name = text_of(session_id)
                self.trims[name] = max(seq, self.trims.get(name, 0))
            case Forget() | Sweep():
                self.hard = change
            case _:
                assert_never(change)

    def _put(self, statement: str, key: str, values: tuple[Any, ...]) -> None:
        self.rows.setdefault(statement, {})[text_of(key)] = values

    def _append(self, session_id: str, append: Append) -> None:
        move = self._move(session_id)
        records = append.records
        first = records[0].seq
        if move.expected < 0:
            move.expected = first - 1
        elif move.last != first - 1:
            self.fits = False
        if move.expected < 0:
            self.fits = False
        numbers = range(first, first + len(records))
        if [record.seq for record in records] != list(numbers):
            self.fits = False
            return
        sessions, epochs, seqs, ats, types, bodies = self.records
        sessions += [session_id] * len(records)
        epochs += [max(move.epoch, 0)] * len(records)
        seqs += numbers
        ats += [record.at for record in records]
        types += [text_of(record.type) for record in records]
        bodies += [record.body for record in records]
        move.last, move.at = numbers[-1], records[-1].at

    @property
    def is_plain(self) -> bool:
        """One statement carries it out."""
        return not (
            self.has_many
            or self.trims
            or self.hard
            or self.rows
            or self.removed
            or self.secrets
            or self.commands
            or self.outcomes
            or self.turns
            or self.changes
        )

    @property
    def has_many(self) -> bool:
        return len(self.records[0]) >= MANY

    def is_familiar(self, texts: SearchedTexts) -> bool:
        """Nothing that is searched in has changed."""
        return all(texts.digest(view)[1] for view in self.views.values())

    async def write(self, db: EngineConnection, texts: SearchedTexts, writer: tuple[str, int, int]) -> list[str]:
        """Heads, records and sessions. Returns those whose words must be put as well."""
        moves = sorted(self.moves.items())
        views = sorted(self.views.items())
        digests = [texts.digest(view)[0] for _, view in views]
        heads: tuple[Any, ...] = (
            *writer,
            [name for name, _ in moves],
            *([getattr(move, field) for _, move in moves] for field in ("epoch", "expected", "last", "at")),
            [move.new_epoch for _, move in moves],
            [move.new_worker for _, move in moves],
            *([[]] * len(_RECORDS) if self.has_many else self.records),
        )
        if not views:
            await db.fetchval(APPEND, *heads)
            return []
        found = await db.fetchval(
            WRITE,
            *heads,
            [view.state for _, view in views],
            [view.ended for _, view in views],
            [view.archived for _, view in views],
            [text_of(view.agent) for _, view in views],
            [text_of(view.project_id) for _, view in views],
            [text_of(view.group) for _, view in views],
            [text_of(view.native_id) for _, view in views],
            [text_of(view.cwd) for _, view in views],
            [view.created_at for _, view in views],
            [name for name, _ in views],
            [_json([text_of(need) for need in view.needs]).decode() for _, view in views],
            [view.updated_at for _, view in views],
            [view.first_seq for _, view in views],
            [view.last_seq for _, view in views],
            [_removable(view) for _, view in views],
            digests,
            [_json(view) for _, view in views],
        )
        return list(found)

    async def write_words(self, db: EngineConnection, texts: SearchedTexts, names: list[str]) -> None:
        if names:
            views = [self.views[name] for name in names]
            rows = [(name, words := searchable(view), grams(words)) for name, view in zip(names, views, strict=True)]
            await db.executemany(_WORDS, rows)
            digests = [texts.digest(view)[0] for view in views]
            await db.executemany("UPDATE views SET words=$2 WHERE id=$1", list(zip(names, digests, strict=True)))

    async def write_rows(self, db: EngineConnection) -> None:
        """All the rest, inside a transaction."""
        if self.has_many:
            copied = zip(*self.records, strict=True)
            await db.copy_records_to_table("records", records=copied, columns=_RECORDS)
        for statement, rows in self.rows.items():
            ordered = sorted(rows.items())
            columns = zip(*(values for _, values in ordered), strict=True)
            if ordered:
                await db.execute(statement, [key for key, _ in ordered], *map(list, columns))
        if self.removed:
            await db.execute("DELETE FROM settings WHERE name=ANY($1::text[])", self.removed)
        for secret in self.secrets:
            if secret.value is None:
                await db.execute(_REMOVE_SECRET, text_of(secret.name), secret.stored)
            else:
                await db.execute(_SECRETS[secret.first], text_of(secret.name), secret.value)
        if self.commands:
            await db.executemany(ADD_COMMAND, [command_values(command) for command in self.commands])
        if self.outcomes:
            rows_done = [(text_of(one.command_id), one.outcome) for one in self.outcomes]
            await db.executemany(_COMMAND_DONE, rows_done)
        if self.turns:
            await put_turns(db, self.turns)
        if self.changes:
            await db.executemany("INSERT INTO config_changes(body) VALUES($1)", [(body,) for body in self.changes])
        if self.trims:
            await _trim(db, self.trims)
        match self.hard:
            case Sweep(before, kinds) if kinds:
                await db.execute("DELETE FROM commands WHERE at<$1 AND kind=ANY($2::text[])", before, list(kinds))
            case Sweep(before):
                await db.execute("DELETE FROM done WHERE at<$1", before)
                await db.execute("DELETE FROM commands WHERE done AND at<$1", before)
                await db.execute("DELETE FROM notices WHERE at<$1", before)
            case Forget(session_id):
                await _forget(db, text_of(session_id))
            case None:
                pass
            case _:
                assert_never(self.hard)

    def stored(self, texts: SearchedTexts) -> None:
        """All of it is committed."""
        for view in self.views.values():
            texts.put(view, texts.digest(view)[0])


def stages_of(writes: Iterable[Iterable[Change]]) -> list[WriteStage]:
    """What can be put together is; what removes something stands between. What is only made shorter goes together."""
    stages = [WriteStage()]
    for changes in writes:
        for change in changes:
            if stages[-1].hard is not None or (stages[-1].trims and not isinstance(change, Trim)):
                stages.append(WriteStage())
            stages[-1].add(change)
    return stages


def _removable(view: SessionView) -> int | None:
    return view.updated_at if view.ended and view.first_seq < view.last_seq else None


async def _trim(db: EngineConnection, trims: Mapping[str, int]) -> None:
    """In the order of their names, as everywhere: whoever locks several rows waits for nobody who waits for it."""
    heads = await db.fetch(
        "SELECT session, last FROM heads WHERE session=ANY($1) ORDER BY session FOR UPDATE", [*trims]
    )
    first = {name: min(trims[name], last) for name, last in heads}
    await db.execute(_TRIM_RECORDS, [*first], [*first.values()])
    await db.execute("DELETE FROM carried WHERE session=ANY($1)", [*first])
    views = await db.fetch("SELECT id, body FROM views WHERE id=ANY($1) ORDER BY id FOR UPDATE", [*first])
    shorter = {name: view for name, body in views if first[name] > (view := _view(body)).first_seq}
    bodies = [_json(replace(view, first_seq=first[name])) for name, view in shorter.items()]
    await db.execute(_TRIM_VIEWS, [*shorter], [first[name] for name in shorter], bodies)


async def _forget(db: EngineConnection, session_id: str) -> None:
    await db.execute("DELETE FROM heads WHERE session=$1", session_id)
    for table in ("records", "questions", "messages", "commands", "carried", "notices"):
        await db.execute(f"DELETE FROM {table} WHERE session=$1", session_id)
    for table in ("words", "views", "sessions"):
        await db.execute(f"DELETE FROM {table} WHERE id=$1", session_id)


async def reason(db: EngineConnection, changes: Iterable[Change]) -> Fenced | SequenceConflict | None:
    """Why they were refused, as it stands now; ``None`` when nothing speaks against them any more."""
    heads: dict[str, tuple[int, int]] = {}

    async def head(name: str) -> tuple[int, int]:
        if name not in heads:
            row = await db.fetchrow("SELECT epoch, last FROM heads WHERE session=$1", text_of(name))
            heads[name] = (-1, 0) if row is None else (row["epoch"], row["last"])
        return heads[name]

    for change in changes:
        match change:
            case Fence(name, epoch):
                stored = (await head(name))[0]
                if stored != epoch or epoch < 0:
                    return Fenced(
                        f"session {name} is at epoch {stored}, not {epoch}: another worker has it, or it is gone; "
                        "nothing was stored"
                    )
            case Append(name, records):
                epoch, seq = await head(name)
                for record in records:
                    seq += 1
                    if record.seq != seq:
                        return SequenceConflict(
                            f"record {record.seq} of session {name} does not follow: number {seq} is next; "
                            "nothing was stored"
                        )
                heads[name] = (epoch, seq)
            case SessionView():
                epoch, seq = await head(change.id)
                heads[change.id] = (change.epoch if epoch < 0 else epoch, seq)
            case Forget(name):
                heads[name] = (-1, 0)
            case _:
                pass
    return None
