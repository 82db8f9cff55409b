"""What the tests cover, by room: ``make coverage``. Reads ``.coverage``; prints lines and branches, the worst last."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

LEAST_COVERED = 15


def main() -> int:
    target = Path(".coverage.json")
    command = [sys.executable, "-m", "coverage", "json", "-q", "-o", str(target)]
    subprocess.run(command, check=True)
    report: dict[str, Any] = json.loads(target.read_text())
    target.unlink()
    rooms: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for name, entry in report["files"].items():
        rooms["/".join(Path(name).parts[2:3])].append(entry["summary"])
    print(f"{'room':<24}{'lines':>8}{'covered':>9}{'branches':>10}{'covered':>9}")
    for room, summaries in sorted(rooms.items()):
        print(_row(room, summaries))
    print(_row("all", [entry["summary"] for entry in report["files"].values()]))
    worst = sorted(report["files"].items(), key=lambda pair: pair[1]["summary"]["percent_covered"])[:LEAST_COVERED]
    print("\nleast covered (the lines that no test without a CLI reaches):")
    for name, entry in worst:
        lines = ", ".join(map(str, entry["missing_lines"][:12]))
        more = "…" if len(entry["missing_lines"]) > 12 else ""
        print(f"{entry['summary']['percent_covered']:5.1f} %  {name}: {lines}{more}")
    return 0


def _row(room: str, summaries: list[dict[str, Any]]) -> str:
    lines, covered, branches, taken = (
        sum(summary[key] for summary in summaries)
        for key in ("num_statements", "covered_lines", "num_branches", "covered_branches")
    )
    return f"{room:<24}{lines:>8}{_percent(covered, lines):>9}{branches:>10}{_percent(taken, branches):>9}"


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


if __name__ == "__main__":
    sys.exit(main())
