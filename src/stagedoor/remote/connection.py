"""Requests to the server: typed answers, our own exceptions, and no request lost or carried out twice.

Every POST has an ``Idempotency-Key``, so it may be sent again when nobody knows whether it arrived.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from ..errors import ConnectionLost, NotInstalled, RemoteProtocolError, StagedoorError
from .address import Address
from .problems import fault_of, read_problem

if TYPE_CHECKING:
    import httpx

Answer = TypeVar("Answer")

CONNECT_WITHIN = 10.0
ANSWER_WITHIN = 60.0
FIRST_MESSAGE_WITHIN = 15.0
"""Seconds a stream may take to open, and to send its verdict: a proxy that buffers a stream never sends it."""
_OF_A_PROXY = frozenset({502, 503, 504})
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 5.0


class ServerConnection:
    """One way to a server. ``find`` runs again when it is lost: the server of this home may come back elsewhere."""

    def __init__(self, find: Callable[[], Address], *, patience: float) -> None:
        self.find = find
        self.address = find()
        self.patience = patience
        self.first_message_within = FIRST_MESSAGE_WITHIN
        self.door = 0
        """The index of the kind of stream that works here; those before it were refused."""
        self._reached = False
        self._users = 0
        self._client: httpx.AsyncClient | None = None

    @asynccontextmanager
    async def client(self) -> AsyncGenerator[httpx.AsyncClient]:
        """The HTTP client; its connections stay open as long as one of these blocks runs."""
        self._users += 1
        try:
            if self._client is None:
                self._client = _http_client(self.address)
            yield self._client
        finally:
            self._users -= 1
            if not self._users:
                client, self._client = self._client, None
                if client is not None:
                    await client.aclose()

    def url(self, path: str) -> str:
        return self.address.url + path

    def retries(self) -> Retries:
        return Retries(self.patience)

    def reached(self) -> None:
        """The server has answered: from now on a failure may be temporary."""
        self._reached = True

    def lost(self, fault: Exception) -> str:
        """The reason of a failed connection. Raises ``ConnectionLost`` when the server was never reached."""
        import httpx

        why = f"no server answers at {self.address.url} ({str(fault) or type(fault).__name__})"
        if not self._reached and isinstance(fault, OSError | httpx.ConnectError | httpx.ConnectTimeout):
            raise ConnectionLost(f"{why}; start it with: stagedoor serve") from fault
        with suppress(StagedoorError):
            self.address = self.find()
        return why

    async def get(self, path: str, answer: type[Answer], query: Mapping[str, Any] | None = None) -> Answer:
        return await self._request("GET", path, answer, query=query)

    async def post(
        self, path: str, answer: type[Answer], body: object = None, *, patience: float | None = None
    ) -> Answer:
        return await self._request("POST", path, answer, body=body, patience=patience)

    async def patch(self, path: str, answer: type[Answer], body: object) -> Answer:
        return await self._request("PATCH", path, answer, body=body)

    async def _request(
        self,
        method: str,
        path: str,
        answer: type[Answer],
        *,
        query: Mapping[str, Any] | None = None,
        body: object = None,
        patience: float | None = None,
    ) -> Answer:
        headers = {"Idempotency-Key": uuid.uuid4().hex} if method == "POST" else {}
        if body is not None:
            headers["Content-Type"] = "application/json"
        retries = self.retries() if patience is None else Retries(min(patience, self.patience))
        async with self.client() as client:
            import httpx

            while True:
                try:
                    response = await client.request(
                        method,
                        self.url(path),
                        params={name: value for name, value in (query or {}).items() if value not in (None, "")},
                        content=None if body is None else msgspec.json.encode(body),
                        headers=headers | bearer(self.address),
                    )
                except httpx.TransportError as fault:
                    await retries.wait(self.lost(fault))
                    continue
                self.reached()
                if response.status_code < 400:
                    return _typed(response.content, answer)
                problem = read_problem(response.content)
                refused = fault_of(response.status_code, problem)
                if not (problem.temporary or (not problem.ours and response.status_code in _OF_A_PROXY)):
                    raise refused
                await retries.wait(str(refused))


class Retries:
    """Waits longer before each retry, never all clients at once; gives up after ``bound`` seconds of failure."""

    def __init__(self, bound: float) -> None:
        self._bound = bound
        self._pause = _FIRST_PAUSE
        self._failing_since: float | None = None
        self._waited_at = 0.0

    def answered(self) -> None:
        """The server can be reached."""
        self._failing_since = None

    def progressed(self) -> None:
        """Something new came through."""
        self._failing_since = None
        self._pause = _FIRST_PAUSE

    async def wait(self, why: str) -> None:
        """Wait before the next retry. Raises ``ConnectionLost`` when time is up."""
        now = asyncio.get_running_loop().time()
        if self._failing_since is None:
            self._failing_since = now
        elif now - self._failing_since >= self._bound:
            raise ConnectionLost(f"gave up after {self._bound:g} seconds: {why}")
        if now - self._waited_at > 2 * _LONGEST_PAUSE:
            self._pause = _FIRST_PAUSE
        await asyncio.sleep(self._pause * random.uniform(0.5, 1.0))
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)
        self._waited_at = now


def bearer(address: Address) -> dict[str, str]:
    return {"Authorization": f"Bearer {address.token}"}


def _http_client(address: Address) -> httpx.AsyncClient:
    try:
        import httpx
    except ImportError as missing:
        raise NotInstalled("httpx is not installed; run: pip install httpx") from missing
    return httpx.AsyncClient(
        verify=address.tls() or True,
        timeout=httpx.Timeout(ANSWER_WITHIN, connect=CONNECT_WITHIN),
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=20),
        trust_env=not address.loopback,  # a proxy of the environment does not lead back to this machine
    )


def _typed(body: bytes, answer: type[Answer]) -> Answer:
    try:
        return msgspec.json.decode(body, type=answer)
    except msgspec.MsgspecError as fault:
        raise RemoteProtocolError(
            f"cannot read the server's answer ({fault}); use the same version of Stagedoor on both sides"
        ) from fault
