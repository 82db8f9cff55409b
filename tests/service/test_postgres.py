"""What only the log in PostgreSQL has to promise: lines that are cut, an engine that dies, forms, slow questions."""

from __future__ import annotations

import asyncio
import hashlib
import ssl
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import asyncpg
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from msgspec.structs import replace

from stagedoor.cli import main as stagedoor
from stagedoor.errors import SequenceConflict, StoreAway, StoreBroken, StoreTooNew, TooMany
from stagedoor.service.config.settings import AgentSettings, Settings
from stagedoor.service.journal import Journal
from stagedoor.service.postgres import log_in, schema
from stagedoor.service.postgres.address import DatabaseAddress
from stagedoor.service.postgres.connections import Engine
from stagedoor.service.postgres.hub import PostgresHub
from stagedoor.service.postgres.log import PostgresStore
from stagedoor.service.service import Service
from stagedoor.service.store import Append, Fence, Query, Remember, Store, Sweep, Trim
from stagedoor.service.views import Command, NoticeRow, OneTimeCode
from stagedoor.unified.decisions import Allow
from tests.service.conformance.engines import ANSWERED, CHANGED, DEVICE, SPENT, question, records, run, view, worker
from tools.postgres import cluster, empty_database


@pytest.fixture
def url() -> str:
    return empty_database()


@asynccontextmanager
async def opened(url: str, **options: Any) -> AsyncGenerator[PostgresStore]:
    store = PostgresStore(Engine(DatabaseAddress(url), **options))
    await store.open()
    try:
        yield store
    finally:
        await store.close()


class Line:
    """A way to the engine that can be cut. ``swallow``: the next write is passed on, and its answer is not: the
    connection breaks instead."""

    def __init__(self, url: str, folder: Path) -> None:
        parts = urlsplit(url)
        self._target = f"{parse_qs(parts.query)['host'][0]}/.s.PGSQL.5432"
        self._folder = folder
        self.url = parts._replace(query=f"host={folder}").geturl()
        self.swallow = b""
        self.refusing = False
        self.cuts = 0
        self._ways: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def up(self) -> AsyncGenerator[Line]:
        server = await asyncio.start_unix_server(self._serve, f"{self._folder}/.s.PGSQL.5432")
        try:
            yield self
        finally:
            server.close()
            self.cut()
            await asyncio.gather(*self._ways, return_exceptions=True)

    def cut(self) -> None:
        for way in self._ways:
            way.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._ways.add(task)
        there: asyncio.StreamWriter | None = None
        try:
            if self.refusing:
                return
            answers, there = await asyncio.open_unix_connection(self._target)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._requests(reader, there, answers, writer))
                group.create_task(self._answers(answers, writer))
        except* (OSError, EOFError, asyncio.CancelledError):
            pass
        finally:
            self._ways.discard(task)
            for end in (writer, there):
                if end is not None:
                    end.transport.abort()

    async def _requests(self, reader: Any, there: Any, answers: Any, writer: Any) -> None:
        while chunk := await reader.read(1 << 16):
            if self.swallow and self.swallow in chunk:
                self.swallow = b""
                self.cuts += 1
                writer.transport.abort()  # from here on nothing comes back, but the engine has all of it
                there.write(chunk)
                await there.drain()
                return
            there.write(chunk)
            await there.drain()
        raise EOFError

    async def _answers(self, answers: Any, writer: Any) -> None:
        while chunk := await answers.read(1 << 16):
            writer.write(chunk)
            await writer.drain()
        raise EOFError


COMMIT = b"COMMIT;"


async def _before(store: Store) -> None:
    await store.write(view(), question(1), Append("s1", records(1, 1)))
    await store.put_worker(worker("w1", until=10**15))
    await store.put_command(Command(id="c0", kind="send", session_id="s1"))


async def _claimed(store: Store) -> int:
    [claimed] = await store.claim("w1", "i1", labels=(), limit=9, now=1)
    return claimed.epoch


