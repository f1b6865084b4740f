"""Likely bugs of resuming, planted on purpose: a simulator that misses them is too weak.

Each is a subclass that replaces the real clients of a broker side for one run; nothing in `src` is changed.
"""

from __future__ import annotations

from typing import Any

from dragoman.carriers.carrier import Message
from dragoman.core.effects import DeliverOutcome
from dragoman.dialects.native.client_sessions import ClientSession
from dragoman.dialects.native.codec import read_list, write_list
from dragoman.dialects.native.messages import MISSING, Hello
from dragoman.server.connection import StreamConnection
from sim.native_oracle import WatchedClients, WatchedNative


class NothingKept(WatchedClients):
    """Outcomes are dropped once they are sent: one that did not arrive is missing, and its job runs again."""

    def _resume(self, client: ClientSession, message: Message, now: float) -> None:
        client.acknowledged(list(client.kept_messages()))
        super()._resume(client, message, now)


class AllToldAgain(WatchedClients):
    """A client that reconnects is sent everything that is kept, not only what it requests."""

    def _resume(self, client: ClientSession, message: Message, now: float) -> None:
        ids = list(client.kept_messages())
        super()._resume(client, [message[0], bytes(message[1]) + b"".join(ids)], now)


class ToldAgainOnOneConnection(WatchedClients):
    """An outcome that came between WELCOME and RESUME is sent again."""

    def _resume(self, client: ClientSession, message: Message, now: float) -> None:
        client.connection += 1
        super()._resume(client, message, now)


class MissingThoughItRuns(WatchedClients):
    """A running job is reported as missing."""

    def _resume(self, client: ClientSession, message: Message, now: float) -> None:
        present = [id for id in read_list(message) if client.open_job(id) is not None]
        super()._resume(client, message, now)
        if present and client.peer is not None:
            self._io.send(client.peer, write_list(MISSING, present))


class NeverCountedBack(WatchedClients):
    """A job that has ended while its client was away stays in the window."""

    def answer(self, answer: DeliverOutcome, now: float) -> None:
        client: Any = answer.caller
        super().answer(answer, now)
        if client.peer is None and answer.job is not None:
            client.add_job(answer.job)


class OldConnectionHeard(WatchedClients):
    """A client that reconnects takes over, but late messages of the old connection are still processed."""

    def enter(self, peer: StreamConnection, hello: Hello, now: float) -> tuple[ClientSession, bool]:  # type: ignore[override]
        client = self.sessions._by_secret.get(hello.session + hello.epoch)
        former: Any = client.peer if client is not None else None
        if client is not None and former is not None:
            client.peer = None
        entered = super().enter(peer, hello, now)
        if former is not None:
            self._broker.counters.takeovers += 1
            former.remote = client
        return entered


class NeverAdopted(WatchedClients):
    """A client that reconnects finds its waiting jobs cancelled some time later."""

    def enter(self, peer: StreamConnection, hello: Hello, now: float) -> tuple[ClientSession, bool]:  # type: ignore[override]
        entered = super().enter(peer, hello, now)
        for job in peer.remote.open_jobs():
            job.orphan_due = now + 0.5
            self._broker._deadlines.arm(job, job.due())
        return entered


class AbandonedAtOnce(WatchedClients):
    """A client whose connection breaks is removed at once."""

    def lost(self, client: ClientSession, now: float) -> None:
        self.leave(client)
        super().lost(client, now)


class KnownBySecretAlone(WatchedClients):
    """A session whose WELCOME never reached its client is taken for the one that the client means."""

    def enter(self, peer: StreamConnection, hello: Hello, now: float) -> tuple[ClientSession, bool]:  # type: ignore[override]
        for secret, client in self.sessions._by_secret.items():
            if secret.startswith(hello.session):
                hello = Hello(hello.role, session=hello.session, epoch=client.epoch, window=hello.window)
        return super().enter(peer, hello, now)


def planted(clients: type[WatchedClients]) -> type[WatchedNative]:
    return type(clients.__name__, (WatchedNative,), {"clients_type": clients})


# Name, what is put in, and the letters by one of which the oracle should find it.
BUGS: tuple[tuple[str, type[WatchedNative], tuple[str, ...]], ...] = (
    ("outcomes are not kept", planted(NothingKept), ("MISSING", "I8")),
    ("everything is told again", planted(AllToldAgain), ("once",)),
    ("told again on one connection", planted(ToldAgainOnOneConnection), ("once",)),
    ("MISSING for a running job", planted(MissingThoughItRuns), ("MISSING", "window", "once", "I8")),
    ("the window is not counted back", planted(NeverCountedBack), ("window", "I14", "books")),
    (
        "the old connection is heard after a takeover",
        planted(OldConnectionHeard),
        ("window", "MISSING", "once", "books"),
    ),
    ("waiting jobs are not adopted", planted(NeverAdopted), ("I14",)),
    ("sessions end with their connection", planted(AbandonedAtOnce), ("I14",)),
    ("sessions known by their secret alone", planted(KnownBySecretAlone), ("MISSING", "I8")),
)
