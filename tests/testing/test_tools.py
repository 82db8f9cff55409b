"""Each normalized call in each agent's own words."""

from __future__ import annotations

import pytest

from stagedoor.testing import (
    delete_file,
    edit_file,
    find_files,
    mcp,
    plan,
    question,
    read_file,
    search_content,
    shell,
    task,
    web_fetch,
    web_search,
    write_file,
)
from stagedoor.testing.apis.anthropic import AnthropicApi
from stagedoor.testing.apis.chat import ChatApi
from stagedoor.testing.apis.gemini import GeminiApi
from stagedoor.testing.apis.responses import ResponsesApi
from stagedoor.testing.model_request import CallResult, ConversationTurn, ModelRequest, NativeCall, PastCall
from stagedoor.testing.reply_choice import AnsweredCall
from stagedoor.testing.script import ScriptedCall, say

APIS = {api.name: api for api in (AnthropicApi(), ResponsesApi(), ChatApi(), GeminiApi())}
ITEMS = [{"text": "A", "status": "completed"}, {"text": "B"}]
CHOICES = [{"label": "x", "description": "x"}, {"label": "y", "description": "y"}]
RUN = {"description": "Run a command"}

CLAUDE = "Agent AskUserQuestion Bash Edit Read TaskCreate TaskUpdate WebFetch WebSearch Write mcp__srv__add"
OPENCODE = "bash edit glob grep question read srv_add task todowrite webfetch websearch write"
GEMINI = (
    "ask_user glob google_web_search grep_search invoke_agent mcp_srv_add read_file replace run_shell_command "
    "web_fetch write_file write_todos"
)
OFFERED = {
    "anthropic": {name: {} for name in CLAUDE.split()},
    "chat": {name: {} for name in OPENCODE.split()},
    "gemini": {name: {} for name in GEMINI.split()},
    "responses": {
        "exec_command": {},
        "apply_patch": {"type": "custom"},
        "update_plan": {},
        "request_user_input": {},
        "web_search": {},
        "spawn_agent": {"namespace": "multi_agent_v1"},
        "add": {"namespace": "mcp__srv"},
    },
}


def patch(*lines: str) -> NativeCall:
    return NativeCall("apply_patch", "\n".join(("*** Begin Patch", *lines, "*** End Patch")), kind="custom")


