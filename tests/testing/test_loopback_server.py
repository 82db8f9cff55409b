"""The server itself: its life, its other paths, what it refuses."""

from __future__ import annotations

import asyncio
import socket
import threading

import httpx
import pytest

from stagedoor.testing import ScriptedModel, UnscriptedRequest, say, stall


def get(url: str, **more: object) -> httpx.Response:
    return httpx.request("GET", url, timeout=240, trust_env=False, verify=False, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("method", "path", "status", "answer"),
    [
        ("HEAD", "/", 200, None),
        ("GET", "/", 200, {"ok": True}),
        ("POST", "/v1/messages/count_tokens", 200, {"input_tokens": 1}),
        ("POST", "/v1beta/models/m:countTokens", 200, {"totalTokens": 1}),
        ("GET", "/nowhere", 404, {"error": {"message": "nothing at /nowhere", "type": "not_found_error"}}),
        ("POST", "/v1/messages", 400, {"error": {"message": "the body is not JSON"}}),
    ],
)
def test_other_paths(scripted_model, method, path, status, answer):
    model = scripted_model([])
    got = httpx.request(method, model.url + path, content=b"{", timeout=240, trust_env=False, verify=False)
    assert got.status_code == status
    assert (got.json() if got.content else None) == answer
    assert model.other_requests == [UnscriptedRequest(method, path, status)]
    assert model.requests == []


def test_models_are_listed_for_each_api(scripted_model):
    model = scripted_model([])
    assert get(model.url + "/v1/models").json()["data"][0]["id"] == "scripted-model"
    assert get(model.url + "/v1beta/models").json()["models"][0]["name"] == "models/scripted-model"


def test_a_websocket_is_refused_cleanly(scripted_model):
    model = scripted_model([])
    headers = {
        "upgrade": "websocket",
        "connection": "Upgrade",
        "sec-websocket-key": "eA==",
        "sec-websocket-version": "13",
    }
    assert get(model.url + "/v1/responses", headers=headers).status_code == 426


def test_gemini_errands_are_answered_aside(scripted_model, clients):
    model = scripted_model([say("One.")])
    talk = clients["gemini"](model.url, stream=False)
    cli = {"user-agent": "GeminiCLI/0.61.0/m (linux; x64)"}
    choice = {"type": "STRING", "enum": ["flash", "pro"]}
    schema = {"type": "OBJECT", "properties": {"choice": choice, "n": {"type": "integer"}}}

    def ask_aside(**more: object) -> str:
        body = {**talk.body(), **more}
        answer = httpx.post(
            model.url + talk.path, json=body, headers=cli, timeout=240, trust_env=False, verify=False
        ).json()
        return str(answer["candidates"][0]["content"]["parts"][0]["text"])

    assert ask_aside(generationConfig={"responseJsonSchema": schema}) == '{"choice": "flash", "n": 1}'
    assert ask_aside() == "A scripted side answer."
    assert talk.ask("Hi").text == "One."
    assert [request.side for request in model.requests] == ["choice", "other", ""]


def test_one_connection_carries_many_requests(scripted_model, clients):
    model = scripted_model([say("One."), say("Two.")])
    talk = clients["chat"](model.url)
    with httpx.Client(timeout=240, trust_env=False, verify=False) as http:
        for prompt in ("a", "b", "c"):
            talk.history = [talk.user(prompt)]
            assert b"One." in http.post(model.url + talk.path, json=talk.body()).content
        assert http.get(model.url + "/").json() == {"ok": True}


def test_a_client_that_asks_before_it_sends(scripted_model, clients):
    model = scripted_model([say("One.")])
    body = httpx.Request("POST", "http://x", json=clients["chat"](model.url, stream=False).body()).content
    host, port = model.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=240) as link, link.makefile("rb") as lines:
        head = ["POST /v1/chat/completions HTTP/1.1", "host: x", f"content-length: {len(body)}", "expect: 100-continue"]
        link.sendall("\r\n".join([*head, "", ""]).encode())
        assert lines.readline() == b"HTTP/1.1 100 \r\n"
        link.sendall(body)
        assert lines.readline() == b"\r\n"
        assert lines.readline().startswith(b"HTTP/1.1 200")


def test_garbage_closes_the_connection_and_nothing_else(scripted_model):
    model = scripted_model([])
    host, port = model.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=240) as link:
        link.sendall(b"what is this\r\n\r\n")
        assert link.recv(100) == b""
    assert get(model.url + "/").status_code == 200


def test_it_runs_in_the_loop_of_the_caller(clients):
    async def main() -> None:
        async with (
            ScriptedModel([say("Hello.")]) as model,
            httpx.AsyncClient(timeout=240, trust_env=False, verify=False) as http,
        ):
            talk = clients["anthropic"](model.url, stream=False)
            talk.history.append(talk.user("Hi"))
            answer = await http.post(model.url + talk.path, json=talk.body())
            assert answer.json()["content"] == [{"type": "text", "text": "Hello."}]
            assert set(threading.enumerate()) <= before  # some that others have left may end meanwhile

    before = set(threading.enumerate())
    asyncio.run(main())


def test_stopping_does_not_wait_for_a_stalled_answer(clients):
    model = ScriptedModel([stall()])
    with model:
        talk = clients["chat"](model.url)
        talk.history.append(talk.user("Hi"))
        with pytest.raises(httpx.ReadTimeout):
            talk.again(timeout=0.2)
        answers: list[BaseException] = []

        def wait() -> None:
            try:
                talk.again()
            except httpx.TransportError as error:
                answers.append(error)

        waiting = threading.Thread(target=wait)
        waiting.start()
        while len(model.requests) < 2:
            waiting.join(0.01)
    waiting.join(60)
    assert len(answers) == 1


def test_a_port_in_use_is_an_error_and_no_address_before_the_start(scripted_model):
    port = int(scripted_model([]).url.rsplit(":", 1)[1])
    taken = ScriptedModel([], port=port)
    with pytest.raises(OSError, match="address already in use"), taken:
        pass
    with pytest.raises(RuntimeError, match="not running"):
        _ = ScriptedModel([]).url


def test_observers_see_every_request(clients):
    seen: list[str] = []
    with ScriptedModel([say("Hi.")], observe=lambda request: seen.append(type(request).__name__)) as model:
        get(model.url + "/")
        clients["chat"](model.url).ask("Hi")
    assert seen == ["UnscriptedRequest", "ScriptedRequest"]
