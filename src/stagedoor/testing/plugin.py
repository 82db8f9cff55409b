"""The pytest plugin: the fixtures ``scripted_model`` and ``real_cli``. It imports nothing heavy until a test does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .model import ScriptedModel
    from .script import Script

StartModel = Callable[..., "ScriptedModel"]


@pytest.fixture
def scripted_model() -> Iterator[StartModel]:
    """Starts scripted models: ``model = scripted_model([say("Hello.")])``. They stop when the test is over."""
    from .model import ScriptedModel

    with ExitStack() as running:

        def start(script: Script = (), *, routes: Mapping[str, Script] | None = None) -> ScriptedModel:
            return running.enter_context(ScriptedModel(script, routes=routes))

        yield start


@pytest.fixture
def real_cli() -> Callable[[str], Path]:
    """The program of an agent: ``claude = real_cli("claude")``. Where it is not installed the test is skipped."""
    from .. import catalog
    from . import clis

    def find(agent: str) -> Path:
        program = clis.find_cli(agent)
        if program is None:
            pytest.skip(f"{agent} is not installed: run {catalog.agent(agent).install}")
        return program

    return find
