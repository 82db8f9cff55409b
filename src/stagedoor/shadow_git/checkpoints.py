"""How a folder stood before each turn, kept in a git directory of ours, and put back exactly.

One store for each folder, in Stagedoor's home. Nothing of the folder's own repository has a part in it but its objects,
as an alternate: what is committed is not stored twice. Its settings, hooks and filters are not read, and no attribute
of it changes a byte. A checkpoint is a commit that nobody merges: the tree of the files, a list of what git cannot hold
(permission bits, empty folders, what was left out), and a few words about it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from .folder_files import FolderEntry, FolderListing, FolderWriter, Kind, list_folder
from .repository import GitFailed, Repository, check_ref, locate
from .shadow import Shadow

LARGEST = 32 * 2**20
"""A file above this is left out."""
MOST_FILES = 100_000
SECONDS = 30.0
"""What one look at the files may take for an undo; beyond it nothing is undone."""
SECONDS_OF_A_TURN = 10.0
"""The same before a turn, for which somebody waits; beyond it the turn runs without a checkpoint."""
MOST_OF_A_SESSION = 50
KEPT_DAYS = 30
NAMED = 100
"""Of what was left out, so many are named."""
_BATCH = 64 * 2**20
_DAY = 86_400_000
_SETTINGS = {
    "core.autocrlf": "false", "core.filemode": "true", "core.symlinks": "true", "core.ignorecase": "false",
    "core.protectntfs": "false", "core.protecthfs": "false", "core.precomposeunicode": "false",
    "core.fsync": "none", "core.looseCompression": "1",
}  # fmt: skip
_ATTRIBUTES = "* -text -crlf -ident -filter !eol -working-tree-encoding\n"
"""Above what the folder's own files say: bytes are stored as they are."""
_IDENTITY = {
    name: value
    for who in ("AUTHOR", "COMMITTER")
    for name, value in ((f"GIT_{who}_NAME", "Stagedoor"), (f"GIT_{who}_EMAIL", "stagedoor@localhost"))
}
_Contents: TypeAlias = Callable[[Mapping[str, FolderEntry]], Iterator[tuple[str, bytes]]]
_LETTERS: dict[str, Kind] = {"f": "file", "l": "link", "d": "folder"}


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``kind``: made before ``turn``, or before an undo, so that this can be undone too."""

    id: str
    session_id: str
    turn: int
    kind: Literal["turn", "undo"] = "turn"
    at: int = 0
    files: int = 0
    left_out: int = 0
    """Files that are not in it, ignored ones apart."""
    left_out_paths: tuple[str, ...] = ()
    """The first of them, each with the reason."""


class UndoResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``paths`` are as they were again; ``not_restored`` are not, each with the reason."""

    checkpoint: Checkpoint
    redo: str
    """The checkpoint of how the files stood before: restore it to undo the undo."""
    paths: tuple[str, ...] = ()
    not_restored: tuple[str, ...] = ()


class CheckpointNotFound(GitFailed):
    """There is none with this id or of this turn."""


