"""``session/*``: what the log knows, and following it."""

from __future__ import annotations

import msgspec
from msgspec.structs import asdict, replace

from stagedoor import catalog
from stagedoor.service.store import Query

from ..streams.following import begin
from .params import (
    Resume,
    SessionEvents,
    SessionList,
    SessionNamed,
    SessionSend,
    Subscribe,
    Unsubscribe,
)
from .peer import Call
from .results import EventPage, Ran, Sent, SessionPage, Subscribed, UnifiedSession, Unsubscribed


async def listed(call: Call, wish: SessionList) -> SessionPage:
    agent = catalog.canonical_name(wish.agent) if wish.agent else ""
    views, total = await call.service.sessions.page(Query(**asdict(replace(wish, agent=agent))))
    found = [UnifiedSession.of(view) for view in views]
    return SessionPage(sessions=found, total=total, offset=wish.offset, limit=wish.limit)


async def get(call: Call, wish: SessionNamed) -> UnifiedSession:
    return UnifiedSession.of(await call.service.sessions.get(wish.session_id))


async def events(call: Call, wish: SessionEvents) -> EventPage:
    view = await call.service.sessions.get(wish.session_id)
    after = wish.after if wish.offset is None else wish.offset
    page = await call.peer.tellings.page(wish.session_id, wish.dialect, after, wish.limit)
    return EventPage(
        events=[msgspec.Raw(message) for message in page.messages],
        session_id=view.id,
        after=after,
        next_after=page.last,
        first_seq=view.first_seq,
        last_seq=view.last_seq,
        state=view.state,
    )


async def send(call: Call, wish: SessionSend) -> Sent:
    message = await call.service.sessions.send(wish.session_id, wish.prompt, steer=wish.steer, who=call.caller.name)
    return Sent(message_id=message.id, session_id=wish.session_id)


async def subscribe(call: Call, wish: Subscribe) -> Subscribed:
    if not wish.session_id:
        await call.subscribe_to_everything()
        return Subscribed(session_id="")
    begun = await begin(call.service, wish.session_id, wish.after)
    verdict = begun.verdict
    if wish.watch:
        await call.subscribe_and_watch(wish.session_id, begun.after, wish.dialect, wish.watch)
    else:
        call.subscribe(wish.session_id, begun.after, wish.dialect)
    return Subscribed(
        session_id=wish.session_id,
        verdict=verdict.verdict,
        after=verdict.after,
        last_seq=verdict.last_seq,
        missing_from=verdict.missing_from,
        missing_to=verdict.missing_to,
    )


async def unsubscribe(call: Call, wish: Unsubscribe) -> Unsubscribed:
    ended = call.peer.end(wish.session_id)
    return Unsubscribed(status="unsubscribed" if ended else "notSubscribed", session_id=wish.session_id)


async def resume(call: Call, wish: Resume) -> Ran:
    view = await call.service.sessions.resume(wish.session_id, wish.prompt, fork=wish.fork, who=call.caller.name)
    call.choice.session_id = view.id
    if wish.subscribe and call.peer.listens:
        call.subscribe(view.id, 0, wish.dialect)
    return Ran(status="resumed", type=view.agent, session_id=view.id, last_seq=view.last_seq)
