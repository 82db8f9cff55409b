"""Reads, on threads and connections of their own: they never wait for a write."""

from __future__ import annotations

import asyncio
import queue
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from stagedoor.errors import StoreBroken

from .schema import open_for_reading, unusable

Value = TypeVar("Value")

AT_ONCE = 4


class Readers:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._threads: ThreadPoolExecutor | None = None
        self._idle: queue.SimpleQueue[sqlite3.Connection] = queue.SimpleQueue()

    def start(self) -> None:
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="stagedoor-log-read")

    async def stop(self) -> None:
        threads, self._threads = self._threads, None
        if threads is not None:
            await asyncio.to_thread(threads.shutdown)
            while not self._idle.empty():
                self._idle.get().close()

    async def do(self, work: Callable[[sqlite3.Connection], Value]) -> Value:
        if self._threads is None:
            raise StoreBroken(f"the log {self._path} is closed; start the server to use it")
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._run, work)

    def _run(self, work: Callable[[sqlite3.Connection], Value]) -> Value:
        try:
            try:
                db = self._idle.get_nowait()
            except queue.Empty:
                db = open_for_reading(self._path)
            try:
                return work(db)
            finally:
                self._idle.put(db)
        except sqlite3.Error as fault:
            raise unusable(self._path, "read", fault) from fault
