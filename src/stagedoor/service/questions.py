"""``service.questions``: the questions of all sessions, and their answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from stagedoor.errors import AlreadyAnswered, BadRequest, SessionNotFound
from stagedoor.transports.tasks import TaskOwner
from stagedoor.unified.answers import answered_input, fields_of
from stagedoor.unified.decisions import Allow, Decision
from stagedoor.unified.events import Remember

from .opening import Opening
from .question_rows import answered
from .running import RunningSessions, to_the_end
from .store import Store
from .views import PolicyRules, Question, SessionView


class Questions:
    def __init__(
        self,
        store: Store,
        running: RunningSessions,
        opening: Opening,
        session: Callable[[str], Awaitable[SessionView]],
        *,
        now: Callable[[], int],
        new_id: Callable[[], str],
    ) -> None:
        self._store = store
        self._running = running
        self._opening = opening
        self._session = session
        self._now = now
        self._new_id = new_id

    @property
    def tasks(self) -> TaskOwner:
        return self._running.tasks

    async def get(self, question_id: str, session_id: str | None = None) -> Question:
        """With ``session_id``: only if it is a question of that session."""
        question = await self.find(question_id)
        if question is None or session_id not in (None, question.session_id):
            raise SessionNotFound(f"question {question_id!r} not found")
        return question

    async def find(self, question_id: str) -> Question | None:
        return await self._store.question(question_id)

    async def list(
        self, *, session_id: str | None = None, open_only: bool = True, offset: int = 0, limit: int | None = None
    ) -> list[Question]:
        """The oldest first."""
        return await self._store.questions(session_id=session_id, open_only=open_only, offset=offset, limit=limit)

    async def count(self, *, session_id: str | None = None, open_only: bool = True) -> int:
        return await self._store.question_count(session_id=session_id, open_only=open_only)

    @to_the_end
    async def answer(
        self, question_id: str, decision: Decision, *, session_id: str | None = None, who: str = ""
    ) -> Question:
        """Decide a question, once."""
        answer_id = self._new_id()  # before any other id is made: a lost answer is found again by it
        question = await self.get(question_id, session_id)
        late = AlreadyAnswered(f"question {question_id} has been answered already, or it timed out")
        if not question.open:
            if (question.answer_id, question.by, question.decision) == (answer_id, "client", decision):
                return question  # this very answer was stored before, and only the word of it was lost
            raise late
        await self._running.accepting()
        runner = await self._running.serving(question.session_id)
        if runner is None:
            raise late
        edited = isinstance(decision, Allow) and decision.updated_input is not None
        if edited and question.request.tool_name != "question" and not self._edits_input(runner.view):
            raise BadRequest(f"{question.agent} cannot run a tool with a changed input; allow it as it is, or deny it")
        decided = answered(question, decision, by="client", who=who, now=self._now(), answer_id=answer_id)
        if not await runner.decide(decided):
            raise late
        return decided

    async def respond(
        self, question_id: str, text: str, *, session_id: str | None = None, who: str = "", remember: Remember = "once"
    ) -> Question:
        """Answer with a text: it is the answer to what the agent itself asks, and a yes to any other question."""
        question = await self.get(question_id, session_id)
        changed = answered_input(question.request, text) if fields_of(question.request) else None
        decision = Allow(updated_input=changed, remember=remember)
        return await self.answer(question_id, decision, session_id=session_id, who=who)

    async def rule_for(self, question_id: str) -> PolicyRules:
        """What ``remember="always"`` would add to the policy, and where; no rules when none could speak for it."""
        question = await self.get(question_id)
        return self._opening.rule_for(question.request, await self._session(question.session_id))

    async def editable(self, question_id: str) -> bool:
        """Whether the agent can run the call with another input."""
        question = await self.get(question_id)
        return self._edits_input(await self._session(question.session_id))

    def _edits_input(self, view: SessionView) -> bool:
        return self._opening.capabilities(view).edit_input
