"""When the model or the account fails: the right kind of error, and never a success."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

import stagedoor
from stagedoor import catalog
from stagedoor.drivers import offered_models
from stagedoor.testing import context_overflow, cut, empty, half_emoji, http_error, say, stream_error

pytestmark = pytest.mark.live

FAULTS: dict[str, Any] = {
    "HTTP 400": http_error(400),
    "HTTP 401": http_error(401),
    "HTTP 403": http_error(403),
    "HTTP 404": http_error(404),
    "HTTP 429": http_error(429, retry_after=1),  # some agents try again for minutes when nobody tells them how soon
    "HTTP 500": http_error(500, retry_after=1),
    "HTTP 529": http_error(529, retry_after=1),
    "error in the stream": stream_error(),
    "cut connection": cut(),
    "empty answer": empty(),
    "half an emoji": half_emoji(),
    "context overflow": context_overflow(),  # the last one: the conversation stays too long
}

PART = ("HTTP 401", "cut connection")
"""What stands for all of them where a driver does not play everything."""
LANES = 2
BOUND = 300.0


def test_faults(rig: Any, stage: Any, cases: Any, play: Any, expected: Any, plays_everything: bool) -> None:
    played = list(FAULTS if plays_everything else PART)
    routes = {
        f"Meet {name}.": [[say("So far "), fault] if name == "cut connection" else fault]
        for name, fault in FAULTS.items()
    }
    scene = stage({"First of all.": [say("Well.")], **routes})
    scene.git("init", "-q")
    expected.make_impatient(scene.home)

    async def main() -> None:
        # Side by side, because some agents wait long before they try again.
        endless = [name for name in played if expected.patience is not None and name in expected.endless]
        faults = [name for name in played if name not in endless]
        width = LANES if plays_everything else 1  # each of them starts the program once more
        lanes = [lane(faults[start::width]) for start in range(width)]
        await asyncio.gather(*lanes, lane(endless, timeout=expected.patience))

    starting = asyncio.Lock()

    async def lane(remaining: list[str], timeout: float | None = None) -> None:
        while remaining:
            async with scene.conversation(tier="autonomous", timeout=timeout) as talk:
                async with starting:  # not even the programs themselves can set up one home at the same time
                    await talk.turn("First of all.")
                with contextlib.suppress(stagedoor.SessionEnded):  # by the fault before: another one goes on
                    while remaining:
                        await meet(talk, remaining[0])
                        del remaining[0]

    async def meet(talk: Any, name: str) -> None:
        turn = await talk.turn(f"Meet {name}.")
        kind, status = expected.fault(name)
        with cases(f"fault: {name}", note=expected.fault_notes.get(name, "")):
            assert turn.completed.status == status, turn.describe()
            assert (turn.errors[-1:] or [None]) == [kind], turn.describe()

    play(main)
    cases.settle()


@pytest.mark.usefixtures("of_the_program")
def test_a_failed_first_turn_does_not_end_the_session(rig: Any, stage: Any, cases: Any, play: Any) -> None:
    scene = stage({"Fail first": [http_error(400)], "Then go on": [say("Here we go.")]})
    scene.git("init", "-q")

    async def main() -> None:
        with cases("session goes on after a failure"):
            async with scene.conversation(tier="autonomous") as talk:
                assert (await talk.turn("Fail first")).completed.status == "error"
                turn = await talk.turn("Then go on")
                assert (turn.text, turn.completed.status) == ("Here we go.", "success"), turn.describe()

    play(main)
    cases.settle()


@pytest.mark.usefixtures("of_the_program")
def test_wrong_model_and_not_signed_in(
    rig: Any, stage: Any, cases: Any, play: Any, expected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offered_models, "PATIENCE", BOUND)  # some are started for it, and a busy machine is no fault
    scene = stage({"Hello": [http_error(404)]})
    scene.git("init", "-q")

    async def main() -> None:
        with cases("wrong model"):
            await fails("model_not_found", stagedoor.StagedoorError, model=expected.wrong_model)
        if expected.signed_out is None:
            cases.do_not_arise("not signed in")
        else:
            with cases("not signed in"):
                env = {name: value for name, value in scene.env.items() if name not in expected.signed_out}
                await fails("authentication_failed", stagedoor.NotSignedIn, env=env)

    async def fails(kind: str, refusal: type[Exception], **options: Any) -> None:
        """It is refused at once, or the turn fails with this kind of error."""
        try:
            async with scene.conversation(tier="autonomous", **options) as talk:
                turn = await talk.turn("Hello")
        except refusal:
            return
        assert turn.completed.status == "error", turn.describe()
        assert turn.errors[-1:] == [kind], turn.describe()
        if "model" in options and catalog.agent(rig.agent).drivers[rig.driver].models is not None:
            words = [event.message for event in turn if isinstance(event, stagedoor.Error)][-1]
            assert words.startswith(f"unknown model {expected.wrong_model!r}. Available: "), words

    play(main)
    cases.settle()
