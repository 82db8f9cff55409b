"""``@path`` in a prompt does not read what a rule denies, however it is spelt."""

from __future__ import annotations

from typing import Any

import pytest

import stagedoor
from stagedoor.testing import say

pytestmark = pytest.mark.live

DENIED, ALLOWED = "the-denied-words", "the-allowed-words"
SPELLINGS = (
    "@secret.txt", "@./secret.txt", '@"secret.txt"', "@secret.txt#L1-5", "@secret.txt,", "(@secret.txt)", "@folder",
    "@folder/", "@link.txt", '@"with space.txt"', "@with\\ space.txt", "@{folder}/secret.txt", "@secre", "@inner",
)  # fmt: skip


def test_mentions(rig: Any, stage: Any, play: Any) -> None:
    if rig.agent not in ("claude", "gemini"):
        pytest.skip("it puts no files into prompts by itself; tried by hand")
    if rig.capabilities.permissions == "none":
        pytest.skip("it asks nobody, so it takes no policy; every mention is escaped there")
    scene = stage({"Look": [say("I see.")]})
    (scene.workspace / "folder").mkdir()
    for name in ("secret.txt", "with space.txt", "folder/inner.txt"):
        (scene.workspace / name).write_text(f"{DENIED}\n")
    (scene.workspace / "open.txt").write_text(f"{ALLOWED}\n")
    (scene.workspace / "link.txt").symlink_to("secret.txt")
    policy = scene.folder / "policy.yaml"
    policy.write_text("rules:\n  - {action: deny, name: hidden, path: [secret.txt, 'with space.txt', 'folder/**']}\n")
    words = " ".join(SPELLINGS).replace("{folder}", str(scene.workspace))

    async def main() -> None:
        async with scene.conversation(policy=str(policy)) as talk:
            turn = await talk.turn(f"Look at {words} and @open.txt")
            assert turn.completed.status == "success", turn.describe()
            notices = [notice for notice in turn.of(stagedoor.Notice) if notice.code == "mention_denied"]
            assert not scene.model_received(DENIED), turn.describe()
            assert len(notices) >= len(SPELLINGS) - 2, turn.describe()
            # Of what Gemini CLI would expand, nothing is: its own escape is before every mention.
            assert scene.model_received(ALLOWED) is (rig.agent == "claude"), turn.describe()

    play(main)
