"""Files from which something runs later, by itself: who writes one decides what runs next time.

A pattern without a leading ``~``, ``/`` or ``./`` holds at any depth: programs look for these files in the folder they
are started in and in those above it. ``./`` is the workspace itself; ``**`` at the end is the folder with all in it.
The agents' own files come from their folders (``Agent.protected``), the caller's from ``Options.protected``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache, cached_property, lru_cache

import msgspec

from .shell.words import HOLE

Patterns = tuple[tuple[str, str], ...]
"""A pattern and what its file does, in the words that are shown to whoever is asked."""

_BY_REASON: dict[str, tuple[str, ...]] = {
    "git runs hooks, filters and programs from it": (
        ".git/**", ".gitconfig", ".config/git/**", ".gitattributes", ".gitmodules", ".githooks/**", "hooks/pre-commit",
        "hooks/pre-push", "hooks/post-checkout", "hooks/post-merge", "hooks/post-commit", "hooks/commit-msg",
    ),
    "hooks of git run from it at the next commit": (
        ".husky/**", ".pre-commit-config.yaml", ".pre-commit-config.yml", ".pre-commit-hooks.yaml", "lefthook.yml",
        "lefthook.yaml", ".lefthook.yml", ".lefthook.yaml", "lefthook-local.yml", ".lefthook/**", ".overcommit.yml",
        ".lintstagedrc*", "lint-staged.config.*", ".simple-git-hooks.*",
    ),
    "an editor runs tasks, debuggers and tool servers from it": (
        ".vscode/**", "*.code-workspace", ".idea/**", ".fleet/**", ".zed/**", ".vs/**", ".devcontainer/**",
        ".devcontainer.json", ".nvim.lua", ".nvimrc", ".exrc", ".vimrc", ".lvimrc", ".vim/**", ".config/nvim/**",
        ".dir-locals.el", ".emacs", ".emacs.d/**", ".gdbinit", ".lldbinit", "*.sublime-project",
    ),
    "another agent runs hooks, tools and commands from it": (
        ".cursor/**", ".windsurf/**", ".aider*", ".continue/**", ".cline/**", ".clinerules/**",
        ".roo/**", ".roomodes", ".kiro/**", ".amazonq/**", ".junie/**", ".goose/**", ".crush.json", "crush.json",
        ".crush/**", ".qwen/**", ".kimi-code/**", ".kimi/**", ".copilot/**", ".github/hooks/**", ".github/copilot/**",
        ".github/agents/**", ".github/skills/**", ".github/extensions/**",
        ".github/prompts/**", ".github/chatmodes/**", ".github/lsp.json", ".github/mcp.json", ".mcp.json", "mcp.json",
        ".lsp.json", ".agents/**", ".agent/**", ".augment/**", ".openhands/**", ".trae/**", ".factory/**", ".amp/**",
    ),
    "a build server runs what it says": (
        ".github/workflows/**", ".github/actions/**", ".github/dependabot.yml", ".gitlab-ci.yml", ".gitlab-ci.yaml",
        ".gitlab/**", ".circleci/**", "jenkinsfile*", ".jenkins/**", "azure-pipelines*.yml", "azure-pipelines*.yaml",
        ".azure-pipelines/**", ".azuredevops/**", ".travis.yml", ".drone.yml", ".drone.star", ".woodpecker.yml",
        ".woodpecker.yaml", ".woodpecker/**", ".buildkite/**", "bitbucket-pipelines.yml", "appveyor.yml",
        ".appveyor.yml", "cloudbuild.yaml", "cloudbuild.yml", ".semaphore/**", ".teamcity/**", ".cirrus.yml",
        ".cirrus.star", ".gitpod.yml", ".gitpod.yaml", ".replit", "action.yml", "action.yaml", ".gitea/workflows/**",
        ".forgejo/workflows/**", ".builds/**", ".build.yml", "buildspec.yml",
        ".tekton/**", "codemagic.yaml", "wercker.yml", ".ci/**", ".pipelines/**", ".sourcehut/**", "codefresh.yml",
    ),
    "a package manager or a build tool runs programs or loads code from it": (
        ".npmrc", ".yarnrc", ".yarnrc.yml", ".yarn/**", ".pnp.cjs", ".pnp.js", ".pnp.loader.mjs", ".pnpmfile.cjs",
        ".pnpmfile.mjs", "bunfig.toml", ".bunfig.toml", "node_modules/.bin/**", ".noderc",
        ".cargo/**", ".mvn/**", "gradle-wrapper.properties", "gradle-wrapper.jar", "maven-wrapper.properties",
        "init.gradle", ".gradle/init.d/**", ".bazelrc", ".bazelversion", ".bazeliskrc", ".buckconfig", ".ripgreprc",
        "sitecustomize.py", "usercustomize.py", "*.pth", ".pip/**", "pip.conf", ".pypirc", ".pdbrc", ".pdbrc.py",
        ".pythonrc", ".irbrc", ".pryrc", ".gemrc", ".bundle/config", ".ghci", ".rprofile", ".juliarc.jl", ".psqlrc",
        ".sqliterc", ".mysqlrc", ".my.cnf", ".screenrc", ".tmux.conf", ".inputrc", ".curlrc", ".wgetrc", ".netrc",
        ".terraformrc", ".ansible.cfg", "ansible.cfg", ".docker/config.json", ".wslconfig", ".config/containers/**",
    ),
    "a shell or a tool reads it by itself when somebody enters the folder": (
        ".envrc", ".direnv/**", ".mise.toml", "mise.toml", ".mise/**", ".tool-versions", ".autoenv", ".autoenv.zsh",
    ),
    "a shell runs it at every start": (
        ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".bash_completion", ".profile",
        ".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".zsh/**", ".oh-my-zsh/**", ".kshrc", ".mkshrc",
        ".cshrc", ".tcshrc", ".login", ".logout", ".config/fish/**", ".config/powershell/**", ".xonshrc",
        "/etc/profile", "/etc/profile.d/**", "/etc/bash.bashrc", "/etc/bashrc", "/etc/zsh/**", "/etc/zshrc",
        "/etc/zshenv", "/etc/environment", "/etc/fish/**",
    ),
    "it runs when somebody signs in, or at a set time": (
        ".config/autostart/**", ".config/systemd/**", ".local/share/systemd/**", ".config/environment.d/**",
        ".config/upstart/**", ".xinitrc", ".xsession", ".xsessionrc", ".xprofile", ".xsessionrc", ".pam_environment",
        ".config/plasma-workspace/**", ".config/i3/**", ".config/sway/**", ".config/hypr/**", "library/launchagents/**",
        "library/launchdaemons/**", ".local/share/applications/**", ".config/cron/**", ".crontab", "/etc/cron*/**",
        "/etc/crontab", "/etc/anacrontab", "/var/spool/cron/**", "/var/spool/at/**", "/etc/systemd/**",
        "/lib/systemd/**", "/usr/lib/systemd/**", "/etc/init.d/**", "/etc/rc.local", "/etc/rc*.d/**", "/etc/xdg/**",
        "/etc/udev/**", "/etc/pam.d/**", "/etc/ld.so.preload", "/etc/ld.so.conf*", "/etc/sudoers*", "/etc/ssh/**",
        "/etc/gitconfig", "/etc/hosts", "/etc/passwd", "/etc/group", "/etc/doas.conf", "/etc/logrotate.d/**",
    ),
    "it decides who may sign in to this machine": (".ssh/**",),
    "the programs of your PATH are in it": ("~/bin/**", ".local/bin/**", "~/.cargo/bin/**", "~/go/bin/**"),
}  # fmt: skip

_LONGEST_PART = 200
GENERAL: Patterns = tuple((pattern, why) for why, patterns in _BY_REASON.items() for pattern in patterns)


class _Entry(msgspec.Struct, frozen=True):
    parts: tuple[str, ...]
    below: bool
    """Everything below counts, too."""
    anchor: str
    """What it is relative to: ``~``, ``/``, ``.`` (the workspace), or nothing (any folder)."""
    why: str


class Protections:
    """Many patterns, ready to be held against many paths."""

    def __init__(self, patterns: Iterable[tuple[str, str]]) -> None:
        self._entries = tuple(_entry(pattern, why) for pattern, why in patterns)

    @cached_property
    def _any(self) -> re.Pattern[str]:
        """Made when a path is first looked at: it takes some 20 ms, and most programs that import us ask for none."""
        return re.compile("|".join(_regex(entry) for entry in self._entries) or r"(?!)")

    def why(self, path: str) -> str:
        """Why this path is protected; empty when it is not. ``path`` is in lower case: ``~/…``, ``/…``, or, for what
        is in the workspace, ``./…``."""
        if not self._any.search(path):
            return ""
        return next(entry.why for entry in self._entries if re.search(_regex(entry), path))

    def possible(self, path: str) -> str:
        """The same for a path with wildcards or parts that are known only at run time.

        A part that is nothing but a wildcard says nothing: some letters must speak for it.
        """
        parts = [part for part in path.split("/") if part not in ("", ".")]
        for entry in self._entries:
            if _may_be(parts, path[:1], entry):
                return entry.why
        return ""

    def is_above(self, name: str) -> str:
        """Why a folder of this name may hold protected files though it is none itself: ``.github``; else nothing."""
        name = name.lower()
        for entry in self._entries:
            if not entry.anchor and len(entry.parts) > 1 and name in entry.parts[:-1]:
                return entry.why
        return ""

    def named_in(self, text: str) -> tuple[str, str]:
        """The first protected name that stands in a text of another language, and why; both empty for none."""
        for match in re.finditer(r"[\w.~*/@+-]+", text.lower()):
            word = match.group(0)
            if ("." in word or "/" in word) and (why := self.why(word if word[0] in "~/" else f"./{word}")):
                return word, why
        return "", ""


@lru_cache(maxsize=32)
def protections(more: Patterns = ()) -> Protections:
    return Protections((*more, *GENERAL))


def as_patterns(protected: Mapping[str, str]) -> Patterns:
    return tuple(protected.items())


def _entry(pattern: str, why: str) -> _Entry:
    pattern = pattern.lower().strip()
    below = pattern.endswith("/**")
    pattern = pattern.removesuffix("/**").removeprefix("**/")
    anchor = ""
    if pattern.startswith(("~/", "./", "/")):
        anchor, pattern = pattern[0], pattern.partition("/")[2]
    parts = tuple(part for part in pattern.split("/") if part)
    return _Entry(parts, below or pattern.endswith("/"), anchor, why)


@cache
def _regex(entry: _Entry) -> str:
    start = {"~": r"^~/", "/": r"^/", ".": r"^\./", "": r"(?:^|/)"}[entry.anchor]
    body = "/".join(_part(part) for part in entry.parts)
    return f"{start}{body}{'(?:/|$)' if entry.below else '/?$'}"


def _part(part: str) -> str:
    if part == "**":
        return r".*"
    return "".join({"*": r"[^/]*", "?": r"[^/]"}.get(char) or re.escape(char) for char in part)


def _may_be(parts: list[str], first: str, entry: _Entry) -> bool:
    count = len(entry.parts)
    if entry.anchor:
        start = {"~": "~", "/": "/", ".": "."}[entry.anchor]
        if first != start and first != HOLE:
            return False
        at = 1 if start == "~" else 0
        starts: Iterable[int] = (at,)
    else:
        starts = range(len(parts))
    for at in starts:
        span = parts[at : at + count]
        if len(span) < count or (not entry.below and at + count != len(parts)):
            # A last part that is open may go on with more folders.
            continue
        pairs = [_meet(word, part) for word, part in zip(span, entry.parts, strict=True)]
        if None not in pairs and (any(pairs) or bool(entry.anchor and entry.anchor != ".")):
            return True
    if entry.anchor == "~" and first == "~" and len(parts) > 1 and HOLE in parts[1]:
        return _meet(parts[1], entry.parts[0]) is not None
    return False


@lru_cache(maxsize=4096)
def _meet(word: str, part: str) -> bool | None:
    """Whether a part of a path with wildcards may be the part of a pattern: ``None`` for no, else whether a letter
    that tells it apart was in both. A wildcard of the shell does not stand for a leading dot."""
    word = re.sub(r"\*+", "*", re.sub(r"\[[^\]]*\]", "?", word))
    if len(word) > _LONGEST_PART:
        return True  # nobody writes such a name: whatever it is, somebody shall look at it
    word = re.sub(r"[@!+?*]\([^)]*\)?", HOLE, word)
    stem = part.rpartition(".")[0]
    telling = len(stem) if stem.strip("*") else len(part)
    seen: dict[tuple[int, int], bool | None] = {}

    def step(at: int, to: int) -> bool | None:
        key = (at, to)
        if key in seen:
            return seen[key]
        seen[key] = None
        outcomes: list[bool | None] = []
        if at == len(word) and to == len(part):
            outcomes.append(False)
        if at < len(word) and word[at] in ("*", HOLE):
            outcomes.append(step(at + 1, to))
            if to < len(part) and not (word[at] == "*" and at == 0 and to == 0 and part[0] == "."):
                outcomes.append(step(at, to + 1))
        elif to < len(part) and part[to] == "*":
            outcomes.append(step(at, to + 1))
            if at < len(word):
                outcomes.append(step(at + 1, to))
        elif at < len(word) and to < len(part):
            if word[at] == "?" and not (at == 0 and part[0] == "."):
                outcomes.append(step(at + 1, to + 1))
            elif word[at] == part[to] or part[to] == "?":
                rest = step(at + 1, to + 1)
                outcomes.append(None if rest is None else rest or to < telling)
        if at < len(word) and word[at] in ("*", HOLE) and to < len(part) and part[to] == "*":
            outcomes.append(step(at, to + 1))
            outcomes.append(step(at + 1, to))
        hits = [outcome for outcome in outcomes if outcome is not None]
        seen[key] = any(hits) if hits else None
        return seen[key]

    return step(0, 0)
