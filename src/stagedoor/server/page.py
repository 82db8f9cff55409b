"""``/``: the page. Its files are handed out as they are; ``origins`` tells the browser to load nothing else."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from importlib import resources
from importlib.resources.abc import Traversable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

_MEDIA = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "png": "image/png",
    "webmanifest": "application/manifest+json",
}


def routes(service: object = None) -> list[Route]:
    """One route per file: nothing that is not in the package can be asked for."""
    return [_route(path, file) for path, file in files().items()]


@lru_cache(maxsize=1)
def files() -> dict[str, Traversable]:
    found: dict[str, Traversable] = {}
    _gather(resources.files("stagedoor.web"), "/static", found)
    found["/"] = found.pop("/static/index.html")
    found["/sw.js"] = found.pop("/static/sw.js")  # a service worker rules over its own folder only
    return found


def _gather(folder: Traversable, path: str, found: dict[str, Traversable]) -> None:
    for entry in folder.iterdir():
        if entry.is_dir():
            _gather(entry, f"{path}/{entry.name}", found)
        elif entry.name.rpartition(".")[2] in _MEDIA:
            found[f"{path}/{entry.name}"] = entry


def _route(path: str, file: Traversable) -> Route:
    media = _MEDIA[file.name.rpartition(".")[2]]

    async def answer(request: Request) -> Response:
        body = file.read_bytes()
        headers = {"cache-control": "no-cache", "etag": f'"{hashlib.sha256(body).hexdigest()[:32]}"'}
        if request.headers.get("if-none-match") == headers["etag"]:
            return Response(status_code=304, headers=headers)
        return Response(body, media_type=media, headers=headers)

    return Route(path, answer, methods=["GET"])
