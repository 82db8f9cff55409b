"""Which reply answers which request: turns, retries, resumed, forked and parallel conversations, routes, side calls."""

from __future__ import annotations

import time

import httpx
import pytest

from stagedoor.testing import (
    ScriptedModel,
    ScriptFailed,
    ScriptNotConsumed,
    call,
    context_overflow,
    cut,
    empty,
    http_error,
    say,
    shell,
    stop,
)

TOOLS = ("Bash", "exec_command", "bash", "run_shell_command")


def test_a_new_prompt_goes_on_with_the_next_replies(scripted_model, client):
    model = scripted_model([[shell("a")], say("One."), [shell("b")], say("Two.")])
    talk = client(model.url, tools=TOOLS)
    talk.ask("First")
    assert talk.give("A").text == "One."
    assert talk.ask("Second").calls
    resumed = talk.copy()  # another process, the same conversation
    assert resumed.give("B").text == "Two."
    model.assert_consumed()
    assert [request.step for request in model.requests] == [0, 1, 2, 3]


def test_a_retry_gets_the_same_reply(scripted_model, client):
    model = scripted_model([say("One."), say("Two.")])
    talk = client(model.url)
    assert [talk.copy().ask("Hi").text for _ in range(3)] == ["One."] * 3
    assert [request.attempt for request in model.requests] == [1, 2, 3]
    assert talk.ask("Hi").text == "One."
    assert talk.ask("More").text == "Two."


def test_a_fork_goes_on_beside_its_origin(scripted_model, client):
    model = scripted_model([say("One."), say("Two."), say("Three.")])
    talk = client(model.url, session="a")
    talk.ask("Hi")
    fork = talk.copy(session="b")
    assert [talk.ask("Left").text, fork.ask("Right").text] == ["Two.", "Two."]
    assert [talk.ask("On").text, fork.ask("On").text] == ["Three.", "Three."]


def test_parallel_conversations_each_follow_the_script(scripted_model, client):
    model = scripted_model([say("One."), say("Two.")])
    talks = [client(model.url, session=str(n)) for n in range(3)]
    assert {talk.ask("Hi").text for talk in talks} == {"One."}
    assert {talk.ask("More").text for talk in talks} == {"Two."}
    model.assert_consumed()


def test_the_next_prompt_after_a_failed_one_gets_the_next_reply(scripted_model, client):
    model = scripted_model([http_error(401), say("Better.")])
    talk = client(model.url)
    assert talk.ask("First").status == 401
    assert talk.again().status == 401
    assert talk.ask("Second").text == "Better."


def test_an_agent_may_forget_the_prompt_that_failed(scripted_model, client):
    model = scripted_model([http_error(500), say("One."), http_error(400), say("Two.")])
    talk = client(model.url)
    for prompt, text in (("a", "One."), ("b", "Two.")):
        assert talk.ask(prompt).status in (500, 400)
        talk.history.pop()
        assert talk.ask(prompt + prompt).text == text
    model.assert_consumed()


def test_an_agent_may_forget_the_prompt_it_broke_off(scripted_model, client):
    model = scripted_model([say("Long and slow.", pause=0.3), say("Next.")])
    talk = client(model.url)
    talk.history.append(talk.user("First"))
    with pytest.raises(httpx.ReadTimeout):
        talk.again(timeout=0.1)
    talk.history.pop()
    deadline = time.monotonic() + 240
    while model.broken_off != ["First"] and time.monotonic() < deadline:
        time.sleep(0.01)
    assert talk.ask("Second").text == "Next."
    model.assert_consumed()


def test_a_fault_befalls_so_many_requests(scripted_model, client):
    model = scripted_model([[http_error(429, times=2), say("Recovered.")], say("Next.")])
    talk = client(model.url)
    talk.history.append(talk.user("Hi"))
    assert [talk.again().status, talk.again().status] == [429, 429]
    assert talk.again().text == "Recovered."
    assert talk.ask("More").text == "Next."


def test_what_came_through_before_a_cut_may_stay_in_the_conversation(scripted_model, clients):
    model = scripted_model([[say("Half a "), cut(times=1), say("whole.")], say("Next.")])
    talk = clients["responses"](model.url)
    talk.history.append(talk.user("Hi"))
    with pytest.raises(Exception, match="without sending complete message body"):
        talk.again()
    talk.history.append({"type": "message", "role": "assistant", "content": [{"text": "Half a "}]})
    assert talk.again().text == "Half a whole."
    assert talk.ask("More").text == "Next."


NUDGES = (
    "\n\n[Your previous response had no visible output. Please continue and produce a user-visible response.]",
    "\n[System: You previously returned an empty response with no text or thoughts. Please go on.]",
)


@pytest.mark.parametrize("nudge", NUDGES)
def test_a_nudge_after_an_empty_answer_is_a_retry(scripted_model, clients, nudge):
    model = scripted_model([[say("")], say("Never.")])
    talk = clients["anthropic"](model.url)
    talk.ask("Hi")
    again = clients["anthropic"](model.url)
    again.ask("Hi" + nudge)
    assert [request.step for request in model.requests] == [0, 0]


def test_what_is_broken_at_the_end_stays_broken(scripted_model, client):
    model = scripted_model([say("One."), [empty()]])
    talk = client(model.url)
    talk.ask("Hi")
    assert [talk.ask(prompt).text for prompt in ("a", "b", "c")] == ["", "", ""]
    model.assert_consumed()
    model = scripted_model([[say("Cut o"), stop("max_tokens")]])
    talk = client(model.url)
    assert [talk.ask(prompt).text for prompt in ("a", "Continue")] == ["Cut o", "Cut o"]
    model.assert_consumed()


