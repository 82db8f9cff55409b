"""What a script says comes over every API, streamed and whole."""

from __future__ import annotations

import pytest

from stagedoor.testing import (
    Case,
    When,
    call,
    forever,
    half_emoji,
    native,
    say,
    shell,
    stop,
    structured,
    task,
    think,
    usage,
)

SHELL = {
    "anthropic": ("Bash", {"command": "ls", "description": "Run a command"}),
    "responses": ("exec_command", {"cmd": "ls"}),
    "chat": ("bash", {"command": "ls", "description": "Run a command"}),
    "gemini": ("run_shell_command", {"command": "ls", "description": "Run a command"}),
}
TOOLS = ("Bash", "exec_command", "bash", "run_shell_command")
STOPS = {
    "anthropic": {"end": "end_turn", "calls": "tool_use", "max_tokens": "max_tokens", "refusal": "refusal"},
    "responses": {"end": "completed", "calls": "completed", "max_tokens": "max_output_tokens", "refusal": "completed"},
    "chat": {"end": "stop", "calls": "tool_calls", "max_tokens": "length", "refusal": "content_filter"},
    "gemini": {"end": "STOP", "calls": "STOP", "max_tokens": "MAX_TOKENS", "refusal": "SAFETY"},
}


@pytest.mark.parametrize("stream", [True, False])
def test_text_thought_and_usage(scripted_model, client, api, stream):
    model = scripted_model([[think("Hm."), say("Hello there, you."), usage(input=7, output=5, cached=3)]])
    reply = client(model.url, stream=stream).ask("Hi")
    assert reply.text == "Hello there, you."
    assert reply.thinking.endswith("Hm.")
    assert reply.usage == (7, 5, 3)
    assert reply.stop == STOPS[api]["end"]
    assert reply.calls == []
    model.assert_consumed()


@pytest.mark.parametrize(
    ("part", "pieces"),
    [
        (say("one two three"), ["one ", "two ", "three"]),
        (say("abcdef", chunks=3), ["ab", "cd", "ef"]),
        (say(["a", "bc"]), ["a", "bc"]),
        (say("x y", pause=0.01), ["x ", "y"]),
    ],
)
def test_text_comes_in_the_pieces_of_the_script(scripted_model, client, part, pieces):
    assert client(scripted_model([part]).url).ask("Hi").pieces == pieces


@pytest.mark.parametrize("stream", [True, False])
def test_a_call_is_translated_and_its_result_comes_back(scripted_model, client, api, stream):
    model = scripted_model([[say("Look."), shell("ls")], lambda outcomes: say(f"It says {outcomes[0].output}")])
    talk = client(model.url, tools=TOOLS, stream=stream)
    first = talk.ask("Go")
    assert (first.text, first.calls, first.stop) == ("Look.", [SHELL[api]], STOPS[api]["calls"])
    assert talk.give("README").text == "It says README"
    outcome = model.requests[1].outcomes[0]
    assert (outcome.tool, outcome.native, outcome.output, outcome.error) == ("shell", SHELL[api][0], "README", False)
    model.assert_consumed()


def test_parallel_calls_come_in_one_reply_and_outcomes_in_their_order(scripted_model, client, api):
    model = scripted_model([[shell("a"), shell("b"), shell("c")], say("All.")])
    talk = client(model.url, tools=TOOLS)
    assert len(talk.ask("Go").calls) == 3
    talk.history += talk.results([(talk.ids[2], "C"), (talk.ids[0], "A"), (talk.ids[1], "B")])
    talk.again()
    assert [outcome.output for outcome in model.requests[1].outcomes] == ["A", "B", "C"]


@pytest.mark.parametrize(("output", "text"), [("3 passed", "green"), ("2 failed", "red"), ("?", "what")])
def test_branches_on_the_last_outcome(scripted_model, client, output, text):
    cases = (Case(say("green"), contains="passed"), Case(say("red"), matches=r"\d+ failed"), Case(say("what")))
    talk = client(scripted_model([shell("pytest"), When(cases)]).url, tools=TOOLS)
    talk.ask("Go")
    assert talk.give(output).text == text


