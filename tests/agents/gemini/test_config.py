"""The settings of a session: the user's, and no more laid over them than needed."""

import json

import pytest

from stagedoor.agents.gemini import GeminiSessionConfig, StdioMcpServer
from stagedoor.agents.gemini.config import settings
from stagedoor.errors import LocalProtocolError

OURS = {
    "general": {"maxAttempts": 3, "sessionRetention": {"enabled": False}},
    "tools": {"shell": {"enableInteractiveShell": False}},
}
KEY = {"GEMINI_API_KEY": "k"}


def selected(kind: str) -> dict:
    return {"security": {"auth": {"selectedType": kind}}}


@pytest.mark.parametrize(
    ("config", "user", "env", "expected"),
    [
        (GeminiSessionConfig(), None, {}, OURS),
        (GeminiSessionConfig(), None, KEY, OURS | selected("gemini-api-key")),
        (GeminiSessionConfig(), None, {"GOOGLE_GENAI_USE_VERTEXAI": "true"}, OURS | selected("vertex-ai")),
        (GeminiSessionConfig(), selected("oauth-personal"), KEY, OURS | selected("oauth-personal")),
        (GeminiSessionConfig(auth_type="vertex-ai"), selected("gemini-api-key"), KEY, OURS | selected("vertex-ai")),
        (GeminiSessionConfig(usage_statistics=False), None, {}, OURS | {"privacy": {"usageStatisticsEnabled": False}}),
        (GeminiSessionConfig(max_session_turns=4), None, {}, OURS | {"model": {"maxSessionTurns": 4}}),
        (
            GeminiSessionConfig(mcp_servers={"a": StdioMcpServer(command="c", args=("x",), trust=True)}),
            {"mcpServers": {"b": {"command": "d"}}, "ui": {"theme": "Dracula"}},
            {},
            OURS
            | {
                "mcpServers": {"b": {"command": "d"}, "a": {"command": "c", "args": ["x"], "trust": True}},
                "ui": {"theme": "Dracula"},
            },
        ),
        (
            GeminiSessionConfig(settings={"general": {"maxAttempts": 7}, "tools": {"core": ["glob"]}}),
            {"general": {"vimMode": True, "sessionRetention": {"enabled": True, "maxAge": "7d"}}},
            {},
            {
                "general": {
                    "vimMode": True,
                    "maxAttempts": 7,
                    "sessionRetention": {"enabled": False, "maxAge": "7d"},
                },
                "tools": {"shell": {"enableInteractiveShell": False}, "core": ["glob"]},
            },
        ),
    ],
)
def test_settings(config, user, env, expected):
    assert json.loads(settings(config, json.dumps(user).encode() if user else None, env)) == expected


def test_the_users_file_may_have_comments():
    user = b'// mine\n{"ui": {"theme": "// not a comment", /* this is */ "x": 1}}\n'
    assert json.loads(settings(GeminiSessionConfig(), user, {}))["ui"] == {"theme": "// not a comment", "x": 1}


@pytest.mark.parametrize("user", [b"{", b"[]", b"\xff"])
def test_a_broken_file_of_the_user_is_named(user: bytes):
    with pytest.raises(LocalProtocolError, match=r"settings\.json"):
        settings(GeminiSessionConfig(), user, {})
