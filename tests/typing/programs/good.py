"""What the README and the tour do, and every way to write an option."""

import asyncio
from pathlib import Path

import stagedoor


async def ask(request: stagedoor.PermissionRequest) -> stagedoor.Allow | stagedoor.Deny:
    return stagedoor.Deny("too risky") if request.risk == "high" else stagedoor.Allow(remember="session")


def plain(request: stagedoor.PermissionRequest) -> stagedoor.Allow | stagedoor.Deny:
    return stagedoor.Allow()


async def stream() -> None:
    async for event in stagedoor.run("claude", "Fix it", cwd=Path(), tier="supervised", can_use_tool=ask):
        match event:
            case stagedoor.TextDelta(text=text):
                print(text, end="")
            case stagedoor.Done(status=status, usage=usage):
                print(status, usage.total_tokens)
            case _:
                pass


async def by_type() -> None:
    async for event in stagedoor.run("claude", "Fix it"):
        if event.type == "tool_use":
            print(event.name, event.target)
        elif event.type == "permission_request":
            print(event.risk)


async def conversation() -> None:
    async with stagedoor.open(
        "codex",
        approval="ask",
        sandbox="readOnly",
        allowed_tools=["shell"],
        disallowed_tools=("web_search",),
        mcp_servers={"sums": stagedoor.McpServer(command="sums")},
        can_use_tool=plain,
        permission_timeout=None,
        policy=Path("policy.yaml"),
    ) as session:
        async for event in session.send("Write the test first"):
            print(event.seq)
        print(session.id, session.capabilities.resume)


async def shared(options: stagedoor.OpenOptions) -> None:
    tasks = [stagedoor.Task("claude", "a", {"model": "opus"}), stagedoor.Task("codex", "b", options)]
    async for tagged in stagedoor.run_parallel(tasks, limit=2, tier="autonomous", timeout=60):
        print(tagged.agent, tagged.event.type)


async def with_a_server() -> None:
    remote = stagedoor.connect("http://127.0.0.1:16180", "token", patience=5)
    async with remote.open("codex", tier="supervised", can_use_tool=ask, worktree=True, title="Login") as session:
        async for event in session.send("Fix it"):
            print(event.type)


def script() -> str:
    result = stagedoor.run_sync("gemini", "Explain", max_turns=3, images=["a.png"])
    return result.text


asyncio.run(shared({"tier": "dry-run", "max_budget_usd": 1.5}))
