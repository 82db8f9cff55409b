"""What has changed in the newest version of every agent: ``make drift``.

    python -m tools.drift [--clis FOLDER] [--no-contract] [--page] [AGENT …]

Installs the newest version that the registry has into a folder of its own, compares the schemas it publishes with what
we know, and plays the core of the permission contract with it. What came of it is kept in ``docs/drift.json`` and shown
by ``docs/versions.md`` (``--page``: only write the page). The exit code is 1 when something is unknown or broken.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from stagedoor import catalog
from stagedoor.testing.clis import InstallFailed, newest_version, npm_install
from stagedoor.testing.environment import scripted_agents

from . import contract, schemas

DOCS = Path(__file__).resolve().parent.parent / "docs"
REPORT = DOCS / "drift.json"
PAGE = DOCS / "versions.md"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen of one program or package. ``unknown``: words of its schema; ``broken``: promises."""

    name: str
    version: str
    date: str
    unknown: list[str] = []
    stances: int = 0
    """Of the core of the contract, over all its drivers; 0: it was not played."""
    broken: list[str] = []


def _acp(folder: Path) -> set[str]:
    schema = folder / "schema" / "v1" / "schema.unstable.json"
    return schemas.named_by_acp(json.loads(schema.read_text())) - schemas.known_acp()


def _claude(folder: Path) -> set[str]:
    return schemas.named_by_claude((folder / "sdk.d.ts").read_text()) - schemas.known_claude()


PUBLISHED: dict[str, Callable[[Path], set[str]]] = {
    "@agentclientprotocol/sdk": _acp,
    "@anthropic-ai/claude-agent-sdk": _claude,
}
"""npm packages that publish a schema: what each of them names and we do not know."""


def load() -> list[Finding]:
    return msgspec.json.decode(REPORT.read_bytes(), type=list[Finding]) if REPORT.exists() else []


def save(findings: Iterable[Finding]) -> None:
    merged = {finding.name: finding for finding in [*load(), *findings]}
    ordered = sorted(merged.values(), key=lambda finding: finding.name)
    REPORT.write_bytes(msgspec.json.format(msgspec.json.encode(ordered), indent=1) + b"\n")


def packaged() -> list[str]:
    """The agents whose program the registry has."""
    return [name for name in catalog.names() if catalog.agent(name).package is not None]


def look_at_agent(agent: str, clis: Path, *, play: bool) -> Finding:
    package = catalog.agent(agent).package
    assert package is not None
    version = newest_version(package.name, clis)
    executable = contract.program(agent, version, clis)
    unknown = schemas.drift(agent, executable) if agent in schemas.PRINTED else []
    results: list[contract.Result] = []
    if play and agent in scripted_agents():
        plays = [(agent, driver, version) for driver in catalog.agent(agent).drivers]
        results = asyncio.run(contract.run(plays, clis, contract.scenes_of([], core=True)))
    return Finding(
        name=agent,
        version=version,
        date=time.strftime("%Y-%m-%d"),
        unknown=unknown,
        stances=sum(len(result.rows) for result in results),
        broken=[
            f"{result.driver}, {row.stance}: {complaint}"
            for result in results
            for row in result.rows
            for complaint in row.complaints
        ],
    )


def look_at_package(name: str, clis: Path) -> Finding:
    folder = clis / "schemas"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "package.json").write_text('{"private": true}\n')
    npm_install(folder, "--ignore-scripts", "--omit=optional", "--omit=peer", f"{name}@latest", clis=clis)
    place = folder / "node_modules" / name
    version = json.loads((place / "package.json").read_text())["version"]
    return Finding(name=name, version=version, date=time.strftime("%Y-%m-%d"), unknown=sorted(PUBLISHED[name](place)))


# --------------------------------------------------------------------------------------------------------- the page


def page(findings: list[Finding]) -> str:
    return "\n".join(_page({finding.name: finding for finding in findings})) + "\n"


def _page(findings: dict[str, Finding]) -> Iterator[str]:
    yield "# Versions"
    yield ""
    yield "Made from the code and from the last `make drift`: `python -m tools.drift --page`."
    yield ""
    yield "A version below *oldest* is refused. *Oldest* and *newest* have passed the whole permission contract;"
    yield "*pinned* is the one that `make clis` installs and all live tests drive. A newer one starts with a notice,"
    yield "until `stagedoor doctor --deep AGENT` has proven it on your machine."
    yield ""
    yield "| agent | package | oldest | pinned | newest |"
    yield "|---|---|---|---|---|"
    for name in packaged():
        agent = catalog.agent(name)
        assert agent.package is not None
        proven = agent.versions
        oldest, newest = (proven.oldest, proven.newest) if proven is not None else ("unproven", "unproven")
        yield f"| {agent.title} | `{agent.package.name}` | {oldest} | {agent.package.version} | {newest} |"
    yield ""
    yield "## What the registry had last"
    yield ""
    yield "`make drift` installs the newest of everything, compares the schemas they publish with what we type or call"
    yield "without meaning, and plays the core of the permission contract."
    yield ""
    yield "| what | version | looked at | words we do not know | contract |"
    yield "|---|---|---|---|---|"
    for name in [*packaged(), *PUBLISHED]:
        finding = findings.get(name)
        if finding is None:
            yield f"| `{name}` | | not yet | | |"
            continue
        played = f"{finding.stances} stances, {len(finding.broken)} broken" if finding.stances else "not played"
        words = ", ".join(f"`{word}`" for word in finding.unknown)
        words = words or ("none" if name in PUBLISHED or name in schemas.PRINTED else "prints no schema")
        yield (f"| `{name}` | {finding.version} | {finding.date} | {words} | {'' if name in PUBLISHED else played} |")
    for finding in findings.values():
        yield from (f"\n- `{finding.name}` {finding.version}: {broken}" for broken in finding.broken)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.drift", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="AGENT", help=f"of {', '.join(packaged())}; without any, all")
    parser.add_argument("--clis", type=Path, default=Path(".clis"))
    parser.add_argument("--no-contract", action="store_true", help="only versions and schemas")
    parser.add_argument("--page", action="store_true", help="only write the page again")
    arguments = parser.parse_args()
    findings: list[Finding] = []
    failed: list[str] = []
    if not arguments.page:
        for name in arguments.names or [*packaged(), *PUBLISHED]:
            try:
                if name in PUBLISHED:
                    findings.append(look_at_package(name, arguments.clis.absolute()))
                else:
                    findings.append(look_at_agent(name, arguments.clis.absolute(), play=not arguments.no_contract))
            except InstallFailed as fault:
                failed.append(f"{name}: {fault}")
                continue
            print(f"{name} {findings[-1].version}: {len(findings[-1].unknown)} unknown words", flush=True)
        save(findings)
    PAGE.write_text(page(load()))
    for words in [*failed, *(f"{one.name}: {word}" for one in findings for word in [*one.unknown, *one.broken])]:
        print(words)
    return 1 if failed or any(one.unknown or one.broken for one in findings) else 0


if __name__ == "__main__":
    sys.exit(main())
