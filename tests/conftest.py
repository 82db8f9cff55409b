"""Nothing a test does may touch the user's own folders."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def podium_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Podium's own state goes to a scratch folder."""
    folder = tmp_path_factory.mktemp("podium-home")
    monkeypatch.setenv("PODIUM_HOME", str(folder))
    return folder
