"""What differs from one machine to the next: a Mac is shown to each by what it asks of the machine."""

from __future__ import annotations

import errno
import os
import re
import sys
from pathlib import Path

import pytest

from stagedoor.drivers.confinement import _ours
from stagedoor.errors import LaunchError, NotAllowed
from stagedoor.machine import names
from stagedoor.machine.beneath import open_beneath, regular_file
from stagedoor.machine.folders import user_folder, user_folders
from stagedoor.machine.names import is_beneath, short_name
from stagedoor.permissions.paths import Ground, locate
from stagedoor.register import config_files, home
from stagedoor.service.config.settings import Settings
from stagedoor.service.workspaces import check_allowed
from stagedoor.transports.confinement.mounts import _refuse_too_wide

HOME = {"HOME": "/Users/ann"}
LIBRARY = "/Users/ann/Library/Application Support"
FOLDERS: list[tuple[str, str, dict[str, str], list[str]]] = [
    ("linux", "config", {}, ["/Users/ann/.config"]),
    ("linux", "state", {}, ["/Users/ann/.local/state"]),
    ("linux", "cache", {}, ["/Users/ann/.cache"]),
    ("darwin", "config", {}, [LIBRARY, "/Users/ann/.config"]),
    ("darwin", "state", {}, [LIBRARY, "/Users/ann/.local/state"]),
    ("darwin", "cache", {}, ["/Users/ann/Library/Caches", "/Users/ann/.cache"]),
    ("darwin", "config", {"XDG_CONFIG_HOME": "/x"}, ["/x"]),
    ("linux", "state", {"XDG_STATE_HOME": "/y"}, ["/y"]),
]


