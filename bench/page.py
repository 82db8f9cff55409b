"""The page in a browser: how soon after a tap something is on screen, what it weighs, how it keeps up with a stream.

The time to the first event is told against the same without a browser: the request, and the first event read from the
session's WebSocket. What an event costs the page is processor time of its main thread, which a busy machine changes
little.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stagedoor.server.app import create_app
from stagedoor.server.listening import listening, open_socket
from stagedoor.server.page import BUNDLE, STYLES, files, page_file
from stagedoor.service.config.settings import AgentSettings, Settings
from stagedoor.service.service import Service
from stagedoor.service.store import Append
from stagedoor.service.views import Record, SessionView
from tools.browser import FLAGS, find_browser

TOKEN = "stagedoor_bench-token"
RUNS, RATE, SECONDS = 7, 200, 6.0
MOST_BYTES = 60_000
PROMPT = json.dumps({"script": [[{"say": "Here."}]]})
FRAMES = """() => {
  window.frames_ = []; let before = performance.now();
  const next = now => {
    window.frames_.push(now - before); before = now;
    if (window.watching) requestAnimationFrame(next);
  };
  window.watching = true; requestAnimationFrame(next);
}"""
SHOWS = "seq => Number([...document.querySelectorAll('[data-key]')].pop()?.dataset.key) > seq - 60"
CANCEL = """() => fetch(`/api/sessions/${location.hash.slice(4)}/cancel`, {
  method: 'POST', body: '{}', headers: {'content-type': 'application/json', 'idempotency-key': crypto.randomUUID()}
})"""
TAP = """() => new Promise(done => {
  const from = performance.now();
  const seen = new MutationObserver(() => {
    if (!document.querySelector('virtual-list .item')) return;
    seen.disconnect();
    requestAnimationFrame(() => done(performance.now() - from));
  });
  seen.observe(document.getElementById('main'), { childList: true, subtree: true });
  document.querySelector('new-session button[type=submit]').click();
})"""


def weigh() -> bool:
    worker = files()["/sw.js"].read_text()
    stored = [path for path in (*files(), BUNDLE, STYLES) if f'"{path}"' in worker]
    loaded = [page_file(path) for path in {"/sw.js", *stored}]
    travels, whole = (sum(len(file.choose(coding).body) for file in loaded) for coding in ("gzip", "identity"))
    print(f"bytes of the page: {travels:,} in {len(loaded)} files ({whole:,} unpacked; bound {MOST_BYTES:,})")
    return travels <= MOST_BYTES


async def bare(url: str, root: str) -> float:
    """Milliseconds from the request to the first event, without a browser."""
    import httpx
    from websockets.asyncio.client import connect

    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60) as client:
        since = time.perf_counter()
        body = {"agent": "understudy", "prompt": PROMPT, "cwd": root, "keepOpen": True}
        made = (await client.post("/api/sessions", json=body)).json()
        where = f"{url.replace('http', 'ws')}/ws/sessions/{made['id']}?after=0"
        async with connect(where, additional_headers=headers) as socket:
            while json.loads(await socket.recv())["type"] == "verdict":
                pass
            taken = time.perf_counter() - since
        await client.post(f"/api/sessions/{made['id']}/cancel")
    return taken * 1000


async def tapped(page: Any, url: str) -> float:
    await page.goto(f"{url}/#/new")
    await page.fill("#prompt", PROMPT)
    taken: float = await page.evaluate(TAP)
    await page.evaluate(CANCEL)
    return taken


async def streamed(page: Any, url: str, service: Service, root: str, *, before: int) -> tuple[list[float], float, int]:
    """The times between frames while a session streams that has some events already, the microseconds that the page
    works for each event, and how many events it lacks at the end."""
    session_id, now = f"bench-stream-{before}", int(time.time() * 1000)
    row = {"agent": "understudy", "cwd": root, "title": "A stream", "created_at": now, "updated_at": now}

    def write(first: int, many: int, activity: Any) -> Any:
        records = []
        for seq in range(first, first + many):
            event = {"sessionId": session_id, "seq": seq, "timestamp": now, "turn": 1, **_event(seq)}
            records.append(Record(seq=seq, at=now, type=event["type"], body=json.dumps(event).encode()))
        view = SessionView(id=session_id, activity=activity, last_seq=first + many - 1, **row)
        return service._journal.write(Append(session_id, records), view)

    await write(1, before, "working")
    received: set[int] = set()
    page.on("websocket", lambda socket: count_received(socket, session_id, received))
    await page.goto(f"{url}/#/s/{session_id}")
    await page.wait_for_function(SHOWS, arg=before)
    meter = await page.context.new_cdp_session(page)
    await meter.send("Performance.enable", {"timeDomain": "threadTicks"})
    worked = await work_of(meter)
    await page.evaluate(FRAMES)
    step, sent, since = RATE // 20, before, time.perf_counter()
    while (passed := time.perf_counter() - since) < SECONDS:
        if sent - before < passed * RATE:
            await write(sent + 1, step, "working")
            sent += step
        await asyncio.sleep(0.01)
    await page.wait_for_function(SHOWS, arg=sent)
    worked = await work_of(meter) - worked
    frames = await page.evaluate("() => { window.watching = false; return window.frames_ }")
    missing = set(range(before + 1, sent + 1)) - received
    return frames, worked * 1e6 / (sent - before), len(missing)


def count_received(socket: Any, session_id: str, received: set[int]) -> None:
    """Note the numbers of the events that the page gets of a session."""
    if session_id in socket.url:
        socket.on("framereceived", lambda frame: received.add(json.loads(frame).get("seq", 0)))


async def work_of(meter: Any) -> float:
    """Seconds of processor time that the main thread of the page has worked."""
    metrics = (await meter.send("Performance.getMetrics"))["metrics"]
    return float(next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration"))


def _event(seq: int) -> dict[str, Any]:
    if seq == 1:
        return {"type": "turn_started", "prompt": "Go"}
    match seq % 50:
        case 0:
            return {
                "type": "tool_use",
                "toolUseId": f"t{seq}",
                "name": "shell",
                "operation": "execute",
                "target": "make",
            }
        case 9:
            return {"type": "tool_result", "toolUseId": f"t{seq - 9}", "status": "success", "output": "ok\n" * 20}
        case step if step < 9:
            return {"type": "tool_progress", "toolUseId": f"t{seq - step}", "output": "working\n"}
        case 49:
            return {"type": "text", "text": "word " * 39, "messageId": str(seq)}
        case _:
            return {"type": "text_delta", "text": "word ", "messageId": str(seq)}


async def measured(program: str, *, befores: Sequence[int], throttle: int) -> bool:
    from playwright.async_api import async_playwright

    with tempfile.TemporaryDirectory(prefix="stagedoor-bench-") as scratch:
        root = Path(scratch) / "work"
        root.mkdir()
        own = AgentSettings(env={"STAGEDOOR_UNDERSTUDY_HOME": f"{scratch}/understudy"})
        settings = Settings(
            home=f"{scratch}/stagedoor",
            port=0,
            roots=(str(root),),
            default_agent="understudy",
            agents={"understudy": own},
        )
        service = Service(settings)
        opened = open_socket("127.0.0.1", 0)
        url = f"http://127.0.0.1:{opened.getsockname()[1]}"
        app = create_app(service, token=TOKEN)
        async with listening(app, settings, opened), async_playwright() as playwright:
            env = {**os.environ, "HOME": scratch, "TMPDIR": scratch}
            browser = await playwright.chromium.launch(executable_path=program, args=list(FLAGS), env=dict(env))
            context = await browser.new_context(viewport={"width": 390, "height": 844})
            code = app.state.codes.new("admin", "bench").display
            await context.request.post(f"{url}/api/pair", data={"code": code, "name": "bench", "cookie": True})
            page = await context.new_page()
            slowing = await context.new_cdp_session(page)  # it holds as long as this is attached
            await slowing.send("Emulation.setCPUThrottlingRate", {"rate": throttle})
            await tapped(page, url)  # the first asks the agents how they are
            await bare(url, str(root))
            taps, bares = [], []
            for _ in range(RUNS):
                taps.append(await tapped(page, url))
                bares.append(await bare(url, str(root)))
            tap, without = statistics.median(taps), statistics.median(bares)
            print(f"first event on screen after a tap: {tap / without:.2f} × that without a browser ({tap:.0f} ms)")
            missing = [await stream_after(page, url, service, str(root), before=before) for before in befores]
            await browser.close()
    return not any(missing)


async def stream_after(page: Any, url: str, service: Service, root: str, *, before: int) -> int:
    frames, work, missing = await streamed(page, url, service, root, before=before)
    frames.sort()
    middle, late = frames[len(frames) // 2], frames[len(frames) * 99 // 100]
    print(
        f"{RATE} events/s after {before:,}: {work:,.0f} µs of work for each; a frame takes {middle:.1f} ms, "
        f"99 of 100 under {late:.1f} ms; missing {missing}"
    )
    return missing


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.page", description="The page in a browser.")
    parser.add_argument(
        "--before", type=int, nargs="*", default=[1, 5000], help="events that a session has when it begins to stream"
    )
    parser.add_argument("--throttle", type=int, default=1, help="how many times slower the browser is made")
    arguments = parser.parse_args()
    light = weigh()
    program = find_browser()
    if program is None:
        print("there is no Chromium: run `make browser`")
        return 0 if light else 1
    return 0 if asyncio.run(measured(program, befores=arguments.before, throttle=arguments.throttle)) and light else 1


if __name__ == "__main__":
    sys.exit(main())
