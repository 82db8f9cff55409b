"""``signal`` and ``contextlib.suppress`` without what they take to import.

Every agent waits until its guard has started, and importing those two takes nearly as long as the interpreter itself.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from contextlib import suppress
else:
    import _signal as signal

    class suppress:
        def __init__(self, *faults):
            self._faults = faults

        def __enter__(self):
            return None

        def __exit__(self, kind, fault, trace):
            return kind is not None and issubclass(kind, self._faults)


__all__ = ["signal", "suppress"]
