"""``/docs``: a page of our own that reads ``/openapi.json`` and lets one try every operation. It asks nobody else."""

from __future__ import annotations

from importlib import resources

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

_FILES = {
    "/docs": ("index.html", "text/html"),
    "/docs/docs.js": ("docs.js", "text/javascript"),
    "/docs/docs.css": ("docs.css", "text/css"),
}
_HEADERS = {"cache-control": "no-cache"}


def docs_routes() -> list[Route]:
    return [_route(path, name, media) for path, (name, media) in _FILES.items()]


def _route(path: str, name: str, media: str) -> Route:
    async def answer(request: Request) -> Response:
        body = resources.files("stagedoor.server").joinpath("docs", name).read_bytes()
        return Response(body, media_type=media, headers=_HEADERS)

    return Route(path, answer, methods=["GET"])
