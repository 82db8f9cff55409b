"""Agents that are known by name and command only: nobody has tried them with Stagedoor, and every list says so.

They are run as any agent that speaks the protocol: in the tiers that promise nothing, or that the system keeps. Who
tries one and knows its modes describes it in the configuration under the same name.
"""

from __future__ import annotations

from .definition import AcpAgent

MARK = "unproven"


def _named(name: str, title: str, command: tuple[str, ...], install: str) -> AcpAgent:
    return AcpAgent(name=name, title=f"{title} ({MARK})", command=command, install=install)


UNPROVEN: dict[str, AcpAgent] = {
    one.name: one
    for one in (
        _named("goose", "Goose", ("goose", "acp"), "brew install block-goose-cli"),
        _named("cursor", "Cursor CLI", ("cursor-agent", "acp"), "curl https://cursor.com/install -fsS | bash"),
        _named("auggie", "Auggie CLI", ("auggie", "--acp"), "npm install -g @augmentcode/auggie"),
        _named("cline", "Cline CLI", ("cline", "--acp"), "npm install -g cline"),
        _named("vibe", "Mistral Vibe", ("vibe-acp",), "uv tool install mistral-vibe"),
        _named("qoder", "Qoder CLI", ("qodercli", "--acp"), "npm install -g @qoder-ai/qodercli"),
        _named(
            "agy",
            "Antigravity CLI",
            ("agy_acp_server",),
            "see antigravity-acp in the ACP registry",
        ),
    )
}
