"""The running server: its addresses, and the file in its home by which commands on this machine find it."""

from __future__ import annotations

import contextlib
import hmac
import http.client
import ipaddress
import json
import os
import secrets
import socket
import ssl
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from stagedoor.errors import ConnectionLost, NotAllowed, StagedoorError
from stagedoor.service.config.settings import Settings
from stagedoor.service.terminal import proof_of
from stagedoor.whole_file import replace_file

from .access.tokens import read_token

if TYPE_CHECKING:
    from starlette.types import Scope

_FILE_NAME = "server.json"
SECONDS = 10.0
MOST_PROOF = 4096


class ServerFile(msgspec.Struct, frozen=True, kw_only=True):
    """``url`` is for this machine, ``public`` for others; ``certificate`` is the one the server uses."""

    pid: int
    url: str
    public: str
    certificate: str = ""


@contextlib.contextmanager
def server_file(
    home: Path, settings: Settings, address: tuple[str, int], *, name: str = _FILE_NAME
) -> Generator[ServerFile]:
    """The file is there while the body runs."""
    host, port = address
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    scheme = "https" if settings.tls_cert else "http"
    content = ServerFile(
        pid=os.getpid(),
        url=f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}",
        public=public_url(settings, port=port),
        certificate=str(Path(settings.tls_cert).expanduser().absolute()) if settings.tls_cert else "",
    )
    path = home / name
    replace_file(path, msgspec.json.encode(content).decode())
    try:
        yield content
    finally:
        path.unlink(missing_ok=True)


def find_server(home: Path, name: str = _FILE_NAME) -> ServerFile:
    """Raises ``ConnectionLost`` when no server runs with this home."""
    try:
        return msgspec.json.decode((home / name).read_bytes(), type=ServerFile)
    except (OSError, msgspec.MsgspecError):
        raise ConnectionLost(f"no server is running with the home {home}; run: stagedoor serve") from None


def find_own_server(home: Path, *, seconds: float, name: str = _FILE_NAME) -> ServerFile | None:
    """The server that runs with this home, proven to be so; whatever is not is passed over, and nothing waits for it.

    Somebody else's program may listen where a server of ours once did: it is sent no token.
    """
    try:
        owner, server = (home / name).lstat().st_uid, find_server(home, name)
        token = read_token(home)
        os.kill(server.pid, 0)
    except (StagedoorError, OSError, ValueError, OverflowError):
        return None
    host = urlsplit(server.url).hostname or ""
    if owner != os.getuid() or server.pid <= 0 or not (server.certificate or is_loopback(host)):
        return None
    nonce = secrets.token_hex(32)
    try:
        connection = _connect(server, seconds)
        try:
            connection.request("GET", f"/healthz?nonce={nonce}")
            proof = msgspec.json.decode(connection.getresponse().read(MOST_PROOF), type=_Proof).proof
        finally:
            connection.close()
    except (OSError, ValueError, http.client.HTTPException, msgspec.MsgspecError):
        return None
    return server if hmac.compare_digest(proof, proof_of(token, nonce)) else None


class _Proof(msgspec.Struct):
    proof: str = ""


def send_request(home: Path, method: str, path: str, body: object = None, *, seconds: float = SECONDS) -> Any:
    """One request to the running server, as its owner; the answer's JSON. Raises ``StagedoorError``."""
    server = find_server(home)
    connection = _connect(server, seconds)
    headers = {"Authorization": f"Bearer {read_token(home)}", "Content-Type": "application/json"}
    try:
        connection.request(method, path, None if body is None else msgspec.json.encode(body), headers)
        answer = connection.getresponse()
        content = answer.read()
    except OSError as fault:
        raise ConnectionLost(
            f"no server answers at {server.url} ({fault.strerror or fault}); start it with: stagedoor serve"
        ) from None
    finally:
        connection.close()
    if answer.status >= 400:
        raise (NotAllowed if answer.status in (401, 403) else StagedoorError)(
            _detail(content) or f"the server answered with status {answer.status}"
        )
    return json.loads(content) if content else None


def _detail(body: bytes) -> str:
    try:
        return msgspec.json.decode(body, type=_ProblemDetail).detail
    except msgspec.MsgspecError:
        return ""


class _ProblemDetail(msgspec.Struct):
    detail: str = ""


def _connect(server: ServerFile, seconds: float) -> http.client.HTTPConnection:
    url = urlsplit(server.url)
    host, port = url.hostname or "", url.port
    if url.scheme == "http":
        return http.client.HTTPConnection(host, port, timeout=seconds)
    # The certificate holds the public name; here it must be exactly the one the server uses.
    context = ssl.create_default_context(cafile=server.certificate)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return http.client.HTTPSConnection(host, port, timeout=seconds, context=context)


def public_url(settings: Settings, scope: Scope | None = None, *, port: int | None = None) -> str:
    """By the first configured name, else by the address it is bound to, or this machine's when that is all of them."""
    scheme = "https" if settings.tls_cert else "http"
    actual_port = port or _port(settings, scope)
    if settings.hosts:
        name = settings.hosts[0]
        if name.startswith("https://"):  # a proxy is before us
            return name
        has_port = name.rpartition("]")[2].rpartition(":")[1] == ":"
        return f"{scheme}://{name}" if has_port else f"{scheme}://{name}{_suffix(scheme, actual_port)}"
    host = settings.host
    if _is_unspecified(host):
        host = own_address()
    return f"{scheme}://{f'[{host}]' if ':' in host else host}{_suffix(scheme, actual_port)}"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it; False for any name but ``localhost``."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def can_be_reached(url: str) -> bool:
    """Whether other machines may reach ``url``: not when it leads every machine to itself."""
    return not is_loopback(urlsplit(url).hostname or "")


def own_address() -> str:
    """The address this machine has in its network. Nothing is sent to find it out."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # reserved for documentation: nobody is there
            address: str = probe.getsockname()[0]
        except OSError:
            return "127.0.0.1"
    return address


def _port(settings: Settings, scope: Scope | None) -> int:
    server = None if scope is None else scope.get("server")
    return settings.port if server is None or not server[1] else int(server[1])


def _suffix(scheme: str, port: int) -> str:
    return "" if port == {"http": 80, "https": 443}[scheme] else f":{port}"


def _is_unspecified(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return host == ""
