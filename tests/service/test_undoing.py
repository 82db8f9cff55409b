"""Undo: what a turn did to the files is taken back, told in the log and in the audit log, and can be taken back too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stagedoor.errors import BadRequest, NotAllowed, SessionNotFound, SessionRunning
from stagedoor.shadow_git import checkpoints as room
from stagedoor.unified.events import FilesRestored, TurnCompleted


def state(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_turns_and_files_are_undone_and_the_undo_too(kit: Any) -> None:
    async def main() -> None:
        work = kit.house.workspace
        (work / "old.txt").write_text("as it was\n")
        async with kit.house.service() as service:
            script = kit.play([{"shell": "echo one > old.txt; mkdir new; echo 1 > new/file"}, {"say": "done"}])
            view, watch = await kit.start_session(service, script, tier="autonomous", keep_open=True)
            await watch.until(TurnCompleted)
            after_one = state(work)
            await service.sessions.send(
                view.id, kit.play([{"shell": "rm old.txt; echo 2 > new/file"}, {"say": "done"}])
            )
            await watch.until(TurnCompleted)
            after_two = state(work)
            listed = (await service.sessions.undoing.list(view.id)).checkpoints
            assert [(one.id, one.turn, one.kind, one.files) for one in listed] == [
                ("000001", 1, "turn", 1),
                ("000002", 2, "turn", 2),
            ]

            last = await service.sessions.undo(view.id, who="phone")
            assert state(work) == after_one
            assert (last.paths, last.redo, last.checkpoint.turn) == (("new/file", "old.txt"), "000003", 2)
            [event] = await watch.until(FilesRestored)
            assert (event.session_id, event.turn, event.seq) == (view.id, 2, watch.after)
            assert (event.before_turn, event.checkpoint, event.redo, event.files) == (2, "000002", "000003", 2)
            assert (event.paths, event.not_restored, event.who) == (["new/file", "old.txt"], [], "phone")

            await service.sessions.undo(view.id, turn=1)
            assert state(work) == {"old.txt": "as it was\n"}
            await service.sessions.undo(view.id, checkpoint=last.redo, paths=["new"])
            assert state(work) == {"old.txt": "as it was\n", "new/file": "2\n"}
            await service.sessions.undo(view.id, checkpoint=last.redo)
            assert state(work) == after_two
            for paths in (["../x"], ["/etc/passwd"], ["a/../../b"], [""]):
                with pytest.raises(BadRequest, match="is not a path in the workspace"):
                    await service.sessions.undo(view.id, paths=paths)
            with pytest.raises(SessionNotFound, match="no checkpoint of turn 9"):
                await service.sessions.undo(view.id, turn=9)

            # An ended session says no more; its files can still be put back.
            ended = await service.sessions.cancel(view.id)
            await service.sessions.undo(view.id, turn=1, who="desk")
            assert state(work) == {"old.txt": "as it was\n"}
            assert (await service.sessions.get(view.id)).last_seq == ended.last_seq
            await service.sessions.delete(view.id)
            assert list((service.home / "checkpoints").iterdir()) == []
        lines = [json.loads(line) for line in (service.home / "audit.jsonl").read_text().splitlines()]
        undone = [line["entry"] for line in lines if line["entry"].get("nativeName") == "undo"]
        assert [(one.get("who", ""), one["request"]) for one in undone] == [
            ("phone", "undo the last turn"),
            ("", "undo 1"),
            ("", f"undo {last.redo}"),
            ("", f"undo {last.redo}"),
            ("", "undo 9"),
            ("desk", "undo 1"),
        ]
        assert {(one["session"], one["decision"], one["by"], one["operation"]) for one in undone} == {
            (view.id, "allow", "person", "write")
        }

    kit.run(main())


def test_nothing_is_restored_while_an_agent_is_at_work_there(kit: Any) -> None:
    async def main() -> None:
        async with kit.house.service() as service:
            view, watch = await kit.start_session(service, kit.play([{"say": "hello"}]), keep_open=True)
            await watch.until(TurnCompleted)
            inner = kit.house.workspace / "inner"
            inner.mkdir()
            other, others = await kit.start_session(service, kit.play([{"shell": "true"}]), cwd=str(inner))
            question = await others.question()
            for busy in (view.id, other.id):
                with pytest.raises(SessionRunning, match=f"an agent is at work in {inner}"):
                    await service.sessions.undo(busy)
            assert question.open
            await service.sessions.cancel(other.id)
            assert (await service.sessions.undo(view.id)).paths == ()

    kit.run(main())


@pytest.mark.parametrize("rights", [{"tier": "dry-run"}, {"sandbox": "readOnly"}])
def test_a_session_that_may_only_read_has_none(kit: Any, rights: dict[str, str]) -> None:
    async def main() -> None:
        async with kit.house.service() as service:
            view, watch = await kit.start_session(service, "hello", keep_open=True, **rights)
            await watch.until(TurnCompleted)
            assert (await service.sessions.undoing.list(view.id)).checkpoints == ()
            with pytest.raises(NotAllowed, match="may only read its workspace"):
                await service.sessions.undo(view.id)

    kit.run(main())


def test_what_is_not_kept_is_said_once(kit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        work = kit.house.workspace
        (work / "large").write_bytes(b"x" * 200)
        monkeypatch.setattr(room, "LARGEST", 100)
        async with kit.house.service() as service:
            view, watch = await kit.start_session(service, kit.play([{"say": "hello"}]), keep_open=True)
            [*_, notice] = await watch.notice("checkpoint_incomplete")
            assert notice.message == (
                "1 file is not in the checkpoints of this session: large: is too large (200 bytes)"
            )
            monkeypatch.setattr(room, "MOST_FILES", 0)
            await service.sessions.send(view.id, "again")
            [*events, notice] = await watch.notice("no_checkpoint")
            assert notice.level == "warning"
            assert notice.message == (
                "no checkpoint was made before turn 2, so it cannot be undone: it holds more than 0 files"
            )
            assert kit.kinds(events).count("turn_completed") == 1

    kit.run(main())


def test_they_can_be_switched_off(kit: Any) -> None:
    async def main() -> None:
        async with kit.house.service(checkpoints=False) as service:
            view, watch = await kit.start_session(service, kit.play([{"say": "hello"}]))
            await watch.rest()
            assert (await service.sessions.undoing.list(view.id)).checkpoints == ()
            assert not (service.home / "checkpoints").exists()

    kit.run(main())
