"""Every state × every method: each cell is legal with the result in the table, or changes nothing; none is an error.

The columns are the states of a job, or of a worker, in all the ways they are reached. The rows are the public methods,
called for that job, that worker, or the attempt that ties them: the current one if there is one, else one that has
ended. A hostile or confused client causes stale attempts, ended jobs and workers that have left.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from case_tables import check_every_row
from dragoman.core.availability import Availability
from dragoman.core.broker import Broker
from dragoman.core.failure import Failure
from dragoman.core.infinity import inf
from dragoman.core.job_extras import JobExtras, JobInput
from dragoman.core.limit_values import LimitValues, Rate
from dragoman.core.limiter import Limiter
from dragoman.core.model import Attempt, Job, Worker
from dragoman.core.operator import Operator
from dragoman.core.options import JobOptions, WorkerProfile
from dragoman.core.states import JobState, Outcome
from dragoman.core.store_entries import CollectInput
from dragoman.core.store_reports import StoreReports
from owners import LOCAL_OWNER

from .world import NOBODY, VERBS, VERBS_OF, Caller, CheckedBroker, attempt_of

NOW = 100.0
SOON = 105.0
FAR = 1e7
REFUSAL = Failure("", "", retry_in=inf, unknown=("x",))


@dataclass
class Scene:
    broker: CheckedBroker
    caller: Caller
    job: Job
    attempt: Attempt  # current, or over
    worker: Worker


# -------------------------------------------------------------------- ways into a state


def stage(broker: CheckedBroker, caller: Caller, job: Job, attempt: Attempt | None = None) -> Scene:
    """With an attempt of some other job, long over, where this one has none."""
    if attempt is None:
        worker = broker.worker("elsewhere", name="elsewhere", now=NOW)
        attempt = attempt_of(broker.call(service="elsewhere", now=NOW))
        broker.succeed(attempt, b"", NOW)
        broker.leave(worker, NOW, "gone")
    broker.take()
    return Scene(broker, caller, job, attempt, attempt.worker)


def begin(**profile: object) -> tuple[CheckedBroker, Caller, Worker]:
    broker = CheckedBroker()
    profile.setdefault("may_decline", True)
    return broker, Caller(), broker.worker(now=NOW, lease=1_000.0, **profile)


def alone() -> tuple[CheckedBroker, Caller]:
    return CheckedBroker(), Caller()


def job_unsaved() -> Scene:
    broker, caller = alone()
    return stage(broker, caller, broker.call(caller=caller, durable=True, now=NOW))


def job_waiting() -> Scene:
    broker, caller = alone()
    return stage(broker, caller, broker.call(caller=caller, now=NOW, queue_timeout=60.0))


def job_returned() -> Scene:
    """A job that was dispatched, and that no worker can have seen."""
    broker, caller, worker = begin()
    attempt = broker.running(worker, caller=caller, now=NOW, queue_timeout=60.0)
    broker.leave(worker, NOW, "gone", unseen=[attempt])
    return stage(broker, caller, attempt.job, attempt)


def job_delayed() -> Scene:
    broker, caller = alone()
    return stage(broker, caller, broker.call(caller=caller, now=NOW, delay=2.0))


def job_resting() -> Scene:
    """Its first attempt failed."""
    broker, caller, worker = begin()
    attempt = broker.running(worker, caller=caller, now=NOW, attempts=2)
    broker.fail(attempt, "no", NOW)
    return stage(broker, caller, attempt.job, attempt)


def job_running() -> Scene:
    broker, caller, worker = begin()
    attempt = broker.running(worker, caller=caller, now=NOW)
    return stage(broker, caller, attempt.job, attempt)


def job_retried() -> Scene:
    """Its first attempt timed out and is the stale one here; its second runs."""
    broker, caller, _ = begin()
    broker.worker(now=NOW, name="second")
    stale = broker.running(broker.worker("unused", now=NOW), caller=caller, now=NOW, attempts=2, job_timeout=3.0)
    broker.run_until(NOW + 4.0)
    assert stale.job.state is JobState.RUNNING
    return stage(broker, caller, stale.job, stale)


def job_stored() -> Scene:
    """A background job that runs."""
    broker, caller, _ = begin()
    job = broker.store(caller=caller, now=NOW, attempts=1)
    broker.save_all(NOW)
    return stage(broker, caller, job, attempt_of(job))


def job_ended() -> Scene:
    broker, caller, worker = begin()
    attempt = broker.running(worker, caller=caller, now=NOW)
    broker.succeed(attempt, b"", NOW)
    return stage(broker, caller, attempt.job, attempt)


def job_kept() -> Scene:
    broker, caller, worker = begin()
    attempt = broker.running(worker, caller=caller, now=NOW, key="k")
    broker.withdraw(attempt.job, NOW)
    return stage(broker, caller, attempt.job, attempt)


def job_quarantined() -> Scene:
    scene = job_stored()
    scene.broker.fail(scene.attempt, "no", NOW)
    scene.broker.save_all(NOW)
    scene.broker.take()
    return scene


def job_dependent(input: JobInput = JobInput.PAYLOAD) -> Scene:
    """It waits for another job."""
    broker, caller = alone()
    before = broker.store(service="before", now=NOW)
    extras = JobExtras(after=(before.id,), input=input)
    job_options = JobOptions(durable=True, waits=True)
    job = broker.submit("s", b"own", caller, job_options, NOW, extras=extras)
    broker.save_all(NOW)
    return stage(broker, caller, job)


def job_decided(input: JobInput = JobInput.PAYLOAD) -> Scene:
    """The job that it waited for is done, and no tick came since."""
    scene = job_dependent(input)
    worker = scene.broker.worker("before", name="before", now=NOW)
    [attempt] = worker.running.values()
    scene.broker.succeed(attempt, b"input", NOW)
    scene.broker.leave(worker, NOW, "gone")
    scene.broker.save_all(NOW)
    scene.broker.take()
    return scene


def job_collecting() -> Scene:
    """Its input is being loaded."""
    scene = job_decided(JobInput.RESULTS)
    scene.broker.tick(NOW)
    assert any(isinstance(effect, CollectInput) for effect in scene.broker.take())
    return scene


def worker_starting() -> Scene:
    broker, caller = alone()
    scene = stage(broker, caller, broker.call(service="f", caller=caller, now=NOW))
    scene.worker = broker.starting(now=NOW, lease=1_000.0)
    return scene


def worker_idle() -> Scene:
    return job_ended()


def worker_busy() -> Scene:
    return job_running()


def worker_half() -> Scene:
    """One slot of two is taken."""
    broker, caller, worker = begin(capacity=2)
    attempt = broker.running(worker, caller=caller, now=NOW)
    return stage(broker, caller, attempt.job, attempt)


def worker_stuck() -> Scene:
    return job_kept()


def worker_rest() -> Scene:
    """It would not take its job."""
    scene = job_running()
    scene.broker.attempts.refuse(scene.attempt, NOW)
    return scene


def worker_asking() -> Scene:
    """It pulls, and waits for one job."""
    scene = worker_deaf()
    scene.broker.availability.ask(scene.worker, 1, NOW)
    return scene


def worker_deaf() -> Scene:
    """A worker that pulls, and has requested no job since its last result."""
    broker = CheckedBroker()
    caller, worker = Caller(), broker.starting(now=NOW, lease=1_000.0, may_decline=True, pulls=True)
    broker.availability.ask(worker, 1, NOW)
    broker.idle(worker, NOW)
    attempt = broker.running(worker, caller=caller, now=NOW)
    broker.succeed(attempt, b"", NOW)
    return stage(broker, caller, attempt.job, attempt)


def worker_pulled() -> Scene:
    """It pulls, and holds one of the two jobs that it has slots for."""
    broker = CheckedBroker()
    caller = Caller()
    worker = broker.starting(now=NOW, lease=1_000.0, may_decline=True, pulls=True, capacity=2)
    broker.availability.ask(worker, 1, NOW)
    broker.idle(worker, NOW)
    attempt = broker.running(worker, caller=caller, now=NOW)
    return stage(broker, caller, attempt.job, attempt)


def worker_draining() -> Scene:
    scene = job_running()
    scene.broker.availability.drain(scene.worker, NOW)
    return scene


def worker_staying() -> Scene:
    """Drained, and not dismissed though it holds nothing."""
    scene = worker_idle()
    scene.broker.availability.drain(scene.worker, NOW, stays=True)
    return scene


def worker_doubt() -> Scene:
    """A worker that is draining and stuck."""
    scene = job_kept()
    scene.broker.availability.drain(scene.worker, NOW)
    return scene


def away(scene: Scene) -> Scene:
    scene.broker.availability.detach(scene.worker, NOW)
    return scene


def worker_away_idle() -> Scene:
    return away(worker_idle())


def worker_away_busy() -> Scene:
    return away(worker_busy())


def worker_away_doubt() -> Scene:
    return away(worker_stuck())


def worker_away_drain() -> Scene:
    return away(worker_draining())


def worker_gone() -> Scene:
    scene = job_running()
    scene.broker.leave(scene.worker, NOW, "gone")
    return scene


# -------------------------------------------------------------------- the verbs


def orphaned(scene: Scene) -> None:
    """A job whose caller did not return in time."""
    scene.broker.availability.caller_away(scene.caller, SOON)
    scene.broker.tick(SOON)


ACTS: dict[str, Callable[[Scene], object]] = {
    "submit": lambda s: s.broker.submit("s", b"new", Caller("new"), JobOptions(), SOON),
    "withdraw": lambda s: s.broker.withdraw(s.job, SOON),
    "caller_away": lambda s: s.broker.availability.caller_away(s.caller, SOON),
    "caller_back": lambda s: s.broker.availability.caller_back(s.caller),
    "caller_gone": lambda s: s.broker.caller_gone(s.caller, SOON),
    "orphaned": orphaned,
    "retry": lambda s: s.broker.operator.retry(s.job, SOON),
    "release": lambda s: s.broker.operator.release(s.job, SOON),
    "join": lambda s: s.broker.join(NOBODY, None, "new", ["s"], WorkerProfile(), SOON, LOCAL_OWNER),
    "idle": lambda s: s.broker.idle(s.worker, SOON),
    "seen": lambda s: s.broker.seen(s.worker, SOON),
    "detach": lambda s: s.broker.availability.detach(s.worker, SOON),
    "attach": lambda s: s.broker.availability.attach(s.worker, SOON),
    "measured": lambda s: s.broker.availability.measured(s.worker, 0, SOON),
    "ask": lambda s: s.broker.availability.ask(s.worker, 1, SOON),
    "unask": lambda s: s.broker.availability.ask(s.worker, 0, SOON),
    "resize": lambda s: s.broker.availability.resize(s.worker, 4, SOON),
    "partition": lambda s: s.broker.availability.partition(["s"], NOBODY),
    "heal": lambda s: s.broker.availability.heal(["s"]),
    "offer": lambda s: s.broker.availability.offer(s.worker, ["other"], SOON),
    "leave": lambda s: s.broker.leave(s.worker, SOON, "gone"),
    "unseen": lambda s: s.broker.leave(s.worker, SOON, "gone", unseen=[s.attempt]),
    "drain": lambda s: s.broker.availability.drain(s.worker, SOON),
    "kill": lambda s: s.broker.availability.drain(s.worker, SOON, at_once=True),
    "succeed": lambda s: s.broker.succeed(s.attempt, b"result", SOON),
    "fail": lambda s: s.broker.fail(s.attempt, "no", SOON),
    "stopped": lambda s: s.broker.attempts.stopped(s.attempt, SOON),
    "refuse": lambda s: s.broker.attempts.refuse(s.attempt, SOON),
    "reject": lambda s: s.broker.attempts.reject(s.attempt, "no", SOON),
    "undelivered": lambda s: s.broker.attempts.undelivered(s.attempt, SOON),
    "give_back": lambda s: s.broker.attempts.give_back(s.attempt, SOON),
    "give_later": lambda s: s.broker.attempts.give_back(s.attempt, SOON, delay=9.0, spends=True),
    "extend": lambda s: s.broker.attempts.extend(s.attempt, 30.0, SOON),
    "limit": lambda s: s.broker.attempts.limit(s.attempt, 30.0, SOON),
    "progress": lambda s: s.broker.attempts.progress(s.attempt, b"half", SOON),
    "begin": lambda s: s.broker.attempts.begin(s.attempt, SOON),
    "pause": lambda s: s.broker.operator.pause("s"),
    "resume": lambda s: s.broker.operator.resume("s", SOON),
    "close": lambda s: s.broker.operator.close(SOON),
    "abort": lambda s: s.broker.operator.abort(SOON),
    "saved": lambda s: s.broker.save_all(SOON),
    "unsaved": lambda s: s.broker.save_all(SOON, problem="disk full"),
    "extend_leases": lambda s: s.broker.extend_leases(5.0, SOON),
    "limits_changed": lambda s: s.broker.operator.limits_changed(SOON),
    "set_by_operator": lambda s: s.broker.limit("s", SOON, max_running=1, max_running_per_tenant=1, rate="1/s"),
    "declare": lambda s: (
        s.broker.limiter.declare(s.worker, {"s": LimitValues(1, 1, Rate(1))}, SOON) if s.worker else None
    ),
    "declare_parameters": lambda s: s.broker.limiter.declare_parameters(s.worker, {"s": {"properties": {"x": {}}}}),
    "refused": lambda s: s.broker.attempts.refused(s.attempt, REFUSAL, SOON),
    "loaded": lambda s: s.broker.limiter.loaded(SOON),
    "take_input": lambda s: s.broker.dependencies.take_input(s.job, b"own", {}, SOON),
    "tick": lambda s: s.broker.tick(SOON),
    "far": lambda s: s.broker.tick(FAR),
}

# w waiting, d delayed, p dependent, r running; and how it ended: D done, F failed, T timed out, L lost, C cancelled,
# R refused.
JOBS = """
             unsaved waiting returned delayed resting running retried stored ended kept quarantined
