"""What happens to old answers and to scarce seats when sessions are woken."""

from __future__ import annotations

import asyncio
from typing import Any

from stagedoor.engine import milliseconds
from stagedoor.service.config.settings import Limits
from stagedoor.service.service import Service
from stagedoor.unified.decisions import Allow, Deny
from stagedoor.unified.events import PermissionResolved, TurnCompleted

ASKS = ([{"shell": "touch made"}], [{"say": "ok"}])


def test_one_seat_is_enough_for_all_who_wait_for_it(kit: Any) -> None:
    async def main() -> None:
        kit.house.plays(ASKS[0], [{"say": "told"}])
        async with kit.house.service() as service:
            started = await asyncio.gather(*(kit.start_session(service, "please", keep_open=True) for _ in range(3)))
            request = [await watch.question() for _, watch in started]
        async with kit.house.service(limits=Limits(awake=1), sleep_after=None) as service:
            for question in request:
                await service.questions.answer(question.id, Deny("no"))
            for view, _ in started:
                await kit.watch(service, view.id).until(_report)
            assert service.counters()["awake"] <= 1

    kit.run(main())


def _report(event: object) -> bool:
    return isinstance(event, TurnCompleted) and event.result == "told"


def test_a_policy_may_answer_first_what_was_decided_while_the_agent_was_away(kit: Any) -> None:
    async def main() -> None:
        house = kit.house
        house.plays(ASKS[0], *ASKS)
        async with house.service() as service:
            view, watch = await kit.start_session(service, "please")
            question = await watch.question()
            _, other = await kit.start_session(service, kit.play(*ASKS))
            await service.questions.answer((await other.question()).id, Allow(remember="always"))
            await other.rest()
        async with house.service() as service:
            await service.questions.answer(question.id, Allow(), who="me")
            events = await kit.watch(service, view.id).rest()
            report = [(one.decision, one.by) for one in events if isinstance(one, PermissionResolved)]
            assert report == [("allow", "client"), ("allow", "policy")]
            assert (await service.sessions.get(view.id)).state == "done"

    kit.run(main())


def test_an_answer_for_an_agent_that_was_away_counts_in_the_turn_that_tells_it_and_no_longer(kit: Any) -> None:
    async def main() -> None:
        kit.house.plays(ASKS[0], [{"say": "told"}])
        async with kit.house.service() as service:
            view, watch = await kit.start_session(service, "please", keep_open=True)
            question = await watch.question()
        async with kit.house.service() as service:
            watch = kit.watch(service, view.id)
            await service.questions.answer(question.id, Allow())
            await watch.until(_report)
            await service.sessions.send(view.id, kit.play(*ASKS))
            assert (await watch.question()).open
            await service.sessions.cancel(view.id)

    kit.run(main())


def test_a_question_nobody_answered_in_time_is_asked_again(kit: Any) -> None:
    async def main() -> None:
        async with kit.house.service() as service:
            view, watch = await kit.start_session(service, kit.play(*ASKS), keep_open=True, permission_timeout=3600.0)
            await watch.question()
        later = Service(kit.house.settings(), now=lambda: milliseconds() + 7_200_000)
        async with later as service:
            watch = kit.watch(service, view.id)
            resolved = (await watch.until(PermissionResolved))[-1]
            assert (resolved.decision, resolved.by) == ("deny", "timeout")
            await service.sessions.send(view.id, kit.play(*ASKS))
            assert (await watch.question()).open
            await service.sessions.cancel(view.id)

    kit.run(main())
