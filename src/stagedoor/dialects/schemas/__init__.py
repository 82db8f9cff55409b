"""The JSON Schemas of the ``lifecycle`` and ``board`` dialects, as their authors wrote them.

Those of ``lifecycle`` know three agents. ``agents`` adds others to that enumeration, the only change.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.resources import files
from typing import Any

import msgspec


def lifecycle_schema(agents: Iterable[str] = ()) -> dict[str, Any]:
    """What every event of the ``lifecycle`` dialect validates against."""
    schema = _read("lifecycle.json")
    _add(schema["allOf"][0]["then"]["properties"]["agentType"], agents)
    return schema


def board_schema() -> dict[str, Any]:
    """What every event of the ``board`` dialect validates against."""
    return _read("board.json")


def session_request_schema(agents: Iterable[str] = ()) -> dict[str, Any]:
    """What a request for a session validates against."""
    schema = _read("session_request.json")
    _add(schema["properties"]["agentType"], agents)
    return schema


def _read(name: str) -> dict[str, Any]:
    return msgspec.json.decode(files(__name__).joinpath(name).read_bytes(), type=dict[str, Any])


def _add(agent_type: dict[str, Any], agents: Iterable[str]) -> None:
    agent_type["enum"] += [agent for agent in agents if agent not in agent_type["enum"]]
