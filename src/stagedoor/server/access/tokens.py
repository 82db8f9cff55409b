"""Tokens: 256 random bits each. The server's own stands in a file that only its owner can read."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
from pathlib import Path

from stagedoor.errors import NotAllowed
from stagedoor.machine.private_file import NotPrivate, read_private

PREFIX = "stagedoor_"
TOKEN_PATTERN = re.compile(rf"{PREFIX}[\w-]{{16,}}", re.ASCII)
"""For removing tokens from text that is logged."""


def new_token() -> str:
    return PREFIX + secrets.token_urlsafe(32)


def token_hash(token: str) -> str:
    """What is stored of a token. Random bits need no salt and no slow hash."""
    return hashlib.sha256(token.encode(errors="surrogateescape")).hexdigest()


def server_token(home: Path) -> str:
    """The administrator's token, created at the first start. Raises ``NotAllowed`` when others could read it.

    One whose file has a second name is made anew: what stands there is no secret any more.
    """
    private_folder(home)
    path = token_path(home)
    with contextlib.suppress(FileNotFoundError):
        if path.lstat().st_nlink > 1:
            path.unlink()
    try:
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        return read_token(home)
    token = new_token()
    with os.fdopen(opened, "w") as file:
        file.write(token + "\n")
    return token


def read_token(home: Path) -> str:
    """Raises ``FileNotFoundError`` when no server ever ran with this home."""
    path = token_path(home)
    try:
        token = read_private(path, one_name=False).decode("ascii", "replace").strip()
    except NotPrivate:
        raise NotAllowed(
            f"other users can read {path}, so its token is not secret any more; delete the file and start again"
        ) from None
    if len(token) < len(PREFIX) + 16:
        raise NotAllowed(f"{path} does not contain a token; delete the file and start again")
    return token


def token_path(home: Path) -> Path:
    return home / "token"


def private_folder(home: Path) -> None:
    """Stagedoor's own folder, closed to others: the log in it holds everything the agents wrote."""
    try:
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as fault:
        raise NotAllowed(
            f"cannot use {home} as Stagedoor's folder: {fault.strerror}; set STAGEDOOR_HOME to another one"
        ) from fault
    status = home.stat()
    if status.st_uid != os.getuid():
        raise NotAllowed(f"{home} belongs to another user; set STAGEDOOR_HOME to a folder that is yours")
    if status.st_mode & 0o077:
        home.chmod(0o700)
    ignored = home / ".gitignore"
    if not ignored.exists():
        ignored.write_text("*\n")  # where the home is in a repository, no diff shows what is in it
