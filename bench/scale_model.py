"""A cluster in one process, for simulations of its size: real brokers, real links and gossip, a model of NATS.

Every broker is the product's own code: `Broker`, `Runner`, `NatsClient` and `ClusterSide`. Sockets, the store and the
bytes of the NATS protocol are left out. Time is a number that advances by `STEP`. Everything that reaches a broker
within one step is one iteration of its loop, as in a broker under load, and a message arrives in the next step or
later. So a run depends on its seed only, apart from the CPU that it measures.

The model of NATS has no log. It delivers each message to the subscribers of its subject, in order, or loses it.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Sequence
from random import Random
from time import thread_time
from typing import Final

from dragoman.carriers.carrier import Frame
from dragoman.carriers.nats import Nats
from dragoman.cluster.broker_side import ClusterSide
from dragoman.cluster.nats_client import NatsClient
from dragoman.cluster.peers import TakenJob
from dragoman.cluster.settings import ClusterSettings
from dragoman.cluster.shard_bytes import CALL as CALL_BYTE
from dragoman.cluster.shard_bytes import with_shard
from dragoman.core.broker import Broker
from dragoman.core.effects import DeliverOutcome, Effect, SendJob
from dragoman.core.model import Attempt, Caller, JobId, Token, Worker
from dragoman.core.options import JobOptions, WorkerProfile
from dragoman.core.owners import Owner
from dragoman.core.policy import Policy
from dragoman.core.recipients import Recipient
from dragoman.core.rights import ALL_RIGHTS, LOCAL, Principal
from dragoman.core.states import DONE
from dragoman.server.admission import AdmissionLimits
from dragoman.server.runner import Runner
from dragoman.store.null import NullStore
from dragoman.testing.entropy import SeededEntropy

STEP: Final = 0.001  # seconds
START: Final = 1_000.0  # the first time
CALL: Final = JobOptions(queue_timeout=3_600.0, job_timeout=3_600.0, waits=True)
SLOT: Final = WorkerProfile(lease=30.0)
NUMBER_BYTES: Final = 8
PAYLOAD_BYTES: Final = 100
END_OF_ID: Final = bytes(7) + bytes((CALL_BYTE,))
PADDING: Final = bytes(PAYLOAD_BYTES - NUMBER_BYTES)


class CallEntropy(SeededEntropy):
    """Tokens of calls, as a broker in a cluster makes them."""

    def token(self) -> Token:
        return Token(with_shard(super().token(), CALL_BYTE))


class Traffic:
    """Messages of one kind on NATS. A message has one publisher, and is delivered to each subscriber."""

    __slots__ = ("bytes", "delivered", "lost", "published")

    def __init__(self) -> None:
        self.published = 0
        self.bytes = 0  # published, with their subjects
        self.delivered = 0
        self.lost = 0

    def __sub__(self, before: Traffic) -> Traffic:
        difference = Traffic()
        for name in self.__slots__:
            setattr(difference, name, getattr(self, name) - getattr(before, name))
        return difference

    def copy(self) -> Traffic:
        return self - Traffic()


class Jobs:
    """Facts about all jobs, by number: when each was submitted, how often it ran, and how many outcomes it had."""

    def __init__(self, most: int) -> None:
        self.submitted_at = array("d", bytes(8 * most))
        self.runs = bytearray(most)
        self.outcomes = bytearray(most)
        self.submitted = 0
        self.ended = 0
        self.done = 0
        self.wrong = 0  # results of another job
        self.local_waits = array("d")  # of jobs that started at a worker of their own broker
        self.hop_waits = array("d")  # of those that started elsewhere

    def new(self, now: float) -> bytes:
        """Number a job. Returns the number as bytes."""
        number = self.submitted
        self.submitted_at[number] = now
        self.submitted += 1
        return number.to_bytes(NUMBER_BYTES, "big")

    def end(self, number: int) -> None:
        self.outcomes[number] += 1
        self.ended += 1


class Programs(Recipient):
    """The callers and workers of one broker."""

    dialect = "simulated"

    def __init__(self, member: Member) -> None:
        self._member = member
        self._jobs = member.cluster.jobs

    def execute(self, effect: Effect, now: float) -> None:
        if type(effect) is SendJob:
            self._start(effect.attempt, now)
        elif type(effect) is DeliverOutcome:
            self._end(effect)

    def _start(self, attempt: Attempt, now: float) -> None:
        jobs = self._jobs
        number = int.from_bytes(attempt.job.payload[:NUMBER_BYTES], "big")  # its id may be another one
        jobs.runs[number] += 1
        wait = now - jobs.submitted_at[number]
        if type(attempt.job.callers[0]) is TakenJob:
            jobs.hop_waits.append(wait)
        else:
            jobs.local_waits.append(wait)
        self._member.started.append(attempt)

    def _end(self, effect: DeliverOutcome) -> None:
        job = effect.job
        assert job is not None, effect.reason  # no job of the simulation is refused
        effect.caller.remove_job(job)
        number = job.id[:NUMBER_BYTES]
        if effect.outcome is DONE:
            self._jobs.done += 1
            if effect.result[:NUMBER_BYTES] != number:
                self._jobs.wrong += 1
        self._jobs.end(int.from_bytes(number, "big"))


class Member:
    """One broker, with its callers and workers."""

    def __init__(self, cluster: Cluster, index: int) -> None:
        self.cluster = cluster
        self.index = index
        self.name = f"b{index}"
        self.sids: dict[bytes, bytes] = {}
        self.messages: list[tuple[bytes, bytes]] = []  # subject and payload, in order
        self.calls: list[str] = []  # services of calls that callers submit now
        self.finished: list[Attempt] = []
        self.started: list[Attempt] = []  # in this iteration
        self.next_run = START
        self.cpu = 0.0
        self.gossip_cpu = 0.0  # the part for gossip that is received
        self.iterations = 0
        self.remarks: dict[str, int] = defaultdict(int)
        policy = Policy(max_jobs=10_000_000, max_jobs_per_service=10_000_000, max_memory=1 << 40)
        self.broker = Broker(policy, CallEntropy(f"{cluster.seed} {index}"))
        self.owner = Owner(Principal(LOCAL, ALL_RIGHTS), is_limited=False)
        self.programs = Programs(self)
        self.caller = Caller(self.programs, self.owner)
        self.workers: list[Worker] = []
        self._beat = 0  # the worker that sends the next heartbeat
        self.runner = Runner(self.broker, NullStore(), lambda: cluster.now, self._log, AdmissionLimits())
        settings = ClusterSettings("scale", self.name)
        self.side = ClusterSide(self.broker, self.runner.connections, settings, self.owner, cluster.now)
        self.client = NatsClient(f"dgm.scale.r.{self.name}".encode(), self.side.watcher)
        self.side.start(self.client)
        self.runner.sessions.append(self.side)
        self.client.opened(Nats(), self._send, cluster.now)

    def add_workers(self, service: str, count: int) -> None:
        now = self.cluster.now
        for _ in range(count):
            worker = self.broker.join(self.programs, None, "w", (service,), SLOT, now, self.owner)
            assert worker is not None
            self.broker.idle(worker, now)
            self.workers.append(worker)

    def heartbeats(self, count: int) -> None:
        """Let this many workers send a heartbeat, each in its turn."""
        workers, now = self.workers, self.cluster.now
        for _ in range(min(count, len(workers))):
            self._beat = (self._beat + 1) % len(workers)
            self.broker.seen(workers[self._beat], now)

    def run(self) -> None:
        """One iteration of the loop: what has arrived, then what follows from it."""
        now, broker = self.cluster.now, self.broker
        begun = thread_time()
        if self.messages:
            self._receive(now, begun)
        if self.calls:
            services, self.calls = self.calls, []
            for service in services:
                number = self.cluster.jobs.new(now)
                broker.submit(service, number + PADDING, self.caller, CALL, now, id=JobId(number + END_OF_ID))
        if self.finished:
            attempts, self.finished = self.finished, []
            for attempt in attempts:
                broker.succeed(attempt, bytes(attempt.job.payload), now)
        self.next_run = self.runner.run_once()
        self.cpu += thread_time() - begun
        self.iterations += 1
        started, self.started = self.started, []
        for attempt in started:
            self.cluster.finish_later(self, attempt)

    def _receive(self, now: float, begun: float) -> None:
        """Receive messages in order, and measure the CPU of gossip: runs of messages of one kind."""
        messages, self.messages = self.messages, []
        gossip, was_gossip = self.cluster.gossip_subject, False
        for subject, payload in messages:
            is_gossip = subject == gossip
            if is_gossip is not was_gossip:
                at = thread_time()
                if was_gossip:
                    self.gossip_cpu += at - begun
                begun, was_gossip = at, is_gossip
            self.client.receive([self.sids[subject], subject, b"", b"", payload], now)
        if was_gossip:
            self.gossip_cpu += thread_time() - begun

    def _send(self, frames: Sequence[Frame]) -> None:
        if len(frames) == 1:
            verb, subject, sid = bytes(frames[0]).split()
            assert verb == b"SUB", verb
            self.sids[subject] = sid
            self.cluster.subscribers[subject].append(self)
        else:
            self.cluster.publish(self, bytes(frames[0]), bytes(frames[3]))

    def _log(self, level: str, event: str, **fields: object) -> None:
        assert event != "internal error", fields
        self.remarks[event] += 1


class Cluster:
    """Brokers, the messages between them, and the clock. `latency`: steps of a message; `loss`: probability that a
    delivery is lost."""

    def __init__(
        self, brokers: int, most_jobs: int, *, seed: int = 0, latency: int = 1, loss: float = 0.0, run_time: float = 1.0
    ) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.now = START
        self.step_number = 0
        self.jobs = Jobs(most_jobs)
        self.gossip, self.links = Traffic(), Traffic()
        self.subscribers: dict[bytes, list[Member]] = defaultdict(list)
        self.gossip_subject = b"dgm.scale.gossip"
        self.heartbeat = 0.0  # seconds between two heartbeats of a worker; 0: none
        self._latency = latency
        self._loss = loss
        self._run_time = run_time
        self._messages: dict[int, list[tuple[Member, bytes, bytes]]] = defaultdict(list)  # by the step of arrival
        self._attempts: dict[int, list[tuple[Member, Attempt]]] = defaultdict(list)  # by the step in which they end
        self.members = [Member(self, index) for index in range(brokers)]

    def publish(self, sender: Member, subject: bytes, payload: bytes) -> None:
        traffic = self.gossip if subject == self.gossip_subject else self.links
        traffic.published += 1
        traffic.bytes += len(subject) + len(payload)
        arrivals = self._messages[self.step_number + self._latency]
        for member in self.subscribers[subject]:
            if member is sender:
                continue
            if self._loss and self.random.random() < self._loss:
                traffic.lost += 1
                continue
            traffic.delivered += 1
            arrivals.append((member, subject, payload))

    def finish_later(self, member: Member, attempt: Attempt) -> None:
        """Let a worker run a job for an exponentially distributed time."""
        seconds = self.random.expovariate(1.0 / self._run_time)
        self._attempts[self.step_number + max(1, round(seconds / STEP))].append((member, attempt))

    def step(self, calls: Sequence[tuple[Member, str]] = ()) -> None:
        """Advance the clock by one step. `calls`: brokers and services of the calls that are submitted in it."""
        self.step_number += 1
        self.now = START + self.step_number * STEP
        for member, subject, payload in self._messages.pop(self.step_number, ()):
            member.messages.append((subject, payload))
        for member, attempt in self._attempts.pop(self.step_number, ()):
            member.finished.append(attempt)
        for member, service in calls:
            member.calls.append(service)
        beats = STEP / self.heartbeat if self.heartbeat else 0.0
        for member in self.members:
            if beats:
                due = len(member.workers) * beats
                member.heartbeats(int(due * self.step_number) - int(due * (self.step_number - 1)))
            if member.messages or member.calls or member.finished or self.now >= member.next_run:
                member.run()

    def run_until(self, is_over: Callable[[], bool], seconds: float) -> None:
        """Advance the clock until something is true, for at most this many seconds."""
        last = self.step_number + round(seconds / STEP)
        while not is_over():
            assert self.step_number < last, f"not within {seconds:g} s"
            self.step()

    def run_for(self, seconds: float) -> None:
        for _ in range(round(seconds / STEP)):
            self.step()
