"""What people write about an agent's program in a configuration, held against what its driver does by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

_OWNED: dict[str, dict[str, int]] = {
    "claude": {
        "-p": 0, "--print": 0, "--verbose": 0, "--output-format": 1, "--input-format": 1,
        "--include-partial-messages": 0, "--replay-user-messages": 0, "--permission-prompt-tool": 1,
    },
    "codex": {"exec": 0, "--json": 0, "app-server": 0, "-": 0, "--skip-git-repo-check": 0},
    "gemini": {
        "-p": 1, "--prompt": 1, "-o": 1, "--output-format": 1, "--non-interactive": 0, "--acp": 0,
        "--experimental-acp": 0,
    },
    "opencode": {"run": 0, "serve": 0, "acp": 0, "--format": 1},
}  # fmt: skip
"""Arguments the driver gives itself → how many words follow each."""

_INSTEAD: dict[str, dict[str, str]] = {
    "claude": {
        "--dangerously-skip-permissions": "skip_permissions: true", "--permission-mode": "tier or approval",
        "--model": "model",
    },
    "codex": {
        "--dangerously-bypass-approvals-and-sandbox": "skip_permissions: true", "--yolo": "skip_permissions: true",
        "--full-auto": "approval and sandbox", "--sandbox": "sandbox", "-s": "sandbox", "--model": "model",
        "-m": "model",
    },
    "gemini": {
        "--yolo": "skip_permissions: true", "-y": "skip_permissions: true", "--approval-mode": "tier or approval",
        "--sandbox": "sandbox", "-s": "sandbox", "--model": "model", "-m": "model",
    },
    "opencode": {"--model": "model", "-m": "model"},
}  # fmt: skip
"""Arguments that would go behind our back → the key that says the same to us."""

_CONTAINERS: dict[str, dict[str, Mapping[str, str]]] = {
    "gemini": {
        "docker": {"GEMINI_SANDBOX": "docker"},
        "podman": {"GEMINI_SANDBOX": "podman"},
    },
}
"""A sandbox that the program makes around itself → the environment that asks it to."""


class Arguments(msgspec.Struct, frozen=True):
    """``kept`` go to the program; ``dropped`` the driver sees to; ``instead``: argument → the key to use."""

    kept: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    instead: Mapping[str, str] = {}


def arguments(agent: str, words: Sequence[str]) -> Arguments:
    owned, instead = _OWNED.get(agent, {}), _INSTEAD.get(agent, {})
    kept: list[str] = []
    dropped: list[str] = []
    wrong: dict[str, str] = {}
    left = list(words)
    while left:
        word = left.pop(0)
        name, joined, _ = word.partition("=")
        if name in instead:
            wrong[name] = instead[name]
        elif name in owned:
            taken = 0 if joined else owned[name]
            dropped += [word, *left[:taken]]
            del left[:taken]
        else:
            kept.append(word)
    return Arguments(tuple(kept), tuple(dropped), wrong)


def container(agent: str, sandbox: str) -> Mapping[str, str] | None:
    """The environment for a sandbox of the program's own; ``None`` when it has none of that name."""
    return _CONTAINERS.get(agent, {}).get(sandbox)


def containers(agent: str) -> tuple[str, ...]:
    return tuple(_CONTAINERS.get(agent, {}))