LOST: list[tuple[str, Callable[[Store], Awaitable[Any]], Any]] = [
    ("changes", lambda store: store.write(CHANGED, Append("s1", records(2, 3))), None),  # type: ignore[dict-item, list-item]
    ("answer", lambda store: store.answer(question(1, open=False, decision=Allow())), True),
    (
        "command",
        lambda store: store.put_command(Command(id="c1", kind="x", key="k")),
        Command(id="c1", kind="x", key="k"),
    ),
    ("take", lambda store: store.take("c0", 0), True),
    ("renew", lambda store: store.renew("w1", "i1", 10**15 + 1), True),
    ("mark", lambda store: store.mark_worker("w1", draining=True), worker("w1", until=10**15, draining=True)),
    ("release", lambda store: store.release("s1", 0), True),
    ("claim", _claimed, 1),
]


@pytest.mark.parametrize(("work", "expected"), [row[1:] for row in LOST], ids=[row[0] for row in LOST])
@pytest.mark.parametrize("kept", [True, False], ids=["kept", "not kept"])
def test_an_answer_that_is_lost_is_asked_for_and_nothing_happens_twice(
    url: str,
    tmp_path_factory: pytest.TempPathFactory,
    work: Callable[[Store], Awaitable[Any]],
    expected: Any,
    kept: bool,
) -> None:
    async def main() -> None:
        line = Line(url, tmp_path_factory.mktemp("l"))
        async with line.up(), opened(line.url) as store:
            await _before(store)
            line.swallow = COMMIT if kept else b"UPDATE writers"
            assert await work(store) == expected
            await store.write(replace(CHANGED, at=9))
            changes = await store.config_changes()
            assert [one.at for one in changes] in ([9], [9, 8])
            found = await store.records("s1", 0, 9)
            assert found == records(1, len(found))

    run(main())


