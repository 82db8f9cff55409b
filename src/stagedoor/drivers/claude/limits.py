"""What Claude Code says of the limits of a subscription: measured, it does so when a share of one is worth a word."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...unified.events import Event, Notice
from ...unified.settings import QuotaWindow

_WINDOWS = {
    "five_hour": "5 hours",
    "seven_day": "7 days",
    "seven_day_opus": "7 days, Opus",
    "seven_day_sonnet": "7 days, Sonnet",
    "overage": "extra usage",
}


def quota_of(limit: Mapping[str, Any]) -> QuotaWindow | None:
    """The window that ``rate_limit_info`` speaks of, if it says how much of it is used."""
    used, resets = limit.get("utilization"), limit.get("resetsAt")
    if isinstance(used, bool) or not isinstance(used, int | float):
        return None
    resets_at = resets * 1000 if isinstance(resets, int) and not isinstance(resets, bool) else None
    return QuotaWindow(name=_name(limit), used_percent=round(used * 100, 1), resets_at=resets_at)


def with_quota(quotas: tuple[QuotaWindow, ...], limit: Mapping[str, Any]) -> tuple[QuotaWindow, ...]:
    """Each event speaks of one window: what was said of the others stays."""
    quota = quota_of(limit)
    if quota is None:
        return quotas
    others = [window for window in quotas if window.name != quota.name]
    return tuple(sorted([*others, quota], key=lambda window: window.name))


def limit_notice(limit: Mapping[str, Any]) -> list[Event]:
    status, quota = limit.get("status", ""), quota_of(limit)
    if status in ("", "allowed"):
        return []
    window = f" ({_name(limit)})" if limit.get("rateLimitType") else ""
    share = f": {quota.used_percent:g}% used" if quota is not None else ""
    words = "The rate limit is reached" if status == "rejected" else "The rate limit is near"
    return [Notice(level="warning", code="rate_limit", message=f"{words}{window}{share}")]


def _name(limit: Mapping[str, Any]) -> str:
    name = str(limit.get("rateLimitType") or "limit")
    return _WINDOWS.get(name, name.replace("_", " "))
