"""Bugs that resuming is likely to have, planted on purpose: a simulator that misses them is too weak.

Each is a subclass put in the place of the real session for one run; nothing in `src` is touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dragoman.carriers.carrier import Message
from dragoman.core.effects import Answer
from dragoman.dialects.native.codec import read_list, write_list
from dragoman.dialects.native.messages import MISSING, Hello
from dragoman.dialects.native.sessions import Client
from dragoman.server.peer import Peer
from sim.native_oracle import WatchedNative


class NothingKept(WatchedNative):
    """Outcomes are forgotten once they are told: what did not arrive is missing, and runs again."""

    def _resume(self, client: Client, message: Message, now: float) -> None:
        client.heard(list(client.kept_messages()))
        super()._resume(client, message, now)


class AllToldAgain(WatchedNative):
    """Whoever comes back is told everything that is kept, not only what it asks for."""

    def _resume(self, client: Client, message: Message, now: float) -> None:
        ids = list(client.kept_messages())
        super()._resume(client, [message[0], bytes(message[1]) + b"".join(ids)], now)


class ToldAgainOnOneConnection(WatchedNative):
    """An outcome that came between WELCOME and RESUME is told again."""

    def _resume(self, client: Client, message: Message, now: float) -> None:
        client.connection += 1
        super()._resume(client, message, now)


class MissingThoughItRuns(WatchedNative):
    """A job that is under way is said to be missing."""

    def _resume(self, client: Client, message: Message, now: float) -> None:
        present = [id for id in read_list(message) if client.open_job(id) is not None]
        super()._resume(client, message, now)
        if present and client.peer is not None:
            self._line.send(client.peer, write_list(MISSING, present))


class NeverCountedBack(WatchedNative):
    """A job that has ended while its client was away stays in the window."""

    def _answer(self, answer: Answer) -> None:
        client: Any = answer.caller
        super()._answer(answer)
        if client.peer is None and answer.job is not None:
            client.add_job(answer.job)


class OldConnectionHeard(WatchedNative):
    """Whoever comes back takes over, but what arrives late by the old connection is heard all the same."""

    def _welcome_client(self, peer: Peer, hello: Hello, now: float) -> None:  # type: ignore[override]
        client = self._sessions._by_secret.get(hello.session + hello.epoch)
        former: Any = client.peer if client is not None else None
        if client is not None and former is not None:
            client.peer = None
        super()._welcome_client(peer, hello, now)
        if former is not None:
            self._broker.counters.takeovers += 1
            former.guest = client


class NeverAdopted(WatchedNative):
    """Whoever comes back finds its waiting jobs cancelled some time later."""

    def _welcome_client(self, peer: Peer, hello: Hello, now: float) -> None:  # type: ignore[override]
        super()._welcome_client(peer, hello, now)
        for job in peer.guest.open_jobs():
            job.orphan_due = now + 0.5
            self._broker._deadlines.arm(job, job.due())


class AbandonedAtOnce(WatchedNative):
    """Whose connection breaks is forgotten, and not waited for."""

    def lost(self, peer: Peer, unsent: Sequence[object], now: float) -> None:  # type: ignore[override]
        if isinstance(peer.guest, Client):
            self._sessions.forget(peer.guest)
            peer.guest.secret = ""
        super().lost(peer, unsent, now)


class KnownBySecretAlone(WatchedNative):
    """A session of whose WELCOME its client never heard is taken for the one it means."""

    def _welcome_client(self, peer: Peer, hello: Hello, now: float) -> None:  # type: ignore[override]
        for secret, client in self._sessions._by_secret.items():
            if secret.startswith(hello.session):
                hello = Hello(hello.role, session=hello.session, epoch=client.epoch, window=hello.window)
        super()._welcome_client(peer, hello, now)


# Name, what is put in, and the letters by one of which the oracle should find it.
BUGS: tuple[tuple[str, type[WatchedNative], tuple[str, ...]], ...] = (
    ("outcomes are not kept", NothingKept, ("MISSING", "I8")),
    ("everything is told again", AllToldAgain, ("once",)),
    ("told again on one connection", ToldAgainOnOneConnection, ("once",)),
    ("MISSING for a running job", MissingThoughItRuns, ("MISSING", "window", "once", "I8")),
    ("the window is not counted back", NeverCountedBack, ("window", "I14", "books")),
    ("the old connection is heard after a takeover", OldConnectionHeard, ("window", "MISSING", "once", "books")),
    ("waiting jobs are not adopted", NeverAdopted, ("I14",)),
    ("sessions end with their connection", AbandonedAtOnce, ("I14",)),
    ("sessions known by their secret alone", KnownBySecretAlone, ("MISSING", "I8")),
)
