"""Whether a project may take part, why not, and what a session tells about it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stagedoor import catalog
from stagedoor.drivers.opencode.trust import plugin_files
from stagedoor.trust.project import ProjectPath, notice_of, standing_of
from stagedoor.trust.record import TrustRecord
from stagedoor.unified.events import ProjectFile
from stagedoor.unified.options import Options

pytestmark = pytest.mark.usefixtures("no_repository_above")

PATHS = (
    ProjectPath(".x/settings", "settings"),
    ProjectPath(".x/tools", "tools", "repository"),
    ProjectPath(".y.json", "servers", "parents"),
    ProjectPath(".z", "plugins", "repository or parents"),
    ProjectPath("TEXT.md", "instructions, not read", is_text=True),
)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STAGEDOOR_HOME", str(tmp_path / "own"))
    (tmp_path / "home" / "repo" / ".git").mkdir(parents=True)
    (tmp_path / "home" / "repo" / "sub").mkdir()
    (tmp_path / "home" / "plain").mkdir()
    return tmp_path / "home"


def put(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")


def standing(place: Path, cwd: str, **options: Any) -> tuple[bool, str, list[str]]:
    made = standing_of(Options(cwd=str(place / cwd), **options), PATHS, str(place))
    return made.trusted, made.reason, [str(Path(file.path).relative_to(place.parent)) for file in made.files]


def test_where_it_is_looked_for(place: Path) -> None:
    put(place / "repo" / ".x" / "settings", place / "repo" / "sub" / ".x" / "tools" / "t", place / "repo" / "TEXT.md")
    put(place / "repo" / ".z", place.parent / ".y.json", place.parent / ".z", place / ".z", place / ".y.json")
    (place / "plain" / ".x" / "tools").mkdir(parents=True)  # an empty folder holds nothing
    (place / "plain" / ".z").symlink_to("nowhere")
    assert standing(place, "repo")[2] == ["home/repo/.x/settings", ".y.json", "home/repo/.z", "home/repo/TEXT.md"]
    assert standing(place, "repo/sub")[2] == ["home/repo/sub/.x/tools", ".y.json", "home/repo/.z"]
    assert standing(place, "plain")[2] == [".y.json", ".z"]


def test_who_decides(place: Path) -> None:
    put(place / "repo" / ".x" / "settings", place / "repo" / "TEXT.md")
    files = ["home/repo/.x/settings", "home/repo/TEXT.md"]
    assert standing(place, "repo") == (False, "nobody", files)
    assert standing(place, "repo", trust=True) == (True, "", files[:1])
    TrustRecord().add(place / "repo" / "sub")
    assert standing(place, "repo") == (True, "", files[:1])
    assert standing(place, "repo", trust=False) == (False, "nobody", files)
    for trust in (None, True):
        assert standing(place, "repo", trust=trust, tier="dry-run") == (False, "dry-run", files)
    put(place.parent / ".y.json")
    for trust in (None, True):
        assert standing(place, "repo", trust=trust) == (False, "above", [".y.json"])
    TrustRecord().add(place.parent)
    assert standing(place, "repo") == (True, "", [*files[:1], ".y.json"])


def test_what_a_session_tells(place: Path) -> None:
    put(place / "repo" / ".x" / "settings")
    cwd = str(place / "repo")
    off = notice_of(standing_of(Options(cwd=cwd), PATHS, None), "Agent X")
    assert off is not None
    assert (off.level, off.code, off.trusted) == ("warning", "project_untrusted", False)
    assert off.message == (
        "the folder is not trusted, so this is off: .x/settings (settings); "
        f"look at it, then run stagedoor trust {cwd} to let it take part"
    )
    assert off.project_files == [ProjectFile(path=f"{cwd}/.x/settings", kind="settings")]
    on = notice_of(standing_of(Options(cwd=cwd, trust=True), PATHS, None), "Agent X")
    assert on is not None
    assert on.message == "the folder is trusted, so Agent X may load from the project: .x/settings (settings)"
    assert notice_of(standing_of(Options(cwd=str(place / "plain")), PATHS, None), "Agent X") is None


def test_every_agent_with_a_program_says_what_it_loads() -> None:
    agents = [catalog.agent(name) for name in catalog.BUILT_IN]
    assert [agent.name for agent in agents if agent.package is not None and not agent.project_paths] == []


@pytest.mark.parametrize(
    ("name", "text", "counts"),
    [
        ("opencode.json", "{}", False),
        ("opencode.json", '{"mcp": {"plugin": 1}}', False),
        ("opencode.json", '{"plugin": []}', True),
        ("opencode.json", '{"plugins": ["x"]}', True),
        ("opencode.jsonc", '/* "plugin" */ {"a": "//", // x\n "b": [1,],}', False),
        ("opencode.jsonc", '\ufeff{"p\\u006cugin": ["./x.ts"]}', True),
        ("opencode.json", '{"broken"', True),
        (".opencode/opencode.jsonc", '{"plugin": ["x"]}', True),
        (".opencode/plugin/x.ts", "", True),
        (".opencode/plugins/deep/x.js", "", True),
        (".opencode/command/x.md", "", False),
    ],
)
def test_plugins_that_no_switch_stops(place: Path, name: str, text: str, counts: bool) -> None:
    file = place / "repo" / name
    (place / "repo" / "sub" / ".git").mkdir()  # for git it is none
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    assert bool([*plugin_files(place / "repo" / "sub", str(place))]) is counts
