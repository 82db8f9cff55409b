"""A policy that follows its file: what the file says now decides, in sessions that run already too."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from stagedoor.errors import PolicyError
from stagedoor.permissions.policy import Policy, Ruling
from stagedoor.permissions.policy_file import load_policy
from stagedoor.unified.events import PermissionRequest, ToolUse

_log = logging.getLogger("stagedoor.policy")
_Mark = tuple[int, int, int]


class PolicyFile:
    """The last good policy of a file. ``problem`` says why the file as it is now does not count."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problem = ""
        self.changed: Callable[[str, str], None] | None = None
        """Told the text before and after when a changed file counts."""
        self._text = ""
        self._good: Policy | None = None
        self._mark: _Mark | None = None
        self._seen = False

    def current(self) -> Policy | None:
        """``None`` when there never was a good one."""
        mark = self._look()
        if self._seen and mark == self._mark:
            return self._good
        self._seen, self._mark = True, mark
        try:
            policy = load_policy(self.path)
            text = self.path.read_text("utf-8", "replace")
        except (PolicyError, OSError) as fault:
            kept = "nothing is allowed" if self._good is None else "the one before it still holds"
            self.problem = f"{fault}; {kept} until it is mended"
            _log.warning("%s", self.problem)
            return self._good
        if self.problem or self._good is not None:
            _log.info("the policy %s was read again", self.path)
        if self._good is not None and self.changed is not None and text != self._text:
            self.changed(self._text, text)
        self._text = text
        self.problem = ""
        self._good = policy
        return policy

    def _look(self) -> _Mark | None:
        try:
            seen = self.path.stat()
        except OSError:
            return None
        return seen.st_mtime_ns, seen.st_size, seen.st_ino


class CurrentPolicy:
    """Stands where a ``Policy`` may stand (``Options.policy``), and decides by its file as it is at that moment.

    A wrong file changes nothing: the last good one holds. Where there never was one, everything is refused.
    """

    def __init__(self, path: Path | PolicyFile, *, beneath: Policy | None = None) -> None:
        self.file = path if isinstance(path, PolicyFile) else PolicyFile(path)
        self._beneath = beneath

    @property
    def problem(self) -> str:
        """Why the file as it is now does not count; empty when it does."""
        self.file.current()
        return self.file.problem

    @property
    def policy(self) -> Policy | None:
        policy = self.file.current()
        return policy if policy is None or self._beneath is None else policy.stacked_on(self._beneath)

    def stacked_on(self, other: Policy) -> CurrentPolicy:
        """Its file first, then ``other``, as ``Policy.over``."""
        return CurrentPolicy(self.file, beneath=other if self._beneath is None else self._beneath.stacked_on(other))

    def decide(self, request: PermissionRequest | ToolUse, cwd: str, *, home: str | None = None) -> Ruling:
        policy = self.policy
        if policy is not None:
            return policy.decide(request, cwd, home=home)
        ruling = Policy().decide(request, cwd, home=home)
        return Ruling(
            action="deny", rule=None, why=f"the policy {self.file.path} cannot be read, so nothing is allowed",
            risk=ruling.risk, reasons=ruling.reasons,
        )  # fmt: skip
