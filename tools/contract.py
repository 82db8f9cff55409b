"""Run the permission contract with the real CLIs and write what happened into the docs: ``make contract``.

    python -m tools.contract [--clis FOLDER] [--oldest | --newest] [--core] [--stance NAME] [--page] [AGENT[:DRIVER] …]

Every agent is played in the newest and the oldest version that we accept; what is missing is installed into the folder.
What ran is kept in ``docs/contract.json`` and shown by ``docs/permissions.md`` (``--page``: only write the page).
A cell that breaks its promise is printed, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from stagedoor import catalog
from stagedoor.testing.clis import find_cli, installed_cli, npm_install
from stagedoor.testing.contract.deeds import DEEDS, MEANING
from stagedoor.testing.contract.stances import SCENES, Scene
from stagedoor.testing.contract.trial import Player, Row
from stagedoor.testing.environment import scripted_agents

RESULTS = Path("docs/contract.json")
PAGE = Path("docs/permissions.md")
MARK = "## What every agent really does"
AT_ONCE = 2


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What one version of an agent did with one driver."""

    agent: str
    driver: str
    version: str
    date: str
    rows: list[Row]


def load(path: Path = RESULTS) -> list[Result]:
    return msgspec.json.decode(path.read_bytes(), type=list[Result]) if path.exists() else []


def save(results: Iterable[Result], path: Path = RESULTS) -> None:
    order = {name: number for number, name in enumerate(catalog.names())}
    ordered = sorted(
        results,
        key=lambda result: (order[result.agent], _drivers(result.agent).index(result.driver), _numbers(result.version)),
    )
    path.write_bytes(msgspec.json.format(msgspec.json.encode(ordered), indent=1) + b"\n")


def _drivers(agent: str) -> list[str]:
    return list(catalog.agent(agent).drivers)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


# ------------------------------------------------------------------------------------------------------- running


def program(agent: str, version: str, clis: Path) -> str:
    """The program in this version, installed when it is missing."""
    package = catalog.agent(agent).package
    assert package is not None
    if version == package.version and (found := find_cli(agent)) is not None:
        return str(found)
    folder = (clis / "accepted" / f"{agent}-{version}").absolute()
    if installed_cli(folder, agent) is None:
        print(f"installing {package.name} {version} into {folder}", flush=True)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text('{"private": true}\n')
        npm_install(folder, "--save-exact", f"{package.name}@{version}", clis=clis)
    executable = installed_cli(folder, agent)
    assert executable is not None, f"{package.name} {version} brings no program {agent}"
    return executable


async def play(
    agent: str, driver: str, version: str, executable: str, scenes: Iterable[Scene], places: asyncio.Semaphore
) -> Result:
    player = Player(agent, driver, executable)
    rows: list[Row] = []
    for scene in scenes:
        async with places:
            try:
                rows += await player.play(scene)
            except Exception as fault:  # it is told as a broken promise, and the others go on
                rows += [
                    Row(stance=stance.name, complaints=(f"{type(fault).__name__}: {fault}"[:1000],))
                    for stance in scene.stances
                ]
        for row in rows[-len(scene.stances) :]:
            for complaint in row.complaints:
                print(f"RED {agent} {version} {driver}, {row.stance}: {complaint}", flush=True)
    print(f"{agent} {version} {driver}: {len(rows)} stances", flush=True)
    return Result(agent=agent, driver=driver, version=version, date=time.strftime("%Y-%m-%d"), rows=rows)


def chosen(names: list[str], *, oldest: bool, newest: bool) -> Iterator[tuple[str, str, str]]:
    for agent in scripted_agents():
        entry = catalog.agent(agent)
        assert entry.versions is not None
        installed = [entry.package.version] if entry.package is not None else []  # what make clis brings
        versions = [entry.versions.newest, *installed] * newest + [entry.versions.oldest] * oldest
        for version in dict.fromkeys(versions):
            for driver in entry.drivers:
                if not names or agent in names or f"{agent}:{driver}" in names:
                    yield agent, driver, version


async def run(plays: list[tuple[str, str, str]], clis: Path, scenes: list[Scene]) -> list[Result]:
    programs = {(agent, version): program(agent, version, clis) for agent, _, version in plays}
    places = asyncio.Semaphore(AT_ONCE)
    return await asyncio.gather(
        *(play(agent, driver, version, programs[agent, version], scenes, places) for agent, driver, version in plays)
    )


# ------------------------------------------------------------------------------------------------------ the page

SIGNS = {
    "runs": "it happened, and nobody was asked",
    "asked": "`can_use_tool` was asked and allowed it, and it happened",
    "stopped": "`can_use_tool` allowed it, and the agent's own sandbox stopped it or there was nothing to reach",
    "denied": "`can_use_tool` was asked and did not allow it in time, and it did not happen",
    "refused": "it did not happen, and nobody was asked",
    "withheld": "the model was not offered the tool, and a call of it all the same did nothing",
}

