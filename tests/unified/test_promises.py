"""A tier is a promise: what nobody can keep is refused before anything is started."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from stagedoor import catalog
from stagedoor.drivers.acp.opening import CAPABILITIES as ANY_ACP_AGENT
from stagedoor.errors import NotSupported
from stagedoor.unified.capabilities import Capabilities, require
from stagedoor.unified.options import Options

CONFINABLE = replace(ANY_ACP_AGENT, confine=True, sandbox=("none", "readOnly", "workspaceWrite"))
KEEPS_ALL = Capabilities(sandbox=("none", "readOnly", "workspaceWrite", "fullAccess"), confine=True)

CASES: list[tuple[str, Capabilities, dict[str, Any], str]] = [
    ("an unknown agent may act unasked", ANY_ACP_AGENT, {}, "tier='supervised' cannot be promised"),
    ("an approval mode is a promise too", ANY_ACP_AGENT, {"approval": "ask"}, "approval='ask' cannot be promised"),
    ("unsupervised it may run", ANY_ACP_AGENT, {"tier": "autonomous"}, ""),
    ("so it may with every call approved", ANY_ACP_AGENT, {"approval": "autoAll"}, ""),
    ("an autonomous one that shall ask", ANY_ACP_AGENT, {"tier": "autonomous", "approval": "ask"}, "may act without"),
    ("nothing keeps its dry run", ANY_ACP_AGENT, {"tier": "dry-run"}, "use another agent"),
    ("the system can keep its dry run", CONFINABLE, {"tier": "dry-run"}, "add confine='read-only'"),
    ("the system keeps its dry run", CONFINABLE, {"tier": "dry-run", "confine": "read-only"}, ""),
    ("readOnly is the same promise", CONFINABLE, {"sandbox": "readOnly"}, "sandbox='readOnly' cannot be promised"),
    ("where it writes is not what it asks", CONFINABLE, {"confine": "workspace"}, "tier='supervised' cannot be"),
    ("confined and autonomous", CONFINABLE, {"confine": "workspace", "tier": "autonomous"}, ""),
    ("nobody knows its folders", ANY_ACP_AGENT, {"confine": "workspace", "tier": "autonomous"}, "cannot be confined"),
    ("more room than there is", KEEPS_ALL, {"confine": "read-only", "sandbox": "workspaceWrite"}, "contradict"),
    ("all the room", KEEPS_ALL, {"confine": "workspace", "sandbox": "fullAccess"}, "contradict"),
    ("the same room", KEEPS_ALL, {"confine": "workspace", "sandbox": "workspaceWrite"}, ""),
    ("less room", KEEPS_ALL, {"confine": "workspace", "sandbox": "readOnly"}, ""),
]


@pytest.mark.parametrize(
    ("capabilities", "options", "refusal"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_a_promise_that_cannot_be_kept_is_refused(
    capabilities: Capabilities, options: dict[str, Any], refusal: str
) -> None:
    if not refusal:
        require(Options(**options), capabilities, agent="anyone", driver="acp")
        return
    with pytest.raises(NotSupported) as error:
        require(Options(**options), capabilities, agent="anyone", driver="acp")
    assert refusal in str(error.value)


@pytest.mark.parametrize("name", catalog.names())
def test_no_refusal_names_a_sandbox_that_is_refused_too(name: str) -> None:
    for driver in catalog.agent(name).drivers.values():
        for confine in ("off", "workspace", "read-only"):
            for sandbox in ("none", "readOnly", "workspaceWrite", "fullAccess"):
                try:
                    require(
                        Options(sandbox=sandbox, confine=confine), driver.capabilities, agent=name, driver=driver.name
                    )
                except NotSupported as refusal:
                    _, _, offered = str(refusal).partition("it offers: ")
                    for mode in offered.partition(";")[0].split(", ") if offered else ():
                        options = Options(sandbox=mode, confine=confine)  # type: ignore[arg-type]
                        require(options, driver.capabilities, agent=name, driver=driver.name)
