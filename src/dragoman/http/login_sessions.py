"""Login sessions: browsers that have shown a token once, and then send a cookie.

A session lives in memory only. Its id is 32 random bytes, of which only the hash is kept.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import sha256
from hmac import compare_digest
from typing import Final

from dragoman.http.admission import Admission

ID_BYTES: Final = 32
LIFETIME: Final = 12 * 3600.0  # seconds
MAX_SESSIONS: Final = 1000  # more than these: the oldest is closed
MAX_PER_PRINCIPAL: Final = 20  # more than these: its own oldest is closed
HALF: Final = 16  # bytes of a hash


@dataclass(slots=True)
class _Session:
    digest: bytes
    admission: Admission
    expires: float
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

    def open(self, admission: Admission) -> str:
        """Open a session for a principal that has just been proved. Returns the session's id."""
        id = base64.urlsafe_b64encode(self._random_bytes(ID_BYTES)).rstrip(b"=").decode()
        digest = _digest(id)
        self._sessions[digest[:HALF]] = _Session(digest, admission, self._now() + self.lifetime)
        own = [key for key, each in self._sessions.items() if each.admission.principal is admission.principal]
        if len(own) > MAX_PER_PRINCIPAL:
            self._close(own[0])
        while len(self._sessions) > self._most:
            self._close(next(iter(self._sessions)))
        return id

    def find(self, id: str) -> Admission | None:
        """Return the admission of the session with this id. It ends with the session."""
        session = self._find(id)
        if session is None or not self._is_current(session):
            return None
        return replace(session.admission, is_current=lambda: self._is_current(session))

    def close(self, id: str) -> bool:
        """Close a session. Returns False if there is none with this id."""
        session = self._find(id)
        if session is not None:
            self._close(session.digest[:HALF])
        return session is not None

    def sweep(self) -> int:
        """Close the sessions that have expired, or whose principal has lost its access. Returns their number."""
        ended = [key for key, session in self._sessions.items() if not self._is_current(session)]
        for key in ended:
            self._close(key)
        return len(ended)

    def _find(self, id: str) -> _Session | None:
        digest = _digest(id)
        session = self._sessions.get(digest[:HALF])
        return session if session is not None and compare_digest(digest, session.digest) else None

    def _is_current(self, session: _Session) -> bool:
        return session.is_open and self._now() < session.expires and session.admission.is_current()

    def _close(self, key: bytes) -> None:
        self._sessions.pop(key).is_open = False


def _digest(id: str) -> bytes:
    return sha256(id.encode("utf-8", "replace")).digest()
