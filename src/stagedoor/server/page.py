"""``/``: the page, and ``/docs``: REST to try out. ``origins`` tells the browser to load nothing else.

The page's text is sent compressed, all else as it is.
"""

from __future__ import annotations

import gzip
import hashlib
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from .bundle import bundle, stylesheet

_MEDIA_TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "png": "image/png",
    "webmanifest": "application/manifest+json",
}
_DOCS_FILES = {
    "/docs": ("index.html", "text/html"),
    "/docs/docs.js": ("docs.js", "text/javascript"),
    "/docs/docs.css": ("docs.css", "text/css"),
}
BUNDLE = "/static/page.js"
"""All modules of the page in one file."""
STYLES = "/static/page.css"
"""All its styles, in the order in which later ones win."""
_STYLE_FILES = ("frame", "stream", "views")
_COMPRESSED_ALREADY = ("png",)
_COMMENTED = ("js", "css")
_WORTH_COMPRESSING = 400
"""Bytes. Below that, the headers weigh more than what gzip saves."""


class Variant(msgspec.Struct, frozen=True):
    """A file's bytes in one encoding."""

    body: bytes
    etag: str


class PageFile(msgspec.Struct, frozen=True):
    """One file of the page, read and compressed once."""

    media_type: str
    plain: Variant
    gzipped: Variant | None

    def choose(self, accept_encoding: str | None) -> Variant:
        """What a browser with this ``Accept-Encoding`` gets."""
        return self.gzipped if self.gzipped is not None and accepts_gzip(accept_encoding) else self.plain

    def headers(self, variant: Variant) -> dict[str, str]:
        headers = {"cache-control": "no-cache", "etag": variant.etag}
        if self.gzipped is not None:
            headers["vary"] = "accept-encoding"
        return headers


def routes(service: object = None) -> list[Route]:
    """One route per file: nothing outside the package can be requested."""
    docs = [_docs_route(path, name, media) for path, (name, media) in _DOCS_FILES.items()]
    return [*(_route(path) for path in (*files(), BUNDLE, STYLES)), *docs]


@cache
def files() -> dict[str, Traversable]:
    """The page's files by the path they are served at."""
    by_path: dict[str, Traversable] = {}
    _collect(resources.files("stagedoor.web"), "/static", by_path)
    by_path["/"] = by_path.pop("/static/index.html")
    by_path["/sw.js"] = by_path.pop("/static/sw.js")  # a service worker rules over its own folder only
    return by_path


@cache
def page_file(path: str) -> PageFile:
    ending = path.rpartition(".")[2] if path != "/" else "html"
    if path == BUNDLE:
        body = bundle("/static/app.js", _source).encode()
    elif path == STYLES:
        body = stylesheet(_source(f"/static/style/{name}.css") for name in _STYLE_FILES).encode()
    else:
        body = files()[path].read_bytes()
        body = without_comments(body) if ending in _COMMENTED else body
    digest = hashlib.sha256(body).hexdigest()[:32]
    gzipped = None
    if ending not in _COMPRESSED_ALREADY and len(body) >= _WORTH_COMPRESSING:
        gzipped = Variant(gzip.compress(body, 9, mtime=0), f'"{digest}-gzip"')
    return PageFile(_MEDIA_TYPES[ending], Variant(body, f'"{digest}"'), gzipped)


def _source(path: str) -> str:
    return without_comments(files()[path].read_bytes()).decode()


def without_comments(source: bytes) -> bytes:
    """The same lines, those that hold nothing but a comment empty: types and reasons are for readers, not for phones.

    >>> without_comments(b"/** why\\n * more */\\nlet a; // stays\\n  // goes\\nlet b;")
    b'\\n\\nlet a; // stays\\n\\nlet b;'
    """
    lines: list[bytes] = []
    inside = False
    for line in source.split(b"\n"):
        text = line.strip()
        opens = not inside and text.startswith(b"/*") and (b"*/" not in text or text.endswith(b"*/"))
        comment = inside or opens or text.startswith(b"//")
        inside = (inside or opens) and b"*/" not in text
        lines.append(b"" if comment else line)
    return b"\n".join(lines)


def accepts_gzip(accept_encoding: str | None) -> bool:
    """Whether this ``Accept-Encoding`` allows gzip. Without the header: no, since every client can read a plain file.

    >>> [accepts_gzip(value) for value in ("gzip, br", "gzip;q=0", "br, *;q=0.1", "identity", None)]
    [True, False, True, False, False]
    """
    weights: dict[str, float] = {}
    for item in (accept_encoding or "").split(","):
        name, *parameters = (part.strip().lower() for part in item.split(";"))
        weights[name] = _weight(parameters)
    return weights.get("gzip", weights.get("*", 0.0)) > 0


def _weight(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0


def _same_etag(if_none_match: str | None, etag: str) -> bool:
    tags = [tag.strip().removeprefix("W/") for tag in (if_none_match or "").split(",")]
    return etag in tags or "*" in tags


def _collect(folder: Traversable, path: str, by_path: dict[str, Traversable]) -> None:
    for entry in folder.iterdir():
        if entry.is_dir():
            _collect(entry, f"{path}/{entry.name}", by_path)
        elif entry.name.rpartition(".")[2] in _MEDIA_TYPES:
            by_path[f"{path}/{entry.name}"] = entry


def _route(path: str) -> Route:
    async def answer(request: Request) -> Response:
        file = page_file(path)
        variant = file.choose(request.headers.get("accept-encoding"))
        headers = file.headers(variant)
        if _same_etag(request.headers.get("if-none-match"), variant.etag):
            return Response(status_code=304, headers=headers)
        if variant is file.gzipped:
            headers["content-encoding"] = "gzip"
        return Response(variant.body, media_type=file.media_type, headers=headers)

    return Route(path, answer, methods=["GET"])


def _docs_route(path: str, name: str, media: str) -> Route:
    async def answer(request: Request) -> Response:
        body = resources.files("stagedoor.server").joinpath("docs", name).read_bytes()
        return Response(body, media_type=media, headers={"cache-control": "no-cache"})

    return Route(path, answer, methods=["GET"])