def test_a_script_not_consumed_and_one_overrun_are_reported(scripted_model, client):
    model = scripted_model([say("One."), say("Two.")], routes={"aside": [say("Aside.")]})
    talk = client(model.url)
    talk.ask("Hi")
    assert model.unused() == ["script, reply 2 of 2", "route 'aside', reply 1 of 1"]
    with pytest.raises(ScriptNotConsumed, match="not asked for: script, reply 2 of 2"):
        model.assert_consumed()
    talk.ask("More")
    client(model.url).ask("aside")
    model.assert_consumed()
    assert talk.ask("Even more").text == "The script is over."
    with pytest.raises(ScriptNotConsumed, match="asked for more than the script has: 'Even more'"):
        model.assert_consumed()


def test_routes_are_chosen_by_the_newest_prompt_that_names_one(scripted_model, client):
    model = scripted_model(
        [say("Main 1."), say("Main 2.")], routes={"alpha": [say("A1."), say("A2.")], "beta": [say("B1.")]}
    )
    talk = client(model.url)
    assert talk.ask("about alpha").text == "A1."
    assert talk.ask("go on").text == "A2."
    assert talk.ask("now beta").text == "B1."
    other = client(model.url)
    assert [other.ask("hello").text, other.ask("and?").text] == ["Main 1.", "Main 2."]
    model.assert_consumed()


def test_a_conversation_seen_for_the_first_time_is_counted(scripted_model, client):
    script = [say("One."), say("Two."), say("Three.")]
    talk = client(scripted_model(script).url)
    talk.ask("a")
    talk.ask("b")
    talk.url = scripted_model(script).url
    assert talk.ask("c").text == "Three."


COMPACTED = {
    "anthropic": ["This session is being continued from a previous conversation. It went well."],
    "responses": ["Hi", "Another language model started to solve this problem. It went well."],
    "chat": ["What did we do so far?"],
    "gemini": ["<state_snapshot>It went well.</state_snapshot>"],
}


def test_a_compacted_conversation_goes_on(scripted_model, clients, api):
    model = scripted_model([say("One."), [shell("ls")], [context_overflow(times=1), say("Three.")], say("Four.")])
    talk = clients[api](model.url, session="s", tools=TOOLS)
    talk.ask("Hi")
    talk.ask("Go on")
    assert "Three." not in talk.give("README").text
    fresh = clients[api](model.url, session="s", tools=TOOLS)
    fresh.history = [fresh.user(text) for text in COMPACTED[api]]
    assert fresh.again().text == "Three."
    assert fresh.ask("And on").text == "Four."
    model.assert_consumed()


def test_a_fault_alone_in_its_reply_gives_way_to_the_next(scripted_model, client):
    model = scripted_model([http_error(429, times=2), http_error(500, times=1), say("Recovered."), say("Next.")])
    talk = client(model.url)
    talk.history.append(talk.user("Hi"))
    assert [talk.again().status for _ in range(3)] == [429, 429, 500]
    assert talk.again().text == "Recovered."
    assert talk.ask("More").text == "Next."
    model.assert_consumed()


REMINDER = "<system-reminder>\nToday is Monday.\n</system-reminder>"


def test_what_agents_weave_into_prompts_is_not_the_prompt(scripted_model, clients):
    model = scripted_model([say("One.")])
    clients["anthropic"](model.url).ask(f"{REMINDER}\nHi")
    clients["responses"](model.url).ask("<environment_context>\n  <cwd>/x</cwd>\n</environment_context>\nHi")
    clients["gemini"](model.url).ask("<session_context>\nMy setup.\n</session_context>\nHi")
    assert [request.prompt for request in model.requests] == ["Hi", "Hi", "Hi"]


SUMMARY = "A summary of the scripted conversation."
SIDE = [
    ("anthropic", "Generate a concise, sentence-case title", "Hi", '{"title": "Scripted session"}', "title"),
    ("anthropic", "x", "TEXT ONLY. Your task is to create a detailed summary of the talk.", SUMMARY, "summary"),
    ("responses", "x", "You are performing a CONTEXT CHECKPOINT COMPACTION. Do.", SUMMARY, "summary"),
    ("chat", "You are a title generator.", "Hi", "Scripted session", "title"),
    ("chat", "You are a context summarization agent.", "Here it is.", SUMMARY, "summary"),
]


@pytest.mark.parametrize(("api", "system", "prompt", "answer", "side"), SIDE)
def test_side_calls_do_not_consume_the_script(scripted_model, clients, api, system, prompt, answer, side):
    model = scripted_model([say("One.")])
    aside_talk = clients[api](model.url)
    aside_talk.system = system
    assert aside_talk.ask(prompt).text == answer
    assert clients[api](model.url, tools=TOOLS).ask("Hi").text == "One."
    assert [(request.side, request.step) for request in model.requests] == [(side, -1), ("", 0)]
    model.assert_consumed()


BROKEN = [
    (lambda outcomes: say(outcomes[0].output), "IndexError"),
    ([call("shell", cmd="ls")], "KeyError"),
]


@pytest.mark.parametrize(("reply", "error"), BROKEN)
def test_a_broken_script_answers_the_agent_and_fails_the_test(client, reply, error):
    def converse(*, fail: bool) -> None:
        with ScriptedModel([reply, say("Never.")]) as model:
            answer = client(model.url).ask("Hi")
            assert (answer.status, error in answer.error) == (400, True)
            if fail:
                raise KeyError("ours")

    with pytest.raises(ScriptFailed, match=f"the script failed: {error}"):
        converse(fail=False)
    with pytest.raises(KeyError, match="ours"):  # which it does not hide
        converse(fail=True)
