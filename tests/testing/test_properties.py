"""What holds for every request and every conversation."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagedoor.testing.asked import Asked, MadeCall, Result, Turn, smallest
from stagedoor.testing.faces.anthropic import AnthropicFace
from stagedoor.testing.faces.chat import ChatFace
from stagedoor.testing.faces.gemini import GeminiFace
from stagedoor.testing.faces.responses import ResponsesFace
from stagedoor.testing.playback import Playback, outcomes_of
from stagedoor.testing.script import say, shell

FACES = {face.name: face for face in (AnthropicFace(), ResponsesFace(), ChatFace(), GeminiFace())}
PATHS = {
    "anthropic": "/v1/messages",
    "responses": "/v1/responses",
    "chat": "/v1/chat/completions",
    "gemini": "/v1beta/models/m:streamGenerateContent",
}
KEY_NAMES = """
messages input contents tools system instructions systemInstruction role content parts text type name id call_id
function functionCall functionResponse functionDeclarations response output arguments tool_calls tool_use_id properties
enum generationConfig responseJsonSchema encrypted_content
"""
VALUES = """
user assistant model tool message function_call function_call_output tool_use tool_result text agent_message object
additional_tools namespace x
"""
KEYS, WORDS = st.sampled_from(KEY_NAMES.split()), st.sampled_from(VALUES.split())
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | WORDS | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=30,
)


@pytest.mark.parametrize("face", FACES)
@settings(max_examples=200, deadline=None)
@given(body=st.dictionaries(KEYS, JSON, max_size=6))
def test_no_body_is_too_strange_to_be_read(face, body):
    asked = FACES[face].read(PATHS[face], {}, body)
    assert isinstance(asked.prompt, str)
    assert isinstance(asked.cwd, str)
    json.dumps(FACES[face].side_answer(asked))
    outcomes_of(asked.turns, {})


@settings(max_examples=200, deadline=None)
@given(schema=st.dictionaries(KEYS, JSON, max_size=5))
def test_the_smallest_value_of_any_schema(schema):
    json.dumps(smallest(schema))


SCRIPT = [[shell("a")], say("One."), say("Two."), [shell("b"), shell("c")], say("Three."), say("Four.")]
PROMPTS = ["first", "second", "third", "fourth"]


def conversation() -> list[tuple[Turn, ...]]:
    """Every request of one conversation that plays the script to its end."""
    turns: list[Turn] = []
    requests: list[tuple[Turn, ...]] = []
    prompts = iter(PROMPTS)
    turns.append(Turn("user", next(prompts)))
    for step, reply in enumerate(SCRIPT):
        requests.append(tuple(turns))
        if isinstance(reply, list):
            calls = tuple(MadeCall(f"{step}.{n}", "t") for n in range(len(reply)))
            turns += [Turn("model", calls=calls), Turn("tool", results=tuple(Result(call.id, "x") for call in calls))]
        else:
            turns.append(Turn("model", reply.text))
            turns.append(Turn("user", next(prompts, "end")))
    return requests


MOVES = st.lists(st.tuples(st.sampled_from("ab"), st.booleans()), max_size=30)


@settings(max_examples=200, deadline=None)
@given(moves=MOVES)
def test_retries_and_parallel_sessions_never_disturb_a_conversation(moves):
    playback = Playback(SCRIPT, {})
    requests = conversation()
    done = {"a": 0, "b": 0}
    for session, goes_on in [*moves, *[("a", True)] * len(requests)]:  # otherwise the agent tries the same again
        if done[session] == len(requests):
            continue
        turns = requests[done[session]]
        if session == "b":
            turns = (Turn("user", "another beginning"), *turns[1:])
        cue = playback.cue(Asked(face="x", path="", body={}, turns=turns, session=session), [])
        assert (cue.step, cue.beyond) == (done[session], False)
        done[session] += goes_on
    assert playback.unused() == []
