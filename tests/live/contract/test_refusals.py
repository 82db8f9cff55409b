"""What a driver says it cannot do is refused before anything is started, never silently left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import stagedoor

pytestmark = pytest.mark.live

OPTIONS: dict[str, dict[str, Any]] = {
    "images": {"images": ("picture.png",)},
    "system_prompt": {"system_prompt": "Be brief."},
    "append_system_prompt": {"append_system_prompt": "Be brief."},
    "allowed_tools": {"allowed_tools": ("read_file",)},
    "disallowed_tools": {"disallowed_tools": ("shell",)},
}


def test_what_is_not_supported_is_refused(rig: Any, cases: Any, tmp_path: Path) -> None:
    fixed = {"cwd": str(tmp_path), "driver": rig.driver}
    for capability, options in OPTIONS.items():
        able = getattr(rig.capabilities, capability)
        if not able:  # where it is able, the agent's own live tests prove it
            with (
                cases(capability.replace("_", " "), able=False, field=capability),
                pytest.raises(stagedoor.NotSupported),
            ):
                stagedoor.open(rig.agent, **fixed, **options)
    for sandbox in ("none", "readOnly", "workspaceWrite", "fullAccess"):
        if sandbox not in rig.capabilities.sandbox:
            with cases(f"sandbox {sandbox}", able=False, field="sandbox"), pytest.raises(stagedoor.NotSupported):
                stagedoor.open(rig.agent, **fixed, sandbox=sandbox)
    cases.settle()
