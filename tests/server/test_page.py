"""How the page's files are served: compressed where it helps, and never a byte that the browser has already."""

from __future__ import annotations

import gzip
import re
from typing import Any

import pytest

from stagedoor.server.bundle import bundle, squeezed
from stagedoor.server.page import BUNDLE, STYLES, accepts_gzip, files, page_file

TEXT = ("/", "/sw.js", "/static/app.js", BUNDLE, STYLES, "/static/manifest.webmanifest")
AS_IT_IS = ("/static/icons/any-192.png", "/static/icon.svg")
BUDGET = 60_000
STYLE_FILES = [files()[f"/static/style/{name}.css"] for name in ("frame", "stream", "views")]


@pytest.mark.parametrize(
    ("value", "accepted"),
    [
        ("gzip", True),
        ("gzip, deflate, br, zstd", True),
        ("br;q=1.0, GZIP ; Q=0.5", True),
        ("gzip;q=0.001", True),
        ("*", True),
        ("*;q=0, gzip", True),
        ("gzip;q=0", False),
        ("gzip;q=0.0, *", False),
        ("gzip;q=nonsense", False),
        ("*;q=0", False),
        ("identity", False),
        ("br", False),
        ("", False),
        (None, False),
    ],
)
def test_who_accepts_gzip(value: str | None, accepted: bool) -> None:
    assert accepts_gzip(value) is accepted


@pytest.mark.parametrize("path", TEXT)
def test_text_is_compressed(server: Any, path: str) -> None:
    plain = server.http.get(path, headers={"accept-encoding": "identity"})
    with server.http.stream("GET", path, headers={"accept-encoding": "br, gzip"}) as packed:
        raw = b"".join(packed.iter_raw())
    body = page_file(path).plain.body
    assert plain.content == body
    assert gzip.decompress(raw) == body
    assert len(raw) < len(body)
    assert int(packed.headers["content-length"]) == len(raw)
    assert int(plain.headers["content-length"]) == len(body)
    assert packed.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert packed.headers["content-type"] == plain.headers["content-type"]
    assert [answer.headers["vary"] for answer in (packed, plain)] == ["accept-encoding"] * 2
    assert [answer.headers["cache-control"] for answer in (packed, plain)] == ["no-cache"] * 2
    assert packed.headers["etag"] != plain.headers["etag"]


@pytest.mark.parametrize("path", [path for path in files() if path.endswith((".js", ".css"))])
def test_only_comments_are_left_out(path: str) -> None:
    source, served = (text.decode().split("\n") for text in (files()[path].read_bytes(), page_file(path).plain.body))
    assert len(source) == len(served)
    template = False
    for line, left in zip(source, served, strict=True):
        if line != left:
            assert not template, f"a line of a template literal looks like a comment: {line}"
            assert (left, line.strip()[:1] in ("/", "*")) == ("", True)
        elif line.count("`") % 2:
            template = not template


def modules() -> list[str]:
    return [path for path in files() if path.endswith(".js") and path != "/sw.js"]


def test_the_bundle_holds_every_module_once() -> None:
    served = page_file(BUNDLE).plain.body.decode()
    for path in modules():
        lines = [line for line in page_file(path).plain.body.decode().split("\n") if line.strip()]
        own = [squeezed(line) for line in lines if not line.strip().startswith(("import", "export", "}"))]
        assert own[len(own) // 2].rstrip(",;") in served, path
    assert len(re.findall(r"^const m\d+=\(\(\)=>\{", served, re.MULTILINE)) == len(modules())
    assert not [line for line in served.split("\n") if line.startswith(("import ", "export "))]


@pytest.mark.parametrize("path", modules())
def test_no_text_in_backquotes_goes_over_lines(path: str) -> None:
    """The bundle leaves out the indentation."""
    assert [line for line in page_file(path).plain.body.decode().split("\n") if line.count("`") % 2] == []


def test_every_style_stands_in_the_one_sheet_once() -> None:
    """A browser reads the same rules from it as from the files, in the same order."""
    rules = "".join(path.read_text() for path in STYLE_FILES)
    spaces = re.compile(r"/\*.*?\*/|\s+|;(?=\s*\})", re.DOTALL)
    assert spaces.sub("", page_file(STYLES).plain.body.decode()) == spaces.sub("", rules)


def test_modules_in_a_circle_are_refused() -> None:
    sources = {"/a.js": 'import "./b.js";\n', "/b.js": 'import { a } from "./a.js";\n'}
    with pytest.raises(ValueError, match="circle"):
        bundle("/a.js", sources.__getitem__)


@pytest.mark.parametrize("path", AS_IT_IS)
def test_images_and_tiny_files_are_sent_as_they_are(server: Any, path: str) -> None:
    answer = server.http.get(path, headers={"accept-encoding": "gzip"})
    assert answer.content == files()[path].read_bytes()
    assert {"content-encoding", "vary"} & set(answer.headers) == set()


@pytest.mark.parametrize("encoding", ["gzip", "identity"])
def test_what_the_browser_has_is_not_sent_again(server: Any, encoding: str) -> None:
    path, other = "/static/app.js", "identity" if encoding == "gzip" else "gzip"
    first = server.http.get(path, headers={"accept-encoding": encoding})
    etag = first.headers["etag"]
    for matching in (etag, f"W/{etag}", f'"another", {etag}', "*"):
        again = server.http.get(path, headers={"accept-encoding": encoding, "if-none-match": matching})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)
        assert again.headers["vary"] == "accept-encoding"
    changed = server.http.get(path, headers={"accept-encoding": other, "if-none-match": etag})
    assert (changed.status_code, changed.content) == (200, first.content)


def test_head_says_what_get_would_send(server: Any) -> None:
    headers = {"accept-encoding": "gzip"}
    head, body = server.http.head("/static/app.js", headers=headers), server.http.get("/static/app.js", headers=headers)
    names = ("content-length", "content-encoding", "etag", "vary", "content-type")
    assert [head.headers[name] for name in names] == [body.headers[name] for name in names]
    assert head.content == b""


@pytest.mark.parametrize("path", ["/api/me", "/api/sessions", "/openapi.json"])
def test_answers_of_the_api_are_never_compressed(server: Any, path: str) -> None:
    """They hold secrets beside text that others wrote: their length must give nothing away."""
    answer = server.http.get(path, headers={"accept-encoding": "gzip"})
    assert answer.status_code == 200
    assert "content-encoding" not in answer.headers


def test_the_page_is_light(capsys: pytest.CaptureFixture[str]) -> None:
    """What travels on a first visit: the service worker, and every file that it stores; each once."""
    worker = files()["/sw.js"].read_text()
    loaded = ["/sw.js", *(path for path in (*files(), BUNDLE, STYLES) if f'"{path}"' in worker)]
    assert {BUNDLE, STYLES} <= {*loaded}
    weights = {path: len(page_file(path).choose("gzip").body) for path in loaded}
    total = sum(weights.values())
    with capsys.disabled():
        print(f"\nthe page weighs {total / 1000:.1f} KB of {BUDGET / 1000:.0f} KB (gzip, {len(weights)} files)")
    assert total <= BUDGET, sorted(weights.items(), key=lambda item: -item[1])
