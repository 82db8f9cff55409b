"""What other doors answer under ``/api``, for the description alone."""

from __future__ import annotations

from ..access.pairing import DeviceList, Me, Newcomer, Paired, Pairing, PairingWanted
from ..streams.exporting import Asked as ExportQuery
from ..streams.polling import Asked as PollQuery
from ..streams.polling import Polled
from ..streams.sse import Asked as StreamQuery
from .operations import Operation

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        name="streamEvents", method="GET", path="/api/sessions/{id}/stream", tag="sessions", scope="watch",
        summary="A session's events as they come, as server-sent events", query=StreamQuery, answer=str,
        media=("text/event-stream",), faults=(404,),
    ),
    Operation(
        name="pollEvents", method="GET", path="/api/sessions/{id}/poll", tag="sessions", scope="watch",
        summary="A session's next events, as soon as there are any", query=PollQuery, answer=Polled, faults=(404,),
    ),
    Operation(
        name="exportSession", method="GET", path="/api/sessions/{sessionId}/export", tag="sessions", scope="watch",
        summary="A whole session as one document", query=ExportQuery, answer=str, faults=(404,),
        media=("text/markdown", "application/x-ndjson"),
    ),
    Operation(
        name="invite", method="POST", path="/api/pairing", tag="devices", scope="admin", status=201,
        summary="A one-time code that lets a new device in", bodies=(PairingWanted,), body_optional=True,
        answer=Pairing, keyed=False,
    ),
    Operation(
        name="pair", method="POST", path="/api/pair", tag="devices", scope=None, status=201,
        summary="Come in with a one-time code", bodies=(Newcomer,), answer=Paired, keyed=False,
    ),
    Operation(
        name="listDevices", method="GET", path="/api/devices", tag="devices", scope="admin",
        summary="The devices that may come in", answer=DeviceList,
    ),
    Operation(
        name="revokeDevice", method="DELETE", path="/api/devices/{id}", tag="devices", scope="admin", status=204,
        summary="Let a device in no more", faults=(404,),
    ),
    Operation(
        name="whoAmI", method="GET", path="/api/me", tag="devices", scope="watch", summary="The device that asks",
        answer=Me,
    ),
)  # fmt: skip
