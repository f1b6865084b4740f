"""Login sessions: browsers that have shown a token once, and then send a cookie.

A session lives in memory only. Its id is 32 random bytes, of which only the hash is kept. It belongs to the origin of
its login: the user of this machine whose connection that was, or the address of the client. Browsers send a cookie to
every port of a host name, so another program on this machine may get the id, and cannot use it (R255).
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import sha256
from hmac import compare_digest
from typing import Final

from dragoman.http.admission import Admission

ID_BYTES: Final = 32
LIFETIME: Final = 12 * 3600.0  # seconds
MAX_SESSIONS: Final = 1000  # more than these: the oldest of the principal with most of them is closed
MAX_PER_PRINCIPAL: Final = 20  # more than these: its own oldest is closed
HALF: Final = 16  # bytes of a hash


@dataclass(slots=True)
class _Session:
    digest: bytes
    admission: Admission
    expires: float
    origin: str
    is_open: bool = True


class LoginSessions:
    """The open sessions of one listener, the oldest first."""

    def __init__(
        self,
        random_bytes: Callable[[int], bytes],
        now: Callable[[], float],
        lifetime: float = LIFETIME,
        most: int = MAX_SESSIONS,
    ) -> None:
        self.lifetime: Final = lifetime
        self._random_bytes = random_bytes
        self._now = now
        self._most = most
        # By half of the hash; the whole is then compared in constant time.
        self._sessions: dict[bytes, _Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, admission: Admission, origin: str) -> str:
        """Open a session for a principal that has just been proved, at this origin. Returns the session's id."""
        id = base64.urlsafe_b64encode(self._random_bytes(ID_BYTES)).rstrip(b"=").decode()
        digest = _digest(id)
        self._sessions[digest[:HALF]] = _Session(digest, admission, self._now() + self.lifetime, origin)
        own = [key for key, each in self._sessions.items() if each.admission.principal is admission.principal]
        if len(own) > MAX_PER_PRINCIPAL:
            self._close(own[0])
        while len(self._sessions) > self._most:
            self._close(self._oldest_of_most())
        return id

    def _oldest_of_most(self) -> bytes:
        """Return the oldest session of the principal that has most of them (R254)."""
        count = Counter(each.admission.principal for each in self._sessions.values())
        most = max(count.values())
        return next(key for key, each in self._sessions.items() if count[each.admission.principal] == most)

    def find(self, id: str, origin: str) -> Admission | None:
        """Return the admission of the session with this id, for a request of its origin. It ends with the session."""
        session = self._find(id, origin)
        if session is None or not self._is_current(session):
            return None
        return replace(session.admission, is_current=lambda: self._is_current(session))

    def close(self, id: str, origin: str) -> bool:
        """Close a session. Returns False if this origin has none with this id."""
        session = self._find(id, origin)
        if session is not None:
            self._close(session.digest[:HALF])
        return session is not None

    def sweep(self) -> int:
        """Close the sessions that have expired, or whose principal has lost its access. Returns their number."""
        ended = [key for key, session in self._sessions.items() if not self._is_current(session)]
        for key in ended:
            self._close(key)
        return len(ended)

    def _find(self, id: str, origin: str) -> _Session | None:
        digest = _digest(id)
        session = self._sessions.get(digest[:HALF])
        if session is None or not compare_digest(digest, session.digest) or session.origin != origin:
            return None
        return session

    def _is_current(self, session: _Session) -> bool:
        return session.is_open and self._now() < session.expires and session.admission.is_current()

    def _close(self, key: bytes) -> None:
        self._sessions.pop(key).is_open = False


def _digest(id: str) -> bytes:
    return sha256(id.encode("utf-8", "replace")).digest()