TABLE: list[tuple[ScriptedCall, dict[str, NativeCall]]] = [
    (
        shell("ls"),
        {
            "anthropic": NativeCall("Bash", {"command": "ls", **RUN}),
            "responses": NativeCall("exec_command", {"cmd": "ls"}),
            "chat": NativeCall("bash", {"command": "ls", **RUN}),
            "gemini": NativeCall("run_shell_command", {"command": "ls", **RUN}),
        },
    ),
    (
        shell("ls", background=True, escalate="May I?"),
        {
            "anthropic": NativeCall("Bash", {"command": "ls", **RUN, "run_in_background": True}),
            "responses": NativeCall(
                "exec_command",
                {"cmd": "ls", "sandbox_permissions": "require_escalated", "justification": "May I?"},
            ),
            "chat": NativeCall("bash", {"command": "ls", **RUN}),
            "gemini": NativeCall("run_shell_command", {"command": "ls", **RUN, "is_background": True}),
        },
    ),
    (
        read_file("a.txt"),
        {
            "anthropic": NativeCall("Read", {"file_path": "/repo/a.txt"}),
            "responses": NativeCall("exec_command", {"cmd": "cat a.txt"}),
            "chat": NativeCall("read", {"filePath": "a.txt"}),
            "gemini": NativeCall("read_file", {"file_path": "a.txt"}),
        },
    ),
    (
        write_file("a.txt", "one\ntwo\n"),
        {
            "anthropic": NativeCall("Write", {"file_path": "/repo/a.txt", "content": "one\ntwo\n"}),
            "responses": patch("*** Add File: a.txt", "+one", "+two"),
            "chat": NativeCall("write", {"filePath": "a.txt", "content": "one\ntwo\n"}),
            "gemini": NativeCall("write_file", {"file_path": "a.txt", "content": "one\ntwo\n"}),
        },
    ),
    (
        edit_file("/x/a.txt", "one", "1"),
        {
            "anthropic": NativeCall("Edit", {"file_path": "/x/a.txt", "old_string": "one", "new_string": "1"}),
            "responses": patch("*** Update File: /x/a.txt", "@@", "-one", "+1"),
            "chat": NativeCall("edit", {"filePath": "/x/a.txt", "oldString": "one", "newString": "1"}),
            "gemini": NativeCall(
                "replace",
                {
                    "file_path": "/x/a.txt",
                    "old_string": "one",
                    "new_string": "1",
                    "instruction": "Make the scripted edit",
                },
            ),
        },
    ),
    (
        delete_file("a b.txt"),
        {
            "anthropic": NativeCall("Bash", {"command": "rm 'a b.txt'", "description": "Look at files"}),
            "responses": patch("*** Delete File: a b.txt"),
            "chat": NativeCall("bash", {"command": "rm 'a b.txt'", "description": "Delete a file"}),
            "gemini": NativeCall("run_shell_command", {"command": "rm 'a b.txt'", "description": "Delete a file"}),
        },
    ),
    (
        search_content("x y", "src"),
        {
            "anthropic": NativeCall("Bash", {"command": "grep -rn -e 'x y' src", "description": "Look at files"}),
            "responses": NativeCall("exec_command", {"cmd": "grep -rn -e 'x y' src"}),
            "chat": NativeCall("grep", {"pattern": "x y", "path": "src"}),
            "gemini": NativeCall("grep_search", {"pattern": "x y", "dir_path": "src"}),
        },
    ),
    (
        find_files("*.py"),
        {
            "anthropic": NativeCall("Bash", {"command": "find . -name '*.py'", "description": "Look at files"}),
            "responses": NativeCall("exec_command", {"cmd": "find . -name '*.py'"}),
            "chat": NativeCall("glob", {"pattern": "*.py", "path": "."}),
            "gemini": NativeCall("glob", {"pattern": "*.py", "dir_path": "."}),
        },
    ),
    (
        web_fetch("http://localhost/"),
        {
            "anthropic": NativeCall("WebFetch", {"url": "http://localhost/", "prompt": "What does it say?"}),
            "responses": NativeCall("web_search", {"type": "open_page", "url": "http://localhost/"}, kind="hosted"),
            "chat": NativeCall("webfetch", {"url": "http://localhost/", "format": "text"}),
            "gemini": NativeCall("web_fetch", {"prompt": "What does http://localhost/ say?"}),
        },
    ),
    (
        web_search("news"),
        {
            "anthropic": NativeCall("WebSearch", {"query": "news"}),
            "responses": NativeCall(
                "web_search", {"type": "search", "query": "news", "queries": ["news"]}, kind="hosted"
            ),
            "chat": NativeCall("websearch", {"query": "news"}),
            "gemini": NativeCall("google_web_search", {"query": "news"}),
        },
    ),
    (
        task("Dig.", description="Digging"),
        {
            "anthropic": NativeCall(
                "Agent", {"description": "Digging", "subagent_type": "general-purpose", "prompt": "Dig."}
            ),
            "responses": NativeCall("spawn_agent", {"message": "Dig."}, namespace="multi_agent_v1"),
            "chat": NativeCall("task", {"description": "Digging", "prompt": "Dig.", "subagent_type": "general"}),
            "gemini": NativeCall("invoke_agent", {"agent_name": "generalist", "prompt": "Dig."}),
        },
    ),
    (
        mcp("srv", "add", a=1),
        {
            "anthropic": NativeCall("mcp__srv__add", {"a": 1}),
            "responses": NativeCall("add", {"a": 1}, namespace="mcp__srv"),
            "chat": NativeCall("srv_add", {"a": 1}),
            "gemini": NativeCall("mcp_srv_add", {"a": 1}),
        },
    ),
    (
        question("Which?", ["x", "y"]),
        {
            "anthropic": NativeCall(
                "AskUserQuestion",
                {"questions": [{"question": "Which?", "header": "Question", "options": CHOICES, "multiSelect": False}]},
            ),
            "responses": NativeCall(
                "request_user_input",
                {"questions": [{"id": "question", "header": "Question", "question": "Which?", "options": CHOICES}]},
            ),
            "chat": NativeCall(
                "question", {"questions": [{"question": "Which?", "header": "Question", "options": CHOICES}]}
            ),
            "gemini": NativeCall(
                "ask_user",
                {"questions": [{"question": "Which?", "header": "Question", "type": "choice", "options": CHOICES}]},
            ),
        },
    ),
]


