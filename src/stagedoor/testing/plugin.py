"""The pytest plugin: a ``scripted_model`` fixture. Nothing heavy is imported until a test asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
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
