"""Requests to the server: typed answers, our own exceptions, and no request lost or carried out twice.

Every POST has an ``Idempotency-Key``, so it may be sent again when nobody knows whether it arrived.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from ..errors import ConnectionLost, NotInstalled, RemoteProtocolError, StagedoorError
from .address import Address
from .patience import Patience
from .problems import fault_of, read

if TYPE_CHECKING:
    import httpx

Answer = TypeVar("Answer")

CONNECT_WITHIN = 10.0
ANSWER_WITHIN = 60.0
FIRST_WORD_WITHIN = 15.0
"""Seconds a stream may take to open, and to say its verdict: a proxy that keeps what it is to pass on never does."""
_OF_A_PROXY = frozenset({502, 503, 504})


class Line:
    """One way to a server. ``find`` is asked again when it is lost: a server of this home may come back elsewhere."""

    def __init__(self, find: Callable[[], Address], *, patience: float) -> None:
        self.find = find
        self.address = find()
        self.patience = patience
        self.first_word_within = FIRST_WORD_WITHIN
        self.door = 0
        """Which kind of stream works here; those before it were refused."""
        self._met = False
        self._holders = 0
        self._client: httpx.AsyncClient | None = None

    @asynccontextmanager
    async def held(self) -> AsyncGenerator[httpx.AsyncClient]:
        """Connections stay open while somebody holds the line."""
        self._holders += 1
        try:
            if self._client is None:
                self._client = _client(self.address)
            yield self._client
        finally:
            self._holders -= 1
            if not self._holders:
                client, self._client = self._client, None
                if client is not None:
                    await client.aclose()

    def url(self, path: str) -> str:
        return self.address.url + path

    def tries(self) -> Patience:
        return Patience(self.patience)

    def met(self) -> None:
        """Somebody has answered: from now on a failure is one that may pass."""
        self._met = True

    def lost(self, fault: Exception) -> str:
        """What to say of a connection that failed. Raises ``ConnectionLost`` when nobody has ever been there."""
        import httpx

        why = f"no server answers at {self.address.url} ({str(fault) or type(fault).__name__})"
        if not self._met and isinstance(fault, OSError | httpx.ConnectError | httpx.ConnectTimeout):
            raise ConnectionLost(f"{why}; start one with: stagedoor serve") from fault
        with suppress(StagedoorError):
            self.address = self.find()
        return why

    async def get(self, path: str, answer: type[Answer], query: Mapping[str, Any] | None = None) -> Answer:
        return await self._ask("GET", path, answer, query=query)

    async def post(
        self, path: str, answer: type[Answer], body: object = None, *, patience: float | None = None
    ) -> Answer:
        return await self._ask("POST", path, answer, body=body, patience=patience)

    async def _ask(
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
        tries = self.tries() if patience is None else Patience(min(patience, self.patience))
        async with self.held() as client:
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
                    await tries.wait(self.lost(fault))
                    continue
                self.met()
                if response.status_code < 400:
                    return _typed(response.content, answer)
                problem = read(response.content)
                refused = fault_of(response.status_code, problem)
                if not (problem.passing or (not problem.ours and response.status_code in _OF_A_PROXY)):
                    raise refused
                await tries.wait(str(refused))


def bearer(address: Address) -> dict[str, str]:
    return {"Authorization": f"Bearer {address.token}"}


def _client(address: Address) -> httpx.AsyncClient:
    try:
        import httpx
    except ImportError as missing:
        raise NotInstalled("httpx is not installed; run: pip install 'stagedoor[client]'") from missing
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
            f"the server answered something this client does not know ({fault}); bring both to the same version"
        ) from fault
