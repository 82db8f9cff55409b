"""What a composer needs, over REST with the embedded agent: the queue, pictures and files, a model in mid-session,
the files and folders it completes."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from stagedoor.errors import BadRequest, SessionNotFound
from stagedoor.service.views import AttachedFile
from stagedoor.service.workspaces.attachments import AttachedPicture, attach, attachment_id, read_picture

Script = Callable[..., str]
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


async def until(look: Callable[[], Awaitable[Any]]) -> Any:
    async with asyncio.timeout(240):
        while not (value := await look()):
            await asyncio.sleep(0.02)
        return value


class Room:
    """One session, and what it says of itself."""

    def __init__(self, client: httpx.AsyncClient, session_id: str) -> None:
        self.client = client
        self.path = f"/api/sessions/{session_id}"

    @classmethod
    async def open(cls, client: httpx.AsyncClient, prompt: str, **more: Any) -> Room:
        made = await client.post("/api/sessions", json={"prompt": prompt, "keepOpen": True, **more})
        assert made.status_code == 201, made.text
        return cls(client, made.json()["id"])

    async def view(self) -> dict[str, Any]:
        result: dict[str, Any] = (await self.client.get(self.path)).json()
        return result

    async def rests(self, turns: int) -> dict[str, Any]:
        async def look() -> dict[str, Any] | None:
            view = await self.view()
            return view if view["turn"] == turns and view["activity"] in ("idle", "asleep") else None

        result: dict[str, Any] = await until(look)
        return result

    async def queue(self) -> list[str]:
        return [one["prompt"] for one in (await self.client.get(f"{self.path}/messages")).json()["messages"]]

    async def send(self, prompt: str, **more: Any) -> httpx.Response:
        return await self.client.post(f"{self.path}/messages", json={"prompt": prompt, **more})

    async def events(self, kind: str) -> list[dict[str, Any]]:
        page = (await self.client.get(f"{self.path}/events", params={"limit": 10_000})).json()
        return [event for event in page["events"] if event["type"] == kind]


def test_what_waits_is_edited_moved_and_removed(serve: Any, script: Script) -> None:
    async def main() -> None:
        async with serve() as server, server.client() as client:
            room = await Room.open(client, script([{"shell": "sleep 600"}]), autoApprove=["shell"])
            await until(lambda: room.events("tool_use"))
            sent = [(await room.send(script([{"say": word}]))).json()["id"] for word in ("one", "two", "three")]
            place = f"{room.path}/messages"
            moved = await client.patch(f"{place}/{sent[2]}", json={"place": 0})
            assert (moved.status_code, await room.queue()) == (
                200,
                [script([{"say": word}]) for word in ("three", "one", "two")],
            )
            edited = await client.patch(f"{place}/{sent[0]}", json={"prompt": script([{"say": "edited"}])})
            assert edited.status_code == 200
            assert (await client.delete(f"{place}/{sent[1]}")).status_code == 204
            assert await room.queue() == [script([{"say": word}]) for word in ("three", "edited")]
            assert (await room.view())["queued"] == 2
            gone = await client.delete(f"{place}/{sent[1]}")
            assert gone.status_code == 404
            assert "does not wait any more" in gone.json()["detail"]
            await client.post(f"{room.path}/interrupt")  # without more: what is queued comes next, in its new order
            assert (await room.rests(3))["queued"] == 0
            assert [event["text"] for event in await room.events("text")] == ["three", "edited"]

    asyncio.run(main())


@pytest.mark.parametrize("on", ["resumed", "sent"])
def test_stop_leaves_what_waits_until_somebody_says_so(serve: Any, script: Script, on: str) -> None:
    async def main() -> None:
        async with serve() as server, server.client() as client:
            room = await Room.open(client, script([{"shell": "sleep 600"}]), autoApprove=["shell"])
            await until(lambda: room.events("tool_use"))
            await room.send(script([{"say": "waited"}]))
            await client.post(f"{room.path}/interrupt", json={"pause": True})
            view = await room.rests(1)
            assert (view["queuePaused"], view["queued"]) == (True, 1)
            if on == "resumed":
                await client.patch(room.path, json={"queuePaused": False})
            else:
                await room.send(script([{"say": "after"}]))
            view = await room.rests(2 if on == "resumed" else 3)
            assert (view["queuePaused"], view["queued"]) == (False, 0)
            replies = [event["text"] for event in await room.events("text")]
            assert replies == (["waited"] if on == "resumed" else ["waited", "after"])

    asyncio.run(main())


def test_pausing_with_nothing_queued_pauses_nothing(serve: Any, script: Script) -> None:
    async def main() -> None:
        async with serve() as server, server.client() as client:
            room = await Room.open(client, script([{"shell": "sleep 600"}]), autoApprove=["shell"])
            await until(lambda: room.events("tool_use"))
            await client.post(f"{room.path}/interrupt", json={"pause": True})
            assert (await room.rests(1))["queuePaused"] is False
            await room.send(script([{"say": "at once"}]))
            await room.rests(2)

    asyncio.run(main())


def test_the_model_and_the_permissions_change_in_mid_session(serve: Any, script: Script) -> None:
    async def main() -> None:
        async with serve() as server, server.client() as client:
            room = await Room.open(client, script([{"say": "first"}]), tier="supervised")
            await room.rests(1)
            changed = await client.patch(room.path, json={"model": "understudy-mini", "tier": "autonomous"})
            assert changed.status_code == 200, changed.text
            await room.send(script([{"shell": "touch by-itself"}], [{"say": "second"}]))
            view = await room.rests(2)
            assert (view["model"], view["tier"], view["openQuestions"]) == ("understudy-mini", "autonomous", 0)
            assert (server.workspace / "by-itself").exists()
            [notice] = [event for event in await room.events("notice") if event["code"] == "reconfigured"]
            assert notice["message"].startswith("from the next message on: model understudy-mini, tier autonomous")
            assert [event["text"] for event in await room.events("text")] == ["first", "second"]
            # Back to asking: the next call asks.
            await client.patch(room.path, json={"tier": "supervised", "approval": "ask"})
            await room.send(script([{"shell": "touch asked"}]))

            async def asked() -> bool:
                return bool((await room.view())["openQuestions"])

            assert await until(asked)
            assert not (server.workspace / "asked").exists()

    asyncio.run(main())


def test_text_goes_with_a_prompt_and_pictures_only_to_who_takes_them(serve: Any, script: Script) -> None:
    """The embedded agent takes none: tests/web/test_real.py shows one to Claude Code."""

    async def main() -> None:
        async with serve() as server, server.client() as client:
            room = await Room.open(client, script([{"say": "seen"}]))
            await room.rests(1)
            note = {"name": "notes.md", "content": encoded(b"# Notes\n```\ncode\n```\n")}
            reply = await room.send("Read this.", attachments=[note])
            assert (reply.json()["prompt"], reply.json()["images"]) == (
                "Read this.\n\nnotes.md:\n````\n# Notes\n```\ncode\n```\n````",
                [],
            )
            for content, why in (
                (encoded(b"\x7fELF\0\xff"), "neither a picture"),
                ("no base64!", "not base64"),
                (encoded(PNG), "takes no pictures"),
                (encoded(b"long " * 100_000), "characters; this server allows"),
            ):
                refused = await room.send("x", attachments=[{"name": "a.out", "content": content}])
                assert (refused.status_code, why in refused.json()["detail"]) == (400, True), refused.text
            assert not list((server.home / "attachments").rglob("*.png"))
            assert (await client.get(f"{room.path}/attachment", params={"name": "m/1-a.png"})).status_code == 404

    asyncio.run(main())


def test_a_picture_is_what_its_bytes_say(tmp_path: Path) -> None:
    names = ("../a shot.png", "x.txt", "…")
    prompt, images = attach("Look", [AttachedFile(name=name, content=encoded(PNG)) for name in names], tmp_path / "m")
    paths = [Path(path) for path in images]
    assert (prompt, [path.relative_to(tmp_path) for path in paths]) == (
        "Look",
        [Path("m/1-a-shot.png"), Path("m/2-x.png"), Path("m/3-picture.png")],
    )
    assert {(path.read_bytes() == PNG, path.stat().st_mode & 0o777) for path in paths} == {(True, 0o600)}
    with pytest.raises(BadRequest, match="at most 10"):
        attach("Look", [AttachedFile(name="a", content="")] * 11, tmp_path / "n")
    assert not (tmp_path / "n").exists()
    assert read_picture(tmp_path, attachment_id(images[1])) == AttachedPicture(
        name="2-x.png", media_type="image/png", content=encoded(PNG)
    )
    (tmp_path / "m" / "notes.png").write_bytes(b"<svg/>")
    (tmp_path / "m" / "link.png").symlink_to(images[0])
    (tmp_path / "other").symlink_to(tmp_path / "m")
    (tmp_path / "session").mkdir()
    opened = set(os.listdir("/dev/fd"))  # noqa: PTH208
    for folder, name in (
        *((tmp_path, name) for name in ("m/none.png", "m/notes.png", "m/link.png", "other/2-x.png", "m", "", "\0")),
        *((tmp_path / "session", name) for name in ("../m/2-x.png", images[1], "m/../../m/2-x.png")),
        (tmp_path / "no-session", "m/2-x.png"),
    ):
        with pytest.raises(SessionNotFound, match="attachment"):
            read_picture(folder, name)
    assert set(os.listdir("/dev/fd")) <= opened  # noqa: PTH208


def test_files_and_folders_to_choose_from(serve: Any, script: Script, tmp_path: Path) -> None:
    async def main() -> None:
        async with serve() as server, server.client() as client:
            root = server.workspace
            for name in ("src/shop.py", "src/deep/workshop.txt", "node_modules/shop.js", "docs/s-h-o-p.md"):
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).touch()
            (root / "elsewhere").symlink_to(tmp_path)
            room = await Room.open(client, script([{"say": "hello"}]))
            found = (await client.get(f"{room.path}/find", params={"text": "shop"})).json()
            assert found["paths"] == ["src/shop.py", "src/deep/workshop.txt", "docs/s-h-o-p.md"]
            listed = (await client.get("/api/folders", params={"path": str(root)})).json()
            assert [one["name"] for one in listed["folders"]] == ["docs", "node_modules", "src"]
            assert listed["path"] == str(root)
            outside = await client.get("/api/folders", params={"path": str(tmp_path.parent)})
            assert outside.status_code == 403

    asyncio.run(main())
