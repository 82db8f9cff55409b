"""How the server is: alive, ready, and in numbers."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from podium import __version__
from podium.errors import StoreError
from podium.service.service import Service
from podium.service.store import Remember

from .auth import caller_of, demand
from .devices import Devices

PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
Health = Literal["ok", "broken"]


class Ready(msgspec.Struct, frozen=True):
    """``log``: what is stored is kept. ``policy``: the policy file can be read. ``stopping``: no new work is taken."""

    status: Literal["ready", "not ready"]
    log: Health
    policy: Health
    stopping: bool


def routes(service: Service, devices: Devices, *, started: float) -> list[BaseRoute]:
    async def healthz(request: Request) -> Response:
        return _json({"status": "ok"})

    async def readyz(request: Request) -> Response:
        ready = await readiness(service, stopping=devices.stopping)
        return _json(ready, 200 if ready.status == "ready" else 503)

    async def metrics(request: Request) -> Response:
        demand(caller_of(request), "watch")
        own = {"requests_open": devices.open_visits, "devices": len(devices.all())}
        counted: Mapping[str, Any] = getattr(service, "counters", dict)()
        start = f"# TYPE podium_start_time_seconds gauge\npodium_start_time_seconds {started:.3f}\n"
        build = f'# TYPE podium_build_info gauge\npodium_build_info{{version="{__version__}"}} 1\n'
        return Response(start + build + prometheus(own, gauges=True) + prometheus(counted), media_type=PROMETHEUS)

    return [Route("/healthz", healthz), Route("/readyz", readyz), Route("/metrics", metrics)]


async def readiness(service: Service, *, stopping: bool) -> Ready:
    log: Health = "ok" if service.fault is None else "broken"
    if log == "ok" and not stopping:
        try:
            await service.store.write(Remember("ready", str(int(time.time())).encode()))
        except StoreError:
            log = "broken"
    policy: Health = "broken" if getattr(getattr(service, "policy", None), "problem", None) else "ok"
    good = log == "ok" and policy == "ok" and not stopping
    return Ready(status="ready" if good else "not ready", log=log, policy=policy, stopping=stopping)


def prometheus(values: Mapping[str, Any], *, gauges: bool = False) -> str:
    return ""


def _json(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, {"cache-control": "no-store"}, "application/json")
