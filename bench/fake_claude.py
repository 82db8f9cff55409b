"""A fake Claude Code for the benchmarks: greets either SDK, then pours a prepared stream out as fast as it can."""

from __future__ import annotations

import json
import os
import sys


def main() -> None:
    if "--version" in sys.argv or "-v" in sys.argv:
        print("2.1.197 (Claude Code)")
        return
    with open(os.environ["BENCH_STREAM"], "rb") as file:  # noqa: PTH123
        stream = file.read()
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if message["type"] == "control_request":
            answer = {"subtype": "success", "request_id": message["request_id"], "response": {"commands": []}}
            sys.stdout.write(json.dumps({"type": "control_response", "response": answer}) + "\n")
            sys.stdout.flush()
        elif message["type"] == "user":
            view = memoryview(stream)
            while view:
                view = view[os.write(1, view) :]


main()
