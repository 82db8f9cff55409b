"""The tables in PostgreSQL, and how an older form becomes a newer one while others may be using it.

All of it is in the schema ``stagedoor``. Every step only adds (*expand*): servers and workers of the version before go
on working beside those of this one. What nobody needs any more is removed by a later version (*contract*).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from stagedoor.errors import StoreBroken, StoreTooNew

if TYPE_CHECKING:
    from .connections import EngineConnection

NAME = "stagedoor"
MIGRATING = 0x5374676400000001
"""The advisory lock under which the form is changed: one at a time, the others wait and then find it done."""
USAGE = 0x5374676400000002
"""Shared by whoever adds to sums of usage, taken alone by whoever makes some of them anew."""
OLDEST_SERVER = 140000
REFUSED = "SD001"
"""The error code of a write that does not follow from what is stored."""

_FIRST = """
CREATE TABLE sessions(
  id text COLLATE "C" PRIMARY KEY, state text NOT NULL, ended boolean NOT NULL, archived boolean NOT NULL,
  agent text COLLATE "C" NOT NULL, project text COLLATE "C" NOT NULL, grouped text COLLATE "C" NOT NULL,
  native text COLLATE "C" NOT NULL, cwd text COLLATE "C" NOT NULL, created bigint NOT NULL,
  needs text[] COLLATE "C" NOT NULL
);
CREATE INDEX sessions_by_age ON sessions(created, id);
CREATE INDEX sessions_by_state ON sessions(state, created, id);
CREATE INDEX sessions_by_agent ON sessions(agent, created, id);
CREATE INDEX sessions_by_project ON sessions(project, created, id);
CREATE INDEX sessions_by_folder ON sessions(cwd, created, id);
CREATE INDEX sessions_by_group ON sessions(grouped, created, id) WHERE grouped<>'';
CREATE INDEX sessions_by_native ON sessions(native, agent) WHERE native<>'';
CREATE INDEX sessions_open ON sessions(created, id) WHERE NOT ended;
CREATE INDEX sessions_archived ON sessions(created, id) WHERE archived;
CREATE TABLE views(
  id text COLLATE "C" PRIMARY KEY, updated bigint NOT NULL, first bigint NOT NULL, last bigint NOT NULL,
  removable bigint, words bytea NOT NULL, body bytea NOT NULL
) WITH (fillfactor=60);
CREATE INDEX views_removable ON views(removable, id) WHERE removable IS NOT NULL;
CREATE TABLE words(id text COLLATE "C" PRIMARY KEY, text text COLLATE "C" NOT NULL, grams integer[] NOT NULL);
CREATE INDEX words_by_gram ON words USING gin(grams);
CREATE TABLE heads(
  session text COLLATE "C" PRIMARY KEY, epoch bigint NOT NULL, worker text COLLATE "C" NOT NULL,
  incarnation text COLLATE "C" NOT NULL DEFAULT '', last bigint NOT NULL, at bigint NOT NULL
) WITH (fillfactor=50);
CREATE TABLE epochs(last bigint NOT NULL);
INSERT INTO epochs VALUES(0);
CREATE TABLE workers(
  id text COLLATE "C" PRIMARY KEY, incarnation text COLLATE "C" NOT NULL, until bigint NOT NULL,
  draining boolean NOT NULL, revoked boolean NOT NULL, body bytea NOT NULL
) WITH (fillfactor=50);
CREATE TABLE commands(
  n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id text COLLATE "C" NOT NULL UNIQUE, kind text NOT NULL,
  session text COLLATE "C" NOT NULL, worker text COLLATE "C" NOT NULL, body bytea NOT NULL,
  key text COLLATE "C" NOT NULL, who text NOT NULL, at bigint NOT NULL, taken bigint NOT NULL, done boolean NOT NULL,
  outcome bytea NOT NULL
);
CREATE UNIQUE INDEX commands_by_key ON commands(key) WHERE key<>'';
CREATE INDEX commands_open ON commands(n) WHERE NOT done;
CREATE INDEX commands_by_session ON commands(session, n);
CREATE INDEX commands_done ON commands(at) WHERE done;
CREATE TABLE records(
  session text COLLATE "C" NOT NULL, seq bigint NOT NULL, at bigint NOT NULL, epoch bigint NOT NULL,
  type text COLLATE "C" NOT NULL, body bytea NOT NULL, PRIMARY KEY(session, seq)
);
CREATE TABLE questions(
  id text COLLATE "C" PRIMARY KEY, session text COLLATE "C" NOT NULL, open boolean NOT NULL, asked bigint NOT NULL,
  body bytea NOT NULL
);
CREATE INDEX questions_by_session ON questions(session, asked, id);
CREATE INDEX questions_by_time ON questions(asked, id);
CREATE INDEX questions_open ON questions(asked, id) WHERE open;
CREATE TABLE messages(
  id text COLLATE "C" PRIMARY KEY, session text COLLATE "C" NOT NULL, queued boolean NOT NULL, at bigint NOT NULL,
  body bytea NOT NULL
);
CREATE INDEX messages_by_session ON messages(session, at, id);
CREATE TABLE turns(
  session text COLLATE "C" NOT NULL, turn bigint NOT NULL, at bigint NOT NULL, prev bigint NOT NULL,
  prev_same_model bigint NOT NULL, agent text COLLATE "C" NOT NULL, project text COLLATE "C" NOT NULL,
  model text COLLATE "C" NOT NULL, input_tokens bigint NOT NULL, output_tokens bigint NOT NULL,
  cached_tokens bigint NOT NULL, reasoning_tokens bigint NOT NULL, total_tokens bigint NOT NULL,
  cost_usd double precision, PRIMARY KEY(session, turn)
);
CREATE INDEX turns_by_time ON turns(at);
CREATE INDEX turns_by_session ON turns(session, at, turn);
CREATE INDEX turns_by_prev ON turns(prev);
CREATE INDEX turns_by_prev_same_model ON turns(prev_same_model);
CREATE TABLE used(
  dim text COLLATE "C" NOT NULL, slot bigint NOT NULL, key text COLLATE "C" NOT NULL, prev bigint NOT NULL,
  turns bigint NOT NULL, input_tokens bigint NOT NULL, output_tokens bigint NOT NULL, cached_tokens bigint NOT NULL,
  reasoning_tokens bigint NOT NULL, total_tokens bigint NOT NULL, cost_usd double precision,
  PRIMARY KEY(dim, slot, key, prev)
);
CREATE TABLE devices(id text COLLATE "C" PRIMARY KEY, body bytea NOT NULL);
CREATE TABLE done(key text COLLATE "C" PRIMARY KEY, at bigint NOT NULL, body bytea NOT NULL);
CREATE INDEX done_by_time ON done(at);
CREATE TABLE settings(name text COLLATE "C" PRIMARY KEY, value bytea NOT NULL);
CREATE TABLE config_changes(n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body bytea NOT NULL);
CREATE FUNCTION only_added_to() RETURNS trigger LANGUAGE plpgsql AS
  $$ BEGIN RAISE EXCEPTION 'configuration changes are only added to'; END $$;