class Checkpoints:
    """All of one folder. Every verb blocks: call it in a thread. ``home`` is Stagedoor's own folder."""

    def __init__(self, home: Path, folder: Path) -> None:
        self._home = Path(os.path.realpath(home))
        self._folder = Path(os.path.realpath(folder))
        name = hashlib.sha256(os.fsencode(self._folder)).hexdigest()[:32]
        self._store = self._home / "checkpoints" / name

    def take(self, session_id: str, turn: int, *, at: int) -> Checkpoint:
        """How the folder stands now. Raises ``GitFailed`` when it is too large, or git cannot hold it."""
        with self._opened() as shadow:
            return self._take(shadow, session_id, turn, "turn", at)[0]

    def of_session(self, session_id: str) -> list[Checkpoint]:
        """Oldest first."""
        if not self._store.is_dir():
            return []
        with self._opened() as shadow:
            return self._listed(shadow, session_id)

    def restore(
        self, session_id: str, *, turn: int | None = None, checkpoint: str = "", paths: Sequence[str] = (), at: int
    ) -> UndoResult:
        """Put everything, or ``paths`` and what is below them, back as it was before ``turn`` (left out: the last).

        ``checkpoint`` names any other. Ignored files, and those that were left out, stay as they are.
        """
        if not self._store.is_dir():
            raise CheckpointNotFound("there is no checkpoint of this session")
        with self._opened() as shadow:
            chosen = _chosen(self._listed(shadow, session_id), turn, checkpoint)
            target = self._listing(shadow, session_id, chosen.id)
            before, now = self._take(shadow, session_id, chosen.turn, "undo", at, also=target.entries)
            changing = _Changes(now, target, tuple(path.rstrip("/") for path in paths))
            self._check_there(shadow, changing.written)
            refused = changing.carry_out(self._folder, lambda entries: self._contents(shadow, entries))
            after = self._look(shadow, also=target.entries)
            for path in _Changes(after, target, changing.scope).differing:
                refused.setdefault(path, "it was changed again meanwhile")
            done = tuple(_printable(path) for path in changing.differing if path not in refused)
            named = tuple(f"{_printable(path)}: {why}" for path, why in sorted(refused.items()))
            return UndoResult(checkpoint=chosen, redo=before.id, paths=done, not_restored=named)

    def forget(self, session_id: str) -> None:
        """Drop those of one session, and what only they held."""
        if self._store.is_dir():
            with self._opened() as shadow:
                _drop(shadow, [name for name, _ in _references(shadow, session_id)])
                shadow.git("prune", "--expire=now")
                empty = not _references(shadow, "")
            if empty:
                shutil.rmtree(self._store, ignore_errors=True)

    # -- one look

    def _take(
        self,
        shadow: Shadow,
        session_id: str,
        turn: int,
        kind: Literal["turn", "undo"],
        at: int,
        *,
        also: Iterable[str] = (),
    ) -> tuple[Checkpoint, FolderListing]:
        found = self._look(shadow, also=also, seconds=SECONDS_OF_A_TURN if kind == "turn" else SECONDS)
        tree = shadow.git("write-tree").decode().strip()
        manifest = shadow.git("hash-object", "-w", "--stdin", content=_written(found)).decode().strip()
        parts = (f"040000 tree {tree}\tfiles", f"100644 blob {manifest}\tmanifest")
        whole = shadow.git("mktree", "-z", content=_lines(parts)).decode().strip()
        listed = [_about(words) for _, words in _references(shadow, "")]
        earlier = [int(one.id) for one in listed if one.session_id == session_id]
        names = [f"{_printable(path)}: {why}" for path, why in sorted(found.left_out.items())]
        taken = Checkpoint(
            id=f"{max(earlier, default=0) + 1:06}",
            session_id=session_id,
            turn=turn,
            kind=kind,
            at=at,
            files=sum(entry.kind != "folder" for entry in found.entries.values()),
            left_out=len(names),
            left_out_paths=tuple(names[:NAMED]),
        )
        words = msgspec.json.encode(taken)
        commit = shadow.git("commit-tree", whole, "-F", "-", content=words, env=_IDENTITY).decode().strip()
        shadow.git("update-ref", _reference(session_id, taken.id), commit, env=_IDENTITY)
        _drop_oldest(shadow, [*listed, taken], session_id, at)
        return taken, found

    def _look(self, shadow: Shadow, *, also: Iterable[str] = (), seconds: float = SECONDS) -> FolderListing:
        """The folder as it stands, and the store's index with it."""
        deadline = time.monotonic() + seconds
        listing = list_folder(
            self._folder, apart=(self._home,), also=frozenset(also), largest=LARGEST, most=MOST_FILES, deadline=deadline
        )
        held = {path for path, entry in listing.entries.items() if entry.kind != "folder"}
        stored = _indexed(shadow)
        gone = [path for path in stored if path not in held]
        if gone:
            shadow.git("update-index", "--force-remove", "-z", "--stdin", content=_lines(gone))
        left = max(deadline - time.monotonic(), 1.0)
        before = _mark(self._store / "index")
        if held:
            shadow.git("update-index", "--add", "--remove", "-z", "--stdin", content=_lines(held), timeout=left)
        if gone or before != _mark(self._store / "index"):
            stored = _indexed(shadow)
        entries = dict(listing.entries)
        for path in held:
            if path in stored:
                link = stored[path][0] == "120000"
                entries[path] = FolderEntry(
                    "link" if link else "file", 0 if link else entries[path].mode, entries[path].size, stored[path][1]
                )
            else:  # gone while we looked
                del entries[path]
        return FolderListing(entries, listing.left_out, listing.ignored)

    def _listed(self, shadow: Shadow, session_id: str) -> list[Checkpoint]:
        return [_about(words) for _, words in _references(shadow, session_id)]

    def _listing(self, shadow: Shadow, session_id: str, name: str) -> FolderListing:
        return _read(shadow.git("cat-file", "blob", f"{_reference(session_id, name)}:manifest"))

    def _check_there(self, shadow: Shadow, entries: Mapping[str, FolderEntry]) -> None:
        """Nothing is begun that could not be ended: what the folder's repository held may be gone from it."""
        names = "".join(f"{entry.content}\n" for entry in entries.values())
        lines = shadow.git("cat-file", "--batch-check", content=names.encode()).splitlines() if names else []
        for path, line in zip(entries, lines, strict=True):
            if b" blob " not in line:
                name = _printable(path)
                raise GitFailed(f"nothing was restored: what {name} held was removed from the folder's repository")

    def _contents(self, shadow: Shadow, entries: Mapping[str, FolderEntry]) -> Iterator[tuple[str, bytes]]:
        """What the files hold, a few at a time: all of them might not fit into memory."""
        batch: list[str] = []
        size = 0
        for number, (path, entry) in enumerate(entries.items(), 1):
            batch.append(path)
            size += entry.size
            if size < _BATCH and number < len(entries):
                continue
            names = b"".join(entries[path].content.encode() + b"\n" for path in batch)
            out = shadow.git("cat-file", "--batch", content=names)
            at = 0
            for path in batch:
                end = out.index(b"\n", at)
                words = out[at:end].split(b" ")
                at = end + 1 + int(words[2])
                yield path, out[end + 1 : at]
                at += 1
            batch, size = [], 0

    # -- the store

    def _opened(self) -> contextlib.AbstractContextManager[Shadow]:
        return _opened(self._store, self._folder, self._alternate())

    def _alternate(self) -> bytes:
        """Where the folder's own repository has its objects: read by their names, which are those of their bytes."""
        with contextlib.suppress(GitFailed, OSError):
            repository = locate(self._folder)
            if repository is not None and repository.object_format == "sha1":
                path = os.fsencode(repository.objects)
                if b"\n" not in path and not path.startswith((b'"', b"#")):
                    return path + b"\n"
        return b""


