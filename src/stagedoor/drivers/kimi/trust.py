"""Kimi Code in a folder that nobody trusts: over the protocol it runs nothing of a project unless its own list of
trusted folders has it, and the home that we make for it leaves that list out."""

from __future__ import annotations

from ...trust.project import ProjectPath

PROJECT_PATHS = (
    ProjectPath(".kimi-code", "settings, tool servers, skills, sub-agents", "repository"),
    ProjectPath(".mcp.json", "tool servers", "repository"),
)