submit       w       w       w        d       d       r       r       r      D     C    F
withdraw     C       C       C        C       C       C       C       C      D     C    F
caller_away  w       w       w        d       d       r       r       r      D     C    F
caller_back  w       w       w        d       d       r       r       r      D     C    F
caller_gone  w       C       C        C       C       r       r       r      D     C    F
orphaned     w       C       C        C       C       r       r       r      D     C    F
retry        w       w       w        d       d       r       r       r      D     C    F
release      w       w       w        d       d       r       r       r      D     C    r
join         w       w       w        d       d       r       r       r      D     C    F
idle         w       w       w        d       d       r       r       r      D     C    F
seen         w       w       w        d       d       r       r       r      D     C    F
detach       w       w       w        d       d       r       r       r      D     C    F
attach       w       w       w        d       d       r       r       r      D     C    F
measured     w       w       w        d       d       r       r       r      D     C    F
ask          w       w       w        d       d       r       r       r      D     C    F
unask        w       w       w        d       d       r       r       r      D     C    F
resize       w       w       w        d       d       r       r       r      D     C    F
partition    w       w       w        d       d       r       r       r      D     C    F
heal         w       w       w        d       d       r       r       r      D     C    F
offer        w       w       w        d       d       r       r       r      D     C    F
leave        w       w       w        d       d       L       r       L      D     C    F
unseen       w       w       w        d       d       w       r       w      D     C    F
drain        w       w       w        d       d       r       r       r      D     C    F
kill         w       w       w        d       d       L       r       L      D     C    F
succeed      w       w       w        d       d       D       r       D      D     C    F
fail         w       w       w        d       d       F       r       F      D     C    F
stopped      w       w       w        d       d       T       r       T      D     C    F
refuse       w       w       w        d       d       w       r       w      D     C    F
reject       w       w       w        d       d       F       r       F      D     C    F
undelivered  w       w       w        d       d       r       r       r      D     C    F
give_back    w       w       w        d       d       r       r       r      D     C    F
give_later   w       w       w        d       d       F       r       F      D     C    F
extend       w       w       w        d       d       r       r       r      D     C    F
limit        w       w       w        d       d       r       r       r      D     C    F
progress     w       w       w        d       d       r       r       r      D     C    F
begin        w       w       w        d       d       r       r       r      D     C    F
pause        w       w       w        d       d       r       r       r      D     C    F
resume       w       w       w        d       d       r       r       r      D     C    F
close        w       R       R        R       R       r       r       r      D     C    F
abort        w       w       w        d       d       L       L       L      D     C    F
saved        w       w       w        d       d       r       r       r      D     C    F
unsaved      R       w       w        d       d       r       r       r      D     C    F
extend_leases  w       w       w        d       d       r       r       r      D     C    F
limits_changed w       w       w        d       d       r       r       r      D     C    F
set_by_operator w       w       w        d       d       r       r       r      D     C    F
declare w       w       w        d       d       r       r       r      D     C    F
declare_parameters w       w       w        d       d       r       r       r      D     C    F
refused w       w       w        d       d       r       r       r      D     C    F
loaded w       w       w        d       d       r       r       r      D     C    F
take_input   w       w       w        d       d       r       r       r      D     C    F
tick         w       w       w        w       r       r       r       r      D     C    F
far          w       T       T        w       w       T       T       T      D     C    F
"""

# The same for jobs that wait for other jobs (R190).
DEPENDENTS = """
              dependent decided collecting
