"""The line: from bytes to verbs, from effects to bytes.

A stream hands over what its carrier made of the bytes (`arrived`); the peer's session turns each message into verbs of
the broker; once a turn the effects go to the sessions they concern and to the diary, and what the turn produced for
each peer is written in one go. There is no asyncio here and no socket: whoever owns the loop passes in a clock, a way
to ask for a turn, and a way to dial. One owner calls all of it, one call at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, cast

from dragoman.carriers.carrier import Carrier, Frame, Messages
from dragoman.core.broken import InvariantBroken
from dragoman.core.broker import Broker
from dragoman.core.deadlines import Deadlines
from dragoman.core.effects import Answer, Delivery, Dismiss, Effect, Erase, Give, Note, Save, StoreEntry
from dragoman.core.events import KIND_NAMES, Event, PublishEvent
from dragoman.core.failure import Failure
from dragoman.core.histogram import Histogram
from dragoman.core.infinity import inf
from dragoman.core.invariants import check
from dragoman.core.model import ABSENT, FAILED, Farewell, Job, Payload
from dragoman.core.recipients import TimedRecipient
from dragoman.dialects import seam
from dragoman.dialects.seam import Session
from dragoman.server.budget import Budget, Verdict
from dragoman.server.drops import DropWarnings, Log
from dragoman.server.peer import DEFAULT_LIMITS, Peer, PeerLimits
from dragoman.server.rate_limit import RateLimit
from dragoman.streams.byte_stream import ByteStream

BEING_FETCHED: Final = Effect()  # stands for a Give that goes on when its payload is here
COMPLAINTS: Final = 20  # log lines a second about peers that were turned away
LATE_GIVE: Final = 0.01  # a job that waited in us for longer than this begins to run when it leaves
NOTICEABLE: Final = 0.1  # so late a turn, and what peers said meanwhile came late through us
OUR_FAULT: Final = "an internal error of the broker"
SETTLING: Final = 0.05  # seconds for which a new worker's connection must stay open before it is given a job
PULSE: Final = 0.5  # a turn at least this often, so that a pause of ours is measured from its beginning


class Diary(Protocol):
    """The store of what must survive a crash."""

    def apply(self, entries: list[StoreEntry], done: Callable[[int, str | None], None]) -> None:
        """Store these, in order and all or none, then say up to which number all is safe; or why new jobs up to it
        could not be stored. At once or later, on the line's own thread."""

    def fetch(self, job: Job, done: Callable[[Payload, Payload, Failure | None], None]) -> None:
        """Bring a job's payload, result and failure, as stored. At once or later, on the line's own thread."""

    def close(self) -> str | None:
        """Returns why not everything could be stored to the end, if so."""


# Calls back once when the process with this id has ended. Returns a function that stops watching it, or None if the
# process cannot be watched.
ProcessWatch = Callable[[int, Callable[[], None]], Callable[[], None] | None]


@dataclass(frozen=True, slots=True)
class Limits:
    """What the line allows all its peers together."""

    max_peers: int = 20_000
    max_peers_per_address: int = 10_000  # on this machine
    max_peers_per_remote_address: int = 256
    max_accepts: int = 2_000  # new peers a second; more wait their turn (R23)
    max_memory: int = 1 << 30  # all send buffers together (R17)
    bad_messages: int = 20  # L23, in ten seconds
    late_turn: float = 1.0  # D13


