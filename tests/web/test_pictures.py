"""The pictures of the page in the docs, and its icons: ``make pictures`` takes them again. Look at them."""

from __future__ import annotations

import json
import os
import re
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stagedoor.server.page import files
from stagedoor.service.config.settings import AgentSettings
from stagedoor.service.store import Append
from stagedoor.service.views import Record, SessionView, TurnUsage
from stagedoor.testing import ScriptedModel, find_cli, scripted_agents
from stagedoor.unified.events import Usage

WEB = Path(__file__).parents[2] / "src" / "stagedoor" / "web"
IMAGES = Path(__file__).parents[2] / "docs" / "images"
OPEN = ".question:not(.closed)"
DAY = 86_400_000
MOST = 150_000
SHOTS = {
    # name: (view, size, theme)
    "page-phone-question": ("question", "phone", "light"),
    "page-phone-sessions": ("list", "phone", "dark"),
    "page-phone-new": ("new", "phone", "light"),
    "page-phone-inbox": ("inbox", "phone", "dark"),
    "page-desk-session": ("session", "desk", "light"),
    "page-desk-question": ("question", "desk", "dark"),
    "page-desk-compare": ("compare", "desk", "light"),
    "page-desk-overview": ("overview", "desk", "dark"),
}
SHADES = 16
ICONS = {
    # name: (pixels, how large the mark is on its ground; None: the icon as it is, with round corners)
    "any-192": (192, None),
    "any-512": (512, None),
    "maskable-512": (512, 0.85),  # whatever shape a phone cuts out, the mark is inside
    "touch-180": (180, 0.95),
}
PIXELS = """async ([svg, size]) => {
  const image = new Image(size, size);
  image.src = `data:image/svg+xml;base64,${btoa(svg)}`;
  await image.decode();
  const canvas = Object.assign(document.createElement("canvas"), { width: size, height: size });
  const pen = canvas.getContext("2d");
  pen.drawImage(image, 0, 0, size, size);
  return [...new Uint32Array(pen.getImageData(0, 0, size, size).data.buffer)];
}"""
FRAMES: dict[str, Any] = {
    "phone": {"device_scale_factor": 1.75},
    "desk": {"viewport": {"width": 1240, "height": 780}},
}
PLAN = ("Read the code", "Round to cents", "Run the tests")
BEFORE, AFTER = (f"def total(items):\n    return {total}\n" for total in ("sum(items)", "round(sum(items), 2)"))


def at(step: int) -> list[dict[str, str]]:
    states = ["completed"] * step + ["in_progress"] + ["pending"] * 2
    return [{"text": text, "status": status} for text, status in zip(PLAN, states, strict=False)]


REPAIR = [
    [
        {"think": "The prices are floats, so cents get lost on the way. Rounding the sum is the smallest repair."},
        {"say": "I look at `shop.py` first.\n"},
        {"plan": at(0)},
        {"call": {"tool": "read_file", "input": {"path": "shop.py"}}},
    ],
    [
        {"say": f"The sum of floats is not rounded. I will change one line:\n\n```python\n{AFTER}```\n"},
        {"plan": at(1)},
        {"call": {"tool": "edit_file", "input": {"path": "shop.py", "old": BEFORE, "new": AFTER}}},
    ],
    [
        {"plan": at(2)},
        {"shell": "python3 -B -c 'import shop; assert shop.total([0.1, 0.2]) == 0.3; print(\"1 passed\")'"},
    ],
    [{"plan": at(3)}],
    [{"say": "Totals are rounded to cents now, and the test passes."}],
]  # fmt: skip
PLAYS: dict[str, list[Any]] = {
    "The totals lose cents": REPAIR,
    "Make a release": [[{"shell": "rm -rf build && make dist"}], [{"say": "ok"}]],
}
for mark, new in {"sum it exactly": "math.fsum(items)", "round it": "round(sum(items), 2)"}.items():
    edit = {"path": "shop.py", "old": "sum(items)", "new": new}
    PLAYS[mark] = [[{"call": {"tool": "edit_file", "input": edit}}], [{"say": f"The total is {new} now."}]]