submit         p         p       p
withdraw       C         C       C
caller_away    p         p       p
caller_back    p         p       p
caller_gone    p         p       p
orphaned       p         w       p
retry          p         p       p
release        p         p       p
join           p         p       p
idle           p         p       p
seen           p         p       p
detach         p         p       p
attach         p         p       p
measured       p         p       p
ask            p         p       p
unask          p         p       p
resize         p         p       p
partition      p         p       p
heal           p         p       p
offer          p         p       p
leave          p         p       p
unseen         p         p       p
drain          p         p       p
kill           p         p       p
succeed        p         p       p
fail           p         p       p
stopped        p         p       p
refuse         p         p       p
reject         p         p       p
undelivered    p         p       p
give_back      p         p       p
give_later     p         p       p
extend         p         p       p
limit          p         p       p
progress       p         p       p
begin          p         p       p
pause          p         p       p
resume         p         p       p
close          p         p       p
abort          p         p       p
saved          p         p       p
unsaved        p         p       p
extend_leases  p         p       p
limits_changed p         p       p
set_by_operator p         p       p
declare        p         p       p
declare_parameters        p         p       p
refused        p         p       p
loaded         p         p       p
take_input     p         p       w
tick           p         w       p
far            p         w       p
"""

# o starting, i idle, b busy, u stuck, r resting, a detached, d draining, g gone.
WORKERS = """
            starting idle busy half stuck rest draining staying doubt away_idle away_busy away_doubt away_drain gone
