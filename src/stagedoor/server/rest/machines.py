"""REST: the machines that run sessions."""

from __future__ import annotations

import msgspec

from stagedoor.service.machines import CODE_SECONDS, Machine

from .operations import Operation, RestCall


class MachineList(msgspec.Struct, frozen=True):
    """Those that can take work first."""

    workers: list[Machine]


class Enrolment(msgspec.Struct, frozen=True):
    """``code``: lets one machine in, once (``stagedoor worker --enrol CODE``), for so many ``seconds``."""

    code: str
    seconds: int


class DrainBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether it takes nothing new; what it runs goes on."""

    draining: bool


async def workers(call: RestCall[None, None]) -> MachineList:
    return MachineList(await call.service.machines.list())


async def drain(call: RestCall[None, DrainBody]) -> Machine:
    return await call.service.machines.drain(call.path["workerId"], draining=call.body.draining)


async def enrol(call: RestCall[None, None]) -> Enrolment:
    return Enrolment(code=await call.service.machines.enrol(by=call.caller.device_id), seconds=int(CODE_SECONDS))


async def revoke(call: RestCall[None, None]) -> Machine:
    return await call.service.machines.revoke(call.path["workerId"])


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        name="listWorkers", method="GET", path="/api/workers", tag="server", scope="watch", verb=workers,
        summary="The machines that run sessions, with their labels, seats, versions and what they run",
        answer=MachineList,
    ),
    Operation(
        name="enrolWorker", method="POST", path="/api/workers", tag="server", scope="admin", verb=enrol,
        summary="A code that lets one new machine in, once, within an hour", answer=Enrolment, status=201, keyed=False,
    ),
    Operation(
        name="drainWorker", method="PATCH", path="/api/workers/{workerId}", tag="server", scope="admin", verb=drain,
        summary="Let a machine take nothing new, or take work again", bodies=(DrainBody,), answer=Machine,
        faults=(404,), keyed=False,
    ),
    Operation(
        name="revokeWorker", method="DELETE", path="/api/workers/{workerId}", tag="server", scope="admin", verb=revoke,
        summary="Take everything from a machine, for good", answer=Machine, faults=(404,), keyed=False,
    ),
)  # fmt: skip
