"""Whatever is sent, the answer is one the description names: never a 500, never a dead server."""

from __future__ import annotations

import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as examples
from hypothesis import strategies as some

from stagedoor.server.rest.door import OPERATIONS
from stagedoor.service.config.settings import AgentSettings, Settings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import schemathesis
    from schemathesis.config import SchemathesisConfig
    from schemathesis.generation import GenerationMode

RULES = Path(__file__).parents[2] / "schemathesis.toml"
ENDLESS = {"streamEvents", "pollEvents"}
BOUNDED = examples(
    max_examples=8,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],
)


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """No real agent is started by chance."""
    from msgspec.structs import replace

    from stagedoor import catalog

    off = {name: AgentSettings(enabled=False) for name in catalog.names() if name != "understudy"}
    return replace(settings, agents={**settings.agents, **off})


def test_schemathesis_finds_nothing(server: Any, script: Any) -> None:
    made = server.http.post("/api/sessions", json={"prompt": script([{"say": "Hello"}])}).json()["id"]
    schema = schemathesis.openapi.from_dict(
        server.http.get("/openapi.json").json(), config=SchemathesisConfig.from_path(RULES)
    )
    schema.config.base_url = server.url
    tried: Counter[str] = Counter()
    for result in schema.get_all_operations():
        operation = result.ok()
        name = operation.definition.raw["operationId"]
        if name in ENDLESS:
            continue
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            for path in (None, {"sessionId": made}):
                if path is not None and "{sessionId}" not in operation.path:
                    continue

                @BOUNDED
                @given(case=operation.as_strategy(generation_mode=mode, path_parameters=path))
                def check(case: Any) -> None:
                    tried[case.operation.label] += 1
                    query = case.query or {}
                    positive = mode is GenerationMode.POSITIVE  # noqa: B023 (it is called at once)
                    if positive and query.get("cursor") and query.get("offset"):
                        del query["offset"]  # that it is one or the other cannot be said in a schema
                    case.call_and_validate(base_url=server.url, headers=server.headers)

                check()
    assert len(tried) == len(OPERATIONS) - len(ENDLESS)
    assert server.http.get("/api/me").status_code == 200


BODIES = some.one_of(
    some.binary(max_size=200),
    some.recursive(
        some.none() | some.booleans() | some.integers() | some.floats() | some.text(some.characters(codec=None)),
        lambda inner: some.lists(inner) | some.dictionaries(some.text(some.characters(codec=None)), inner),
        max_leaves=6,
    ).map(lambda value: _json(value)),
    some.fixed_dictionaries(
        {"prompt": some.text()},
        optional={
            "agent": some.sampled_from(["understudy", "", "none"]),
            "timeout": some.floats() | some.integers(),
            "permissionTimeout": some.floats() | some.integers(),
            "maxTurns": some.integers(),
            "maxBudgetUsd": some.floats(),
            "cwd": some.text() | some.sampled_from(["~", "~nobody", "..", "/", ".", "a" * 5000]),
            "projectId": some.text() | some.sampled_from(["..", "/", "", "workspace"]),
            "model": some.text(),
            "driver": some.text(),
            "tier": some.sampled_from(["dry-run", "autonomous", "none"]),
            "outputSchema": some.dictionaries(some.text(), some.none() | some.integers()),
            "worktree": some.booleans(),
            "autoApprove": some.lists(some.text()),
        },
    ).map(lambda value: _json(value)),
)


def _json(value: Any) -> bytes:
    import json

    return json.dumps(value).encode("utf-8", "surrogatepass")


def test_raw_bodies_never_break_the_server(server: Any) -> None:
    posts = [one for one in OPERATIONS if one.method in ("POST", "PATCH") and one.bodies]
    answers: Counter[int] = Counter()

    @examples(BOUNDED, max_examples=150)
    @given(body=BODIES, which=some.sampled_from(posts), media=some.sampled_from(["application/json", "text/x"]))
    def check(body: bytes, which: Any, media: str) -> None:
        path = which.path.replace("{sessionId}", "none").replace("{questionId}", "a:b").replace("{requestId}", "b")
        answer = server.http.request(which.method, path, content=body, headers={"content-type": media})
        answers[answer.status_code] += 1
        assert answer.status_code < 500, (path, body, answer.text)
        if answer.status_code >= 400:
            assert answer.json()["status"] == answer.status_code

    check()
    assert {400, 415} <= set(answers)
    assert server.http.get("/api/me").status_code == 200


def test_raw_bytes_for_requests_never_break_the_server(server: Any) -> None:
    """Paths and queries as no client would write them."""
    odd = some.sampled_from(
        ["%00", "%ff", "%ed%a0%80", "%2F", "..", ".", "%", "a" * 3000, "%c3%a9", "+", ":", "~", "\\", "{", "//"]
    )

    @examples(BOUNDED, max_examples=120)
    @given(
        pieces=some.lists(odd | some.text("abc0:/", min_size=1), max_size=4),
        query=some.lists(
            some.tuples(
                some.sampled_from(["limit", "offset", "after", "dialect", "x", "%ff", ""]), odd | some.text("019-e.")
            )
        ),
        method=some.sampled_from(["GET", "HEAD", "DELETE", "POST", "PUT", "OPTIONS", "FOO"]),
    )
    def check(pieces: list[str], query: list[tuple[str, str]], method: str) -> None:
        path = "/api/sessions/" + "/".join(pieces)
        query_string = "&".join(f"{name}={value}" for name, value in query)
        url = httpx.URL(server.url).copy_with(raw_path=f"{path}?{query_string}".encode())
        answer = server.http.request(method, url)
        assert answer.status_code < 500, (method, url, answer.text)

    check()
    assert server.http.get("/api/me").status_code == 200
