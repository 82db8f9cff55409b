"""What an editor must mark before anything is run."""

import stagedoor


def yes(request: stagedoor.PermissionRequest) -> bool:
    return True


stagedoor.open("claude", tier="superviced")  # wrong
stagedoor.open("claude", teir="supervised")  # wrong
stagedoor.open("claude", approval="never")  # wrong
stagedoor.open("claude", sandbox="workspace")  # wrong
stagedoor.open("claude", max_turns="3")  # wrong
stagedoor.open("claude", can_use_tool=yes)  # wrong
stagedoor.open("claude", allowed_tools="shell")  # wrong
stagedoor.open("claude", mcp_servers=["sums"])  # wrong
stagedoor.open("claude", env={"A": 1})  # wrong
stagedoor.open(claude="yes")  # wrong
stagedoor.run("claude", "Fix it", cancel="now")  # wrong
stagedoor.run("claude", "Fix it", timeout="1 min")  # wrong
stagedoor.run_sync("claude", "Fix it", fork="yes")  # wrong
stagedoor.run_sync("claude")  # wrong
stagedoor.run_parallel([stagedoor.Task("claude", "a", {"modle": "opus"})])  # wrong
stagedoor.run_parallel([("claude", "a")])  # wrong
stagedoor.connect("http://127.0.0.1:16180").open("claude", raw=True)  # wrong
stagedoor.connect(16180)  # wrong
stagedoor.connect().run("claude", "Fix it", tier="wild")  # wrong


async def events() -> None:
    async for event in stagedoor.run("claude", "Fix it"):
        print(event.text)  # wrong
        if event.type == "text":
            print(event.text, event.target)  # wrong
