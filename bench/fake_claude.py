"""A fake Claude Code for the benchmarks: greets either SDK, then pours a prepared stream out as fast as it can."""

from __future__ import annotations

import json
import os
import sys
import time

DELTA = (
    b'{"type":"stream_event","event":{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"%d"}},'
    b'"parent_tool_use_id":null,"session_id":"3e35f0c2-8a39-4f5e-9d7a-4b8a2f1c0d11","uuid":"u"}\n'
)


def main() -> None:
    if "--version" in sys.argv or "-v" in sys.argv:
        print("2.1.197 (Claude Code)")
        return
    with open(os.environ["BENCH_STREAM"], "rb") as file:  # noqa: PTH123
        stream = file.read()
    paced = int(os.environ.get("BENCH_PACED", "0"))
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if message["type"] == "control_request":
            answer = {"subtype": "success", "request_id": message["request_id"], "response": {"commands": []}}
            sys.stdout.write(json.dumps({"type": "control_response", "response": answer}) + "\n")
            sys.stdout.flush()
        elif message["type"] == "user":
            if paced:
                first, last = stream.splitlines(keepends=True)[0], stream.splitlines(keepends=True)[-1]
                os.write(1, first)
                for _ in range(paced):
                    time.sleep(0.002)
                    os.write(1, DELTA % time.monotonic_ns())
                os.write(1, last)
                continue
            view = memoryview(stream)
            while view:
                view = view[os.write(1, view) :]


main()
