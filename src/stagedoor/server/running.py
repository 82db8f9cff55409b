"""Finding the server that runs: it leaves a note in its home, which commands on this machine read."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import ssl
from collections.abc import Generator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from stagedoor.errors import ConnectionLost, NotAllowed, StagedoorError
from stagedoor.service.config.settings import Settings
from stagedoor.whole_file import replace_file

from .access.tokens import read_token
from .address import public_url

NAME = "server.json"
SECONDS = 10.0


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """``url`` is for this machine, ``public`` for others; ``certificate`` is the one to expect."""

    pid: int
    url: str
    public: str
    certificate: str = ""


@contextlib.contextmanager
def noted(home: Path, settings: Settings, address: tuple[str, int]) -> Generator[Note]:
    """Leave the note while the body runs."""
    host, port = address
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    scheme = "https" if settings.tls_cert else "http"
    note = Note(
        pid=os.getpid(),
        url=f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}",
        public=public_url(settings, port=port),
        certificate=str(Path(settings.tls_cert).expanduser().absolute()) if settings.tls_cert else "",
    )
    path = home / NAME
    replace_file(path, msgspec.json.encode(note).decode())
    try:
        yield note
    finally:
        path.unlink(missing_ok=True)


def find(home: Path) -> Note:
    """Raises ``ConnectionLost`` when no server runs with this home."""
    try:
        return msgspec.json.decode((home / NAME).read_bytes(), type=Note)
    except (OSError, msgspec.MsgspecError):
        raise ConnectionLost(f"no server runs with the home {home}; start one with: stagedoor serve") from None


def ask(home: Path, method: str, path: str, body: object = None) -> Any:
    """One request to the running server, as its owner; the answer's JSON. Raises ``StagedoorError``."""
    note = find(home)
    connection = _connect(note)
    headers = {"Authorization": f"Bearer {read_token(home)}", "Content-Type": "application/json"}
    try:
        connection.request(method, path, None if body is None else msgspec.json.encode(body), headers)
        answer = connection.getresponse()
        said = answer.read()
    except OSError as fault:
        raise ConnectionLost(
            f"no server answers at {note.url} ({fault.strerror or fault}); start one with: stagedoor serve"
        ) from None
    finally:
        connection.close()
    if answer.status >= 400:
        raise (NotAllowed if answer.status in (401, 403) else StagedoorError)(
            _detail(said) or f"it said {answer.status}"
        )
    return json.loads(said) if said else None


def _detail(said: bytes) -> str:
    try:
        return msgspec.json.decode(said, type=_Problem).detail
    except msgspec.MsgspecError:
        return ""


class _Problem(msgspec.Struct):
    detail: str = ""


def _connect(note: Note) -> http.client.HTTPConnection:
    where = urlsplit(note.url)
    host, port = where.hostname or "", where.port
    if where.scheme == "http":
        return http.client.HTTPConnection(host, port, timeout=SECONDS)
    # The certificate names the outside; here it must be the very one that the server was given.
    context = ssl.create_default_context(cafile=note.certificate)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return http.client.HTTPSConnection(host, port, timeout=SECONDS, context=context)
