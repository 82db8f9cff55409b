"""How much: the size of a header and of a body, and the time a body may take."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..problems import RefusedRequest, problem_response

BODY_SECONDS = 60.0
"""From the end of the header to the end of the body."""
HEAD_BYTES = 32 * 1024
_HANG_UP = {"connection": "close"}


class SizeLimits:
    """A header of at most ``HEAD_BYTES``; a body of at most ``max_body`` bytes within ``seconds``."""

    def __init__(self, app: ASGIApp, max_body: int, seconds: float = BODY_SECONDS) -> None:
        self._app = app
        self._max_body = max_body
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket") and _head_size(scope) > HEAD_BYTES:
            fault = RefusedRequest(
                "header-too-large", f"the header is larger than {HEAD_BYTES:,} bytes, the limit of this server"
            )
            await problem_response(fault, instance=scope["path"][:200])(scope, receive, send)
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if {name for name, _ in scope["headers"]} >= {b"content-length", b"transfer-encoding"}:
            # A proxy before us may go by the one where we go by the other, and so hide a request in a body.
            fault = RefusedRequest(
                "bad-request", "send Content-Length or Transfer-Encoding, not both", headers=_HANG_UP
            )
            await problem_response(fault, instance=scope["path"])(scope, receive, send)
            return
        length = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if not length.isdigit() or int(length[:20]) > self._max_body:
            await problem_response(self._too_large(), instance=scope["path"])(scope, receive, send)
            return
        await self._app(scope, self._counted(receive), send)

    def _counted(self, receive: Receive) -> Receive:
        received = 0
        complete = False
        deadline = asyncio.get_running_loop().time() + self._seconds

        async def counted() -> Message:
            nonlocal received, complete
            if complete:  # what comes next is that the client leaves
                return await receive()
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                raise RefusedRequest(
                    "request-timeout", "the body took too long to arrive; send it again, faster"
                ) from None
            received += len(message.get("body", b""))
            if received > self._max_body:
                raise self._too_large()
            complete = not message.get("more_body", False)
            return message

        return counted

    def _too_large(self) -> RefusedRequest:
        return RefusedRequest(
            "too-large", f"the body is larger than {self._max_body:,} bytes, the limit of this server"
        )


def _head_size(scope: Scope) -> int:
    """uvicorn bounds a head only while it is incomplete."""
    return len(scope["path"]) + len(scope["query_string"]) + sum(len(n) + len(v) for n, v in scope["headers"])