PAST = (
    ("claude", "Explain the payment flow", "done", 48_200, 0.31),
    ("codex", "Port the build to Python 3.13", "failed", 91_400, 0.0),
    ("gemini", "Write a changelog for 2.4", "done", 22_900, 0.0),
    ("opencode", "Find the flaky test", "cancelled", 13_050, 0.04),
    ("claude", "Add dark mode to the receipts", "done", 64_700, 0.48),
)


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, AgentSettings]]:
    folder = tmp_path_factory.mktemp("clis")
    plays = folder / "plays.json"
    plays.write_text(json.dumps({"script": [{"say": "ok"}], "routes": PLAYS}))
    own = AgentSettings(args=("--script", str(plays)), env={"STAGEDOOR_UNDERSTUDY_HOME": str(folder / "understudy")})
    with ScriptedModel([]) as model:
        yield {"understudy": own} | {
            name: AgentSettings(command=str(program), env=model.environment(name, cwd=folder, home=folder / name).env)
            for name in scripted_agents()
            if (program := find_cli(name)) is not None
        }


def remember(stage: Any) -> None:
    """Sessions of other days and agents."""
    now = int(time.time() * 1000)
    changes: list[Any] = []
    for number, (agent, title, state, tokens, cost) in enumerate(PAST, 1):
        at = now - number * DAY - 3_600_000 * number
        row = SessionView(
            id=f"past-{number}", agent=agent, cwd=str(stage.root / "shop"), title=title, prompt=title, state=state,
            activity="ended", created_at=at, updated_at=at, last_seq=1, cost_usd=cost or None,
        )  # fmt: skip
        body = b'{"type":"done","status":"success","seq":1}'
        changes += [Append(row.id, [Record(seq=1, at=at, type="done", body=body)]), row]
        for day in range(3):
            usage = Usage(input_tokens=tokens, total_tokens=tokens * (day + 2) // 2, cost_usd=cost or None)
            when = at - day * 2 * DAY
            changes.append(TurnUsage(session_id=row.id, turn=day, at=when, agent=agent, project=row.cwd, usage=usage))
    stage.run(stage.service._journal.write(*changes))


def scene(stage: Any) -> dict[str, tuple[str, str]]:
    remember(stage)
    folder = stage.folder("shop")
    shop = {
        "cwd": str(folder),
        "prompt": "The totals lose cents. Find out why and repair it.",
        "title": "Round the totals to cents",
    }
    finished = stage.start(**shop, autoApprove=["shell"])
    stage.idle(finished)
    group = {
        "cwd": str(stage.folder("receipts")),
        "group": "a race",
        "worktree": True,
        "keepOpen": False,
        "tier": "autonomous",
    }
    for method in ("sum it exactly", "round it"):
        stage.ended(stage.start(prompt=f"Totals lose cents: {method}", title="Sum without loss of cents", **group))
    (folder / "shop.py").write_text("def total(items):\n    return sum(items)\n")
    waiting = stage.start(**shop, tier="supervised", approval="ask")
    other = stage.start(prompt="Make a release", cwd=str(folder), title="Release 2.4")
    for session_id in (waiting, other):
        stage.until(lambda session_id=session_id: stage.session(session_id)["openQuestions"], "a question")
    return {
        "list": ("#/", "session-list .session.waiting"),
        "new": ("#/new", "new-session form"),
        "session": (f"#/s/{finished}", ".rule"),
        "question": (f"#/s/{waiting}", OPEN),
        "inbox": ("#/inbox", f"inbox-view {OPEN} >> nth=1"),
        "compare": ("#/compare/a race", ".column:has-text('+1') >> nth=1"),
        "overview": ("#/overview", ".card .rows.audit"),
    }


def icon(svg: str, scale: float | None) -> str:
    if scale is None:
        return svg
    mark = rf'<g transform="translate(32 32) scale({scale}) translate(-32 -32)">\1</g></svg>'
    return re.sub("(<path.*)</svg>", mark, svg.replace(' rx="14"', ""), flags=re.DOTALL)


def indexed(pixels: list[int], size: int) -> bytes:
    """A PNG of few colours: the most frequent ones, and for every other the nearest of them."""
    counted = Counter(pixel.to_bytes(4, "little") for pixel in pixels)
    palette = [colour for colour, _ in counted.most_common(SHADES)]

    def nearest(colour: bytes) -> int:
        return min(
            range(len(palette)), key=lambda at: sum(abs(a - b) for a, b in zip(palette[at], colour, strict=True))
        )

    place = {int.from_bytes(colour, "little"): nearest(colour) for colour in counted}
    rows = (bytes(place[pixel] for pixel in pixels[at : at + size]) for at in range(0, size * size, size))
    halves = (bytes(first << 4 | second for first, second in zip(row[::2], row[1::2], strict=True)) for row in rows)
    return png(
        (b"IHDR", size.to_bytes(4) * 2 + bytes((4, 3, 0, 0, 0))),
        (b"PLTE", b"".join(colour[:3] for colour in palette)),
        (b"tRNS", bytes(colour[3] for colour in palette)),
        (b"IDAT", zlib.compress(b"".join(b"\0" + row for row in halves), 9)),
    )


def packed(picture: bytes) -> bytes:
    """The same picture in fewer bytes: browsers pack in haste."""
    chunks, at = [], 8
    while at < len(picture):
        size = int.from_bytes(picture[at : at + 4])
        chunks.append((picture[at + 4 : at + 8], picture[at + 8 : at + 8 + size]))
        at += size + 12
    pixels = zlib.compress(zlib.decompress(b"".join(body for kind, body in chunks if kind == b"IDAT")), 9)
    needed = [(kind, body) for kind, body in chunks if kind in (b"IHDR", b"PLTE", b"tRNS")]
    return png(*needed, (b"IDAT", pixels))


def png(*chunks: tuple[bytes, bytes]) -> bytes:
    out = b"\x89PNG\r\n\x1a\n"
    for kind, body in (*chunks, (b"IEND", b"")):
        out += len(body).to_bytes(4) + kind + body + zlib.crc32(kind + body).to_bytes(4)
    return out


@pytest.mark.skipif("STAGEDOOR_BLESS" not in os.environ, reason="pictures are taken by `make pictures`")
def test_take_the_pictures(visit: Any, stage: Any) -> None:
    visit.forgiven = ("403",)  # a folder of the pictures' own, outside the roots, is asked about when it is typed
    where = scene(stage)
    for name, (view, size, theme) in SHOTS.items():
        address, ready = where[view]
        page = visit(address, size, theme=theme, **FRAMES[size])
        page.locator(ready).first.wait_for()
        if view == "new":
            page.get_by_label("Prompt").fill("The totals lose cents. Find out why and repair it.")
            page.get_by_label("Project folder").fill("~/code/shop")
            page.evaluate("document.activeElement.blur()")
        page.locator(".settling, .skeleton, .prose.raw").first.wait_for(state="detached")
        page.evaluate("Promise.all(document.getAnimations().map(one => one.finished))")
        (IMAGES / f"{name}.png").write_bytes(packed(page.screenshot()))
        page.context.close()


@pytest.mark.skipif("STAGEDOOR_BLESS" not in os.environ, reason="icons are drawn by `make pictures`")
def test_draw_the_icons(visit: Any) -> None:
    page = visit()
    svg = files()["/static/icon.svg"].read_text()
    for name, (size, scale) in ICONS.items():
        pixels = page.evaluate(PIXELS, [icon(svg, scale), size])
        (WEB / "icons" / f"{name}.png").write_bytes(indexed(pixels, size))


def test_the_icons_have_the_size_they_claim() -> None:
    claimed = {
        icon["src"]: icon["sizes"]
        for icon in json.loads(files()["/static/manifest.webmanifest"].read_text())["icons"]
        if icon["type"] == "image/png"
    }
    drawn = {path: file.read_bytes()[16:24] for path, file in files().items() if path.endswith(".png")}
    sizes = {path: f"{int.from_bytes(head[:4])}x{int.from_bytes(head[4:])}" for path, head in drawn.items()}
    assert sizes == {**claimed, "/static/icons/touch-180.png": "180x180"}
    assert {path.rpartition("/")[2].removesuffix(".png") for path in sizes} == set(ICONS)


def test_the_pictures_are_there_and_small() -> None:
    sizes = {name: (IMAGES / f"{name}.png").stat().st_size for name in SHOTS}
    assert {name: size for name, size in sizes.items() if not 5_000 < size < MOST} == {}
    page = (Path(__file__).parents[2] / "docs" / "page.md").read_text()
    assert set(re.findall(r"images/(page-[\w-]+)\.png", page)) == set(SHOTS)
