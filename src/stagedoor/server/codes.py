"""One-time codes that let a new device in: short, for minutes, once, and not to be guessed.

A code has nearly 40 bits and lives for five minutes. Wrong ones are counted, for each address and for all: with at most
``WRONG_FROM_ALL`` of them in ``WINDOW`` seconds, guessing one takes longer than anybody's life.
"""

from __future__ import annotations

import hmac
import secrets
from collections import deque
from collections.abc import Callable
from time import monotonic

import msgspec

from stagedoor.service.views import Scope

from .problems import Refused

ALPHABET = "ABCDEFGHJKMNPQRSTVWXYZ23456789"
"""Without what looks alike: I and 1, L, O and 0, U and V."""
LENGTH = 8
SECONDS = 300.0
MOST = 16
WINDOW = 300.0
WRONG_FROM_ONE = 10
WRONG_FROM_ALL = 60


class Code(msgspec.Struct, frozen=True):
    text: str
    scope: Scope
    name: str
    until: float
    by: str = ""

    @property
    def shown(self) -> str:
        """In two halves, as it is read out."""
        return f"{self.text[:4]}-{self.text[4:]}"


class Codes:
    """In memory only: a restart voids them all."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._codes: list[Code] = []
        self._wrong: deque[tuple[float, str]] = deque(maxlen=WRONG_FROM_ALL)

    def new(self, scope: Scope, name: str = "", *, by: str = "") -> Code:
        self._drop_old()
        text = "".join(secrets.choice(ALPHABET) for _ in range(LENGTH))
        code = Code(text, scope, name, self._clock() + SECONDS, by)
        self._codes = [*self._codes, code][-MOST:]
        return code

    def use(self, shown: str, address: str) -> Code:
        """The code, which is worth nothing from now on. Raises ``Refused``."""
        self._drop_old()
        if len(self._wrong) >= WRONG_FROM_ALL or sum(who == address for _, who in self._wrong) >= WRONG_FROM_ONE:
            raise Refused("too-many", "too many wrong codes; wait five minutes, then ask for a new one", headers=_LATER)
        tried = "".join(shown.upper().split()).replace("-", "").encode(errors="replace")
        found: Code | None = None
        for code in self._codes:
            if hmac.compare_digest(code.text.encode(), tried):
                found = code
        if found is None:
            self._wrong.append((self._clock(), address))
            raise Refused("not-signed-in", "this code is wrong, used or older than five minutes; ask for a new one")
        self._codes.remove(found)
        return found

    def void(self, by: str) -> None:
        """Forget the codes that a device asked for; it was revoked."""
        self._codes = [code for code in self._codes if code.by != by]

    def _drop_old(self) -> None:
        now = self._clock()
        self._codes = [code for code in self._codes if code.until > now]
        while self._wrong and self._wrong[0][0] + WINDOW <= now:
            self._wrong.popleft()


_LATER = {"retry-after": str(int(WINDOW))}
