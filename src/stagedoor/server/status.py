"""Whether the server is alive and ready, and its numbers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stagedoor import __version__
from stagedoor.errors import StoreAway
from stagedoor.service.service import Service
from stagedoor.service.terminal import NONCE
from stagedoor.transports.tasks import TaskOwner

from .access.auth import caller_of
from .access.devices import Devices, demand
from .problems import problem_response

PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
Health = Literal["ok", "broken"]
LOOK_EVERY = 1.0
"""Seconds between two looks whether the log went away under a question."""
_NEED_THE_LOG = ("/api/", "/rpc", "/mcp")


class Metric(msgspec.Struct, frozen=True):
    name: str
    kind: Literal["counter", "gauge"]
    about: str
    labels: tuple[str, ...] = ()


METRICS: dict[str, Metric] = {
    "build": Metric("stagedoor_build_info", "gauge", "The version of Stagedoor."),
    "started": Metric("stagedoor_start_time_seconds", "gauge", "When the server started."),
    "created": Metric("stagedoor_sessions_created_total", "counter", "Sessions created.", ("agent",)),
    "ended": Metric("stagedoor_sessions_ended_total", "counter", "Sessions ended, by final state.", ("agent", "state")),
    "open": Metric("stagedoor_sessions_open", "gauge", "Sessions that have not ended."),
    "awake": Metric("stagedoor_sessions_awake", "gauge", "Sessions whose agent's process runs."),
    "events": Metric("stagedoor_events_stored_total", "counter", "Events written to the log."),
    "followers": Metric("stagedoor_followers", "gauge", "Readers that follow a session now."),
    "questions asked": Metric("stagedoor_questions_asked_total", "counter", "Permission questions."),
    "questions answered": Metric(
        "stagedoor_questions_answered_total", "counter", "Permission questions answered by a person or program."
    ),
    "questions expired": Metric(
        "stagedoor_questions_expired_total", "counter", "Permission questions denied because nobody answered in time."
    ),
    "notices sent": Metric("stagedoor_notifications_sent_total", "counter", "Notifications that a receiver took."),
    "notices failed": Metric(
        "stagedoor_notifications_failed_total", "counter", "Notifications given up after several tries."
    ),
    "notices dropped": Metric(
        "stagedoor_notifications_dropped_total", "counter", "Notifications dropped because too many waited."
    ),
    "devices": Metric("stagedoor_devices", "gauge", "Paired devices."),
    "requests open": Metric("stagedoor_requests_open", "gauge", "GET requests and streams that are open now."),
}
"""The names of the service's counters → those of Prometheus."""


class Readiness(msgspec.Struct, frozen=True):
    """``log``: events can be stored. ``policy``: the policy file can be read. ``stopping``: no new work is accepted."""

    status: Literal["ready", "not ready"]
    log: Health
    policy: Health
    stopping: bool


class LogGate:
    """While the database of the log is away, requests that need it are told so at once. What is open stays open."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service
        self._tasks = TaskOwner()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._service.log_is_away and scope["path"].startswith(_NEED_THE_LOG):
            await problem_response(_away(), instance=scope["path"])(scope, receive, send)
        elif scope["type"] == "http" and scope["method"] == "GET" and self._service.log_is_shared:
            await self._until_away(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _until_away(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A question that waits for the log is given up when that is away: it changes nothing, and can come again."""
        began = False

        async def sending(message: Message) -> None:
            nonlocal began
            began = True
            await send(message)

        async def answer() -> None:
            await self._app(scope, receive, sending)

        task = self._tasks.start(answer())
        try:
            while not (await asyncio.wait({task}, timeout=LOOK_EVERY))[0]:
                if self._service.log_is_away and not began and scope["path"].startswith(_NEED_THE_LOG):
                    break
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task})
        if task.cancelled():
            await problem_response(_away(), instance=scope["path"])(scope, receive, send)
        else:
            await task


def _away() -> StoreAway:
    return StoreAway("the log's database cannot be reached; nothing is lost: try again in a few seconds")


def routes(service: Service, devices: Devices, *, started: float) -> list[BaseRoute]:
    async def healthz(request: Request) -> Response:
        nonce = request.query_params.get("nonce", "")
        proof = {"proof": devices.proof(nonce)} if NONCE.fullmatch(nonce) else {}
        return _json({"status": "ok", **proof})

    async def readyz(request: Request) -> Response:
        ready = await readiness(service, stopping=devices.stopping)
        return _json(ready, 200 if ready.status == "ready" else 503)

    async def metrics(request: Request) -> Response:
        demand(caller_of(request), "watch")
        counted = {
            **service.counters(),
            "devices": len(devices.all()),
            "requests open": devices.open_visits,
            "started": int(started),
        }
        return Response(prometheus(counted), media_type=PROMETHEUS)

    return [Route("/healthz", healthz), Route("/readyz", readyz), Route("/metrics", metrics)]


async def readiness(service: Service, *, stopping: bool) -> Readiness:
    health = await service.health(stopping=stopping)
    good = health.log and health.policy and not health.stopping
    return Readiness(
        status="ready" if good else "not ready",
        log="ok" if health.log else "broken",
        policy="ok" if health.policy else "broken",
        stopping=health.stopping,
    )


def prometheus(counted: Mapping[str, int]) -> str:
    """Counters in Prometheus' text format. A name's further words are its labels: ``ended <agent> <state>``."""
    samples: dict[str, list[str]] = {name: [] for name in METRICS}
    samples["build"].append(f'stagedoor_build_info{{version="{__version__}"}} 1')
    for key, value in sorted(counted.items()):
        name = key if key in METRICS else key.partition(" ")[0]
        metric = METRICS.get(name)
        if metric is not None:
            words = key.split(" ")[1:] if metric.labels else []
            labels = ",".join(f'{label}="{word}"' for label, word in zip(metric.labels, words, strict=True))
            samples[name].append(f"{metric.name}{{{labels}}} {value}" if labels else f"{metric.name} {value}")
    lines: list[str] = []
    for name, values in samples.items():
        metric = METRICS[name]
        if values or not metric.labels:
            about = [f"# HELP {metric.name} {metric.about}", f"# TYPE {metric.name} {metric.kind}"]
            lines += [*about, *(values or [f"{metric.name} 0"])]
    return "\n".join(lines) + "\n"


def _json(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, {"cache-control": "no-store"}, "application/json")