def _drop_oldest(shadow: Shadow, listed: Sequence[Checkpoint], session_id: str, at: int) -> None:
    """What only they held goes with the session, or with ``sweep``: nobody waits for that here."""
    mine = [one for one in listed if one.session_id == session_id]
    old = [one for one in listed if one.at < at - KEPT_DAYS * _DAY]
    _drop(shadow, sorted({_reference(one.session_id, one.id) for one in (*mine[:-MOST_OF_A_SESSION], *old)}))


def sweep(home: Path, now: int) -> None:
    """Drop the checkpoints of all folders that are older than ``KEPT_DAYS``, and what nothing refers to any more."""
    stores = Path(os.path.realpath(home)) / "checkpoints"
    for store in sorted(stores.iterdir()) if stores.is_dir() else ():
        with contextlib.suppress(GitFailed, OSError):
            with _opened(store, store) as shadow:
                oldest = now - KEPT_DAYS * _DAY
                listed = _references(shadow, "")
                _drop(shadow, [name for name, words in listed if _about(words).at < oldest])
                shadow.git("prune", "--expire=now")
                empty = not _references(shadow, "")
            if empty:
                shutil.rmtree(store, ignore_errors=True)


@contextlib.contextmanager
def _opened(store: Path, folder: Path, alternate: bytes | None = None) -> Generator[Shadow]:
    for part in ("objects/info", "refs/heads", "info", "logs/refs"):
        (store / part).mkdir(parents=True, exist_ok=True, mode=0o700)
    with _locked(store / "lock"):
        (store / "index.lock").unlink(missing_ok=True)  # of one that was killed: we hold the store
        (store / "HEAD").write_text("ref: refs/heads/unborn\n")
        (store / "info/attributes").write_text(_ATTRIBUTES)
        if alternate is not None:
            (store / "objects/info/alternates").write_bytes(alternate)
        ours = Repository(folder, store, store, {name: [value] for name, value in _SETTINGS.items()})
        with Shadow(ours, writing=True, settings=_SETTINGS) as shadow:
            yield shadow


