"""A program in an agent's place that writes down with which words it was started."""

from __future__ import annotations

import contextlib
import itertools
from pathlib import Path
from typing import Any

from stagedoor.errors import StagedoorError


def recorder(folder: Path, program: Path | str | None = None) -> tuple[Path, Path]:
    """The program, and the file it writes. The first time it is the real ``program`` from then on, if there is one;
    later it only writes, and ends."""
    record, wrapper = folder / "words", folder / "recording"
    first = "exit 1" if program is None else f'[ "$again" ] || exec {program} "$@"\nexit 1'
    version = "echo 9.9.9" if program is None else f"exec {program} --version"
    wrapper.write_text(
        "#!/bin/sh\n"
        f'[ "$1" = --version ] && {{ {version}; exit; }}\n'
        f"[ -e {record} ] && again=yes\n"
        f"for word; do printf '%s\\n' \"$word\"; done > {record}\n"
        f"{first}\n"
    )
    wrapper.chmod(0o755)
    return wrapper, record


def flags(record: Path) -> set[str]:
    """Words, and words with what follows them: ``--model x``, however that was written."""
    lines = record.read_text().splitlines()
    words = [part for word in lines for part in (word.split("=", 1) if word[:2] == "--" else [word])]
    return {*words, *(f"{one} {other}" for one, other in itertools.pairwise(words))}


async def words_of(client: Any, record: Path, config: Any, *, resumed: str = "") -> set[str]:
    """The words with which a native client starts its program for this config."""
    create, resume = client.create_session, client.resume_session
    with contextlib.suppress(StagedoorError):
        async with await (resume(resumed, "Go on.", config) if resumed else create("Go.", config)) as session:
            await session.wait()
    return flags(record)
