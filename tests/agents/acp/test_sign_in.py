"""What a person does to sign in, as far as an agent says."""

from __future__ import annotations

import pytest

from stagedoor.agents.acp.responses import AuthMethod, way_in


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        (AuthMethod("login"), "login"),
        (AuthMethod("login", "Log in"), "Log in"),
        (AuthMethod("login", "Log in", "opens your browser"), "Log in: opens your browser"),
        (AuthMethod("key", "A key", type="env_var", vars=[{"name": "KEY"}, {"name": "B"}]), "A key: set KEY or B"),
        (AuthMethod("t", "T", type="terminal", args=["login", "now please"]), "T: run /bin/x login 'now please'"),
        (
            AuthMethod("t", "Log in", meta={"terminal-auth": {"command": "/opt/x", "args": ["login"], "label": "L"}}),
            "Log in: run /opt/x login",
        ),
        (AuthMethod("t", "Log in", meta={"terminal-auth": {"command": "x", "args": 5}}), "Log in: run x"),
    ],
)  # fmt: skip
def test_a_way_in(method: AuthMethod, expected: str) -> None:
    assert way_in(method, "/bin/x") == expected