class Line(seam.Line):
    def __init__(
        self,
        broker: Broker,
        diary: Diary,
        clock: Callable[[], float],
        log: Log,
        limits: Limits,
        *,
        wake: Callable[[], None] = lambda: None,
        dialler: Callable[[Peer, object], None] | None = None,
        later: Callable[[float, Callable[[], None]], object] | None = None,
        strict: bool = False,
    ) -> None:
        self.broker = broker
        self.limits = limits
        self.sessions: list[TimedRecipient] = []
        self.peers: dict[Peer, None] = {}
        self.wake = wake  # asks the owner of the loop for a `turn` soon
        self.dialler = dialler
        self.process_watch: ProcessWatch | None = None
        self.later = later  # asks the owner of the loop for a call after so many seconds of real time
        self.traffic: dict[str, tuple[int, int]] = {}  # by dialect: bytes received and sent by peers that have gone
        self.drops = DropWarnings(broker.counters, log)
        self.lag = Histogram()  # how late turns are that had a time
        self._waiting_for_diary: deque[tuple[int, Callable[[str | None], None]]] = deque()
        self._diary = diary
        self._clock = clock
        self._log = log
        self._strict = strict
        self._is_awake = False
        self._last_words: list[Callable[[float], None]] = []  # what sessions want to do at the end of this turn
        self._dirty: list[Peer] = []  # peers with something to write, to close or to greet
        self._budget = Budget(limits.max_memory)
        self._deadlines: Deadlines[Peer] = Deadlines()
        self._addresses: dict[str, int] = {}
        self._complaints = RateLimit(COMPLAINTS, 1.0)
        self._bad_messages = RateLimit(1, 1.0)  # by peer; so below
        self._remarks = RateLimit(1, 1.0)
        self._expected = inf  # when the next turn should start at the latest

    # ---------------------------------------------------------------- what streams tell

    def admit(self, address: str, is_local: bool = True) -> str | None:
        """Why a new connection from this address is not let in, or None (L7)."""
        per_address = self.limits.max_peers_per_address
        if not is_local:
            per_address = min(per_address, self.limits.max_peers_per_remote_address)
        if len(self.peers) >= self.limits.max_peers:
            problem = f"{len(self.peers)} peers are connected already (max_peers)"
        elif self._addresses.get(address, 0) >= per_address:
            name = "max_peers_per_address" if is_local else "max_peers_per_remote_address"
            problem = f"{self._addresses[address]} peers of this address are connected already ({name})"
        else:
            return None
        self.broker.counters.peers_refused += 1
        self.complain("peer refused", address=address, reason=problem)
        return problem

    def connected(
        self,
        session: Session,
        endpoint: str,
        carrier: Carrier,
        stream: ByteStream,
        label: str,
        address: str,
        limits: PeerLimits = DEFAULT_LIMITS,
        is_local: bool = True,
        process: int = 0,
    ) -> Peer:
        """A stream to a new peer is there. Its carrier may greet; the session hears of it when that is done."""
        owner = None if is_local else self.broker.owners.at(address)
        peer = Peer(session, endpoint, carrier, label, address, self._clock(), limits, owner)
        peer.process = process
        self._enter(peer, stream)
        return peer

    def dialled(
        self, peer: Peer, stream: ByteStream | None, problem: str = "", address: str = "", process: int = 0
    ) -> None:
        """What became of a dial: a stream to whoever is at that address, or nothing."""
        peer.address = address
        peer.process = process
        if stream is not None and not peer.is_lost:
            self._enter(peer, stream)
        elif stream is not None:
            stream.close()
        else:
            self._lose(peer, problem)

    def arrived(self, peer: Peer, messages: Messages) -> None:
        """Bytes came and the carrier made these messages of them."""
        if not self._is_awake:
            self._is_awake = True
            self.wake()
        peer.heard = now = self._clock()
        if now - self._expected > NOTICEABLE:
            self.broker.resumed_at = now  # what comes now has waited for us
        carrier = peer.carrier
        if not messages or carrier.gap is not None or peer.holding:
            self._shed(self._budget.look_at_unfinished(peer))
        if carrier.outgoing:
            self._post(peer, carrier.outgoing)
            carrier.outgoing = []
        if not peer.is_open and carrier.ready:
            self._open(peer, now)
        if messages and peer.closing is None:
            peer.latest = None
            self._hear(peer, messages, now)
        if carrier.failure is not None and peer.closing is None:
            failure = carrier.failure
            self._count_bad(peer, failure.reason)
            self.complain("peer refused", peer=peer, reason=failure.reason, detail=failure.detail)
            self.close(peer, f"{failure.reason}: {failure.detail}")

    def _hear(self, peer: Peer, messages: Messages, now: float) -> None:
        session, is_strict = peer.session, self._strict
        try:
            for message in messages:
                session.hear(peer, message, now)
                if is_strict:
                    check(self.broker)
                if peer.closing is not None:
                    break
        except InvariantBroken:
            raise
        except Exception as error:
            self._crashed(peer, error, messages)

    def ended(self, peer: Peer, problem: str) -> None:
        """The stream is at its end, or broken."""
        if not peer.is_open and not peer.is_lost and peer.heard > peer.since:  # a mere look at the port is no news
            self.complain("peer left before the handshake was done", peer=peer, reason=problem)
        self._lose(peer, problem)
        self.ask_for_turn()

    # ---------------------------------------------------------------- what sessions ask for

    def send(self, to: seam.Peer, frames: Sequence[Frame], mark: object = None) -> None:
        peer = cast(Peer, to)  # every peer that a session knows is one of ours; so below
        if peer.is_lost:
            return
        if mark is not None and peer.closing is not None:
            peer.withheld.append(mark)  # its end is decided: what has not left by now goes to somebody else (D8)
            return
        assert peer.is_open, "a peer that has not greeted yet cannot be told anything: wait for `opened`"
        out = peer.out
        if not out:
            self._dirty.append(peer)
            if not self._is_awake:
                self.ask_for_turn()
        out += peer.carrier.encode(frames)
        if mark is not None:
            peer.fresh_marks.append((len(out), mark))

    def dial(
        self, session: Session, place: object, endpoint: str, carrier: Carrier, limits: PeerLimits | None = None
    ) -> Peer:
        assert self.dialler is not None, "this line cannot dial"
        peer = Peer(session, endpoint, carrier, str(place), "", self._clock(), limits or DEFAULT_LIMITS)
        peer.dialled = True
        self.peers[peer] = None
        self.dialler(peer, place)
        return peer

    def close(self, whom: seam.Peer, reason: str) -> None:
        peer = cast(Peer, whom)
        if peer.closing is None:
            peer.closing = reason
            if not peer.out:
                self._dirty.append(peer)
            self.ask_for_turn()

    def at_end_of_turn(self, call: Callable[[float], None]) -> None:
        self._last_words.append(call)
        self.ask_for_turn()

    def when_process_ends(self, whose: seam.Peer, call: Callable[[float], None]) -> Callable[[], None] | None:
        peer = cast(Peer, whose)
        if self.process_watch is None or not peer.process:
            return None

        def ended() -> None:
            self._fenced(peer, lambda: call(self._clock()))
            self.ask_for_turn()

        return self.process_watch(peer.process, ended)

    def when_settled(self, whose: seam.Peer, call: Callable[[float], object]) -> None:
        """Call back once the connection has stayed open for a moment. Never, if it has ended by then (D7)."""
        if self.later is None:  # nothing passes here but what the owner of this line lets pass
            call(self._clock())
        else:
            peer = cast(Peer, whose)
            self.later(SETTLING, lambda: self._settle(peer, call))

    def ask_for_turn(self) -> None:
        """A verb was called, or there is something to write: carry out what follows from it soon."""
        if not self._is_awake:
            self._is_awake = True
            self.wake()

    def note(self, key: str, value: str | None) -> None:
        """Write down something that is no job: `value` under `key`, or that there is nothing any more."""
        self.broker.effects.append(self.broker.ledger.gate.note(key, value))
        self.ask_for_turn()

    def when_saved(self, call: Callable[[str | None], None]) -> None:
        """Be called when the diary has all that was decided until now, or with what is wrong with it."""
        self._waiting_for_diary.append((self.broker.ledger.gate.last, call))
        self.ask_for_turn()

    def fetch(self, job: Job, done: Callable[[Payload, Payload, Failure | None], None]) -> None:
        """A job's payload, result and failure, wherever they are. `done` is called at once or in a later turn."""
        if job.payload is ABSENT or job.result is ABSENT:
            self._diary.fetch(job, done)
        else:
            done(job.payload, job.result, job.failure)

    def bad_message(self, sender: seam.Peer, reason: str, detail: str = "") -> None:
        peer = cast(Peer, sender)
        self._count_bad(peer, reason)
        now = self._clock()
        if now - peer.bad_since > 10.0:
            peer.bad_since, peer.bad_count = now, 0
        peer.bad_count += 1
        if self._bad_messages.take(peer, now) == 1:
            self.remark("bad message", level="warning", peer=peer, reason=reason, detail=detail)
        if peer.bad_count >= self.limits.bad_messages and peer.closing is None:
            self.complain("peer disconnected", peer=peer, reason=f"{peer.bad_count} bad messages within 10 s")
            self.close(peer, f"{peer.bad_count} bad messages within 10 s")

    def remark(self, event: str, /, *, level: str = "info", peer: seam.Peer | None = None, **fields: object) -> None:
        if peer is not None:
            fields["peer"] = peer.label
        self._log(level, event, **fields)

    def remark_limited(self, event: str, /, *, peer: seam.Peer, level: str = "info", **fields: object) -> None:
        if self._remarks.take(peer, self._clock()) == 1:
            self.remark(event, level=level, peer=peer, **fields)

    # ---------------------------------------------------------------- a turn of the loop

    def turn(self) -> float:
        """Judge what is due, carry out effects, write. Returns when the next turn is due at the latest."""
        self._is_awake = True  # whatever happens within a turn is dealt with by its end
        try:
            return self._turn(self._clock())
        finally:
            self._is_awake = False

    def excuse(self, gap: float) -> None:
        """The whole machine slept (R26)."""
        self._excuse_pause(gap)

    # ---------------------------------------------------------------- inside a turn

    def _turn(self, now: float) -> float:
        late = now - self._expected
        if late >= 0.0:
            self.lag.observe(late)
        if late > NOTICEABLE:
            self.broker.resumed_at = now
        if late > self.limits.late_turn:
            now = self._excuse_pause(late)
        broker = self.broker
        self._drain_effects(now)  # what was decided goes out before anybody is judged late
        if now >= broker.next_deadline():
            broker.tick(now)
        due = inf
        for session in self.sessions:
            due = min(due, self._tick(session, now))
        self._watch(now)
        self._drain_effects(now)
        self._flush(now)
        if broker.counters.dropped:
            self.drops.look(now)
        if self._strict:
            check(broker)
        self._expected = min(due, broker.next_deadline(), self._deadlines.next(), now + PULSE)
        return self._expected

    def _tick(self, session: TimedRecipient, now: float) -> float:
        try:
            return session.tick(now)
        except InvariantBroken:
            raise
        except Exception as error:
            self._blame_ourselves(error)
            return now + 1.0

    def _drain_effects(self, now: float) -> None:
        effects = self.broker.effects
        is_strict = self._strict
        while effects:
            entries: list[StoreEntry] = []
            done = 0
            try:
                while done < len(effects):  # what is carried out may append more, or take back what is ahead
                    effect = effects[done]
                    done += 1
                    if isinstance(effect, Delivery):
                        if type(effect) is Give:
                            attempt = effect.attempt
                            if attempt.job.payload is ABSENT:
                                effects[done - 1] = BEING_FETCHED
                                self._fetch_first(effect)
                                continue
                            if now - attempt.given > LATE_GIVE:
                                attempt.begin(now)
                            attempt.mark_sent()
                        elif type(effect) is Answer and effect.result is ABSENT:
                            self._fetch_first(effect)
                            continue
                        try:
                            effect.recipient().execute(effect, now)
                        except InvariantBroken:
                            raise
                        except Exception as error:
                            self._could_not_say(effect, error, now)
                        if is_strict:
                            check(self.broker)
                    elif type(effect) is PublishEvent:
                        self._publish(effect.event, now)
                    else:
                        assert isinstance(effect, Save | Note | Erase)
                        entries.append(effect)
            finally:
                del effects[:done]
            if entries:
                self._diary.apply(entries, self._saved)
        if self._waiting_for_diary and not self.broker.ledger.gate.is_holding:
            self._tell_saved(self.broker.ledger.gate.last, None)

    def _publish(self, event: Event, now: float) -> None:
        """Hand an event to its subscribers. One that raises is logged and harms nobody else."""
        for subscription in self.broker.events.subscribers_of(event):
            if subscription.is_active:
                try:
                    subscription.receive(event, now)
                except InvariantBroken:
                    raise
                except Exception as error:
                    self._blame_ourselves(error, published=KIND_NAMES[event.kind])

    def _saved(self, number: int, problem: str | None) -> None:
        if problem is not None:
            self.complain("diary refused", problem=problem)
        self.broker.saved(number, self._clock(), problem)
        self._tell_saved(number, problem)
        self.ask_for_turn()

    def _tell_saved(self, number: int, problem: str | None) -> None:
        while self._waiting_for_diary and self._waiting_for_diary[0][0] <= number:
            self._waiting_for_diary.popleft()[1](problem)

    def _fetch_first(self, effect: Give | Answer) -> None:
        """What is to be handed over lies in the diary: go on when it is here."""

        def fetched(payload: Payload, result: Payload, failure: Failure | None) -> None:
            if isinstance(effect, Give):
                job = effect.attempt.job
                if job.attempt is not effect.attempt:
                    return  # too late for this one; a next one waits for its own
                self.broker.ledger.fetched(job, payload)
                self.broker.effects.append(effect)
            else:
                effect.result, effect.failure = result, failure
                self.broker.effects.append(effect)
            self.ask_for_turn()

        job = effect.attempt.job if isinstance(effect, Give) else effect.job
        assert job is not None
        self._diary.fetch(job, fetched)

    def _flush(self, now: float) -> None:
        while self._dirty or self._last_words:
            if self._last_words:
                last_words, self._last_words = self._last_words, []
                for call in last_words:
                    call(now)
            dirty, self._dirty = self._dirty, []
            for peer in dirty:
                stream = peer.stream
                if stream is None or peer.is_lost:
                    if peer.closing is not None:
                        self._lose(peer, peer.closing)
                    continue
                if peer.out:
                    buffers, peer.out = peer.out, []
                    before = stream.sent + stream.backlog
                    stream.write(buffers)
                    if stream.backlog:
                        peer.place_marks(buffers, before)
                        self._shed(self._budget.look_at_backlog(peer))
                    elif stream.sent > before:  # else the write failed: they come back in `lost`
                        if peer.fresh_marks:
                            peer.note_left(len(buffers), stream.sent)
                        peer.largest = 0
                if peer.closing is not None:
                    self._lose(peer, peer.closing)
            self._drain_effects(now)

    def _shed(self, verdict: Verdict) -> None:
        if verdict is not None:
            peer, reason = verdict
            self.broker.counters.disconnected_slow += 1
            self.complain("peer costs too much", peer=peer, reason=reason)
            self.close(peer, reason)

    def _watch(self, now: float) -> None:
        """Carrier-level life and death: handshakes that never end, peers that fell silent (D12)."""
        for peer in self._deadlines.due(now):
            limits = peer.limits
            stream = peer.stream
            if stream is not None and stream.backlog and stream.sent > peer.seen_sent:
                peer.heard = now  # our PING stands behind what it is taking in: that it takes it is a life sign, too
            peer.seen_sent = stream.sent if stream is not None else 0
            # Compared as sums, as they were armed: a difference may fall short of what it was made from, and then a
            # turn at the very instant would arm the same instant again, for ever.
            dead_at = peer.heard + limits.carrier_timeout
            ask_at = peer.heard + limits.carrier_ping
            if not peer.is_open:
                self._count_bad(peer, "handshake timeout")
                reason = f"no handshake within {limits.handshake_timeout:g} s"
                self.complain("peer refused", peer=peer, reason=reason)
                self.close(peer, reason)
            elif now >= dead_at:
                silent = now - peer.heard
                self.remark("peer silent", level="warning", peer=peer, seconds=round(silent, 1))
                self.close(peer, f"nothing heard for {silent:.0f} s")
            elif now >= ask_at:
                self._post(peer, [peer.carrier.ping() or b""])
                self._deadlines.arm(peer, min(now + limits.carrier_ping, dead_at))
            else:
                self._deadlines.arm(peer, ask_at)

    def _excuse_pause(self, gap: float) -> float:
        """We were stopped, not they (D13): hear what has come meanwhile, move every lease, and only then judge."""
        self.remark("paused", level="warning", seconds=round(gap, 3))
        until = self.broker.resumed_at = self._clock()
        for peer in list(self.peers):
            if peer.stream is not None and not peer.is_lost:
                peer.stream.read_dry()
            if self._clock() > until + 1.0:
                break
        now = self._clock()
        gap += now - until  # nobody whom we have not read yet was late meanwhile
        self.broker.shift(gap, now)
        for peer in self.peers:
            peer.heard = min(peer.heard + gap, now)
            if not peer.is_open and peer.alarm < inf:  # its handshake stood still as long as we did
                due = min(peer.alarm + gap, now + peer.limits.handshake_timeout)
                self._deadlines.disarm(peer)
                self._deadlines.arm(peer, due)
        return now

    # ---------------------------------------------------------------- peers

    def _enter(self, peer: Peer, stream: ByteStream) -> None:
        peer.stream = stream
        self.peers[peer] = None
        if not peer.dialled:  # whom we call does not count among those who came
            self._addresses[peer.address] = self._addresses.get(peer.address, 0) + 1
        peer.heard = peer.since = self._clock()
        self._deadlines.arm(peer, peer.heard + peer.limits.handshake_timeout)
        self._post(peer, peer.carrier.outgoing)
        peer.carrier.outgoing = []
        self.ask_for_turn()
        if peer.carrier.ready:  # it has no greeting to wait for
            self._open(peer, peer.heard)

    def _open(self, peer: Peer, now: float) -> None:
        peer.is_open = True
        peer.identity = peer.carrier.peer_identity
        self._deadlines.disarm(peer)
        if peer.carrier.ping() is not None:
            self._deadlines.arm(peer, now + peer.limits.carrier_ping)
        self._fenced(peer, lambda: peer.session.opened(peer, now))

    def _settle(self, peer: Peer, call: Callable[[float], object]) -> None:
        """Read what has arrived: an end of stream may stand behind it, or alone."""
        if peer.closing is None and peer.stream is not None and peer.stream.read_dry() and not peer.is_doomed():
            self._fenced(peer, lambda: call(self._clock()))
            self.ask_for_turn()

    def _lose(self, peer: Peer, reason: str) -> None:
        """The end of a connection: tell the session, once, and which of its messages never left."""
        if peer.is_lost:
            return
        peer.is_lost = True
        peer.owner.connections -= 1
        peer.carrier.release()
        self._budget.forget(peer)
        self._deadlines.disarm(peer)
        self._bad_messages.forget(peer)
        self._remarks.forget(peer)
        self.peers.pop(peer, None)
        peer.closed_in_order = peer.stream is not None and peer.stream.closed_in_order and not peer.out
        unsent = peer.take_unsent()
        if peer.stream is not None:
            peer.stream.close()
            self._count_traffic(peer, peer.stream)
        if peer.stream is not None and not peer.dialled:
            self._addresses[peer.address] -= 1
            if not self._addresses[peer.address]:
                del self._addresses[peer.address]
        peer.closing = peer.closing or reason
        if peer.is_open or peer.dialled:
            now = self._clock()
            self._fenced(peer, lambda: peer.session.lost(peer, unsent, now))

    def _post(self, peer: Peer, buffers: Sequence[Frame]) -> None:
        """Bytes of the carrier's own: greeting, handshake, life signs."""
        if not peer.out and buffers:
            self._dirty.append(peer)
            self.ask_for_turn()
        peer.out += buffers

    def complain(self, event: str, /, *, peer: seam.Peer | None = None, **fields: object) -> None:
        number = self._complaints.take(None, self._clock())
        if number < COMPLAINTS:
            self.remark(event, level="warning", peer=peer, **fields)
        elif number == COMPLAINTS:
            self.remark(event, level="warning", peer=peer, note="more of these in this second are not shown", **fields)

    # ---------------------------------------------------------------- when we are at fault

    def _fenced(self, peer: Peer, call: Callable[[], object]) -> None:
        try:
            call()
        except InvariantBroken:
            raise
        except Exception as error:
            self._crashed(peer, error, [])

    def _crashed(self, peer: Peer, error: Exception, messages: Messages) -> None:
        """A fault of ours hurts one peer only (R27). Lengths are logged, never contents."""
        shapes = [[len(f) for f in m] if isinstance(m, list) else f"too large: {m.size}" for m in messages[-64:]]
        self._blame_ourselves(error, peer=peer, messages=shapes)
        self.close(peer, "internal error")

    def _could_not_say(self, effect: Effect, error: Exception, now: float) -> None:
        """A worker that could not be told its job is let go, so that the job is not lost sight of. A caller that could
        not be told its outcome is told that the broker failed; if not even that is possible, it is hung up on."""
        self._blame_ourselves(error, effect=type(effect).__name__)
        if isinstance(effect, Give):
            worker = effect.attempt.worker
            self.broker.effects.append(Dismiss(worker, Farewell.EXPIRED, OUR_FAULT))
            self.broker.leave(worker, now, OUR_FAULT)
        elif isinstance(effect, Answer) and effect.reason is not OUR_FAULT:
            failure = Answer(effect.caller, effect.job, FAILED, b"", OUR_FAULT)
            try:
                effect.caller.recipient.execute(failure, now)
            except InvariantBroken:
                raise
            except Exception as second:
                self._could_not_say(failure, second, now)
        elif isinstance(effect, Answer) and isinstance(effect.caller, Peer):
            self.close(effect.caller, OUR_FAULT)

    def _blame_ourselves(self, error: Exception, peer: Peer | None = None, **fields: object) -> None:
        self.broker.counters.internal_errors += 1
        self.remark("internal error", level="error", peer=peer, error=repr(error), exception=error, **fields)

    def _count_bad(self, peer: Peer, reason: str) -> None:
        self.broker.counters.bad_message(_dialect_of(peer), reason)

    def _count_traffic(self, peer: Peer, stream: ByteStream) -> None:
        received, sent = self.traffic.get(_dialect_of(peer), (0, 0))
        self.traffic[_dialect_of(peer)] = received + stream.received, sent + stream.sent


def _dialect_of(peer: Peer) -> str:
    dialect: str = getattr(peer.session, "dialect", "?")
    return dialect
