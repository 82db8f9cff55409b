"""The settings with which Codex CLI talks to nobody but a scripted model."""

from __future__ import annotations

import json
from pathlib import Path

from ..agent import ScriptedSettings

# ``exclude_slash_tmp``: where commands may write into /tmp, their sandboxes put covers there. They take care of each
# other only among those with one TMPDIR, and here each home has its own: one would remove what another stands on.


def scripted_settings(url: str, home: Path, cwd: str, model: str, key: str) -> ScriptedSettings:
    config = f"""\
model = {json.dumps(model)}
model_provider = "scripted"
check_for_update_on_startup = false

[model_providers.scripted]
name = "Scripted"
base_url = {json.dumps(url + "/v1")}
wire_api = "responses"
env_key = "SCRIPTED_API_KEY"
request_max_retries = 1
stream_max_retries = 1

[analytics]
enabled = false

[features]
plugins = false
unbounded_connection_retries = false

[tools.update_plan]
enabled = true

[sandbox_workspace_write]
exclude_slash_tmp = true

[projects.{json.dumps(cwd)}]
trust_level = "trusted"
"""
    env = {"CODEX_HOME": str(home / ".codex"), "SCRIPTED_API_KEY": key}
    return ScriptedSettings(env, {".codex/config.toml": config})
