from __future__ import annotations

from pathlib import Path

import pytest

from tests.service.conformance.engines import ENGINES, Engine, engine_of


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Engine:
    return engine_of(request.param, tmp_path)
