"""List 2,000 stored Claude Code sessions (1 GB): ours against ``claude_agent_sdk.list_sessions``, on the same tree.

    python bench/history_claude.py [--sessions 2000] [--megabytes 1000] [--assert-ratio 3]

Both read the same files in the same run, alternating, after one warm-up each; the results must be equal.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
import uuid
from pathlib import Path

from claude_agent_sdk import SDKSessionInfo
from claude_agent_sdk import list_sessions as sdk_list_sessions

from stagedoor.agents.claude.history import ClaudeStoredSession, folder_name, list_sessions

RUNS = 7


def build(home: Path, cwd: Path, sessions: int, size: int) -> None:
    """Session files as Claude Code writes them; some with names, sub-agent files, slash commands, broken lines."""
    folder = home / "projects" / folder_name(str(cwd))
    folder.mkdir(parents=True)
    chance = random.Random(1)
    block = "".join(chance.choice('abcdefghij klmnop\n"\\éö') for _ in range(4000))
    for number in range(sessions):
        session_id = str(uuid.UUID(int=chance.getrandbits(128), version=4))
        path = folder / f"{session_id}.jsonl"
        with path.open("w", encoding="utf-8") as file:
            for line in lines(session_id, str(cwd), number, size, block):
                file.write(
                    line if isinstance(line, str) else json.dumps(line, ensure_ascii=False, separators=(",", ":"))
                )
                file.write("\n")
        os.utime(path, ns=(10**18 + number * 10**9, 10**18 + number * 10**9 + 1234567))


def lines(session_id: str, cwd: str, number: int, size: int, block: str):
    def common(kind: str, second: int) -> dict[str, object]:
        return {
            "parentUuid": str(uuid.UUID(int=number * 1000 + second)),
            "isSidechain": number % 97 == 96,
            "type": kind,
            "uuid": str(uuid.UUID(int=number * 1000 + second + 1)),
            "timestamp": f"2026-11-{1 + number % 28:02}T06:{second // 60 % 60:02}:{second % 60:02}.{number % 1000:03}Z",
            "userType": "external",
            "cwd": cwd,
            "sessionId": session_id,
            "version": "2.1.197",
            "gitBranch": ["main", "HEAD", "feature/ünï"][number % 3],
        }

    first = [f'Fix bug {number} in the "login" page', "<command-name>/init</command-name>", "x" * 300][number % 3]
    if number % 11:
        yield {
            "type": "queue-operation",
            "operation": "enqueue",
            "timestamp": "2026-11-01T00:00:00.000Z",
            "content": first,
        }
    else:
        yield {"type": "mode", "mode": "normal", "sessionId": session_id}
    yield {**common("user", 0), "isMeta": True, "message": {"role": "user", "content": "<local-command-caveat>"}}
    yield {**common("user", 1), "message": {"role": "user", "content": first}}
    yield {
        **common("user", 2),
        "message": {"role": "user", "content": [{"type": "text", "text": f"Go on with {number}"}]},
    }
    written, second = 4000, 3
    while written < size:
        answer = {
            "id": f"msg_{second}",
            "type": "message",
            "role": "assistant",
            "model": "claude-opus-4-8",
            "content": [{"type": "text", "text": block[: 500 + second * 37 % 3000]}],
            "usage": {"input_tokens": 100, "output_tokens": 20, "cache_read_input_tokens": 50},
        }
        yield {**common("assistant", second), "message": answer, "requestId": "req_1"}
        result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": block[: second * 53 % 4000]}
        yield {**common("user", second + 1), "message": {"role": "user", "content": [result]}}
        written += 1600 + (500 + second * 37 % 3000) + second * 53 % 4000
        second += 2
    if number % 5 == 0:
        yield {"type": "custom-title", "customTitle": f'The "{number}" title', "sessionId": session_id}
    if number % 7 == 0:
        yield {"type": "ai-title", "aiTitle": f"Made up {number}", "sessionId": session_id}
    if number % 13 == 0:
        yield {"type": "tag", "tag": f"tag-{number}", "sessionId": session_id}
    if number % 2:
        yield {"type": "last-prompt", "lastPrompt": f"Last of {number} \\ done", "sessionId": session_id}
    if number % 17 == 0:
        yield '{"type":"user","message":{"role":"user","content":"cut off in the mid'


def as_sdk(session: ClaudeStoredSession) -> tuple[object, ...]:
    return (
        session.session_id,
        session.title,
        session.updated_ms,
        session.size,
        session.custom_title,
        session.first_prompt,
        session.git_branch,
        session.cwd,
        session.tag,
        session.started_ms,
    )


def from_sdk(session: SDKSessionInfo) -> tuple[object, ...]:
    return (
        session.session_id,
        session.summary,
        session.last_modified,
        session.file_size,
        session.custom_title,
        session.first_prompt,
        session.git_branch,
        session.cwd,
        session.tag,
        session.created_at,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=2000)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--assert-ratio", type=float, default=3.0)
    args = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="stagedoor-bench-")).resolve()
    try:
        home, cwd = root / "home", root / "project"
        cwd.mkdir()
        build(home, cwd, args.sessions, args.megabytes * 10**6 // args.sessions)
        os.environ["CLAUDE_CONFIG_DIR"] = str(home)
        ours_s: list[float] = []
        sdks_s: list[float] = []
        for _ in range(RUNS + 1):
            start = time.perf_counter()
            ours = list_sessions(cwd)
            between = time.perf_counter()
            theirs = sdk_list_sessions(directory=str(cwd), include_worktrees=False)
            sdks_s.append(time.perf_counter() - between)
            ours_s.append(between - start)
        expected = [from_sdk(session) for session in theirs]
        assert [as_sdk(session) for session in ours.sessions] == expected, "the results differ"
        size = sum(entry.stat().st_size for entry in (home / "projects").rglob("*.jsonl"))
        fast, slow = statistics.median(ours_s[1:]), statistics.median(sdks_s[1:])
        ratio = slow / fast
        print(f"history: {len(ours.sessions)} sessions, {size / 1e9:.2f} GB, equal results")
        print(f"  claude_agent_sdk.list_sessions  {slow * 1e3:8.1f} ms")
        print(f"  stagedoor list_sessions            {fast * 1e3:8.1f} ms   {ratio:.2f} x as fast")
        return 0 if ratio >= args.assert_ratio else 1
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
