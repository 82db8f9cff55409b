"""The canonical form itself, so that every door can treat all dialects alike."""

from __future__ import annotations

from stagedoor.unified.events import Event

SILENT: dict[str, str] = {}


class StagedoorProjection:
    def project(self, event: Event) -> list[Event]:
        return [event]