def _drop(shadow: Shadow, references: Sequence[str]) -> None:
    if references:
        lines = "".join(f"delete {reference}\n" for reference in references)
        shadow.git("update-ref", "--stdin", content=lines.encode(), env=_IDENTITY)


class _Changes:
    """What must be done for ``now`` to be ``target`` again, within ``scope`` (none: everywhere)."""

    def __init__(self, now: FolderListing, target: FolderListing, scope: tuple[str, ...]) -> None:
        self.scope = scope
        self._now = now
        self._target = target
        paths = {*now.entries, *target.entries}
        differing = sorted(path for path in paths if self._in_scope(path) and self._differs(path))
        self._untouchable = {path: why for path in differing if (why := self._why_not(path))}
        self._all = [path for path in differing if path not in self._untouchable]

    @property
    def differing(self) -> list[str]:
        """Files and links; folders are only told where they are all there is."""
        return [path for path in (*self._all, *self._left_out) if self._is_told(path)]

    @property
    def _left_out(self) -> list[str]:
        return [path for path, why in self._untouchable.items() if path in self._target.entries and why]

    @property
    def written(self) -> dict[str, FolderEntry]:
        """What will be written anew, links too."""
        target = self._target.entries
        paths = (path for path in self._all if path in target and target[path].kind != "folder")
        return {path: target[path] for path in paths if self._content_differs(path)}

    def carry_out(self, folder: Path, contents: _Contents) -> dict[str, str]:
        """Returns what could not be done, with the reason."""
        now, target = self._now.entries, self._target.entries
        refused = {path: self._untouchable[path] for path in self._left_out}
        made: set[str] = set()
        with FolderWriter(folder) as writer:

            def attempt(path: str, deed: Callable[..., None], *arguments: object) -> None:
                try:
                    deed(path, *arguments)
                except OSError as fault:
                    refused[path] = (fault.strerror or str(fault)).lower()

            for path in reversed(self._all):  # what is in a folder before the folder
                there, restored = now.get(path), target.get(path)
                if there is None:
                    continue
                if restored is None or (restored.kind != there.kind and "folder" in (restored.kind, there.kind)):
                    attempt(path, writer.remove, there.kind)
            for path in self._all:
                restored = target.get(path)
                if (
                    restored is not None
                    and restored.kind == "folder"
                    and (path not in now or now[path].kind != "folder")
                ):
                    attempt(path, writer.make_folder)
                    made.add(path)
            written = {path: entry for path, entry in self.written.items() if path not in refused}
            for path, content in contents(written):
                if target[path].kind == "link":
                    attempt(path, writer.write_link, content)
                else:
                    attempt(path, writer.write_file, content, target[path].mode)
            for path in reversed(self._all):
                restored = target.get(path)
                if restored is not None and restored.kind == "file" and path not in written:
                    attempt(path, writer.set_mode, "file", restored.mode)
            touched = {parent for path in self._all for parent in _parents(path)}
            for path in sorted({*touched, *made, *self._all}, reverse=True):
                restored = target.get(path)
                if restored is not None and restored.kind == "folder" and path not in refused:
                    attempt(path, writer.set_mode, "folder", restored.mode)
        return {path: why for path, why in refused.items() if self._is_told(path)}

    def _differs(self, path: str) -> bool:
        return self._now.entries.get(path) != self._target.entries.get(path)

    def _content_differs(self, path: str) -> bool:
        there, restored = self._now.entries.get(path), self._target.entries[path]
        return there is None or (there.kind, there.content) != (restored.kind, restored.content)

    def _is_told(self, path: str) -> bool:
        there, restored = self._now.entries.get(path), self._target.entries.get(path)
        return any(one is not None and one.kind != "folder" for one in (there, restored))

    def _why_not(self, path: str) -> str:
        """What was not in the checkpoint must not go because of it; what is not kept now could not come back."""
        for place in (path, *_parents(path)):
            if place in self._target.ignored or place in self._target.left_out:
                return "it was not part of the checkpoint"
            if place in self._now.left_out:
                return f"as it stands now it could not be brought back: it {self._now.left_out[place]}"
        return ""

    def _in_scope(self, path: str) -> bool:
        return not self.scope or any(path == place or path.startswith(f"{place}/") for place in self.scope)