FAILURES = {
    "anthropic": {"type": "tool_result", "content": "Exit code 3\nboom", "is_error": True},
    "responses": {"type": "function_call_output", "output": "Wall time: 0\nProcess exited with code 3\nOutput:\nboom"},
    "chat": {"role": "tool", "content": "Error: boom"},
    "gemini": {"functionResponse": {"name": "t", "response": {"error": "boom"}}},
}


def test_a_failed_call_is_known_as_failed(scripted_model, clients, api):
    model = scripted_model([shell("false"), When((Case(say("failed"), error=True), Case(say("fine"), error=False)))])
    for failed in (False, True):
        talk = clients[api](model.url, tools=TOOLS)
        talk.ask("Go")
        if not failed:
            assert talk.give("Exit code: 0\nok").text == "fine"
            continue
        result = {**FAILURES[api], "tool_use_id": talk.ids[0], "call_id": talk.ids[0], "tool_call_id": talk.ids[0]}
        if api == "anthropic":
            talk.history.append({"role": "user", "content": [result]})
        elif api == "gemini":
            result["functionResponse"] = {**result["functionResponse"], "id": talk.ids[0]}
            talk.history.append({"role": "user", "parts": [result]})
        else:
            talk.history.append(result)
        assert talk.again().text == "failed"


@pytest.mark.parametrize("reason", ["max_tokens", "refusal"])
def test_other_reasons_to_stop(scripted_model, client, api, reason):
    assert client(scripted_model([[say("Cut o"), stop(reason)]]).url).ask("Hi").stop == STOPS[api][reason]


def test_half_an_emoji_and_two_megabytes(scripted_model, client):
    model = scripted_model([half_emoji(), say("x" * 2_000_000)])
    talk = client(model.url)
    assert talk.ask("Hi").pieces[-1] == "\ud83d"
    talk.history.pop()  # httpx refuses to send the lone half back
    assert talk.ask("More").text == "x" * 2_000_000


def test_structured_output_is_json_text_or_the_tool_for_it(scripted_model, client):
    model = scripted_model([structured({"answer": 42})])
    assert client(model.url).ask("Hi").text == '{"answer": 42}'
    assert client(model.url, tools=("StructuredOutput",)).ask("Hey").calls == [("StructuredOutput", {"answer": 42})]


def test_native_calls_pass_untouched_and_missing_tools_are_noted(scripted_model, client, api):
    model = scripted_model([[native("Own", x=1)], [shell("ls")], [call("frobnicate", y=2)], say("End.")])
    talk = client(model.url, tools=("Own",))
    assert talk.ask("Go").calls == [("Own", {"x": 1})]
    talk.give("ok")
    assert talk.give("no").calls == [("frobnicate", {"y": 2})]
    missing = {"responses": "shell"}.get(api, SHELL[api][0])
    assert [request.unavailable for request in model.requests] == [(), (missing,), ("frobnicate",)]


def test_a_reply_can_go_on_for_ever(scripted_model, client):
    model = scripted_model([forever([shell("echo again")])])
    talk = client(model.url, tools=TOOLS)
    talk.ask("Go")
    for _ in range(5):
        assert talk.give("again").calls
    model.assert_consumed()


def test_a_sub_agent_follows_its_own_script(scripted_model, client, api):
    model = scripted_model([task("Do the sub job.", [shell("ls"), say("Sub done.")]), say("Main done.")])
    main, sub = client(model.url, tools=TOOLS), client(model.url, tools=TOOLS)
    (name, given) = main.ask("Go").calls[0]
    assert name in ("Agent", "spawn_agent", "task", "invoke_agent")
    assert "Do the sub job." in given.values()
    assert sub.ask("Do the sub job.").calls == [SHELL[api]]
    assert sub.give("x").text == "Sub done."
    answer = main.give("Sub done.")
    if api == "responses":  # Codex goes on at once; the model waits for the sub-agent by itself
        assert answer.calls == [("wait_agent", {"targets": [], "timeout_ms": 60000})]
        assert model.requests[-1].follow_up
        answer = main.give('{"timed_out": false}')
    assert answer.text == "Main done."
    model.assert_consumed()