@pytest.mark.parametrize(("system", "kind", "env", "folders"), FOLDERS)
def test_where_things_are_kept(
    system: str, kind: str, env: dict[str, str], folders: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", system)
    assert user_folders(kind, HOME | env) == [Path(folder) for folder in folders]  # type: ignore[arg-type]
    assert user_folder(kind, HOME | env) == Path(folders[0])  # type: ignore[arg-type]


def test_on_a_mac_our_own_folders_are_in_the_library_and_hidden_from_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert home(HOME) == Path(LIBRARY) / "stagedoor"
    names_of_config = [f"{LIBRARY}/stagedoor/config.yaml", "/Users/ann/.config/stagedoor/config.yaml"]
    assert [str(path) for path in config_files(HOME)] == names_of_config
    hidden = _ours(HOME)
    assert {f"{LIBRARY}/stagedoor", "/Users/ann/.config/stagedoor"} <= set(hidden)
    # Both are refused to a tool that reads, by whatever name.
    for path in (f"{LIBRARY}/stagedoor/token", "/users/ann/LIBRARY/application support/Stagedoor/token"):
        assert locate(path, ["/work"], Ground("/work", "/Users/ann")).place == "secret"


# ------------------------------------------------------------------------------------------------------- opening a file


def test_only_what_is_beneath_is_opened_whatever_becomes_a_link(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "a" / "b").mkdir(parents=True)
    (outside / "b").mkdir(parents=True)
    for folder in (root / "a" / "b", outside / "b"):
        (folder / "file").write_text(folder.parent.name)
    place = root / "a" / "b" / "file"
    with os.fdopen(open_beneath(root, place, os.O_RDONLY)) as file:
        assert file.read() == "a"
    (root / "a").rename(root / "was")
    (root / "a").symlink_to(outside)  # in the middle of the way
    with pytest.raises(OSError) as caught:
        open_beneath(root, place, os.O_RDONLY)
    assert caught.value.errno in (errno.ELOOP, errno.ENOTDIR)
    (root / "was" / "b" / "file").unlink()
    (root / "was" / "b" / "file").symlink_to(outside / "b" / "file")  # at its end
    with pytest.raises(OSError) as caught:
        open_beneath(root, root / "was" / "b" / "file", os.O_RDONLY)
    assert caught.value.errno == errno.ELOOP
    for elsewhere in (outside / "b" / "file", root / ".." / "outside" / "b" / "file"):
        with pytest.raises(ValueError, match="outside"):
            open_beneath(root, elsewhere, os.O_RDONLY)
    before = set(os.listdir("/dev/fd"))  # noqa: PTH208
    with pytest.raises(OSError):
        open_beneath(root, root / "missing" / "file", os.O_RDONLY)
    assert set(os.listdir("/dev/fd")) <= before  # noqa: PTH208 (what others have left may be closed meanwhile)


# ----------------------------------------------------------------------------------------------- one folder, many names


@pytest.fixture
def disk_without_case(monkeypatch: pytest.MonkeyPatch) -> None:
    """As APFS is by default: every name is found in any spelling. (No file system of the kernel here can do that.)"""
    true_stat = os.stat

    def stat(path: str | Path, **options: bool) -> os.stat_result:
        place = Path("/")
        for part in Path(path).parts[1:]:
            found = [name for name in os.listdir(place) if name.lower() == part.lower()]  # noqa: PTH208
            place = place / (part if part in found or not found else found[0])
        return true_stat(place, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(names.os, "stat", stat)


@pytest.mark.usefixtures("disk_without_case")
def test_a_folder_is_the_same_in_any_spelling(tmp_path: Path) -> None:
    (tmp_path / "Home" / "Project").mkdir(parents=True)
    (tmp_path / "Homestead").mkdir()
    rows = {
        ("Home/Project", "Home"): True,
        ("HOME/project", "home"): True,
        ("HOME/project/not/yet/there", "Home"): True,
        ("Home", "HOME"): True,
        ("Homestead", "Home"): False,
        ("Home", "home/Project"): False,
        ("Home", "missing"): False,
    }
    assert {(path, folder): is_beneath(tmp_path / path, tmp_path / folder) for path, folder in rows} == rows


@pytest.mark.usefixtures("disk_without_case")
def test_what_is_refused_is_refused_in_any_spelling(tmp_path: Path) -> None:
    own, project = tmp_path / "State", tmp_path / "Project"
    (own / "sessions").mkdir(parents=True)
    project.mkdir()
    settings = Settings(home=str(own), roots=(str(tmp_path),))
    check_allowed(project, settings)
    for spelling in ("State", "STATE", "state/Sessions"):
        with pytest.raises(NotAllowed, match="the server's own folder"):
            check_allowed(tmp_path / spelling, settings)
    _refuse_too_wide([str(project)], str(own))
    for folder in (str(tmp_path).upper(), str(tmp_path / "sTATE"), "/"):
        with pytest.raises(LaunchError, match="with your home in it"):
            _refuse_too_wide([folder], str(own))


MAC = re.compile(r"^/private(?=/(?:tmp|var|etc)(?:/|$))")


@pytest.mark.parametrize(
    ("path", "short"),
    [
        ("/private/tmp/x", "/tmp/x"), ("/private/var", "/var"), ("/private/etc/hosts", "/etc/hosts"),
        ("/private/other", "/private/other"), ("/private/tmpfiles", "/private/tmpfiles"), ("/tmp/x", "/tmp/x"),
        ("/home/private/tmp", "/home/private/tmp"),
    ],
)  # fmt: skip
def test_the_links_of_a_mac(path: str, short: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "SYSTEM_LINKS", MAC)
    assert short_name(path) == short
    monkeypatch.setattr(names, "SYSTEM_LINKS", None)
    assert short_name(path) == path


@pytest.mark.parametrize("workspace", ["/private/var/folders/ab/work", "/var/folders/ab/work"])
def test_a_workspace_is_the_same_by_both_names_of_a_mac(workspace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "SYSTEM_LINKS", MAC)
    ground = Ground(workspace, "/Users/ann")
    places = {
        "/private/var/folders/ab/work/a.py": "workspace",
        "/var/folders/ab/work/a.py": "workspace",
        "b.py": "workspace",
        "/var/folders/ab/work/.GIT/hooks/pre-commit": "protected",
        "/private/var/folders/ab/other": "temp",
        "/private/etc/sudoers": "secret",
        "/private/etc/ssh/ssh_host_rsa_key": "secret",
        "/private/var/db/x": "system",
    }
    assert {path: locate(path, [workspace], ground).place for path in places} == places


def test_only_a_regular_file_is_read_and_what_is_none_is_closed(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name, content in (("file", b"content"), ("folder", None), ("pipe", None)):
        descriptor = os.open(tmp_path / name, os.O_RDONLY | os.O_NONBLOCK)
        file = regular_file(descriptor)
        if file is not None:
            with file:
                assert file.read() == content
        else:
            assert content is None
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)
