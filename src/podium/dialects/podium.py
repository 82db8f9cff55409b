"""The canonical form itself, so that every door can treat all dialects alike."""

from __future__ import annotations

from podium.unified.events import Event

SILENT: dict[str, str] = {}


class PodiumProjection:
    def project(self, event: Event) -> list[Event]:
        return [event]