def request(api: str, tools: dict[str, dict] | None = None, turns: tuple[ConversationTurn, ...] = ()) -> ModelRequest:
    offered = OFFERED[api] if tools is None else tools
    return ModelRequest(api=api, path="", body={}, system="Working directory: /repo\n", tools=offered, turns=turns)


@pytest.mark.parametrize(("call", "expected"), TABLE, ids=[call.tool for call, _ in TABLE])
def test_calls_in_each_agents_own_words(call, expected):
    assert {name: api.native(call, request(name)) for name, api in APIS.items()} == {
        name: [native] for name, native in expected.items()
    }


@pytest.mark.parametrize("api", APIS)
def test_a_call_without_its_tool_is_sent_all_the_same(api):
    calls = [call for call, _ in TABLE]
    natives = [APIS[api].native(call, request(api, {})) for call in calls]
    assert not any(native.offered for calls in natives for native in calls)


def test_plans():
    claude = APIS["anthropic"]
    assert claude.native(plan(ITEMS), request("anthropic")) == [
        NativeCall("TaskCreate", {"subject": "A", "description": "A"}),
        NativeCall("TaskCreate", {"subject": "B", "description": "B"}),
    ]
    todos = [
        {"content": "A", "status": "completed", "activeForm": "A"},
        {"content": "B", "status": "pending", "activeForm": "B"},
    ]
    assert claude.native(plan(ITEMS), request("anthropic", {"TodoWrite": {}})) == [
        NativeCall("TodoWrite", {"todos": todos})
    ]
    steps = [{"step": "A", "status": "completed"}, {"step": "B", "status": "pending"}]
    assert APIS["responses"].native(plan(ITEMS), request("responses")) == [NativeCall("update_plan", {"plan": steps})]
    todos = [
        {"content": "A", "status": "completed", "priority": "medium"},
        {"content": "B", "status": "pending", "priority": "medium"},
    ]
    assert APIS["chat"].native(plan(ITEMS), request("chat")) == [NativeCall("todowrite", {"todos": todos})]
    todos = [{"description": "A", "status": "completed"}, {"description": "B", "status": "pending"}]
    assert APIS["gemini"].native(plan(ITEMS), request("gemini")) == [NativeCall("write_todos", {"todos": todos})]


def test_a_plan_of_tasks_moves_new_tasks_to_their_states_and_known_ones_again():
    claude, call = APIS["anthropic"], plan(ITEMS)
    created = claude.native(call, request("anthropic"))
    results = [CallResult("1", "Task #1 created successfully: A"), CallResult("2", "Task #2 created successfully: B")]
    answered = [AnsweredCall(call, native, result) for native, result in zip(created, results, strict=True)]
    moved = NativeCall("TaskUpdate", {"taskId": "1", "status": "completed"})
    assert claude.follow_up(request("anthropic"), answered) == [(call, moved)]
    made = tuple(PastCall(str(n + 1), native.name, native.input) for n, native in enumerate(created))
    later = request(
        "anthropic", turns=(ConversationTurn("model", calls=made), ConversationTurn("tool", results=tuple(results)))
    )
    assert claude.native(plan([{"text": "B", "status": "in_progress"}]), later) == [
        NativeCall("TaskUpdate", {"taskId": "2", "status": "in_progress"})
    ]


def test_later_versions_of_claude_code():
    claude = APIS["anthropic"]
    agent = {"Agent": {"input_schema": {"properties": {"run_in_background": {}}}}, "ToolSearch": {}}
    (made,) = claude.native(task("Dig."), request("anthropic", agent))
    assert made.input["run_in_background"] is False
    calls = [plan(ITEMS), web_fetch("http://localhost/"), mcp("srv", "add"), question("Which?", ["x"]), shell("ls")]
    made = [claude.native(call, request("anthropic", agent))[0] for call in calls]
    assert [native.offered for native in made] == [True, True, True, True, False]


