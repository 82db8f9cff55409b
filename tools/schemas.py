"""What the CLIs' own published schemas name, and what of it we neither type nor name as without meaning.

    python -m tools.schemas [AGENT …]

Codex and OpenCode print their schemas themselves; those of the Agent Client Protocol and of Claude Code's SDK come from
the packages that publish them (``make drift`` fetches these). A word is ``kind: name``, as in ``event: session.idle``.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from stagedoor.agents.acp import protocol as acp_protocol
from stagedoor.agents.acp import requests as acp_requests
from stagedoor.agents.acp import updates as acp_updates
from stagedoor.agents.claude import blocks as claude_blocks
from stagedoor.agents.claude import events as claude_events
from stagedoor.agents.codex import notifications as codex_notifications
from stagedoor.agents.codex import questions as codex_questions
from stagedoor.agents.codex import threads as codex_threads
from stagedoor.agents.opencode import events as opencode_events
from stagedoor.agents.opencode import parts as opencode_parts
from stagedoor.testing.clis import find_cli, path_with_node
from stagedoor.transports.programs import run_blocking

PATIENCE = 300.0
Json = Any


# ------------------------------------------------------------------------------------------------- what we know


def _words(**kinds: Iterable[str]) -> set[str]:
    return {f"{kind}: {name}" for kind, names in kinds.items() for name in names}


def known_codex() -> set[str]:
    return _words(
        notification={*codex_notifications.NOTIFICATIONS, *codex_notifications.WITHOUT_MEANING},
        request={*codex_questions.QUESTIONS, *codex_questions.WITHOUT_MEANING},
        item=codex_threads.ITEM_SHAPES.names,
    )


def known_opencode() -> set[str]:
    return _words(
        event={*opencode_events.SERVER_EVENTS, *opencode_events.SERVER_NOTICES}, part=opencode_parts.PARTS.names
    )


def known_acp() -> set[str]:
    return _words(
        update=acp_updates.UPDATES.names,
        block=acp_updates.BLOCKS.names,
        content=acp_updates.TOOL_CONTENT.names,
        method={
            *acp_requests.REQUESTS, *acp_protocol.NOTIFICATIONS, *acp_protocol.WITHOUT_MEANING, *acp_protocol.REFUSED,
        },
    )  # fmt: skip


def known_claude() -> set[str]:
    names = claude_events.SHAPES.names
    return _words(
        system={name.partition("/")[2] for name in names if name.startswith("system/")},
        line={name for name in names if "/" not in name},
        request=claude_events.QUESTIONS.names,
        block=claude_blocks.BLOCKS.names,
    )


# ------------------------------------------------------------------------------------------ what the schemas name


def named_by_codex(executable: str) -> set[str]:
    """What ``codex app-server generate-json-schema`` writes."""
    with tempfile.TemporaryDirectory(prefix="stagedoor-schema-") as scratch:
        out = Path(scratch) / "out"
        argv = [executable, "app-server", "generate-json-schema", "--experimental", "--out", str(out)]
        _run(argv, scratch)
        whole = json.loads((out / "codex_app_server_protocol.v2.schemas.json").read_text())["definitions"]

        def methods(name: str) -> set[str]:
            variants = json.loads((out / f"{name}.json").read_text())["oneOf"]
            return {variant["properties"]["method"]["enum"][0] for variant in variants}

        items = {variant["properties"]["type"]["enum"][0] for variant in whole["ThreadItem"]["oneOf"]}
        return _words(notification=methods("ServerNotification"), request=methods("ServerRequest"), item=items)


def named_by_opencode(executable: str) -> set[str]:
    """What ``opencode generate`` prints: the description of its server."""
    with tempfile.TemporaryDirectory(prefix="stagedoor-schema-") as scratch:
        printed = _run([executable, "generate"], scratch)
    schemas = json.loads(printed)["components"]["schemas"]

    def types(name: str) -> set[str]:
        names: set[str] = set()
        for variant in schemas[name]["anyOf"]:
            whole = schemas[variant["$ref"].rsplit("/", 1)[-1]] if "$ref" in variant else variant
            names |= _constants(whole["properties"]["type"])
        return names

    return _words(event=types("Event"), part=types("Part"))


def named_by_acp(schema: Mapping[str, Json]) -> set[str]:
    """A ``schema.json`` or ``schema.unstable.json`` of the protocol's first version, which is the one we speak."""
    definitions = schema["$defs"]

    def variants(name: str, key: str) -> set[str]:
        whole = definitions[name]
        return {
            constant
            for variant in whole.get("oneOf") or whole.get("anyOf") or ()
            for constant in _constants(variant.get("properties", {}).get(key, {}))
        }

    methods = {one["x-method"] for one in definitions.values() if one.get("x-side") in ("client", "protocol")}
    return _words(
        update=variants("SessionUpdate", "sessionUpdate"),
        block=variants("ContentBlock", "type"),
        content=variants("ToolCallContent", "type"),
        method=methods,
    )


_TYPE = re.compile(r"\btype (SDK\w+|Beta\w+) = (?=\{)")
_MEMBER = re.compile(r"^ {4}(type|subtype)\??: '([a-z_]+)';", re.MULTILINE)


def named_by_claude(declarations: str) -> set[str]:
    """``sdk.d.ts`` of Claude Code's SDK: the messages that it hands out, and what it asks."""
    found: set[str] = set()
    for start in _TYPE.finditer(declarations):
        name, body = start[1], declarations[start.end() : declarations.find("\n};", start.end())]
        members = dict(reversed(_MEMBER.findall(body)))
        if not name.startswith("SDKControl") and (line := members.get("type")):
            subtype = members.get("subtype")
            found |= _words(system=[subtype]) if line == "system" and subtype else _words(line=[line])
    return found


def _constants(schema: Mapping[str, Json]) -> set[str]:
    return {schema["const"]} if "const" in schema else set(schema.get("enum", ()))


def _run(argv: list[str], scratch: str) -> str:
    env = {"HOME": scratch, "PATH": path_with_node(), "OPENCODE_DISABLE_MODELS_FETCH": "1"}
    done = run_blocking(argv, cwd=scratch, env=env, timeout=PATIENCE)
    if done.code:
        raise SystemExit(f"{' '.join(argv)} ended with {done.code}: {done.complaint[-500:].decode('utf-8', 'replace')}")
    return done.out.decode()


PRINTED: dict[str, tuple[Callable[[str], set[str]], Callable[[], set[str]]]] = {
    "codex": (named_by_codex, known_codex),
    "opencode": (named_by_opencode, known_opencode),
}
"""The agents whose program prints its schema: what it names, and what we know."""


def drift(agent: str, executable: str) -> list[str]:
    """What the installed program names and we do not know."""
    named, known = PRINTED[agent]
    return sorted(named(executable) - known())


def main(agents: list[str]) -> int:
    unknown = 0
    for agent in agents or PRINTED:
        executable = find_cli(agent)
        if executable is None:
            print(f"{agent}: not installed: run make clis", file=sys.stderr)
            continue
        words = drift(agent, str(executable))
        unknown += len(words)
        print(f"{agent}: {', '.join(words) or 'everything is known'}")
    return 1 if unknown else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
