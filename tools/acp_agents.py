"""Install programs of others that speak the Agent Client Protocol, for ``tests/live/test_other_acp_agents.py``.

    python -m tools.acp_agents [FOLDER]

The wrappers of Claude and Codex come from npm, the example agents of the Python SDK from its source package on PyPI.
What is already there in the right version is not fetched again.
"""

from __future__ import annotations

import json
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path

from stagedoor.testing.clis import InstallFailed, npm_install, pip

WRAPPERS = {
    "@agentclientprotocol/claude-agent-acp": "0.49.0",
    "@agentclientprotocol/codex-acp": "2.6.0",
    "@zed-industries/codex-acp": "0.16.0",
}
SDK = "agent-client-protocol"
SDK_VERSION = "0.12.1"


def folder_in(clis: Path) -> Path:
    return clis / "acp-agents"


def examples_in(clis: Path) -> Path:
    """The example agents of the Python SDK."""
    return folder_in(clis) / f"{SDK}-{SDK_VERSION}"


def install(clis: Path) -> None:
    folder = folder_in(clis.absolute())
    folder.mkdir(parents=True, exist_ok=True)
    if any(_version(folder, name) != version for name, version in WRAPPERS.items()):
        (folder / "package.json").write_text('{"private": true}\n')
        npm_install(folder, "--save-exact", *(f"{name}@{version}" for name, version in WRAPPERS.items()), clis=clis)
    if not examples_in(clis).is_dir():
        _fetch_examples(examples_in(clis.absolute()))


def _version(folder: Path, name: str) -> str:
    manifest = folder / "node_modules" / name / "package.json"
    return str(json.loads(manifest.read_text())["version"]) if manifest.exists() else ""


def _fetch_examples(target: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        pip("download", "--no-deps", f"--no-binary={SDK}", "-d", folder, f"{SDK}=={SDK_VERSION}")
        [archive] = Path(folder).glob("*.tar.gz")
        with tarfile.open(archive) as package:
            package.extractall(folder, filter="data")
        [examples] = Path(folder).glob("*/examples")
        shutil.copytree(examples, target)


def main() -> int:
    try:
        install(Path(sys.argv[1] if len(sys.argv) > 1 else ".clis"))
    except InstallFailed as fault:
        print(fault, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