submit      o       b    b    b    u        r    d        d       d     a         a         a          d          g
withdraw    o       i    u    i    u        r    d        d       d     a         a         a          d          g
caller_away o       i    b    i    u        r    d        d       d     a         a         a          d          g
caller_back o       i    b    i    u        r    d        d       d     a         a         a          d          g
caller_gone o       i    b    i    u        r    d        d       d     a         a         a          d          g
orphaned    o       i    b    i    u        r    d        d       d     a         a         a          d          g
retry       o       i    b    i    u        r    d        d       d     a         a         a          d          g
release     o       i    b    i    u        r    d        d       d     a         a         a          d          g
join        o       i    b    i    u        r    d        d       d     a         a         a          d          g
idle        i       i    b    i    i        b    d        d       g     a         a         a          d          g
seen        o       i    b    i    u        r    d        d       d     a         a         a          d          g
detach      o       a    a    a    a        a    d        d       d     a         a         a          d          g
attach      o       i    b    i    u        r    d        d       d     i         b         u          d          g
measured    o       i    b    i    u        r    d        d       d     a         a         a          d          g
ask         o       i    b    i    u        r    d        d       d     a         a         a          d          g
unask       o       i    b    i    u        r    d        d       d     a         a         a          d          g
resize      o       i    i    i    i        i    d        d       d     a         a         a          d          g
partition   o       i    b    i    u        r    d        d       d     a         a         a          d          g
heal        o       i    b    i    u        r    d        d       d     a         a         a          d          g
offer       o       i    b    i    u        r    d        d       d     a         a         a          d          g
leave       g       g    g    g    g        g    g        g       g     g         g         g          g          g
unseen      g       g    g    g    g        g    g        g       g     g         g         g          g          g
drain       g       g    d    d    d        d    d        g       d     g         d         d          d          g
kill        g       g    g    g    g        g    g        g       g     g         g         g          g          g
succeed     o       i    i    i    i        b    g        d       g     a         a         a          g          g
fail        o       i    i    i    i        b    g        d       g     a         a         a          g          g
stopped     o       i    i    i    i        b    g        d       g     a         a         a          g          g
refuse      o       i    r    b    r        r    d        d       d     a         a         a          d          g
reject      o       i    i    i    u        r    g        d       d     a         a         a          g          g
undelivered o       i    b    i    i        b    g        d       g     a         a         a          g          g
give_back   o       i    b    i    i        b    g        d       g     a         a         a          g          g
give_later  o       i    i    i    i        b    g        d       g     a         a         a          g          g
extend      o       i    b    i    u        r    d        d       d     a         a         a          d          g
limit       o       i    b    i    u        r    d        d       d     a         a         a          d          g
progress    o       i    b    i    u        r    d        d       d     a         a         a          d          g
begin       o       i    b    i    u        r    d        d       d     a         a         a          d          g
pause       o       i    b    i    u        r    d        d       d     a         a         a          d          g
resume      o       i    b    i    u        r    d        d       d     a         a         a          d          g
close       o       i    b    i    u        r    d        d       d     a         a         a          d          g
abort       g       g    g    g    g        g    g        g       g     g         g         g          g          g
saved       o       i    b    i    u        r    d        d       d     a         a         a          d          g
unsaved     o       i    b    i    u        r    d        d       d     a         a         a          d          g
extend_leases o       i    b    i    u        r    d        d       d     a         a         a          d          g
limits_changed o       i    b    i    u        r    d        d       d     a         a         a          d          g
set_by_operator o       i    b    i    u        r    d        d       d     a         a         a          d          g
declare o       i    b    i    u        r    d        d       d     a         a         a          d          g
declare_parameters o    i    b    i    u        r    d        d       d     a         a         a          d          g
refused o       i    b    i    u        r    d        d       d     a         a         a          d          g
loaded o       i    b    i    u        r    d        d       d     a         a         a          d          g
take_input  o       i    b    i    u        r    d        d       d     a         a         a          d          g
tick        o       i    b    i    u        r    d        d       d     a         a         a          d          g
far         g       g    g    g    g        g    g        g       g     g         g         g          g          g
"""

# The same for workers that pull (R131).
PULLERS = """
            asking deaf pulled
