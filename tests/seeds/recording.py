"""A program in an agent's place that writes down with which words it was started."""

from __future__ import annotations

import itertools
from pathlib import Path


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
