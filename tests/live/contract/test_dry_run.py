"""A dry run changes nothing, whatever the model tries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import stagedoor
from stagedoor.testing import delete_file, edit_file, read_file, say, shell, write_file

pytestmark = [pytest.mark.live, pytest.mark.drift]


def attempts(folder: Path) -> dict[str, list[Any]]:
    inside, outside = folder / "workspace", folder / "outside"
    tracked, commit = str(inside / "tracked.txt"), "git -c user.name=A -c user.email=a@example.com commit -qam changed"
    return {
        "write a file": [write_file(str(inside / "new.txt"), "new\n")],
        "edit a file": [read_file(tracked), edit_file(tracked, "two\n", "2\n")],
        "delete a file": [delete_file(tracked)],
        "remove by command": [shell("rm -f tracked.txt")],
        "redirect": [shell("echo more >> tracked.txt; echo new > redirected.txt")],
        "commit": [shell(f"echo more >> tracked.txt && {commit}")],
        "write by an interpreter": [shell("python3 -c \"open('made.txt', 'w').write('x')\"")],
        "write what runs later": [write_file(str(inside / ".claude" / "settings.json"), "{}\n")],
        "write what runs later by command": [shell("mkdir -p .gemini && echo '{}' > .gemini/settings.json")],
        "write outside": [write_file(str(outside / "new.txt"), "new\n")],
        "write outside by command": [shell(f"echo new > {outside}/by-command.txt")],
    }


def test_dry_run(rig: Any, stage: Any, cases: Any, expected: Any, play: Any, tmp_path: Path) -> None:
    tries = attempts(tmp_path / "stage")
    everything = [reply for replies in tries.values() for reply in replies]
    tracked = str(tmp_path / "stage" / "workspace" / "tracked.txt")
    scene = stage(
        {
            "Try everything": [*everything, say("I have tried.")],
            "Read only": [read_file(tracked), say("I have read it.")],
        }
    )
    (scene.workspace / "tracked.txt").write_text("one\ntwo\n")
    (scene.outside / "theirs.txt").write_text("theirs\n")
    scene.git("init", "-q")
    scene.git("add", ".")
    scene.git("commit", "-qm", "first")
    places = (scene.workspace, scene.outside)

    def snapshot() -> Any:
        return {path: content for path, content in scene.snapshot(*places).items() if not expected.keeps_book_in(path)}

    async def main() -> None:
        before = snapshot()
        async with scene.conversation(tier="dry-run") as talk:
            turn = await talk.turn("Try everything")
            after = snapshot()
            differing = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
            for name in tries:
                with cases(
                    f"dry run: {name}", note=expected.bookkeeping and f"but for its own `{expected.bookkeeping}`"
                ):
                    assert differing == set(), turn.describe()
                    assert turn.text.endswith("I have tried."), turn.describe()  # all of it
                    assert turn.completed.status == "success", turn.describe()
            with cases("dry run: reading works"):
                turn = await talk.turn("Read only")
                assert turn.text.endswith("I have read it."), turn.describe()
                assert [result.status for result in turn.of(stagedoor.ToolResult)] == ["success"], turn.describe()
        assert snapshot() == before

    play(main)
    cases.settle()
