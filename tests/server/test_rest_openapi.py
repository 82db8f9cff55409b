"""The description is the table's and the table is the server's; the page that shows it asks nobody else."""

from __future__ import annotations

import re
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from starlette.routing import Route

from stagedoor.server.problems import KINDS, REFUSALS, InvalidField, RefusedRequest, kind_of, problem, rpc_error
from stagedoor.server.rest.door import OPERATIONS, routes
from stagedoor.service.config.settings import Settings
from stagedoor.service.service import Service


def _shape(path: str) -> str:
    return re.sub(r"\{\w+(:\w+)?\}", "{}", path)


def test_every_path_is_described_and_answered(server: Any, tmp_path: Any) -> None:
    from stagedoor.server.app import create_app

    described = server.http.get("/openapi.json").json()["paths"]
    app = create_app(Service(Settings(home=str(tmp_path / "other"), roots=(str(tmp_path),))), token="t")
    answered = {_shape(one.path) for one in app.routes if isinstance(one, Route) and one.path.startswith("/api/")}
    assert {_shape(path) for path in described} == answered


def test_the_description_is_sound(server: Any) -> None:
    described = server.http.get("/openapi.json").json()
    schemas = described["components"]["schemas"]
    used = set(re.findall(r'"#/components/schemas/([^"]+)"', server.http.get("/openapi.json").text))
    assert used <= set(schemas)
    for schema in schemas.values():
        Draft202012Validator.check_schema(schema)
    names = [operation["operationId"] for path in described["paths"].values() for operation in path.values()]
    assert len(names) == len(set(names)) == len(OPERATIONS)


def test_events_are_as_described(server: Any, script: Any) -> None:
    prompt = script([{"think": "hm"}, {"say": "One"}, {"shell": "true"}], [{"say": "Two"}])
    made = server.http.post("/api/sessions", json={"prompt": prompt, "approval": "autoAll"}).json()
    after, all_events = 0, []
    while True:
        page = server.http.get(f"/api/sessions/{made['id']}/poll?after={after}").json()
        all_events += page["events"]
        after = page["lastSeq"]
        if page["ended"]:
            break
    described = server.http.get("/openapi.json").json()
    schema = {"$ref": "#/components/schemas/Event", "components": described["components"]}
    validator = Draft202012Validator(schema)
    assert len({event["type"] for event in all_events}) > 6
    for event in all_events:
        validator.validate(event)


def test_the_docs_page_asks_nobody_else(server: Any) -> None:
    for path, media in (("/docs", "text/html"), ("/docs/docs.js", "text/javascript"), ("/docs/docs.css", "text/css")):
        answer = server.http.get(path, headers={"authorization": ""})
        assert (answer.status_code, answer.headers["content-type"].partition(";")[0]) == (200, media)
        policy = dict(part.strip().partition(" ")[::2] for part in answer.headers["content-security-policy"].split(";"))
        assert (policy["default-src"], policy["script-src"]) == ("'none'", "'self'")
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert not re.search(r"https?://", answer.text)
        assert "innerHTML" not in answer.text


def test_openapi_and_docs_need_no_token_and_nothing_else_does_without(server: Any) -> None:
    import httpx

    with httpx.Client(base_url=server.url, timeout=240) as stranger:
        for path in ("/openapi.json", "/docs"):
            assert stranger.get(path).status_code == 200
        for one in OPERATIONS:
            if one.scope is not None:
                answer = stranger.request(one.method, re.sub(r"\{\w+\}", "x", one.path))
                assert (answer.status_code, answer.json()["status"]) == (401, 401), one.name


@pytest.mark.parametrize("fault", [*KINDS], ids=lambda fault: fault.__name__)
def test_every_fault_is_told(fault: type[Exception]) -> None:
    one = fault("what to do next")
    kind = kind_of(one)
    body = problem(one, instance="/here")
    assert (body.status, body.detail, body.instance) == (kind.status, "what to do next", "/here")
    assert rpc_error(one)[:2] == (kind.code, "what to do next")
    assert kind.status in (400, 403, 404, 409, 410, 413, 429, 502, 503)


def test_our_own_mistakes_tell_nothing() -> None:
    body = problem(RuntimeError("the password is x"))
    assert (body.status, "password" in body.detail) == (500, False)
    assert rpc_error(RuntimeError("x"))[0] == -32603


def test_each_refusal_is_its_kind() -> None:
    assert {kind_of(RefusedRequest(slug, "x")).slug for slug in REFUSALS} == set(REFUSALS)
    assert problem(InvalidField("x", field="$.a")).field == "$.a"


def test_every_route_is_made_once(tmp_path: Any) -> None:
    made = [one.path for one in routes(Service(Settings(home=str(tmp_path)))) if isinstance(one, Route)]
    assert len(made) == len(set(made))