INTRODUCTION = """\
Made by `make contract` from what ran: the real programs, on a scripted model that tries every kind of call, one after
the other. Whether it happened is read from the disk, from a server that counts who comes, and from what the model was
sent next.
"""
REMARKS = """\
Sandboxes and lists are tried with tier `autonomous`, policies as `default:` over tier `autonomous` (`policy allows`:
over approval `ask`). In the rows of resumed, forked and remembered sessions every question is denied. A search that a
vendor does by itself counts as run when the model was offered it."""


def page(results: list[Result]) -> Iterator[str]:
    yield MARK
    yield ""
    yield INTRODUCTION
    yield "| column | what the model tries |"
    yield "|---|---|"
    yield from (f"| {deed} | {MEANING[deed]} |" for deed in DEEDS)
    yield ""
    yield "| cell | what happened |"
    yield "|---|---|"
    yield from (f"| {sign} | {meaning} |" for sign, meaning in SIGNS.items())
    yield ""
    yield REMARKS
    for agent in dict.fromkeys(result.agent for result in results):
        yield ""
        yield f"### {catalog.agent(agent).title}"
        for driver in _drivers(agent):
            yield from _table([result for result in results if (result.agent, result.driver) == (agent, driver)])


def _table(results: list[Result]) -> Iterator[str]:
    if not results:
        return
    *older, newest = results
    yield ""
    yield f"**`{newest.driver}`**, version {newest.version}, {newest.date}:"
    yield ""
    yield f"| | {' | '.join(DEEDS)} |"
    yield f"|---|{'---|' * len(DEEDS)}"
    for row in newest.rows:
        if not row.unsupported:
            yield f"| {row.stance} | {' | '.join(row.outcomes.get(deed, '') for deed in DEEDS)} |"
    unsupported = [row.stance for row in newest.rows if row.unsupported]
    if unsupported:
        yield ""
        yield f"`NotSupported`, before anything starts: {', '.join(unsupported)}."
    for other in older:
        yield ""
        yield f"Version {other.version}, {other.date}: {_differences(other, newest)}."


def _differences(other: Result, newest: Result) -> str:
    rows = {row.stance: row for row in newest.rows}
    differing = [
        f"{row.stance}: {deed} {outcome}"
        for row in other.rows
        if row.stance in rows
        for deed, outcome in row.outcomes.items()
        if rows[row.stance].outcomes.get(deed) != outcome
    ]
    return f"the same but for {'; '.join(differing)}" if differing else "the same"


def written(text: str, results: list[Result]) -> str:
    """The page with its last section made new."""
    head, _, _ = text.partition(f"\n{MARK}\n")
    return head.rstrip() + "\n\n" + "\n".join(page(results)) + "\n"


def scenes_of(stances: list[str], *, core: bool) -> list[Scene]:
    return [scene for scene in SCENES if (scene.core or not core) and (not stances or scene.name in stances)]


def merged(kept: Iterable[Result], fresh: Iterable[Result]) -> list[Result]:
    """What was seen before, with the rows that were played again in their place."""
    results = {(result.agent, result.driver, result.version): result for result in kept}
    order = [stance.name for scene in SCENES for stance in scene.stances]
    for result in fresh:
        key = (result.agent, result.driver, result.version)
        rows = {row.stance: row for row in (results[key].rows if key in results else [])}
        rows |= {row.stance: row for row in result.rows}
        ordered = sorted((row for name, row in rows.items() if name in order), key=lambda row: order.index(row.stance))
        results[key] = msgspec.structs.replace(result, rows=ordered)
    return list(results.values())


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.contract", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="AGENT[:DRIVER]")
    parser.add_argument("--clis", type=Path, default=Path(".clis"))
    parser.add_argument("--oldest", action="store_true", help="only the oldest accepted versions")
    parser.add_argument("--newest", action="store_true", help="only the newest accepted versions")
    parser.add_argument("--core", action="store_true", help="only what stagedoor doctor --deep plays")
    parser.add_argument("--stance", action="append", help="only the scene that begins with this stance")
    parser.add_argument("--page", action="store_true", help="only write the page again")
    arguments = parser.parse_args()
    fresh: list[Result] = []
    if not arguments.page:
        both = arguments.oldest == arguments.newest
        plays = list(chosen(arguments.names, oldest=both or arguments.oldest, newest=both or arguments.newest))
        fresh = asyncio.run(run(plays, arguments.clis, scenes_of(arguments.stance or [], core=arguments.core)))
    accepted = set(chosen([], oldest=True, newest=True))
    kept = [result for result in load() if (result.agent, result.driver, result.version) in accepted]
    save(merged(kept, fresh))
    PAGE.write_text(written(PAGE.read_text(), load()))
    red = sum(len(row.complaints) for result in fresh for row in result.rows)
    print(f"{red} promises were broken" if red else "every promise was kept")
    return 1 if red else 0


if __name__ == "__main__":
    sys.exit(main())
