"""Other coding agents on the command line: with their safety off they do what ours would ask about."""

from __future__ import annotations

import re
from itertools import pairwise

from ..shell.script import ShellCommand
from .effects import Finding

_AGENTS = frozenset(
    [
        "claude",
        "claude-code",
        "codex",
        "gemini",
        "gemini-cli",
        "opencode",
        "opencode-ai",
        "copilot",
        "qwen",
        "qwen-code",
        "kimi",
        "kimi-cli",
        "kimi-code",
        "aider",
        "aider-chat",
        "cursor-agent",
        "goose",
        "amp",
        "crush",
        "droid",
        "vibe",
        "mistral-vibe",
        "kiro-cli",
        "cline",
        "roo",
        "roo-code",
        "openhands",
        "plandex",
        "interpreter",
        "open-interpreter",
        "auggie",
        "sgpt",
        "iflow",
        "codebuff",
        "grok",
        "grok-cli",
        "rovodev",
        "jules",
        "devin",
        "stagedoor",
        "trae-agent",
        "swe-agent",
        "mini-swe-agent",
        "gptme",
        "letta",
        "continue-cli",
        "llm",
        "cn",
    ]
)
_SHARED_NAMES = frozenset(["agent", "q", "pi", "forge", "acli", "cursor", "code", "mini"])
"""Names that other programs have, too: only with an unmistakable option."""
_OFF = re.compile(
    r"-y|-[a-z]*y[a-z]*(?<=y)p?|--yes(-\w+)*|--force|--auto[-_\w]*|--allow[-_\w]*|--allowed[-_]?tools|--trust[-_\w]*"
    r"|--skip-(?!git)[-_\w]*|--always-[-\w]*|--no-interaction|--full|--no-confirm|--settings|--mcp-config\w*|--plugin-dir"
    r"|--with-(builtin|extension|remote-extension)|--test-cmd|--lint-cmd|--extensions|--hooks?|--config-file|--insecure"
    r"|--agent=auto-approve|--non-interactive|--print-only-yes|-T",
    re.IGNORECASE,
)
_CLEARLY_OFF = re.compile(
    r"--(force|yolo|auto(-\w+)*|allow-all.*|trust-all.*|yes-always|dangerously.*)|-y", re.IGNORECASE
)
_CHOICES = re.compile(
    r"(--permission-mode|--approval-mode|--approval|--ask-for-approval|--approvals?|--mode|-a|--tier|--agent)",
    re.IGNORECASE,
)
_CAUTIOUS = frozenset({"plan", "default", "ask", "manual", "untrusted", "on-request", "suggest", "supervised",
"dry-run",
                       "askDangerous", "readOnly", "chat"})  # fmt: skip
_SETTINGS = re.compile(
    r"approval|permission|sandbox_mode|trust|hooks|mcp_servers|notify|shell_environment", re.IGNORECASE
)
_UNASKED: dict[str, re.Pattern[str]] = {
    "opencode": re.compile(r"run|serve|web|acp"),
    "opencode-ai": re.compile(r"run|serve|web|acp"),
    "goose": re.compile(r"run|configure|acp|web|serve"),
    "kimi": re.compile(r"--print|--afk"),
    "kimi-cli": re.compile(r"--print|--afk"),
    "amp": re.compile(r"-x|--execute"),
    "cursor-agent": re.compile(r"-[a-z]*f[a-z]*"),
    "codex": re.compile(r"((--sandbox|-s)=?)?workspace-write"),
    "auggie": re.compile(r"-p|--print"),
    "gptme": re.compile(r"-n"),
    "llm": re.compile(r"--functions(=.*)?|--tool(=.*)?|-T.+"),
    "droid": re.compile(r"--skip\S*"),
    "stagedoor": re.compile(r"trust|pair|devices|serve"),
}
"""Agents that, used so, ask nobody whatever their options are; of our own, the commands that give others a way in."""
_INSTALLS = re.compile(
    r"(mcp|plugins?|extensions?|hooks?|skills?|marketplace|config|agents?) (add\S*|install|link|enable|set|import"
    r"|new|create"
    r"|marketplace|update)|plugin \S+|mcp add\S*|configure",
)
_VARIABLES = re.compile(
    r"^(OPENCODE_(PERMISSION|CONFIG\w*|DANGEROUS\w*)|COPILOT_ALLOW_ALL|GOOSE_MODE|\w*YOLO\w*|\w*SKIP_PERMISSIONS\w*"
    r"|AIDER_YES\w*|GEMINI_CLI_TRUST_WORKSPACE|CODEX_UNSAFE\w*|CLAUDE_CODE_\w*HOOK\w*|IS_SANDBOX)$"
)


def other_agents(command: ShellCommand) -> list[Finding]:
    """Another agent that is started with its safety off, or given something that runs at its next start."""
    name = command.program.partition("@")[0]
    words = command.words[1:]
    if name in _SHARED_NAMES and any(_CLEARLY_OFF.fullmatch(word) for word in words):
        return [Finding("high", f"{name} runs with its safety off")]
    if name not in _AGENTS:
        return []
    verbs = [word for word in words if not word.startswith("-")]
    if _INSTALLS.match(" ".join(verbs[:2])):
        return [Finding("high", f"{name} {' '.join(verbs[:2])} installs what runs at its next start")]
    if any(_VARIABLES.match(assignment.partition("=")[0]) for assignment in command.assignments):
        return [Finding("high", f"{name} runs with its safety off")]
    for word, after in pairwise([*words, ""]):
        option, given, value = word.partition("=")
        chosen = value if given else after
        if _OFF.fullmatch(option) or (_CHOICES.fullmatch(option) and chosen and chosen not in _CAUTIOUS):
            return [Finding("high", f"{name} {word} runs with its safety off")]
        if option in ("-c", "--config", "-s", "--set") and _SETTINGS.search(chosen):
            return [Finding("high", f"{name} {word} {chosen} changes what it asks about")]
    if (asks_nobody := _UNASKED.get(name)) and any(asks_nobody.fullmatch(word) for word in words):
        return [Finding("high", f"{name} starts something that asks nobody")]
    return []
