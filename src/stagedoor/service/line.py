"""What is known in memory of one session: how far it has come, whether it is over, and its last records."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice

from .views import Record, SessionView

MOST = 1024
MOST_BYTES = 1024 * 1024


class Line:
    """``known``: what is said here is what the log says. The last record is kept whatever its size."""

    def __init__(self) -> None:
        self.followers = 0
        self.known = False
        self.gone = False
        self.version = 0
        """Changes whenever something about the session is learnt or doubted."""
        self._ended = False
        self._last = 0
        self._records: deque[Record] = deque()
        self._bytes = 0
        self._given: tuple[int, int, list[Record]] | None = None

    @property
    def over(self) -> bool:
        """Nothing more will come."""
        return self.gone or self._ended

    def learn(self, view: SessionView) -> None:
        self.known, self.gone, self._ended = True, False, view.ended
        self._last = max(self._last, view.last_seq)
        self.version += 1

    def forget(self) -> None:
        self.known = self.gone = True
        self._last = 0
        self.version += 1

    def doubt(self) -> None:
        """What is known may be out of date."""
        self.known = False
        self.version += 1

    def add(self, records: Sequence[Record]) -> int:
        """Those that were stored just now; returns by how many bytes this has grown."""
        before = self._bytes
        kept = self._records
        if kept and kept[-1].seq + 1 != records[0].seq:
            self.clear()  # one was stored past us: what is here must have no hole
        for record in records:
            kept.append(record)
            self._bytes += len(record.body)
        while len(kept) > 1 and (len(kept) > MOST or self._bytes > MOST_BYTES):
            self._bytes -= len(kept.popleft().body)
        self._last = records[-1].seq
        self._given = None
        return self._bytes - before

    def clear(self) -> int:
        """Returns how many bytes that were."""
        freed, self._bytes = self._bytes, 0
        self._records.clear()
        self._given = None
        return freed

    def after(self, after: int, limit: int) -> list[Record] | None:
        """What comes after ``after``, if that can be told from here."""
        kept = self._records
        if self.known and after >= self._last:
            return []
        if not kept or kept[0].seq > after + 1:
            return None
        if self._given is not None and self._given[0] == after and self._given[1] == limit:
            return self._given[2]
        missing = kept[-1].seq - after
        if missing <= 0:
            return []
        if missing < 8:  # from the right: a deque finds its ends fast
            found = [kept[at] for at in range(-missing, min(0, limit - missing))]
        else:
            found = list(islice(kept, len(kept) - missing, len(kept) - missing + limit))
        self._given = (after, limit, found)
        return found
