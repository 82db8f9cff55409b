"""An agent that keeps the protocol's framing and little else. The prompt, or at the start an argument, says how."""

import itertools
import json
import os
import sys
from pathlib import Path
from typing import Any

NUMBERS = itertools.count()
WAITING: list[Any] = []
OPTIONS = [
    {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
    {"optionId": "no", "name": "No", "kind": "reject_once"},
]


def send(*messages: Any) -> None:
    """In one piece, so that nothing can come between them."""
    os.write(1, b"".join(json.dumps(message).encode() + b"\n" for message in messages))


def read() -> Any:
    if WAITING:
        return WAITING.pop(0)
    line = sys.stdin.buffer.readline()
    if not line:
        sys.exit(0)
    return json.loads(line)


def update_of(name: str, /, **members: Any) -> Any:
    return {"method": "session/update", "params": {"sessionId": "s", "update": {"sessionUpdate": name, **members}}}


def update(name: str, /, **members: Any) -> None:
    send(update_of(name, **members))


def text(words: str) -> Any:
    return {"content": {"type": "text", "text": words}}


def say(words: str) -> None:
    update("agent_message_chunk", **text(words))


def end_of(number: Any) -> Any:
    return {"jsonrpc": "2.0", "id": number, "result": {"stopReason": "end_turn"}}


def question_of(number: Any, call_id: str, command: str, options: Any = OPTIONS) -> Any:
    call = {"toolCallId": call_id, "title": "Terminal", "kind": "execute", "rawInput": {"command": command}}
    params = {"sessionId": "s", "options": options, "toolCall": call}
    return {"jsonrpc": "2.0", "id": number, "method": "session/request_permission", "params": params}


def ask(number: Any, call_id: str, command: str, options: Any = OPTIONS) -> None:
    send(question_of(number, call_id, command, options))


def outcome() -> str:
    answer = read()
    return json.dumps(answer.get("result", {}).get("outcome", answer.get("error", {}).get("code")))


def request_of(method: str, params: Any) -> Any:
    return {"jsonrpc": "2.0", "id": f"r{next(NUMBERS)}", "method": method, "params": params}


def answer_to(request: Any) -> Any:
    """What else comes, such as the next prompt, waits for its turn."""
    while True:
        message = json.loads(sys.stdin.buffer.readline() or sys.exit(0))
        if message.get("id") == request["id"] and "method" not in message:
            return message
        WAITING.append(message)


def answered(method: str, **params: Any) -> Any:
    request = request_of(method, {"sessionId": "s", **params})
    send(request)
    return answer_to(request)


def served(method: str, **params: Any) -> str:
    """``yes``, or why not."""
    answer = answered(method, **params)
    terminal = (answer.get("result") or {}).get("terminalId")
    if terminal is not None:
        answered("terminal/wait_for_exit", terminalId=terminal)
    return "yes" if "result" in answer else str(answer["error"]["message"])


class Turn:
    """Each method is a way to answer a prompt; what it returns is sent as the answer, unless that is nothing."""

    def __init__(self, number: Any) -> None:
        self.number = number

    def placeholder(self) -> Any:
        update("tool_call", toolCallId="c", title="Terminal", kind="execute", status="pending", rawInput={}, content=[])
        update("tool_call_update", toolCallId="c", status="in_progress", rawInput={"command": ["bash", "-lc", "ls x"]})
        update(
            "tool_call_update", toolCallId="c", status="failed", rawOutput={"formatted_output": "no", "exit_code": 2.0}
        )
        return end_of(self.number)

    def told_again(self) -> Any:
        for _ in range(2):
            update("tool_call", toolCallId="c", title="ls", kind="execute", rawInput={"command": "ls"})
            update("tool_call_update", toolCallId="c", status="completed", content=[{"type": "content", **text("a")}])
            update("tool_call_update", toolCallId="c", status="completed", content=[{"type": "content", **text("a")}])
        update("tool_call_update", toolCallId="c", status="completed", content=[{"type": "content", **text("b")}])
        return end_of(self.number)

    def question_first(self) -> Any:
        ask("q", "c", "make")
        say(outcome())
        update("tool_call", toolCallId="c", title="make", kind="execute", rawInput={"command": "make"})
        update("tool_call_update", toolCallId="c", status="completed")
        return end_of(self.number)

    def one_id_for_two(self) -> Any:
        send(question_of(1, "c", "ls"), question_of(1, "d", "rm -rf ~"))
        say(outcome())
        return end_of(self.number)

    def only_for_ever(self) -> Any:
        ask(1, "c", "ls", [{"optionId": "a", "name": "Always", "kind": "allow_always"}])
        say(outcome())
        return end_of(self.number)

    def unknown_option(self) -> Any:
        ask(1, "c", "ls", [{"optionId": "a", "name": "Allow", "kind": "allow_forever"}])
        say(outcome())
        return end_of(self.number)

    def taken_back(self) -> Any:
        send(question_of(1, "c", "ls"), {"method": "$/cancel_request", "params": {"requestId": 1}})
        say(outcome())
        return end_of(self.number)

    def unfinished(self) -> Any:
        update("tool_call", toolCallId="c", title="ls", kind="execute", rawInput={"command": "ls"})
        return end_of(self.number)

    def late(self) -> None:
        send(
            end_of(self.number),
            update_of("agent_message_chunk", **text("a word")),
            update_of("tool_call", toolCallId="c", title="ls", kind="execute", status="pending"),
            update_of("plan", entries=[{"content": "rest", "status": "pending"}]),
            question_of("late", "c", "ls"),
        )
        assert outcome() == '{"outcome": "cancelled"}'

    def pieces(self) -> Any:
        for content in (
            {"type": "image", "data": "AAAA", "mimeType": "image/png"},
            {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"},
            {"type": "resource", "resource": {"uri": "file:///b", "blob": "AAAA"}},
            {"type": "resource_link", "uri": "file:///c", "name": "c"},
            {"type": "hologram"},
            None,
        ):
            update("agent_message_chunk", content=content)
        return end_of(self.number)

    def news(self) -> Any:
        update("brand_new", a=1)
        send({"method": "totally/new", "params": [1]})
        send({"id": 9, "method": "fs/delete", "params": {}})
        say(outcome())
        return end_of(self.number)

    def noise(self) -> Any:
        os.write(1, b"npm warn\n\xff\xfe\n{broken\n")
        return end_of(self.number)

    def batch(self) -> Any:
        return [update_of("agent_message_chunk", **text("batch")), end_of(self.number)]

    def id_as_text(self) -> Any:
        return end_of(str(self.number))

    def id_as_float(self) -> Any:
        return end_of(float(self.number))

    def nothing(self) -> Any:
        return {"jsonrpc": "2.0", "id": self.number}

    def error_null(self) -> Any:
        return {"id": self.number, "error": None}

    def error_text(self) -> Any:
        return {"id": self.number, "error": "it broke"}

    def error_object(self) -> Any:
        return {"id": self.number, "error": {"code": "E", "message": {"a": 1}}}

    def error_for_nobody(self) -> Any:
        return {"id": None, "error": {"code": -32700, "message": "Parse error"}}

    def result_text(self) -> Any:
        return {"id": self.number, "result": "done"}

    def odd_stop(self) -> Any:
        return {"id": self.number, "result": {"stopReason": "tired"}}

    def liar(self) -> Any:
        """Was allowed one command and one text, and has us do others; then the same again, and after the turn."""
        folder = str(Path.cwd())
        ask(1, "c", "echo a >> ran")
        said = [outcome()]
        shell = ["-c", "echo a >> ran"]
        for command, args in (("/bin/sh", ["-c", "echo b >> ran"]), (f"{folder}/sh", shell), ("/bin/sh", shell)):
            said.append(served("terminal/create", command=command, args=args))
        said.append(served("terminal/create", command="/bin/sh", args=shell))
        for content in ("other", "shown", "shown"):
            given = {"file_path": f"{folder}/.envrc", "content": "shown"}
            call = {"toolCallId": "d", "title": "Write", "kind": "edit", "rawInput": given}
            answered("session/request_permission", options=OPTIONS, toolCall=call)
            said.append(served("fs/write_text_file", path=f"{folder}/.envrc", content=content))
        said.append(served("fs/write_text_file", path=f"{folder}/.envrc", content="shown"))
        ask(2, "e", "echo c >> ran")
        said.append(outcome())
        say("\n".join(said))
        late: list[Any] = []
        for session in ("s", "part"):  # nothing is running any more
            command = {"sessionId": session, "command": "/bin/sh", "args": ["-c", "echo c >> ran"]}
            late.append(request_of("terminal/create", command))
            file = {"sessionId": session, "path": f"{folder}/late", "content": "x"}
            late.append(request_of("fs/write_text_file", file))
        send(end_of(self.number), *late)
        for one in late:
            assert "error" in answer_to(one)

    def liar_again(self) -> Any:
        """With what it was allowed in the turn before."""
        say(served("terminal/create", command="/bin/sh", args=["-c", "echo c >> ran"]))
        return end_of(self.number)

    def dies(self) -> None:
        print("fatal: no disk", file=sys.stderr, flush=True)
        os._exit(3)


def main() -> None:
    how = sys.argv[1] if len(sys.argv) > 1 else ""
    while True:
        message = read()
        number = message.get("id")
        match message.get("method"):
            case "initialize":
                version = {"protocolVersion": 0 if how == "old" else 1}
                send([{"id": number, "result": version}] if how == "batch" else {"id": number, "result": version})
            case "session/new" if how == "mute":
                pass
            case "session/new" if how == "empty":
                send({"id": number})
            case "session/new":
                modes = {"currentModeId": "ask", "availableModes": [{"id": "ask", "name": "Ask"}]}
                send({"id": number, "result": {"sessionId": "s", **({"modes": modes} if how == "asks" else {})}})
            case "session/set_mode" if how == "asks":
                send({"id": number, "result": {}})
            case "session/prompt":
                answer = getattr(Turn(number), message["params"]["prompt"][0]["text"])()
                if answer is not None:
                    send(answer)
            case _ if number is not None and "method" in message:
                send({"id": number, "error": {"code": -32601, "message": "Method not found"}})
            case _:
                pass


main()
