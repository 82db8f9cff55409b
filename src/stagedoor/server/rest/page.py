"""REST: what the page needs beside the sessions: rendered text, a rule before it is made, the policy, worktrees."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec

from stagedoor.service.views import QueuedPrompt, SessionView

from .operations import Call, Operation
from .rendering import MOST, plain, rendered
from .sessions import shown

Text = Annotated[str, msgspec.Meta(max_length=MOST)]


class Texts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Markdown. What goes beyond the length of the longest text is shown as it is written."""

    texts: Annotated[list[Text], msgspec.Meta(max_length=100)]


class Rendered(msgspec.Struct, frozen=True):
    html: list[str]


class Ways(msgspec.Struct, frozen=True):
    """How a question can be answered beside yes and no: the ``rules`` that an answer for good adds to the policy
    ``file``, and whether the agent can run the call with another input (``editable``)."""

    file: str
    rules: tuple[dict[str, Any], ...]
    editable: bool


class Queue(msgspec.Struct, frozen=True):
    """Follow-ups whose turn has not come, oldest first."""

    messages: list[QueuedPrompt]


class PolicyText(msgspec.Struct, frozen=True):
    """The policy file as it stands; ``problem`` when it cannot be used (then the last good one counts)."""

    file: str
    text: str
    problem: str


class Worktree(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``keep``: what was changed stays as a commit on the session's branch; else the branch goes too."""

    keep: bool


async def render(call: Call[None, Texts]) -> Rendered:
    return await asyncio.to_thread(_rendered, call.body.texts)  # a long text takes seconds: nobody else waits


def _rendered(texts: list[str]) -> Rendered:
    left = MOST
    html: list[str] = []
    for text in texts:
        left -= len(text)
        html.append(rendered(text) if left >= 0 else plain(text))
    return Rendered(html)


async def rule(call: Call[None, None]) -> Ways:
    question_id = call.path["questionId"]
    kept = await call.service.questions.rule_for(question_id)
    editable = await call.service.questions.editable(question_id)
    return Ways(file=kept.file, rules=kept.rules, editable=editable)


async def queued(call: Call[None, None]) -> Queue:
    await call.service.sessions.get(call.session_id)
    return Queue(await call.service.sessions.messages(call.session_id, queued_only=True))


async def policy(call: Call[None, None]) -> PolicyText:
    current = call.service.policy
    problem = "" if current is None else current.problem or ""
    file = call.service.policy_file
    try:
        text = await asyncio.to_thread(file.read_text, "utf-8", "replace")
    except OSError:
        return PolicyText(file="", text="", problem=problem)
    return PolicyText(file=str(file), text=text, problem=problem)


async def worktree(call: Call[None, Worktree]) -> SessionView:
    return shown(await call.service.sessions.finish_worktree(call.session_id, keep=call.body.keep))


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        name="render", method="POST", path="/api/render", tag="page", scope="watch", verb=render, keyed=False,
        summary="Markdown as HTML that can do no harm", bodies=(Texts,), answer=Rendered,
    ),
    Operation(
        name="showRule", method="GET", path="/api/rules/{questionId}", tag="permissions", scope="watch", verb=rule,
        summary="The rule that an answer for good would add, and whether the input may be edited", answer=Ways,
        faults=(404,),
    ),
    Operation(
        name="listQueued", method="GET", path="/api/sessions/{sessionId}/messages", tag="sessions", scope="watch",
        verb=queued, summary="The follow-ups that wait for their turn", answer=Queue, faults=(404,),
    ),
    Operation(
        name="showPolicy", method="GET", path="/api/policy", tag="server", scope="watch", verb=policy,
        summary="The policy file of this server", answer=PolicyText,
    ),
    Operation(
        name="finishWorktree", method="POST", path="/api/sessions/{sessionId}/worktree", tag="workspaces", scope="run",
        summary="Keep or discard what a session did in its worktree", verb=worktree, bodies=(Worktree,),
        answer=SessionView, faults=(404, 409),
    ),
)  # fmt: skip
