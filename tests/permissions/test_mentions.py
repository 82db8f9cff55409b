"""``@path`` in a prompt: whatever an agent could take for a path that may not be read is sent as text."""

from __future__ import annotations

from pathlib import Path

import pytest

from stagedoor.permissions.mentions import defuse

FORBIDDEN = {"secret.txt", "with space.txt", "a(b).txt", "deep/inner.txt", "comma,name.txt", "Ärger.txt", ".env"}


def forbids(folder: Path) -> object:
    places = {str(folder / name) for name in FORBIDDEN}
    return lambda path: "a rule denies it" if path in places else ""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in (*FORBIDDEN, "open.txt", "free/open.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "link.txt").symlink_to("secret.txt")
    (tmp_path / "hidden").symlink_to("deep")
    return tmp_path


REFUSED = [
    "read @secret.txt please", "@secret.txt", "@./secret.txt", "@free/../secret.txt", "@{folder}/secret.txt",
    '@"secret.txt"', '@"with space.txt"', "@with\\ space.txt", "@secret.txt#L1-5", "@secret.txt#L3", "@secret.txt#x",
    "@secret.txt.", "@secret.txt, then", "(@secret.txt)", "see:@secret.txt!", "x@secret.txt", "。@secret.txt",
    "@secret.txt:10", "@file://{folder}/secret.txt", "@server:secret.txt", "@link.txt", "@deep", "@deep/", "@hidden",
    "@.", "@..", '@"a(b).txt"', "@a(b).txt", "@a\\(b\\).txt", "@comma,name.txt", '@"comma,name.txt"', "@Ärger.txt",
    "@.env", "@~/secret.txt", "first line\n@secret.txt\nlast", "@@secret.txt", '@"secret.txt', "@secret\\.txt",
]  # fmt: skip


@pytest.mark.parametrize("prompt", REFUSED)
def test_what_may_not_be_read_is_text(folder: Path, prompt: str) -> None:
    prompt = prompt.format(folder=folder)
    defused = defuse(prompt, str(folder), str(folder), forbids(folder))  # type: ignore[arg-type]
    assert defused.refused
    assert defused.text.replace("@ ", "@") == prompt
    assert defused.text != prompt


@pytest.mark.parametrize(
    "prompt",
    [
        "read @open.txt", "@free", "me@example.com", "@dataclass\nclass X: ...", "@@ -1,2 +3,4 @@", "no mention",
        "@", "@ secret.txt", "@nothing.txt", "secret.txt", '@""', "@\0", "@" + "x" * 10_000,
    ],
)  # fmt: skip
def test_everything_else_is_left_alone(folder: Path, prompt: str) -> None:
    defused = defuse(prompt, str(folder), str(folder), forbids(folder))  # type: ignore[arg-type]
    assert (defused.text, defused.refused) == (prompt, ())