CREATE TRIGGER config_changes_stay BEFORE UPDATE OR DELETE OR TRUNCATE ON config_changes
  EXECUTE FUNCTION only_added_to();
CREATE TABLE writers(
  id text COLLATE "C" PRIMARY KEY, life bigint NOT NULL, n bigint NOT NULL, at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor=20);
CREATE FUNCTION refuse() RETURNS boolean LANGUAGE plpgsql AS
  $$ BEGIN RAISE EXCEPTION 'the write does not follow from what is stored' USING ERRCODE='SD001'; END $$;
"""
"""``sessions``: what lists go by. ``views``: what they look like. ``words``: what is searched in, with the numbers of
its letters taken one, two and three at a time. ``heads``: how far each session has come and who may write to it, in
rows small enough to be changed with every append. ``writers``: how far each process that writes has come, so that it
can ask, after a connection broke, whether its last write was kept."""
_CARRIED = """
CREATE TABLE carried(
  session text COLLATE "C" PRIMARY KEY, turn bigint NOT NULL, at bigint NOT NULL, body bytea NOT NULL
);
ALTER TABLE carried ALTER COLUMN body SET STORAGE EXTERNAL;
"""
"""How the files and the transcript of a session that may go on elsewhere stood after its last turn. They are packed as
they come: no engine makes them smaller."""
_ADMISSION = """
CREATE TABLE codes(
  digest bytea PRIMARY KEY, scope text NOT NULL, made_by text NOT NULL, until bigint NOT NULL, body bytea NOT NULL
);
CREATE TABLE enrolled(
  worker text COLLATE "C" PRIMARY KEY, revoked boolean NOT NULL DEFAULT false, at timestamptz NOT NULL DEFAULT now()
);
INSERT INTO enrolled(worker, revoked) SELECT id, revoked FROM workers;
CREATE FUNCTION enrol(worker_id text, code text) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER
  SET search_path=stagedoor, pg_temp AS $$
BEGIN
  DELETE FROM codes WHERE digest=sha256(convert_to(code, 'UTF8')) AND scope='worker'
    AND until>extract(epoch FROM clock_timestamp())*1000;
  IF FOUND THEN
    INSERT INTO enrolled(worker) VALUES(worker_id) ON CONFLICT DO NOTHING;
  END IF;
  RETURN EXISTS(SELECT FROM enrolled WHERE worker=worker_id AND NOT revoked);
END $$;
"""
"""``codes``: that let somebody in once. ``enrolled``: the workers that somebody has let in; workers cannot write it."""
_NOTICES = """
CREATE TABLE secrets(name text COLLATE "C" PRIMARY KEY, value bytea NOT NULL);
INSERT INTO secrets SELECT name, value FROM settings WHERE starts_with(name, 'push to ');
INSERT INTO secrets SELECT 'receiver ' || (one->>'id'), convert_to(one::text, 'UTF8')
  FROM settings, json_array_elements(convert_from(value, 'UTF8')::json) AS one WHERE name='receivers of notifications';
