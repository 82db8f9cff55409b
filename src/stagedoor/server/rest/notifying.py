"""REST: who is told when a session asks, is done or has failed: browsers, webhooks and ntfy topics."""

from __future__ import annotations

import msgspec

from stagedoor.service.notify.delivery import LastDelivery
from stagedoor.service.notify.receivers import PushState, ReceiverBody, ReceiverView, SubscriptionBody

from .operations import Operation, RestCall


class ReceiverList(msgspec.Struct, frozen=True):
    receivers: list[ReceiverView]


async def push_state(call: RestCall[None, None]) -> PushState:
    return await call.service.receivers.push_state(call.caller.device_id)


async def subscribe(call: RestCall[None, SubscriptionBody]) -> PushState:
    return await call.service.receivers.subscribe(call.caller.device_id, call.who, call.body)


async def unsubscribe(call: RestCall[None, None]) -> None:
    await call.service.receivers.unsubscribe(call.caller.device_id)


async def test_push(call: RestCall[None, None]) -> LastDelivery:
    return await call.service.receivers.test(call.caller.device_id)


async def receivers(call: RestCall[None, None]) -> ReceiverList:
    await call.service.receivers.refresh()
    return ReceiverList(call.service.receivers.list())


async def add(call: RestCall[None, ReceiverBody]) -> ReceiverView:
    return await call.service.receivers.add(call.body)


async def remove(call: RestCall[None, None]) -> None:
    await call.service.receivers.remove(call.path["receiverId"])


async def test(call: RestCall[None, None]) -> LastDelivery:
    return await call.service.receivers.test(call.path["receiverId"])


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        name="showPush", method="GET", path="/api/push", tag="notifications", scope="watch", verb=push_state,
        summary="Web Push of this device: the server's public key, and what it is told", answer=PushState,
    ),
    Operation(
        name="subscribePush", method="POST", path="/api/push", tag="notifications", scope="watch", verb=subscribe,
        summary="Tell this device by Web Push, also while its page is closed", bodies=(SubscriptionBody,),
        answer=PushState, keyed=False,
    ),
    Operation(
        name="unsubscribePush", method="DELETE", path="/api/push", tag="notifications", scope="watch", status=204,
        verb=unsubscribe, summary="Tell this device nothing any more",
    ),
    Operation(
        name="testPush", method="POST", path="/api/push/test", tag="notifications", scope="watch", verb=test_push,
        summary="Send a test to this device, once and now", answer=LastDelivery, faults=(404,), keyed=False,
    ),
    Operation(
        name="listReceivers", method="GET", path="/api/receivers", tag="notifications", scope="admin", verb=receivers,
        summary="All that are told, and how the last notification fared", answer=ReceiverList,
    ),
    Operation(
        name="addReceiver", method="POST", path="/api/receivers", tag="notifications", scope="admin", verb=add,
        summary="Tell a webhook or an ntfy topic", bodies=(ReceiverBody,), answer=ReceiverView, status=201, keyed=False,
    ),
    Operation(
        name="removeReceiver", method="DELETE", path="/api/receivers/{receiverId}", tag="notifications", scope="admin",
        verb=remove, summary="Tell it nothing any more", status=204, faults=(404,),
    ),
    Operation(
        name="testReceiver", method="POST", path="/api/receivers/{receiverId}/test", tag="notifications",
        scope="admin", verb=test, summary="Send a test to it, once and now", answer=LastDelivery, faults=(404,),
        keyed=False,
    ),
)  # fmt: skip
