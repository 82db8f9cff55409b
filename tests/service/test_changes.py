"""What the server is told, and the rows a change of it leaves."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from stagedoor.service.config.settings import AgentSettings, Settings
from stagedoor.service.service import Service
from stagedoor.service.store import ConfigChange
from stagedoor.unified.events import ToolUse

RULES = "rules:\n  - {tool: shell, action: %s}\n"


def test_a_start_with_other_settings_leaves_a_row_for_each(tmp_path: Path) -> None:
    settings = Settings(home=str(tmp_path / "home"), roots=(str(tmp_path),))
    other = {"OPENAI_API_KEY": "sk-very-secret"}
    changed = Settings(
        home=str(tmp_path / "home"),
        roots=(str(tmp_path),),
        tier="dry-run",
        agents={"codex": AgentSettings(model="large", env=other)},
    )

    async def main() -> list[ConfigChange]:
        for one in (settings, settings, changed):
            async with Service(one, now=lambda: 7) as service:
                rows = await service._store.config_changes()
        return rows

    rows = asyncio.run(main())
    report = {(row.who, row.name): (row.before, row.after) for row in rows}
    assert report["start", "tier"] == ('"supervised"', '"dry-run"')
    assert report["start", "agents.codex.model"] == ("", '"large"')
    assert report["start", "agents.codex.env"] == ("", "1 values: OPENAI_API_KEY")
    assert "very-secret" not in repr(rows)
    assert all(row.at == 7 and row.name.startswith(("tier", "agents.codex.")) for row in rows)


def test_a_policy_that_changes_while_it_is_used_leaves_a_row(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(RULES % "ask")
    settings = Settings(home=str(tmp_path / "home"), roots=(str(tmp_path),), policy=str(policy))
    call = ToolUse(tool_use_id="1", name="shell", operation="execute", input={"command": "ls"})

    async def main() -> Any:
        async with Service(settings, now=lambda: 7) as service:
            assert service.policy is not None
            before = service.policy.decide(call, str(tmp_path)).action
            policy.write_text(RULES % "deny")
            os.utime(policy, ns=(1, 1))
            after = service.policy.decide(call, str(tmp_path)).action
            await service._changes.finish()
            return before, after, await service._store.config_changes()

    before, after, rows = asyncio.run(main())
    assert (before, after) == ("ask", "deny")
    assert rows == [
        ConfigChange(
            at=7, who="file", name="policy (its text)", before=RULES % "ask", after=RULES % "deny", n=rows[0].n
        )
    ]
