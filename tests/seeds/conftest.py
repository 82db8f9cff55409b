"""The real server, as its own tests use it."""

from tests.server.conftest import _script, serve, server, settings  # noqa: F401