def test_a_plain_append_whose_answer_is_lost_is_kept_once(url: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    async def main() -> None:
        line = Line(url, tmp_path_factory.mktemp("l"))
        async with line.up(), opened(line.url) as store:
            await store.write(view())
            for seq in range(1, 30):
                if seq % 3 == 0:
                    line.swallow = b'{"a":1}'
                elif seq % 7 == 0:
                    line.cut()
                await store.write(Append("s1", records(seq, seq)))
            assert line.cuts == 9
            assert await store.records("s1", 0, 99) == records(1, 29)

    run(main())


def test_what_the_engine_still_has_of_a_cut_line_is_carried_out_no_more(url: str) -> None:
    """The old connection is slow, not gone: its write comes after we have asked."""

    async def main() -> None:
        async with opened(url) as store:
            await store.write(view(), Append("s1", records(1, 1)))
            writer = store._writer
            ghost, ghost_life = writer._db, writer._life
            assert ghost is not None
            writer._db = None
            await store.write(Append("s1", records(2, 2)))
            stale = (writer._id, ghost_life, writer._n + 1)
            from stagedoor.service.postgres.statements import SearchedTexts, stages_of

            [stage] = stages_of([[Append("s1", records(3, 3))]])
            with pytest.raises(asyncpg.PostgresError, match="does not follow"):
                await stage.write(ghost, SearchedTexts(), stale)
            await ghost.close()
            assert await store.records("s1", 0, 9) == records(1, 2)

    run(main())


def test_a_crash_of_the_engine_loses_and_repeats_nothing() -> None:
    async def main() -> None:
        with cluster() as own:
            async with opened(own.url(), patience=200.0) as store:
                engine = Engine(DatabaseAddress(own.url()))
                hub = PostgresHub(engine)
                await hub.open()
                journal = Journal(store, hub)
                await store.write(view())
                last = 0
                stop = asyncio.Event()

                async def append() -> None:
                    nonlocal last
                    while not stop.is_set():
                        last += 1
                        await journal.write(Append("s1", records(last, last)), replace(CHANGED, at=last))
                    await journal.write(view(last_seq=last, activity="ended", state="done"))

                async def follow() -> list[int]:
                    async with aclosing(journal.follow("s1", 0)) as batches:
                        return [record.seq async for batch in batches for record in batch]

                async with asyncio.TaskGroup() as group:
                    appending = group.create_task(append())
                    following = group.create_task(follow())
                    for how in (own.crash, own.stop):
                        before = last
                        while last < before + 20:
                            await asyncio.sleep(0.01)
                        await asyncio.to_thread(how)
                        reading = group.create_task(store.count(Query()))
                        await asyncio.to_thread(own.start)
                        assert await reading == 1
                    before = last
                    while last < before + 20:
                        await asyncio.sleep(0.01)
                    stop.set()
                    await appending
                assert await following == list(range(1, last + 1))
                changes = await store.config_changes(limit=last + 9)
                assert [one.at for one in changes] == list(range(last, 0, -1))
                await hub.close()

    run(main())


def test_an_engine_that_stays_away_is_said_to_be_and_then_work_goes_on(
    url: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    async def main() -> None:
        line = Line(url, tmp_path_factory.mktemp("l"))
        async with line.up(), opened(line.url, patience=0.2) as store:
            await store.write(view(), Append("s1", records(1, 1)))
            line.refusing = True
            line.cut()
            for work in (
                lambda: store.write(Append("s1", records(2, 2))),
                lambda: store.session("s1"),
                lambda: store.answer(question(1)),
                lambda: store.count(Query(search="x")),
            ):
                with pytest.raises(StoreAway, match=r"cannot be reached.*try again when PostgreSQL is back"):
                    await work()  # type: ignore[no-untyped-call]
            line.refusing = False
            await store.write(Append("s1", records(2, 2)))
            assert await store.records("s1", 0, 9) == records(1, 2)
            assert not store.away

    run(main())


def test_rings_that_were_missed_are_made_up_for(url: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    async def main() -> None:
        line = Line(url, tmp_path_factory.mktemp("l"))
        store, far = log_in(url)
        await store.open()
        near = PostgresHub(Engine(DatabaseAddress(line.url)))
        async with line.up():
            await far.open()
            await near.open()
            doubts: list[str | None] = []
            near.watch(doubts.append, object())
            bell = near.bell("s1")
            for _ in range(5):
                line.refusing = True
                line.cut()
                far.ring("s1")
                far.ring("x" * 9000)  # too long to be named
                near.ring("y")  # waits until it can be passed on
                line.refusing = False
                await bell.rung()
            assert None in doubts
            heard = far.bell("last")
            near.ring("last")
            await heard.rung()
            await near.close()
            await far.close()
        await store.close()

    run(main())


def test_several_that_come_at_once_make_the_tables_once(url: str) -> None:
    async def main() -> None:
        db = await asyncpg.connect(url)
        await db.execute("DROP SCHEMA IF EXISTS stagedoor CASCADE")
        stores = [PostgresStore(Engine(DatabaseAddress(url))) for _ in range(4)]
        await asyncio.gather(*(store.open() for store in stores))
        await asyncio.gather(*(store.write(view(f"s{n}")) for n, store in enumerate(stores)))
        assert [await store.count(Query()) for store in stores] == [4] * 4
        await asyncio.gather(*(store.close() for store in stores))
        assert await db.fetchval("SELECT version FROM stagedoor.form") == schema.SCHEMA
        assert await db.fetchval("SELECT count(*) FROM stagedoor.writers") == 0
        await db.close()

    run(main())


@pytest.mark.parametrize(
    ("spoil", "kind", "message"),
    [
        (f"UPDATE form SET version={schema.SCHEMA + 1}", StoreTooNew, r"newer Stagedoor .schema \d+; this version"),
        ("ALTER TABLE form RENAME TO theirs", StoreBroken, "belongs to another program; use another database"),
    ],
)
def test_tables_that_are_not_ours_are_left_alone(url: str, spoil: str, kind: type[Exception], message: str) -> None:
    async def main() -> None:
        async with opened(url) as store:
            await store.write(view())
        db = await asyncpg.connect(url, server_settings={"search_path": "stagedoor"})
        try:
            await db.execute(spoil)
            with pytest.raises(kind, match=message):
                await PostgresStore(Engine(DatabaseAddress(url))).open()
            assert await db.fetchval("SELECT count(*) FROM sessions") == 1
        finally:
            await db.execute("DROP SCHEMA stagedoor CASCADE")
            await db.close()

    run(main())


def test_a_slow_question_is_given_up_and_harms_nobody(url: str) -> None:
    async def main() -> None:
        async with opened(url) as store:
            store._slow.seconds = 0.05
            await store.write(view())
            slow = [store._slow.do(lambda db: db.fetch("SELECT pg_sleep(60)")) for _ in range(4)]
            outcomes = await asyncio.gather(*slow, store.session("s1"), return_exceptions=True)
            assert [type(one) for one in outcomes[:4]] == [TooMany] * 4
            assert "took longer than 0.05 seconds and was given up; ask for less" in str(outcomes[0])
            assert outcomes[4] == view()
            assert await store._slow.do(lambda db: db.fetchval("SELECT 1")) == 1

    run(main())


def test_what_was_asked_before_closing_is_done_and_what_comes_after_is_refused(url: str) -> None:
    async def main() -> None:
        store = PostgresStore(Engine(DatabaseAddress(url)))
        with pytest.raises(StoreBroken, match="is closed"):
            await store.write(view())
        await store.open()
        writes = [asyncio.ensure_future(store.write(Append("s1", records(n, n)))) for n in range(1, 600)]
        gone = asyncio.ensure_future(store.write(Append("s1", records(600, 600))))
        await asyncio.sleep(0)
        gone.cancel()
        await store.close()
        await asyncio.gather(*writes)
        for refused in (store.write(view()), store.count(Query())):
            with pytest.raises(StoreBroken, match=r"is closed; start the server"):
                await refused
        async with opened(url) as again:
            assert await again.records("s1", 0, 1000) == records(1, 600)

    run(main())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"path": "/no_such_database"}, "does not exist; create it first, with: createdb"),
        ({"netloc": "nobody@"}, "check the role and its password|the log of PostgreSQL says more"),
    ],
    ids=["database", "role"],
)
def test_what_cannot_be_opened_says_what_to_do(url: str, change: dict[str, str], message: str) -> None:
    async def main() -> None:
        with pytest.raises(StoreBroken, match=message):
            await PostgresStore(Engine(DatabaseAddress(urlsplit(url)._replace(**change).geturl()))).open()

    run(main())