def _parents(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def _chosen(earlier: Sequence[Checkpoint], turn: int | None, name: str) -> Checkpoint:
    turns = [one for one in earlier if one.kind == "turn" and (turn is None or one.turn == turn)]
    chosen = [one for one in earlier if one.id == name] if name else turns
    if chosen:
        return chosen[-1]
    available = ", ".join(str(one.turn) for one in earlier if one.kind == "turn") or "none"
    missing = (
        f"no checkpoint {name!r}" if name else "no checkpoint" if turn is None else f"no checkpoint of turn {turn}"
    )
    raise CheckpointNotFound(f"there is {missing} of this session; turns with one: {available}")


def _reference(session_id: str, name: str) -> str:
    return check_ref(f"refs/checkpoints/{session_id}/{name}")


def _references(shadow: Shadow, session_id: str) -> list[tuple[str, bytes]]:
    """Oldest first, with the words about each. Without a session: of all."""
    place = check_ref(f"refs/checkpoints/{session_id}") if session_id else "refs/checkpoints"
    out = shadow.git("for-each-ref", "--format=%(refname)%00%(contents)%00", place)
    parts = out.split(b"\0")
    return [(name.decode().strip(), words) for name, words in zip(parts[::2], parts[1::2], strict=False)]


def _about(words: bytes) -> Checkpoint:
    try:
        return msgspec.json.decode(words, type=Checkpoint)
    except msgspec.MsgspecError as fault:
        raise GitFailed(f"a checkpoint cannot be read: {fault}") from fault


def _indexed(shadow: Shadow) -> dict[str, tuple[str, str]]:
    """The mode and the content's name of every path in the index."""
    found: dict[str, tuple[str, str]] = {}
    for line in shadow.git("ls-files", "--stage", "-z").split(b"\0"):
        words, tab, path = line.partition(b"\t")
        if tab:
            mode, content, _ = words.decode().split(" ")
            found[os.fsdecode(path)] = (mode, content)
    return found


def _mark(path: Path) -> tuple[int, int] | None:
    """Changes whenever git has replaced the file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def _lines(paths: Iterable[str]) -> bytes:
    return b"".join(os.fsencode(path) + b"\0" for path in paths)


def _written(listing: FolderListing) -> bytes:
    letters = {kind: letter for letter, kind in _LETTERS.items()}
    lines = [
        f"{letters[entry.kind]} {entry.mode:o} {entry.size} {entry.content or '-'} {path}"
        for path, entry in sorted(listing.entries.items())
    ]
    lines += [f"i 0 0 - {path}" for path in sorted(listing.ignored)]
    lines += [f"x 0 0 - {path}" for path in sorted(listing.left_out)]
    return _lines(lines)


def _read(content: bytes) -> FolderListing:
    entries: dict[str, FolderEntry] = {}
    ignored: set[str] = set()
    left_out: dict[str, str] = {}
    for line in os.fsdecode(content).split("\0")[:-1]:
        letter, mode, size, name, path = line.split(" ", 4)
        if letter == "i":
            ignored.add(path)
        elif letter == "x":
            left_out[path] = "was left out"
        else:
            entries[path] = FolderEntry(_LETTERS[letter], int(mode, 8), int(size), "" if name == "-" else name)
    return FolderListing(entries, left_out, frozenset(ignored))


@contextlib.contextmanager
def _locked(path: Path) -> Generator[None]:
    """One at a time, in whatever process."""
    with path.open("wb") as file:
        deadline = time.monotonic() + SECONDS
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise GitFailed("another checkpoint of this folder is being made; try again later") from None
                time.sleep(0.02)
        yield


def _printable(path: str) -> str:
    return os.fsencode(path).decode("utf-8", "replace")
