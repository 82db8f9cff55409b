"""The app as a whole, over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from podium.service.views import Wanted


def test_a_session_runs_while_the_server_does(serve: Any, script: Callable[..., str]) -> None:
    async def main() -> list[str]:
        async with serve() as server:
            view = await server.service.create(Wanted(prompt=script([{"say": "Hello"}]), agent="understudy"))
            return [record.type async for batch in server.service.follow(view.id, 0) for record in batch]

    kinds = asyncio.run(main())
    assert (kinds[0], kinds[-1]) == ("init", "done")


def test_the_server_in_a_thread_answers(server: Any) -> None:
    assert server.http.get("/nothing-there").status_code == 404
