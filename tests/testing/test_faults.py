"""Every way an API can fail, over every API."""

from __future__ import annotations

import json
import time

import httpx
import pytest

from stagedoor.testing import context_overflow, cut, empty, endless, http_error, say, stall, stream_error

TYPES = {
    "anthropic": {
        400: "invalid_request_error",
        401: "authentication_error",
        403: "permission_error",
        404: "not_found_error",
        429: "rate_limit_error",
        500: "api_error",
        529: "overloaded_error",
    },
    "responses": {
        400: "invalid_value",
        401: "invalid_api_key",
        403: "forbidden",
        404: "model_not_found",
        429: "rate_limit_exceeded",
        500: "server_error",
        529: "server_error",
    },
    "gemini": {
        400: "INVALID_ARGUMENT",
        401: "UNAUTHENTICATED",
        403: "PERMISSION_DENIED",
        404: "NOT_FOUND",
        429: "RESOURCE_EXHAUSTED",
        500: "INTERNAL",
        529: "UNAVAILABLE",
    },
}
TYPES["chat"] = TYPES["responses"]


@pytest.mark.parametrize("status", list(TYPES["anthropic"]))
def test_http_errors_are_worded_as_the_api_words_them(scripted_model, client, api, status):
    reply = client(scripted_model([http_error(status)]).url).ask("Hi")
    error = json.loads(reply.error)["error"]
    assert reply.status == status
    assert TYPES[api][status] in (error.get("type"), error.get("code"), error.get("status"))
    assert error["message"]


def test_http_errors_carry_what_the_script_says(scripted_model, client, api):
    model = scripted_model([http_error(429, "Slow down, please.", kind="insufficient_quota", retry_after=1.5)])
    reply = client(model.url).ask("Hi")
    assert "Slow down, please." in reply.error
    assert "insufficient_quota" in reply.error
    assert reply.headers["retry-after"] == "1.5"


OVERFLOW = {
    "anthropic": (400, "prompt is too long"),
    "responses": (200, "context_length_exceeded"),
    "chat": (400, "context_length_exceeded"),
    "gemini": (400, "exceeds the maximum number of tokens"),
}


def test_context_overflow(scripted_model, client, api):
    reply = client(scripted_model([context_overflow()]).url).ask("Hi")
    status, words = OVERFLOW[api]
    assert reply.status == status
    assert words in reply.error


KINDS = {
    "anthropic": "overloaded_error",
    "responses": "server_is_overloaded",
    "chat": "overloaded",
    "gemini": "UNAVAILABLE",
}


def test_an_error_inside_the_stream(scripted_model, client, api):
    model = scripted_model([[say("Some "), stream_error()]])
    reply = client(model.url).ask("Hi")
    assert (reply.status, reply.text, reply.error, reply.stop) == (200, "Some ", KINDS[api], None)
    assert client(model.url, stream=False).ask("Hey").status == 500


@pytest.mark.parametrize("partway", [False, True])
@pytest.mark.parametrize("stream", [False, True])
def test_a_connection_cut(scripted_model, client, stream, partway):
    model = scripted_model([[say("Half a "), cut(partway=partway, times=1), say("whole.")]])
    talk = client(model.url, stream=stream)
    talk.history.append(talk.user("Hi"))
    with pytest.raises((httpx.RemoteProtocolError, json.JSONDecodeError)):
        talk.again()
    assert talk.again().text == "Half a whole."


@pytest.mark.parametrize("first", [[], [say("Begun. ")]])
def test_a_stall_lasts_until_the_client_gives_up(scripted_model, client, first):
    model = scripted_model([[*first, stall(times=1), say("Done.")]])
    talk = client(model.url)
    talk.history.append(talk.user("Hi"))
    with pytest.raises(httpx.ReadTimeout):
        talk.again(timeout=0.3)
    assert talk.again().text.endswith("Done.")


@pytest.mark.parametrize("stream", [False, True])
def test_a_stall_for_a_while(scripted_model, client, stream):
    talk = client(scripted_model([[stall(0.1), say("Late "), stall(0.1), say("but here.")]]).url, stream=stream)
    start = time.monotonic()
    assert talk.ask("Hi").text == "Late but here."
    assert time.monotonic() - start >= 0.2


def test_an_endless_stream_ends_with_its_reader(scripted_model, client):
    model = scripted_model([[say("On "), endless("and on ", pause=0.001)]])
    talk = client(model.url)
    talk.history.append(talk.user("Hi"))
    got = b""
    with httpx.stream(
        "POST", talk.url + talk.path, json=talk.body(), timeout=240, trust_env=False, verify=False
    ) as answer:
        for chunk in answer.iter_bytes():
            got += chunk
            if got.count(b"and on ") > 50:
                break
    talk.stream = False
    with pytest.raises(httpx.ReadTimeout):
        talk.again(timeout=0.3)


def test_an_empty_answer(scripted_model, client):
    reply = client(scripted_model([empty()]).url).ask("Hi")
    assert (reply.status, reply.text, reply.calls, reply.error) == (200, "", [], "")
