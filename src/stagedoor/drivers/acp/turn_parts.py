"""What needs no memory of a turn, in our words: plans, what is attached, what was used, why a request failed. Pure."""

from __future__ import annotations

from typing import Any, Literal, cast

from ...agents.acp import events, responses, updates
from ...unified.events import Event, Notice, Plan, PlanItem, ShownImage, Usage
from ...unified.images import image_mark, that_fit
from ...wire import shapes
from ...wire.fitting import whole_number

SEVERITIES: dict[str, Literal["info", "warning", "error"]] = {"warning": "warning", "error": "error"}


def plan_of(entries: list[updates.PlanEntry]) -> Plan:
    return Plan(items=[PlanItem(entry.content, _plan_status(entry.status)) for entry in entries])


def _plan_status(status: str) -> Any:
    return status if status in ("in_progress", "completed") else "pending"


def other_plan(content: object) -> list[Event]:
    match content:
        case updates.PlanItems(entries=entries):
            return [plan_of(entries)]
        case updates.PlanMarkdown(content=text):
            return [Notice(level="info", code="plan", message=text)]
        case updates.PlanFile(uri=uri):
            return [Notice(level="info", code="plan", message=f"the plan is in {uri}")]
        case _:
            return [Notice(level="info", code="plan", message="a plan of an unknown kind")]


def attachment(block: updates.ContentBlock, parent: str | None) -> list[Event]:
    """What the agent sends that is no text is named; an image goes with it."""
    mark = mark_of(block)
    if not mark:
        return []
    named, images = f"the agent sent {mark[1:-1]}", that_fit(images_of(block))
    return [Notice(level="info", code="attachment", message=named, images=images, parent_tool_use_id=parent)]


def images_of(block: updates.ContentBlock) -> list[ShownImage]:
    match block:
        case updates.ImageContent(data=content, mime_type=kind) if content:
            return [ShownImage(kind, content)]
        case updates.EmbeddedResource(resource=updates.Resource(blob=str(content), mime_type=str(kind))):
            return [ShownImage(kind, content)]  # what is no image is not shown
        case _:
            return []


def mark_of(block: updates.ContentBlock) -> str:
    match block:
        case updates.ImageContent(data=content, mime_type=kind, uri=uri):
            return image_mark(kind, content, place=uri or "")
        case updates.AudioContent(data=content, mime_type=kind):
            return f"[a sound: {kind}, {len(content) * 3 // 4} bytes]"
        case updates.ResourceLink(uri=uri):
            return f"[a link: {uri}]"
        case updates.EmbeddedResource(resource=resource):
            return "" if resource.text is not None else f"[a file: {resource.uri}]"
        case updates.TextContent():
            return ""
        case shapes.UnknownMessage():
            return "[content of an unknown kind]"


def usage_of(native: responses.PromptResponse) -> Usage:
    if native.usage is not None:
        usage = native.usage
        cached, thought = usage.cached_read_tokens or 0, usage.thought_tokens or 0
        return Usage(
            input_tokens=usage.input_tokens + cached,
            output_tokens=usage.output_tokens,
            cached_tokens=cached,
            reasoning_tokens=thought,
            total_tokens=usage.total_tokens or usage.input_tokens + cached + usage.output_tokens + thought,
        )
    match native.meta:
        case {"quota": {"token_count": {"input_tokens": sent, "output_tokens": received}}}:
            sent, received = whole_number(sent) or 0, whole_number(received) or 0
            return Usage(input_tokens=sent, output_tokens=received, total_tokens=sent + received)
        case _:
            return Usage()


def reason_of(failed: events.RequestFailed) -> str:
    """The message of an error, and the details beside it."""
    match failed.details:
        case {"details": str(detail)}:
            more = [detail]
        case {"_errors": [*errors]}:
            more = [str(error) for error in cast("list[object]", errors)]
        case [*issues]:
            more = [_issue(issue) for issue in cast("list[object]", issues)]
        case _:
            more = []
    details = "; ".join(detail for detail in more if detail and detail not in failed.message)
    return ": ".join(part for part in (failed.message, details) if part)


def _issue(issue: Any) -> str:
    """What is wrong with one field of a request."""
    match issue:
        case {"path": [str(field), *_], "message": str(message)}:
            return f"{field}: {message}"
        case _:
            return ""


def compaction(update: updates.CompactionUpdate) -> list[Event]:
    match update.status:
        case "completed":
            return [Notice(level="info", code="compacted", message="the conversation so far was summarized")]
        case "failed":
            words = update.error or "the conversation could not be summarized"
            return [Notice(level="warning", code="compaction_failed", message=words)]
        case _:
            return []
