from __future__ import annotations

from typing import Any

import jsonschema
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagedoor.dialects.schemas import session_request_schema
from stagedoor.dialects.session_request import RequestedConfig, SessionRequest, parse_session_request
from stagedoor.errors import LocalProtocolError

SCHEMA = jsonschema.Draft7Validator(session_request_schema())
LONGEST = "x" * 100_000


@pytest.mark.parametrize(
    ("body", "request_"),
    [
        ({"agentType": "claude", "prompt": "hi"}, SessionRequest(agent_type="claude", prompt="hi")),
        ({"agentType": "codex", "prompt": LONGEST}, SessionRequest(agent_type="codex", prompt=LONGEST)),
        (
            {
                "agentType": "gemini",
                "prompt": "",
                "sessionId": "s1",
                "someday": None,
                "config": {
                    "projectId": "p",
                    "workingDirectory": "/w",
                    "model": "m",
                    "approvalMode": "autoEdit",
                    "sandboxMode": "workspaceWrite",
                    "allowedTools": [],
                    "blockedTools": ["Bash"],
                    "maxTurns": 1000,
                    "more": True,
                },
            },
            SessionRequest(
                agent_type="gemini",
                prompt="",
                session_id="s1",
                config=RequestedConfig(
                    project_id="p",
                    working_directory="/w",
                    model="m",
                    approval_mode="autoEdit",
                    sandbox_mode="workspaceWrite",
                    allowed_tools=[],
                    blocked_tools=["Bash"],
                    max_turns=1000,
                ),
            ),
        ),
        (
            {"agentType": "claude", "prompt": "", "config": {"maxTurns": 1.0}},
            SessionRequest(agent_type="claude", prompt="", config=RequestedConfig(max_turns=1)),
        ),
    ],
)
def test_what_the_schema_accepts(body: dict[str, Any], request_: SessionRequest) -> None:
    SCHEMA.validate(body)
    assert parse_session_request(msgspec.json.encode(body)) == request_


def asking(**config: Any) -> dict[str, Any]:
    return {"agentType": "claude", "prompt": "hi", "config": config}


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({"prompt": "hi"}, "Object missing required field `agentType`"),
        ({"agentType": "claude"}, "Object missing required field `prompt`"),
        ([], "Expected `object`, got `array`"),
        (
            {"agentType": "zed", "prompt": "hi"},
            "agentType is 'zed', it can be one of claude, codex, gemini",
        ),
        ({"agentType": "claude", "prompt": 3}, "prompt: expected `str`, got `int`"),
        ({"agentType": "claude", "prompt": LONGEST + "x"}, "prompt: expected `str` of length <= 100000"),
        ({"agentType": "claude", "prompt": "hi", "sessionId": None}, "sessionId is null, leave it out instead"),
        ({"agentType": "claude", "prompt": "hi", "config": 1}, "config: expected `object`, got `int`"),
        (asking(model=None), "config.model is null, leave it out instead"),
        (asking(maxTurns=0), "config.maxTurns: expected `int` >= 1"),
        (asking(maxTurns=1001), "config.maxTurns: expected `int` <= 1000"),
        (asking(maxTurns=1.5), "config.maxTurns: expected `int | null`, got `float`"),
        (asking(allowedTools=[1]), "config.allowedTools[0]: expected `str`, got `int`"),
        (
            asking(approvalMode="yolo"),
            "config.approvalMode: invalid enum value 'yolo', it can be one of ask, askDangerous, autoEdit, autoAll",
        ),
        (
            asking(sandboxMode="docker"),
            "config.sandboxMode: invalid enum value 'docker', "
            "it can be one of none, readOnly, workspaceWrite, fullAccess",
        ),
    ],
)
def test_what_the_schema_refuses(body: Any, sentence: str) -> None:
    assert not SCHEMA.is_valid(body)
    with pytest.raises(LocalProtocolError) as refused:
        parse_session_request(msgspec.json.encode(body))
    assert str(refused.value) == f"the session request is not valid: {sentence}"


@pytest.mark.parametrize("body", [b"", b"{", b'{"agentType":"claude","prompt":"\xff"}', b"[" * 100_000])
def test_what_is_not_json(body: bytes) -> None:
    with pytest.raises(LocalProtocolError, match="not JSON"):
        parse_session_request(body)


def test_a_server_adds_its_agents() -> None:
    body = {"agentType": "opencode", "prompt": "hi"}
    agents = ["claude", "opencode"]
    jsonschema.Draft7Validator(session_request_schema(agents)).validate(body)
    assert parse_session_request(msgspec.json.encode(body), agents=agents) == SessionRequest(
        agent_type="opencode", prompt="hi"
    )


THINGS = st.sampled_from([None, True, 0, 1, 1000, 1001, 2.0, 2.5, "", "ask", "none", "claude", [], ["a"], [1], {}])
CONFIG = st.dictionaries(st.sampled_from(list(RequestedConfig.__struct_encode_fields__)), THINGS, max_size=3)
BODY = st.fixed_dictionaries(
    {},
    optional={
        "agentType": st.sampled_from(["claude", "codex", "zed", None, 1]),
        "prompt": st.sampled_from(["hi", LONGEST, LONGEST + "x", None, 1]),
        "sessionId": THINGS,
        "config": CONFIG | THINGS,
        "more": THINGS,
    },
)


@settings(max_examples=150, deadline=None)
@given(body=BODY | THINGS)
def test_accepted_exactly_when_the_schema_accepts(body: Any) -> None:
    try:
        parse_session_request(msgspec.json.encode(body))
    except LocalProtocolError:
        accepted = False
    else:
        accepted = True
    assert accepted == SCHEMA.is_valid(body)