CODE = {"exec": {"type": "custom"}}
WORLDS = [
    (shell("ls"), {"shell_command": {}}, NativeCall("shell_command", {"command": "ls"})),
    (shell("ls"), {"shell": {}}, NativeCall("shell", {"command": ["bash", "-lc", "ls"]})),
    (
        shell("ls"),
        CODE,
        NativeCall("exec", 'const result = await tools.exec_command({"cmd": "ls"}); text(result);', kind="custom"),
    ),
    (
        delete_file("a"),
        CODE,
        NativeCall(
            "exec",
            r"const result = await tools.apply_patch("
            r'"*** Begin Patch\n*** Delete File: a\n*** End Patch"); text(result);',
            kind="custom",
        ),
    ),
    (
        delete_file("a"),
        {"apply_patch": {"type": "function"}},
        NativeCall("apply_patch", {"input": "*** Begin Patch\n*** Delete File: a\n*** End Patch"}),
    ),
    (
        delete_file("a"),
        {"exec_command": {}},
        NativeCall(
            "exec_command", {"cmd": "apply_patch <<'PATCH'\n*** Begin Patch\n*** Delete File: a\n*** End Patch\nPATCH"}
        ),
    ),
    (
        mcp("srv", "add", a=1),
        CODE,
        NativeCall("exec", 'const result = await tools["mcp__srv__add"]({"a": 1}); text(result);', kind="custom"),
    ),
    (mcp("srv", "add", a=1), {"mcp__srv__add": {}}, NativeCall("mcp__srv__add", {"a": 1})),
    (mcp("srv", "add", a=1), {"tool_search": {}}, NativeCall("add", {"a": 1}, namespace="mcp__srv")),
    (task("Dig."), {"tool_search": {}}, NativeCall("spawn_agent", {"message": "Dig."}, namespace="multi_agent_v1")),
    (
        task("Dig."),
        {"spawn_agent": {"parameters": {"properties": {"task_name": {}, "fork_turns": {}}}}},
        NativeCall("spawn_agent", {"message": "Dig.", "task_name": "scripted_task", "fork_turns": "none"}),
    ),
]


@pytest.mark.parametrize(("call", "tools", "expected"), WORLDS)
def test_the_tool_worlds_of_codex(call, tools, expected):
    assert APIS["responses"].native(call, request("responses", tools)) == [expected]


def test_codex_is_told_to_wait_for_a_sub_agent_until_it_is_done():
    codex, call = APIS["responses"], task("Dig.")
    tools = {"spawn_agent": {}, "wait_agent": {"parameters": {"properties": {"targets": {}, "timeout_ms": {}}}}}
    (spawn,) = codex.native(call, request("responses", tools))
    agent = "01a1de23-a743-7b61-8b35-8f8149a84b43"
    wait = NativeCall("wait_agent", {"timeout_ms": 60000, "targets": [agent]})

    def after(native: NativeCall, output: str, *, follow_up: bool = False, error: bool = False) -> list:
        last = [AnsweredCall(call, native, CallResult("1", output, error), follow_up)]
        return codex.follow_up(request("responses", tools), last)

    assert after(spawn, f'{{"agent_id":"{agent}"}}') == [(call, wait)]
    assert after(wait, '{"status":{},"timed_out":true}', follow_up=True) == [(call, wait)]
    assert after(wait, '{"status":{},"timed_out":false}', follow_up=True) == []
    assert after(spawn, "unsupported call: spawn_agent", error=True) == []


def test_a_gemini_sub_agent_ends_by_a_call():
    gemini = APIS["gemini"]
    result = {"type": "object", "properties": {"response": {"type": "string"}}}
    tool = {"parametersJsonSchema": {"properties": {"result": result}}}
    ending = ScriptedCall("complete_task", {"result": {"response": "Done."}}, native=True)
    inside = request("gemini", {"complete_task": tool})
    assert gemini.complete_parts(inside, [say("Done.")]) == [say("Done."), ending]
    assert gemini.complete_parts(inside, [say("Wait."), shell("ls")]) == [say("Wait."), shell("ls")]
    assert gemini.complete_parts(request("gemini"), [say("Done.")]) == [say("Done.")]