DELETE FROM settings WHERE starts_with(name, 'push to ') OR name='receivers of notifications';
CREATE TABLE notices(
  id text COLLATE "C" PRIMARY KEY, session text COLLATE "C" NOT NULL, at bigint NOT NULL, body bytea NOT NULL
);
CREATE INDEX notices_by_time ON notices(at);
CREATE INDEX notices_by_session ON notices(session);
CREATE TABLE deliveries(
  notice text COLLATE "C" NOT NULL REFERENCES notices ON DELETE CASCADE, receiver text COLLATE "C" NOT NULL,
  holder text COLLATE "C" NOT NULL, until bigint NOT NULL, done boolean NOT NULL, PRIMARY KEY(notice, receiver)
);
"""
"""``notices``: what is to be told to receivers. ``deliveries``: who tells it to which of them, until when.
``secrets``: addresses and keys of receivers, for doors alone. Those of the version before read them at their start
only, and none of them starts any more."""
MIGRATIONS = (_FIRST, _CARRIED, _ADMISSION, _NOTICES)
"""The one at ``n`` takes version ``n`` to ``n + 1``. What was released is never edited, only followed."""
SCHEMA = len(MIGRATIONS)


DOORS_ALONE = frozenset({"devices", "done", "codes", "secrets"})
"""Who may come in, what requests were answered with, tokens of new devices among it, and who is told of what happens:
nothing for workers."""
READ_BY_WORKERS = frozenset({"enrolled"})


async def grant(db: EngineConnection, *, doors: Sequence[str], workers: Sequence[str]) -> None:
    """Let these roles use the tables. They own nothing: a newer version's form is made by the owner's role."""
    tables = [name for (name,) in await db.fetch("SELECT tablename FROM pg_tables WHERE schemaname=$1", NAME)]
    async with db.transaction():
        for role in (*doors, *workers):
            quoted = await db.fetchval("SELECT quote_ident($1)", role)
            mine = [name for name in tables if role in doors or name not in DOORS_ALONE]
            for statement in (
                f"REVOKE ALL ON ALL TABLES IN SCHEMA {NAME} FROM {quoted}",
                f"GRANT USAGE ON SCHEMA {NAME} TO {quoted}",
                f"GRANT SELECT, INSERT, UPDATE, DELETE ON {', '.join(mine)} TO {quoted}",
                f"REVOKE INSERT, UPDATE, DELETE ON form FROM {quoted}",
            ):
                await db.execute(statement)
            if role not in doors:
                await db.execute(f"REVOKE INSERT, UPDATE, DELETE ON {', '.join(READ_BY_WORKERS)} FROM {quoted}")
                await db.execute(f"GRANT DELETE, SELECT(at) ON done TO {quoted}")  # old ones are swept by anybody


async def migrate(db: EngineConnection, title: str) -> None:
    """Bring the tables to the form of this version; whoever comes second waits and finds it done."""
    await _check_server(db, title)
    async with db.transaction():
        await db.execute("SELECT pg_advisory_xact_lock($1)", MIGRATING)
        version = await _version(db, title)
        if version > SCHEMA:
            raise StoreTooNew(
                f"the log {title} was written by a newer Stagedoor (schema {version}; this version supports {SCHEMA}); "
                "install that version here as well, or use another database"
            )
        if version == SCHEMA:
            return
        if version == 0:
            await db.execute(f"CREATE SCHEMA IF NOT EXISTS {NAME}")
            await db.execute("CREATE TABLE form(version integer NOT NULL)")
            await db.execute("INSERT INTO form VALUES(0)")
        for step in MIGRATIONS[version:]:
            await db.execute(step)
        await db.execute("UPDATE form SET version=$1", SCHEMA)


async def _version(db: EngineConnection, title: str) -> int:
    tables = {name for (name,) in await db.fetch("SELECT tablename FROM pg_tables WHERE schemaname=$1", NAME)}
    if not tables:
        return 0
    if not await db.fetchval("SELECT has_schema_privilege($1, 'USAGE')", NAME):
        raise StoreBroken(
            f"the log {title} cannot be opened: permission denied for this role; let its owner run stagedoor log grant"
        )
    if "form" not in tables:
        raise StoreBroken(
            f"the log {title} cannot be opened: its schema {NAME} belongs to another program; use another database"
        )
    return int(await db.fetchval("SELECT version FROM form"))


async def _check_server(db: EngineConnection, title: str) -> None:
    number = int(await db.fetchval("SHOW server_version_num"))
    if number < OLDEST_SERVER:
        raise StoreBroken(
            f"the log {title} needs PostgreSQL {OLDEST_SERVER // 10000} or newer, and that is {number // 10000}; "
            "use a newer server"
        )
    encoding = await db.fetchval("SHOW server_encoding")
    if encoding != "UTF8":
        raise StoreBroken(
            f"the log {title} cannot be opened: the database is encoded as {encoding}; "
            "create one with: createdb --encoding UTF8 --template template0 NAME"
        )
