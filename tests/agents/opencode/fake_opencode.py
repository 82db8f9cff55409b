"""Stands in for ``opencode serve`` where the real one cannot be made to misbehave. ``FAKE`` says how."""

import asyncio
import base64
import json
import os
import sys

FAKE = os.environ.get("FAKE", "")
if "--version" in sys.argv:
    sys.exit(print("1.18.33"))
TOKEN = base64.b64encode(f"opencode:{os.environ['OPENCODE_SERVER_PASSWORD']}".encode()).decode()
MANY = 20_000
listeners: list[asyncio.StreamWriter] = []


def event(kind: str, **properties: object) -> bytes:
    return b"data: " + json.dumps({"id": "evt_1", "type": kind, "properties": properties}).encode() + b"\n\n"


def whole(status: int, body: object) -> bytes:
    content = b"" if body is None else json.dumps(body).encode()
    head = f"HTTP/1.1 {status} Said\r\ncontent-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
    return head.encode() + content


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while head := await reader.readuntil(b"\r\n\r\n"):
        line, *headers = head.decode().split("\r\n")
        named = dict(header.split(": ", 1) for header in headers if header)
        await reader.readexactly(int({k.lower(): v for k, v in named.items()}.get("content-length", 0)))
        method, target, _ = line.split(" ")
        if TOKEN not in head.decode():
            writer.write(whole(401, None))
        elif target.startswith("/event"):
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
            writer.write(event("server.connected"))
            listeners.append(writer)
            if FAKE == "deaf":
                writer.close()
                return
        else:
            writer.write(answer(method, target.partition("?")[0]))
        await writer.drain()


def answer(method: str, path: str) -> bytes:
    if path == "/config":
        refusal = {"name": "ConfigInvalidError", "data": {"message": "bad member"}}
        return whole(400, refusal) if FAKE == "bad-config" else whole(200, {"model": "p/m"})
    if path == "/global/health":
        return whole(200, {"healthy": True, "version": "0.3.1" if FAKE == "old" else "1.18.33"})
    if path == "/config/providers":
        return whole(200, {"providers": [{"id": "p", "models": {"m": {}}}]})
    if path == "/session/status":
        return whole(200, {})
    if path == "/session":
        return whole(200, {"id": "ses_1"})
    if path.endswith("/prompt_async"):
        asyncio.get_running_loop().create_task(turn())
        return whole(204, None)
    return whole(200, True)


async def turn() -> None:
    say = listeners[-1].write
    say(event("session.status", sessionID="ses_1", status={"type": "busy"}))
    info = {"id": "msg_1", "role": "assistant", "time": {"created": 1}}
    say(event("message.updated", sessionID="ses_1", info=info))
    if FAKE == "dies":
        await listeners[-1].drain()
        await asyncio.sleep(0.1)
        print("out of memory", file=sys.stderr)
        os._exit(137)
    if FAKE == "broken-stream" and len(listeners) == 1:
        # The end of the turn is said while nobody listens.
        listeners[-1].close()
        return
    if FAKE == "chatty":
        for _ in range(MANY):
            say(event("message.part.delta", sessionID="ses_1", partID="prt_1", delta="x"))
            await listeners[-1].drain()
    info["time"] = {"created": 1, "completed": 2}
    say(event("message.updated", sessionID="ses_1", info={**info, "finish": "stop"}))
    say(event("session.idle", sessionID="ses_1"))


async def main() -> None:
    if FAKE == "crashes":
        sys.exit("Error: Unknown argument: nonsense")
    if FAKE == "mute":
        await asyncio.Event().wait()
    server = await asyncio.start_server(serve, "127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1]))
    host = "0.0.0.0" if FAKE == "public" else "127.0.0.1"
    print(f"opencode server listening on http://{host}:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


asyncio.run(main())