def test_a_worker_does_not_see_devices(url: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    roles = [f"{name}_{uuid4().hex[:8]}" for name in ("door", "worker")]

    def as_role(name: str) -> str:
        return urlsplit(url)._replace(netloc=f"{name}@").geturl()

    async def admin(*statements: str) -> None:
        db = await asyncpg.connect(url)
        for statement in statements:
            await db.execute(statement)
        await db.close()

    async def main() -> None:
        door, working = map(as_role, roles)
        async with opened(door) as store:
            await store.write(DEVICE, ANSWERED, view(), CHANGED, Append("s1", records(1, 500)))
            assert await store.devices() == [DEVICE]
            for letter in "AB":
                digest = hashlib.sha256(letter.encode()).digest()
                await store.admission.put_code(OneTimeCode(digest=digest, scope="worker"), 600)
        async with opened(working) as store:
            assert await store.admission.enrol("w1", "A")
            await store.put_worker(worker("w1", until=10**15))
            [claimed] = await store.claim("w1", "i1", labels=(), limit=9, now=1)
            await store.write(Fence("s1", claimed.epoch), Append("s1", records(501, 501)), question(1), SPENT)
            assert await store.answer(question(1, open=False))
            await store.put_command(Command(id="c1", kind="x", session_id="s1"))
            notice = NoticeRow(id="n1", session_id="s1", at=1, body=b"{}")
            await store.write(Fence("s1", claimed.epoch), notice)
            assert await store.claim_deliveries("w1", [("n1", "hook")], 60.0) == {("n1", "hook")}
            assert await store.take("c1", claimed.epoch)
            await store.write(Sweep(1), Remember("a", b"b"), Trim("s1", 9))
            for secret in (store.devices(), store.done("k"), store.write(DEVICE), store.secrets()):
                with pytest.raises(StoreBroken, match=r"permission denied.*stagedoor log grant"):
                    await secret
            assert await store.records("s1", 500, 9) == records(501, 501)
        settings = Settings(home=str(tmp_path), database=working, agents={"understudy": AgentSettings()})
        service = Service(settings, role="worker")
        service.worker.code = "B"
        async with service:
            assert "agent:understudy" in service.worker.labels

    run(admin(*(f"CREATE ROLE {name} LOGIN" for name in roles)))
    try:
        with pytest.raises(StoreBroken, match="permission denied"):
            run(PostgresStore(Engine(DatabaseAddress(as_role(roles[1])))).open())
        assert stagedoor(["log", "grant", "--database", url, "--door", roles[0], "--worker", roles[1]]) == 0
        assert capsys.readouterr().out == f"{', '.join(roles)} may use it now\n"
        run(main())
    finally:
        run(admin(*(f"DROP OWNED BY {name}; DROP ROLE {name}" for name in roles)))
    assert stagedoor(["log", "grant", "--database", url, "--door", roles[0]]) == 2
    assert stagedoor(["log", "grant", "--database", url]) == 2
    assert "name at least one role" in capsys.readouterr().err


def test_many_records_are_refused_or_kept_as_few_are(url: str) -> None:
    async def main() -> None:
        async with opened(url) as store:
            await store.write(view(), Append("s1", records(1, 2)))
            wrong = [Append("s1", records(2, 900)), Append("s1", records(4, 900)), Append("s1", records(3, 900)[::-1])]
            writes = [store.write(replace(CHANGED, at=at), one) for at, one in enumerate(wrong)]
            good = store.write(Append("s1", records(3, 700)), Append("s1", records(701, 900)), question(1))
            outcomes = await asyncio.gather(*writes, good, return_exceptions=True)
            assert [type(one) for one in outcomes] == [SequenceConflict] * 3 + [type(None)]
            assert await store.records("s1", 0, 999) == records(1, 900)
            assert [await store.config_changes(), await store.questions()] == [[], [question(1)]]

    run(main())


def certificate(folder: Path, name: str) -> ssl.SSLContext:
    """Of a server called ``name``, signed by itself: ``cert.pem``."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    plain = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "cert.pem").write_bytes(made.public_bytes(pem))
    (folder / "key.pem").write_bytes(key.private_bytes(pem, *plain))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context


@pytest.mark.parametrize(
    ("name", "query", "fault"),
    [
        ("localhost", "sslmode=verify-full&sslrootcert={}", ""),
        ("localhost", "sslmode=verify-full", "certificate verify failed.*its certificate must fit its name"),
        ("elsewhere", "sslmode=verify-full&sslrootcert={}", "certificate verify failed.*its certificate must fit"),
        ("", "sslmode=verify-full&sslrootcert={}", "rejected SSL upgrade.*must be encrypted"),
    ],
    ids=["right", "unknown", "another's", "none"],
)
def test_a_far_engine_must_prove_who_it_is(url: str, tmp_path: Path, name: str, query: str, fault: str) -> None:
    async def main() -> None:
        context = certificate(tmp_path, name or "localhost")
        parts = urlsplit(url)
        target = f"{parse_qs(parts.query)['host'][0]}/.s.PGSQL.5432"

        async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while chunk := await reader.read(1 << 16):
                writer.write(chunk)
                await writer.drain()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(OSError, EOFError):
                assert (await reader.readexactly(8))[4:] == b"\x04\xd2\x16\x2f"  # the wish for TLS
                writer.write(b"S" if name else b"N")
                await writer.drain()
                if name:
                    await writer.start_tls(context)
                    answers, there = await asyncio.open_unix_connection(target)
                    await asyncio.wait(
                        [asyncio.ensure_future(copy(reader, there)), asyncio.ensure_future(copy(answers, writer))],
                        return_when=asyncio.FIRST_COMPLETED,
                    )
                    there.transport.abort()
            writer.transport.abort()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        far = parts._replace(netloc=f"stagedoor@localhost:{port}", query=query.format(tmp_path / "cert.pem")).geturl()
        store = PostgresStore(Engine(DatabaseAddress(far)))
        if fault:
            with pytest.raises(StoreBroken, match=fault):
                await store.open()
        else:
            await store.open()
            await store.write(view())
            assert await store.count(Query()) == 1
            await store.close()
        server.close()

    run(main())


def test_the_driver_is_loaded_only_for_an_address() -> None:
    code = (
        "import sys; from stagedoor.service.service import Service; from stagedoor.service.config.settings import *;"
        "Service(Settings()); assert 'asyncpg' not in sys.modules; import stagedoor.cli.serve, stagedoor.cli.config;"
        "Service(Settings(database='postgresql:///x')); assert 'asyncpg' in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_any_text_can_be_kept_and_found(url: str) -> None:
    async def main() -> None:
        strange = view("s\0", title="a\0b", group="g\0", prompt="\ud7ff\U0010ffff", native_id="n\0")
        async with opened(url) as store:
            await store.write(strange, Append("s\0", records(1, 1)))
            found = replace(strange, last_seq=1, updated_at=1001)
            assert await store.session("s\0") == found
            for query in (Query(search="A\0B"), Query(group="g\0"), Query(search="\U0010ffff")):
                assert await store.sessions(query) == [found]
            assert await store.session_of("understudy", "n\0") == found
            assert await store.records("s\0", 2**70, 5) == []

    run(main())