submit      b      a    a
withdraw    i      a    a
caller_away i      a    a
caller_back i      a    a
caller_gone i      a    a
orphaned    i      a    a
retry       i      a    a
release     i      a    a
join        i      a    a
idle        i      a    a
seen        i      a    a
detach      a      a    a
attach      i      a    a
measured    i      a    a
ask         i      i    i
unask       a      a    a
resize      i      a    a
partition   i      a    a
heal        i      a    a
offer       i      a    a
leave       g      g    g
unseen      g      g    g
drain       g      g    d
kill        g      g    g
succeed     i      a    a
fail        i      a    a
stopped     i      a    a
refuse      i      a    a
reject      i      a    a
undelivered i      a    a
give_back   i      a    a
give_later  i      a    a
extend      i      a    a
limit       i      a    a
progress    i      a    a
begin       i      a    a
pause       i      a    a
resume      i      a    a
close       i      a    a
abort       g      g    g
saved       i      a    a
unsaved     i      a    a
extend_leases i      a    a
limits_changed i      a    a
set_by_operator i      a    a
declare i      a    a
declare_parameters i      a    a
refused i      a    a
loaded i      a    a
take_input  i      a    a
tick        i      a    a
far         g      g    g
"""

OUTCOMES = {
    Outcome.DONE: "D",
    Outcome.FAILED: "F",
    Outcome.TIMED_OUT: "T",
    Outcome.LOST: "L",
    Outcome.CANCELLED: "C",
    Outcome.REFUSED: "R",
}


def letter_of_job(job: Job) -> str:
    if job.outcome is not None:
        return OUTCOMES[job.outcome]
    return "p" if job.state is JobState.DEPENDENT else job.state[0]


def letter_of_worker(worker: Worker) -> str:
    return {"starting": "o", "detached": "a", "stuck": "u", "backing off": "r"}.get(worker.state, worker.state[0])


def cells(table: str) -> list[tuple[str, str, str]]:
    states, *rows = (line.split() for line in table.strip().splitlines())
    return [(state, verb, cell) for verb, *row in rows for state, cell in zip(states, row, strict=True)]


def test_tables_have_a_row_for_every_verb() -> None:
    for table in (JOBS, DEPENDENTS, WORKERS, PULLERS):
        rows = [line.split()[0] for line in table.strip().splitlines()[1:]]
        assert rows == list(ACTS)
        assert set(VERBS) <= set(rows)


def test_every_public_method_of_the_broker_is_a_verb() -> None:
    """Attempts are left out: the core itself uses most of their methods."""
    for part, kind in (
        ("", Broker),
        ("availability", Availability),
        ("operator", Operator),
        ("store_reports", StoreReports),
        ("limiter", Limiter),
    ):
        public = {name for name in dir(kind) if not name.startswith("_") and callable(getattr(kind, name))}
        in_cluster = {"declare_elsewhere", "grant", "not_started"}  # tests/unit/cluster/test_limit_shares.py
        in_cluster |= {"shard_left", "step", "unwritable", "writable"}  # tests/unit/server/test_shards_apart.py
        assert public - {"next_deadline", "undeclare"} - in_cluster == set(VERBS_OF[part])


def test_job_in_every_state_meets_every_verb() -> None:
    """I9, D2, D4; the invariants are checked after the call, and after a second one."""

    def check(state: str, verb: str, expected: str) -> None:
        scene: Scene = globals()[f"job_{state}"]()
        ACTS[verb](scene)
        assert letter_of_job(scene.job) == expected
        scene.broker.take()
        ACTS[verb](scene)

    check_every_row(check, [*cells(JOBS), *cells(DEPENDENTS)])


def test_worker_in_every_state_meets_every_verb() -> None:
    """D1, D11, I2."""

    def check(state: str, verb: str, expected: str) -> None:
        scene: Scene = globals()[f"worker_{state}"]()
        ACTS[verb](scene)
        assert letter_of_worker(scene.worker) == expected
        scene.broker.take()
        ACTS[verb](scene)

    check_every_row(check, [*cells(WORKERS), *cells(PULLERS)])


def test_every_state_has_a_column() -> None:
    jobs = {globals()[f"job_{state}"]().job.state for state, _, _ in [*cells(JOBS), *cells(DEPENDENTS)]}
    assert jobs == set(JobState)
    workers = {letter_of_worker(globals()[f"worker_{state}"]().worker) for state, _, _ in cells(WORKERS)}
    assert workers == set("oiburadg")
