"""The keys of the configuration as people read them: a commented file to begin with, and the table of the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from .keys import BY_PATH, KEYS, TAKES, UNITS, Key
from .settings import AgentSettings, Settings

_HEAD = """\
# Stagedoor's configuration. What is commented out says the default, or shows how a key is written.
# stagedoor config check says what is wrong, stagedoor config show what is in force.
"""
_EXAMPLES: dict[str, str] = {
    "server.hosts": "[stagedoor.example.org]",
    "server.tls_cert": "cert.pem",
    "server.tls_key": "key.pem",
    "workspaces.roots": "[~/projects]",
    "workspaces.projects": "{site: ~/projects/site}",
    "policy.file": "policy.yaml",
    "agents.default": "understudy",
    "agents.*.command": "~/bin/understudy",
    "agents.*.model": "large",
    "agents.*.driver": "acp",
    "agents.*.args": "[--flag, value]",
    "agents.*.env": "{NAME: value}",
    "agents.*.trusted_folders": "[~/projects]",
    "agents.*.auto_accept": "[read_file, find_files]",
    "agents.*.sandbox": "readOnly",
}
_ANY_AGENT = "understudy"


def template() -> str:
    """A file that changes nothing until something in it is uncommented."""
    out, open_sections = [_HEAD], list[str]()
    for key in KEYS:
        *sections, name = key.path.replace("*", _ANY_AGENT).split(".")
        if sections != open_sections:
            shared = 0
            while shared < min(len(sections), len(open_sections)) and sections[shared] == open_sections[shared]:
                shared += 1
            if not shared:
                out.append("")
            out += [f"#{'  ' * depth} {sections[depth]}:" for depth in range(shared, len(sections))]
            open_sections = sections
        line = f"#{'  ' * len(sections)} {name}: {written(key)}"
        out.append(f"{line:<44}  # {_plain(key.about)}" + (f" ({', '.join(key.choices)})" if key.choices else ""))
    return "\n".join(out) + "\n"


def table() -> str:
    """Every key as a row in Markdown."""
    rows = ["| key | takes | default | what it is for |", "|---|---|---|---|"]
    for key in KEYS:
        takes = " ".join(f"`{one}`" for one in key.choices) or TAKES[key.kind]
        default = shown(key.path, default_of(key))
        cell = f"`{default}`" if default else ""
        rows.append(f"| `{key.path.replace('*', 'NAME')}` | {takes} | {cell} | {key.about} |")
    return "\n".join(rows) + "\n"


def default_of(key: Key) -> Any:
    if key.path == "agents.*.skip_permissions":
        return False
    if "*" in key.path:
        return getattr(AgentSettings(), key.path.rpartition(".")[2])
    room, _, name = key.setting.rpartition(".")
    return getattr(Settings().limits if room else Settings(), name)


def written(key: Key) -> str:
    """A value for the key as it is written: its default, or one that shows how."""
    return _EXAMPLES.get(key.path) or shown(key.path, default_of(key)) or (key.choices[0] if key.choices else "")


def shown(path: str, value: Any) -> str:
    """A value as it is written in the file; empty where nothing is said."""
    kind = BY_PATH[path].kind if path in BY_PATH else "text"
    match value:
        case None:
            return "never" if kind in ("time", "days") else ""
        case bool():
            return "true" if value else "false"
        case float() if kind == "time":
            unit = next(unit for unit in ("d", "h", "m", "s") if value % UNITS[unit] == 0 or unit == "s")
            return f"{value / UNITS[unit]:g}{unit}"
        case float():
            return f"{value:g}"
        case Mapping():
            pairs = cast("Mapping[str, str]", value)
            return f"{{{', '.join(f'{name}: {one}' for name, one in pairs.items())}}}" if pairs else ""
        case tuple() | list():
            entries = cast("Sequence[str]", value)
            return f"[{', '.join(entries)}]" if entries else ""
        case _:
            return str(value)


def _plain(text: str) -> str:
    return text.replace("`", "").replace("[policy](permissions.md)", "policy")
