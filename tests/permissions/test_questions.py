"""The open questions of a session: any order, each once, closed when in doubt."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from stagedoor.errors import AlreadyAnswered
from stagedoor.permissions.audit import AuditEntry
from stagedoor.permissions.policy import Policy
from stagedoor.permissions.questions import NOBODY, SessionQuestions
from stagedoor.permissions.rules import Rule
from stagedoor.unified.decisions import Allow, Decision, Deny
from stagedoor.unified.events import Event, Notice, PermissionRequest, PermissionResolved

WORKSPACE = "/home/me/work"


def shell(command: str, request_id: str = "q1") -> PermissionRequest:
    return PermissionRequest(
        request_id=request_id, tool_name="shell", operation="execute", target=command, input={"command": command}
    )


class Stage:
    """What the questions said and recorded."""

    def __init__(self, **settings: Any) -> None:
        self.events: list[Event] = []
        self.audited: list[AuditEntry] = []
        self.rules: list[Rule] = []
        self.questions = SessionQuestions(
            emit=self.events.append,
            now=lambda: 1000,
            cwd=WORKSPACE,
            always=settings.pop("always", self.rules.append),
            audit=settings.pop("audit", self._keep),
            **settings,
        )

    async def _keep(self, entry: AuditEntry, now: int) -> None:
        self.audited.append(entry)

    @property
    def resolved(self) -> list[tuple[str, str, str]]:
        return [(e.request_id, e.decision, e.by) for e in self.events if isinstance(e, PermissionResolved)]


def run(main: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(240):
            await main()

    asyncio.run(bounded())


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0)


POLICY = Policy(
    rules=(
        Rule(action="allow", name="tests", command=("npm test *",)),
        Rule(action="deny", name="no push", command=("git push *",), message="a person pushes"),
    )
)


def test_the_policy_decides_without_asking() -> None:
    async def main() -> None:
        stage = Stage(policy=POLICY, callback=lambda request: pytest.fail("nobody is to be asked"))
        assert await stage.questions.ask(shell("npm test", "a")) == Allow()
        assert await stage.questions.ask(shell("git push -f", "b")) == Deny("a person pushes")
        assert stage.events == [
            replace(shell("npm test", "a"), automatic=True),
            PermissionResolved(request_id="a", decision="allow", by="policy", message="rule “tests” allows `npm test`"),
            replace(shell("git push -f", "b"), automatic=True),
            PermissionResolved(request_id="b", decision="deny", by="policy", message="a person pushes"),
        ]
        assert [(e.by, e.rule, e.decision) for e in stage.audited] == [
            ("rule", "tests", "allow"),
            ("rule", "no push", "deny"),
        ]

    run(main)


async def _slow(request: PermissionRequest) -> Decision:
    await asyncio.sleep(0)
    return Allow(updated_input={"command": "ls"})


class _Callable:
    async def __call__(self, request: PermissionRequest) -> Decision:
        return Deny("no")


def _broken(request: PermissionRequest) -> Decision:
    raise ValueError("oh")


async def _broken_later(request: PermissionRequest) -> Decision:
    raise ValueError("oh")


CALLBACKS: list[tuple[Any, Decision]] = [
    (lambda request: Allow(), Allow()),
    (lambda request: Deny("no", interrupt=True), Deny("no", interrupt=True)),
    (_slow, Allow(updated_input={"command": "ls"})),
    (lambda request: _slow(request), Allow(updated_input={"command": "ls"})),
    (_Callable(), Deny("no")),
    (_broken, Deny("the permission callback failed: ValueError('oh')")),
    (_broken_later, Deny("the permission callback failed: ValueError('oh')")),
    (lambda request: None, Deny("the permission callback returned None, which is neither Allow nor Deny")),
    (lambda request: True, Deny("the permission callback returned True, which is neither Allow nor Deny")),
]  # fmt: skip


@pytest.mark.parametrize(("callback", "decision"), CALLBACKS)
def test_the_callback_decides_and_a_broken_one_denies(callback: Any, decision: Decision) -> None:
    async def main() -> None:
        stage = Stage(policy=POLICY, callback=callback)
        assert await stage.questions.ask(shell("npm install")) == decision
        assert stage.resolved == [("q1", "allow" if isinstance(decision, Allow) else "deny", "callback")]
        assert stage.questions.open == []

    run(main)


def test_a_plain_callback_that_waits_stops_nothing_else() -> None:
    async def main() -> None:
        released = threading.Event()

        def ask(request: PermissionRequest) -> Decision:
            if request.request_id == "slow":
                released.wait(60)
            return Allow()

        stage = Stage(callback=ask)
        slow = asyncio.ensure_future(stage.questions.ask(shell("make", "slow")))
        assert await stage.questions.ask(shell("make", "quick")) == Allow()
        assert stage.questions.open == ["slow"]
        released.set()
        assert await slow == Allow()

    run(main)


def test_several_questions_in_any_order_and_none_twice() -> None:
    async def main() -> None:
        stage = Stage(attended=True)
        questions = [asyncio.ensure_future(stage.questions.ask(shell("make", name))) for name in "abc"]
        await until(lambda: len(stage.questions.open) == 3)
        stage.questions.answer("c", Allow())
        stage.questions.answer("a", Deny("no"))
        with pytest.raises(AlreadyAnswered):
            stage.questions.answer("c", Deny("too late"))
        stage.questions.answer("b", Allow())
        assert await asyncio.gather(*questions) == [Deny("no"), Allow(), Allow()]
        with pytest.raises(AlreadyAnswered):
            stage.questions.answer("a", Allow())
        assert sorted(stage.resolved) == [("a", "deny", "client"), ("b", "allow", "client"), ("c", "allow", "client")]
        assert {e.by for e in stage.audited} == {"person"}

    run(main)


def test_time_up_denies_and_a_late_answer_is_refused() -> None:
    async def main() -> None:
        stage = Stage(attended=True, timeout=0.01)
        assert await stage.questions.ask(shell("make")) == Deny("nobody answered within 0.01 s")
        assert stage.events[0] == PermissionRequest(
            request_id="q1",
            tool_name="shell",
            operation="execute",
            target="make",
            input={"command": "make"},
            expires_at=1010,
            remembered_as=[
                {"action": "allow", "tool": "shell", "command": "make", "folder": WORKSPACE, "risk": ["low", "medium"]}
            ],
        )
        assert stage.resolved == [("q1", "deny", "timeout")]
        with pytest.raises(AlreadyAnswered):
            stage.questions.answer("q1", Allow())

    run(main)


def test_an_interrupt_denies_everything_open() -> None:
    async def main() -> None:
        async def never(request: PermissionRequest) -> Decision:
            await asyncio.Event().wait()
            return Allow()

        stage = Stage(callback=never)
        questions = [asyncio.ensure_future(stage.questions.ask(shell("make", name))) for name in "ab"]
        await until(lambda: len(stage.questions.open) == 2)
        stage.questions.resolve_all("interrupt")
        assert await asyncio.gather(*questions) == [Deny("the turn was interrupted")] * 2
        assert stage.resolved == [("a", "deny", "interrupt"), ("b", "deny", "interrupt")]

    run(main)


def test_a_cancelled_question_is_closed_too() -> None:
    async def main() -> None:
        stage = Stage(attended=True)
        question = asyncio.ensure_future(stage.questions.ask(shell("make")))
        await until(lambda: stage.questions.open == ["q1"])
        question.cancel()
        with pytest.raises(asyncio.CancelledError):
            await question
        assert stage.resolved == [("q1", "deny", "interrupt")]

    run(main)


def test_without_anybody_to_ask_it_is_denied() -> None:
    async def main() -> None:
        stage = Stage(policy=POLICY)
        decision = await stage.questions.ask(shell("make"))
        assert decision == Deny(NOBODY)

    run(main)


REMEMBERED: list[tuple[PermissionRequest, PermissionRequest, bool]] = [
    (shell("npm install"), shell("npm install"), True),
    (shell("npm install"), shell("npm install left-pad"), False),
    (shell("npm install"), shell("npm run build"), False),
    (shell("npm install"), shell("npm install && rm x"), False),
    (shell("npm install"), shell("npm install > out.txt"), False),
    (shell("git push"), shell("git push origin main"), False),
    (shell("git push"), shell("git push --force"), False),
    (shell("rm -rf build"), shell("rm -rf build"), True),
    (shell("rm -rf build"), shell("rm -rf src"), False),
    (shell("rm *.pyc"), shell("rm a.pyc"), False),
    (shell("curl https://a.example"), shell("curl https://b.example"), False),
    (shell("python a.py"), shell("python b.py"), False),
    (shell("make > out.txt"), shell("make > out.txt"), True),
    (shell("make > out.txt"), shell("make > other.txt"), False),
    (shell("make $X"), shell("make $X"), False),
    (shell("make $X"), shell("make $Y"), False),
    (
        PermissionRequest(
            request_id="q", tool_name="edit_file", operation="write", target="a", input={"file_path": "a"}
        ),
        PermissionRequest(
            request_id="q", tool_name="edit_file", operation="write", target="a", input={"file_path": "a"}
        ),
        True,
    ),
    (
        PermissionRequest(
            request_id="q", tool_name="edit_file", operation="write", target="a", input={"file_path": "a"}
        ),
        PermissionRequest(
            request_id="q", tool_name="edit_file", operation="write", target="b", input={"file_path": "b"}
        ),
        False,
    ),
    (
        PermissionRequest(request_id="q", tool_name="mcp", native_name="mcp__a__b", target="x"),
        PermissionRequest(request_id="q", tool_name="mcp", native_name="mcp__a__b", target="y"),
        True,
    ),
    (
        PermissionRequest(request_id="q", tool_name="mcp", native_name="mcp__a__b", target="x"),
        PermissionRequest(request_id="q", tool_name="mcp", native_name="mcp__a__c", target="y"),
        False,
    ),
]


@pytest.mark.parametrize(("first", "second", "remembered"), REMEMBERED)
def test_what_is_remembered_for_the_session(
    first: PermissionRequest, second: PermissionRequest, remembered: bool
) -> None:
    async def main() -> None:
        answers = iter([Allow(remember="session"), Deny("asked again")])
        stage = Stage(callback=lambda request: next(answers))
        assert await stage.questions.ask(first) == Allow(remember="session")
        decision = await stage.questions.ask(second)
        assert decision == (Allow(remember="session") if remembered else Deny("asked again"))
        assert stage.rules == []

    run(main)


def test_always_hands_the_rules_on() -> None:
    async def main() -> None:
        stage = Stage(callback=lambda request: Allow(remember="always"))
        await stage.questions.ask(shell("cd src && npm install > log.txt"))
        await stage.questions.ask(shell("cd src && npm install && npm test"))
        assert stage.rules == [
            Rule(
                action="allow",
                tool=("shell",),
                command=("npm install > log.txt",),
                folder=(f"{WORKSPACE}/src",),
                risk=("low", "medium"),
            ),
            Rule(
                action="allow",
                tool=("shell",),
                operation=("write",),
                path=(f"{WORKSPACE}/src/log.txt",),
                risk=("low", "medium"),
            ),
            Rule(
                action="allow",
                tool=("shell",),
                folder=(WORKSPACE,),
                input="cd src && npm install && npm test",
                risk=("low", "medium"),
            ),
        ]
        policy = Policy(rules=tuple(stage.rules))
        assert policy.decide(shell("cd src && npm install > log.txt"), WORKSPACE).action == "allow"
        assert policy.decide(shell("npm install > log.txt"), WORKSPACE).action == "ask"  # elsewhere
        assert policy.decide(shell("cd src && npm install && npm test"), WORKSPACE).action == "allow"
        assert policy.decide(shell("cd src && npm test"), WORKSPACE).action == "ask"  # a part of what was seen

    run(main)


def test_a_rule_that_cannot_be_kept_is_said() -> None:
    async def main() -> None:
        def full(rule: Rule) -> None:
            raise OSError("disk full")

        stage = Stage(callback=lambda request: Allow(remember="always"), always=full)
        assert await stage.questions.ask(shell("npm install")) == Allow(remember="always")
        assert [e for e in stage.events if isinstance(e, Notice)] == [
            Notice(
                level="warning",
                code="policy_not_saved",
                message="the answer could not be saved for later sessions: disk full",
            )
        ]

    run(main)


def test_what_cannot_be_recorded_does_not_happen() -> None:
    async def main() -> None:
        async def full(entry: AuditEntry, now: int) -> None:
            raise OSError("disk full")

        stage = Stage(callback=lambda request: Allow(), audit=full)
        decision = await stage.questions.ask(shell("make"))
        assert decision == Deny("the decision could not be recorded, so it does not count: disk full")
        assert stage.resolved == [("q1", "deny", "callback")]

    run(main)


def test_nobody_is_told_before_the_decision_is_recorded() -> None:
    async def main() -> None:
        disk = asyncio.Event()

        async def slow(entry: AuditEntry, now: int) -> None:
            await disk.wait()

        stage = Stage(callback=lambda request: Allow(), audit=slow)
        async with asyncio.TaskGroup() as group:
            asking = group.create_task(stage.questions.ask(shell("make")))
            await until(lambda: not stage.questions.open and len(stage.events) == 1)
            for _ in range(20):
                await asyncio.sleep(0)  # the loop goes on; only this question waits
            assert (asking.done(), stage.resolved) == (False, [])
            disk.set()
        assert (asking.result(), stage.resolved) == (Allow(), [("q1", "allow", "callback")])

    run(main)


def test_what_was_decided_is_recorded_though_the_agent_went_away_meanwhile() -> None:
    async def main() -> None:
        disk = asyncio.Event()
        entries: list[AuditEntry] = []

        async def slow(entry: AuditEntry, now: int) -> None:
            await disk.wait()
            entries.append(entry)

        stage = Stage(callback=lambda request: Allow(), audit=slow)
        async with asyncio.TaskGroup() as group:
            asking = group.create_task(stage.questions.ask(shell("make")))
            await until(lambda: not stage.questions.open and len(stage.events) == 1)
            asking.cancel()
        disk.set()
        await stage.questions.recorded()
        assert ([entry.decision for entry in entries], stage.resolved) == (["allow"], [("q1", "allow", "callback")])

    run(main)


def test_a_changed_input_is_judged_again() -> None:
    async def main() -> None:
        stage = Stage(policy=POLICY, callback=lambda request: Allow(updated_input={"command": "git push"}))
        decision = await stage.questions.ask(shell("make"))
        assert decision == Deny("the changed input is not allowed: a person pushes")
        assert stage.resolved == [("q1", "deny", "policy")]

    run(main)


STEPS = st.one_of(
    st.tuples(st.just("answer"), st.sampled_from("abcd"), st.sampled_from(("allow", "deny"))),
    st.tuples(st.just("wait"), st.just(""), st.just("")),
    st.tuples(st.just("interrupt"), st.just(""), st.just("")),
    st.tuples(st.just("withdraw"), st.sampled_from("abcd"), st.just("")),
)
COMMANDS = {"a": "make", "b": "make install", "c": "git push origin", "d": "npm test"}


@settings(max_examples=120, deadline=None)
@given(steps=st.lists(STEPS, max_size=8), forbidden=st.sampled_from(("", "b")))
def test_nothing_but_an_answer_in_time_or_a_rule_allows(steps: list[tuple[str, str, str]], forbidden: str) -> None:
    """The oracle knows nothing of the class: what was said first about an open question is what holds."""
    expected: dict[str, str] = {"c": "deny", "d": "allow"}  # by the policy
    if forbidden:
        expected[forbidden] = "deny"

    def judge(request: PermissionRequest) -> Decision | None:
        return Deny("not in the list") if request.request_id == forbidden else None

    async def main() -> None:
        stage = Stage(attended=True, policy=POLICY, judge=judge)
        async with asyncio.TaskGroup() as group:
            tasks = {name: group.create_task(stage.questions.ask(shell(COMMANDS[name], name))) for name in COMMANDS}
            await until(lambda: len(stage.questions.open) + len(stage.resolved) == 4)
            for step, name, decision in steps:
                match step:
                    case "answer":
                        try:
                            stage.questions.answer(name, Allow() if decision == "allow" else Deny("no"))
                        except AlreadyAnswered:
                            assert name in expected
                        else:
                            assert expected.setdefault(name, decision) == decision
                    case "interrupt":
                        stage.questions.resolve_all("interrupt")
                        for left in COMMANDS:
                            expected.setdefault(left, "deny")
                    case "withdraw":
                        if name not in expected:
                            tasks[name].cancel()
                            expected[name] = "deny"
                            await asyncio.wait([tasks[name]])
                    case _:
                        await asyncio.sleep(0)
            stage.questions.resolve_all("interrupt")
            for left in COMMANDS:
                expected.setdefault(left, "deny")
        assert {name: decision for name, decision, _ in stage.resolved} == expected
        assert len(stage.resolved) == 4
        returned = {name: task.result() for name, task in tasks.items() if not task.cancelled()}
        assert {name for name, decision in returned.items() if isinstance(decision, Allow)} == {
            name for name, decision in expected.items() if decision == "allow"
        }

    run(main)
