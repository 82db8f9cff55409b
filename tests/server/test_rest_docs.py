"""The page about REST: its examples run, its tables are the code's. ``STAGEDOOR_BLESS=1`` writes the tables."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from stagedoor.server.problems import KINDS, REFUSALS, UNEXPECTED
from stagedoor.server.rest.door import OPERATIONS

PAGE = Path(__file__).parents[2] / "docs" / "rest.md"


def problems() -> str:
    kinds = {(kind.status, kind.slug, kind.title) for kind in (*KINDS.values(), *REFUSALS.values(), UNEXPECTED)}
    rows = [f"| {status} | `{slug}` | {title} |" for status, slug, title in sorted(kinds)]
    return "\n".join(["| status | `type`: `urn:stagedoor:problem:` … | |", "|---|---|---|", *rows])


def operations() -> str:
    rows = []
    for one in OPERATIONS:
        names = [] if one.query is None else list(one.query.__struct_encode_fields__)
        query = f"?{'&'.join(names)}" if names else ""
        rows.append(f"| {one.method} | `{one.path}{query}` | {one.summary} | {one.scope or 'none'} |")
    return "\n".join(["| | | | scope |", "|---|---|---|---|", *rows])


def test_the_tables_are_the_codes() -> None:
    text = PAGE.read_text()
    page_text = text
    for name, table in (("problems", problems()), ("operations", operations())):
        block = f"<!-- {name} -->\n{table}\n<!-- /{name} -->"
        page_text = re.sub(
            rf"<!-- {name} -->\n.*?<!-- /{name} -->", lambda _, block=block: block, page_text, flags=re.DOTALL
        )
    if os.environ.get("STAGEDOOR_BLESS"):
        PAGE.write_text(page_text)
    assert page_text == text or os.environ.get("STAGEDOOR_BLESS"), (
        "run this test with STAGEDOOR_BLESS=1 and read the diff"
    )


@pytest.mark.skipif(not (shutil.which("curl") and shutil.which("bash")), reason="the examples are for curl")
def test_the_examples_run(server: Any, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(server.token)
    script = "\n".join(re.findall(r"```bash\n(.*?)```", PAGE.read_text(), re.DOTALL))
    env = {"PATH": os.environ["PATH"], "URL": server.url, "STAGEDOOR_HOME": str(tmp_path), "HOME": str(tmp_path)}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script], env=env, capture_output=True, text=True, timeout=240, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert int(lines[0]) >= 1
    assert lines[1] == "{'type': 'allow', 'updatedInput': None, 'remember': 'once'}"
    assert lines[2] == "success"
    assert int(lines[3]) > 5
    assert lines[4:6] == ["queued", "ended"]
    assert len(lines[6]) == 36
    assert lines[7:] == ["made", lines[8], "1", lines[10], "The first one"]
