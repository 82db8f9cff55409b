"""What holds for every request and every conversation."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagedoor.testing.apis.anthropic import AnthropicApi
from stagedoor.testing.apis.chat import ChatApi
from stagedoor.testing.apis.gemini import GeminiApi
from stagedoor.testing.apis.responses import ResponsesApi
from stagedoor.testing.model_request import CallResult, ConversationTurn, ModelRequest, PastCall, smallest
from stagedoor.testing.reply_choice import ReplyChooser, outcomes_of
from stagedoor.testing.script import say, shell

APIS = {api.name: api for api in (AnthropicApi(), ResponsesApi(), ChatApi(), GeminiApi())}
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


@pytest.mark.parametrize("api", APIS)
@settings(max_examples=200, deadline=None)
@given(body=st.dictionaries(KEYS, JSON, max_size=6))
def test_no_body_is_too_strange_to_be_read(api, body):
    request = APIS[api].read(PATHS[api], {}, body)
    assert isinstance(request.prompt, str)
    assert isinstance(request.cwd, str)
    json.dumps(APIS[api].side_answer(request))
    outcomes_of(request.turns, {})


@settings(max_examples=200, deadline=None)
@given(schema=st.dictionaries(KEYS, JSON, max_size=5))
def test_the_smallest_value_of_any_schema(schema):
    json.dumps(smallest(schema))


SCRIPT = [[shell("a")], say("One."), say("Two."), [shell("b"), shell("c")], say("Three."), say("Four.")]
PROMPTS = ["first", "second", "third", "fourth"]


def conversation() -> list[tuple[ConversationTurn, ...]]:
    """Every request of one conversation that plays the script to its end."""
    turns: list[ConversationTurn] = []
    requests: list[tuple[ConversationTurn, ...]] = []
    prompts = iter(PROMPTS)
    turns.append(ConversationTurn("user", next(prompts)))
    for step, reply in enumerate(SCRIPT):
        requests.append(tuple(turns))
        if isinstance(reply, list):
            calls = tuple(PastCall(f"{step}.{n}", "t") for n in range(len(reply)))
            turns += [
                ConversationTurn("model", calls=calls),
                ConversationTurn("tool", results=tuple(CallResult(call.id, "x") for call in calls)),
            ]
        else:
            turns.append(ConversationTurn("model", reply.text))
            turns.append(ConversationTurn("user", next(prompts, "end")))
    return requests


MOVES = st.lists(st.tuples(st.sampled_from("ab"), st.booleans()), max_size=30)


@settings(max_examples=200, deadline=None)
@given(moves=MOVES)
def test_retries_and_parallel_sessions_never_disturb_a_conversation(moves):
    chooser = ReplyChooser(SCRIPT, {})
    requests = conversation()
    done = {"a": 0, "b": 0}
    for session, goes_on in [*moves, *[("a", True)] * len(requests)]:  # otherwise the agent tries the same again
        if done[session] == len(requests):
            continue
        turns = requests[done[session]]
        if session == "b":
            turns = (ConversationTurn("user", "another beginning"), *turns[1:])
        chosen = chooser.choose(ModelRequest(api="x", path="", body={}, turns=turns, session=session), [])
        assert (chosen.step, chosen.beyond) == (done[session], False)
        done[session] += goes_on
    assert chooser.unused() == []
