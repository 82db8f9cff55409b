"""Which models there are, said where an unknown one was asked for."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from ..errors import StagedoorError, unknown_model
from ..unified.events import Error
from .agent import AnyDriver, NativeSession

PATIENCE = 30.0
"""Seconds that the program may take to name its models; some must be started for it."""


async def with_offered_models(error: Error, driver: AnyDriver, native: NativeSession, model: str | None) -> Error:
    """``error`` as it is, or, where it is about an unknown ``model``, with the ones that the program names."""
    if error.kind != "model_not_found" or not model or driver.models is None:
        return error
    try:
        async with asyncio.timeout(PATIENCE):
            offered = await driver.models(native)
    except (StagedoorError, TimeoutError, OSError):
        return error  # the program has ended, or does not say
    return replace(error, message=f"{unknown_model(model, offered)}. It said: {error.message}") if offered else error
