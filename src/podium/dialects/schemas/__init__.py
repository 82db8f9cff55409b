"""The JSON Schemas of the ``lifecycle`` dialect, as its authors wrote them.

They were written for three agents. ``agents`` adds the others to the enumeration of agent types, the only change.
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


def session_request_schema(agents: Iterable[str] = ()) -> dict[str, Any]:
    """What a request for a session validates against."""
    schema = _read("session_request.json")
    _add(schema["properties"]["agentType"], agents)
    return schema


def _read(name: str) -> dict[str, Any]:
    return msgspec.json.decode(files(__name__).joinpath(name).read_bytes(), type=dict[str, Any])


def _add(agent_type: dict[str, Any], agents: Iterable[str]) -> None:
    agent_type["enum"] += [agent for agent in agents if agent not in agent_type["enum"]]
