"""A naive broker, without regard to cost: dictionaries of jobs and workers, and loops over all of them."""

from dataclasses import replace
from itertools import count
from math import inf
from types import SimpleNamespace as Record


class Naive:
    def __init__(self, policy, jitter):
        self.policy, self.jitter, self.sequence, self.paused = policy, jitter, count(), set()
        self.jobs, self.workers, self.holder = {}, {}, {}  # holder: (job's id, number of the dispatch) -> worker
        self.limits = {}  # by service

    def submit(self, id, service, job_options, deadline, now):
        job = self.jobs[id] = Record(
            id=id, service=service, options=job_options, deadline=deadline, arrival=now, tried=[]
        )
        job.state, job.outcome, job.attempt, job.until, job.queue_due = (
            "delayed",
            None,
            None,
            now + job_options.delay,
            None,
        )
        job.spent = job.deaths = job.refusals = job.given = 0
        job.orphan = inf  # time until which its caller may return

    def join(self, id, services, profile, now):
        worker = Record(
            id=id, services=services, profile=profile, seen=now, mark="starting", state="starting", since={}
        )
        worker.running, worker.stuck, worker.away = [], {}, inf  # stuck: attempt -> since when
        worker.refused = None  # the attempt that it would not take last
        worker.asked = 0 if profile.pulls else inf
        self.workers[id] = worker

    def idle(self, worker, now):
        worker.seen, worker.stuck, worker.mark = now, {}, None if worker.mark == "starting" else worker.mark

    def ask(self, worker, count, now):
        if worker.profile.pulls:
            worker.asked, worker.seen = count, now if count else worker.seen

    def give_back(self, attempt, delay, priority, spends, now):
        job, worker = self.jobs[attempt[0]], self.holder[attempt]
        worker.seen = now
        if job.attempt == attempt:
            if priority is not None:
                job.options = replace(job.options, priority=priority)
            self.mark_stuck(job, now)
            self.over(attempt, "failed", False, now, delay, spends)
        worker.stuck.pop(attempt, None)

    def extend(self, attempt, seconds, now):
        self.holder[attempt].seen = now
        if self.jobs[attempt[0]].attempt == attempt:
            self.jobs[attempt[0]].until = now + seconds

    def leave(self, worker, now, unseen=()):
        held, worker.running, worker.stuck, worker.mark = worker.running, [], {}, "gone"
        for attempt in held:
            self.jobs[attempt[0]].deaths += attempt not in unseen
            self.over(attempt, "lost", attempt in unseen, now)

    def word(self, verb, attempt, now):
        job, worker = self.jobs[attempt[0]], self.holder[attempt]
        worker.seen = worker.seen if verb == "undelivered" else now  # the attempt may be over
        if job.attempt == attempt and verb == "succeed":
            self.end(job, "done", now)
        elif job.attempt == attempt:
            is_unseen = verb == "undelivered" or (verb == "refuse" and worker.profile.may_decline)
            self.over(self.mark_stuck(job, now), "failed", is_unseen, now)
        if verb == "refuse":
            worker.refused = attempt if worker.profile.may_decline else None
        else:
            worker.stuck.pop(attempt, None)

    def match(self, now):
        """See who is idle and who is drained; then the best job goes to its best worker, again and again."""
        for w in self.workers.values():
            w.mark = "gone" if w.mark == "draining" and not (w.running or w.stuck) else w.mark
            number, known = next(self.sequence), w.since if w.state == "idle" else {}  # by service
            w.since = {service: known.get(service, number) for service in w.services}
            is_free = len(w.running) + len(w.stuck) < w.profile.capacity
            w.state = ("idle" if w.asked else "detached") if is_free else "busy" if w.running else "stuck"
            w.state = "backing off" if w.state == "stuck" and [*w.stuck] == [w.refused] else w.state
            w.state = w.mark or ("detached" if w.away < inf else w.state)
        ready = [j for j in self.jobs.values() if j.state == "waiting" and self.is_open(j.service, now)]
        idle = [w for w in self.workers.values() if w.state == "idle"]
        if pairs := [(j, w) for j in ready for w in idle if j.service in w.services]:
            job = min((j for j, _ in pairs), key=lambda j: j.arrival - 60 * j.options.priority)
            worker = min((w for j, w in pairs if j is job), key=lambda w: (w.id in job.tried, w.since[job.service]))
            job.given, job.state, job.until = job.given + 1, "running", now + job.options.job_timeout
            job.attempt = (job.id, job.given)
            self.holder[job.attempt], worker.state, worker.running = worker, None, [*worker.running, job.attempt]
            worker.asked -= 1
            if (limits := self.limits.get(job.service)) and limits.interval:
                limits.next = max(limits.next, now - 0.1) + limits.interval
            self.match(now)

    def limit(self, service, max_running, interval, now):
        limits = self.limits.setdefault(service, Record(max_running=inf, interval=0, next=-inf))
        if interval and interval != limits.interval:
            limits.next = min(limits.next, now + interval)
        limits.max_running, limits.interval = max_running or inf, interval

    def is_open(self, service, now):
        if service in self.paused or service not in self.limits:
            return service not in self.paused
        running = sum(j.service == service and j.state == "running" for j in self.jobs.values())
        limits = self.limits[service]
        return running < limits.max_running and (not limits.interval or limits.next <= now)

    def mark_stuck(self, job, now):
        self.holder[job.attempt].running.remove(job.attempt)
        self.holder[job.attempt].stuck[job.attempt] = now
        return job.attempt

    def end(self, job, outcome, now):
        job.attempt = job.attempt and self.mark_stuck(job, now) and None
        job.state, job.outcome = "ended", outcome

    def over(self, attempt, outcome, is_unseen, now, delay=None, spends=True):
        job, policy = self.jobs[attempt[0]], self.policy  # it ended without a result
        is_spent = spends and not is_unseen
        job.spent, job.refusals, job.attempt = job.spent + is_spent, (job.refusals + 1) * is_unseen, None
        job.tried.append(self.holder[attempt].id)
        if (
            (is_spent and job.spent >= job.options.attempts)
            or job.deaths >= policy.max_worker_deaths
            or (is_unseen and job.queue_due <= now)
        ):
            self.end(job, "timed out" if is_unseen else outcome, now)
        elif job.orphan <= now:
            self.end(job, "cancelled", now)
        elif is_unseen and job.refusals % policy.max_undelivered:
            job.state, job.until = "waiting", job.queue_due
            self.match(now)
        else:
            seconds = (
                delay
                if delay is not None
                else 0.1
                if outcome == "lost" and job.spent == 1
                else min(60.0, 2.0 ** (job.spent - 1))
            )
            job.state, job.until = "delayed", now + (0.1 if is_unseen else self.jittered(seconds, delay))
            job.queue_due = job.queue_due if is_unseen else None  # only a used attempt restarts the queue time-out
            if delay == 0:  # given back, and waits at once: others come before the worker that gave it back
                self.wait(job, now)
                self.match(now)

    def jittered(self, seconds, delay):
        return seconds * (1 + 0.2 * self.jitter()) if delay is None else delay

    def due(self, x):
        if x.id in self.jobs:
            return inf if x.outcome else min(x.until, x.deadline, inf if x.state == "running" else x.orphan)
        lease = inf if x.profile.silent_while_busy and (x.running or x.stuck) else x.profile.lease
        doubts = [since + x.profile.stuck_timeout for since in x.stuck.values()]
        away = x.away + x.profile.detach_timeout if lease == inf else inf  # else its lease runs on (R64)
        return inf if x.mark == "gone" else min([x.seen + lease, away, *doubts])

    def tick(self, now):
        while not self.match(now) and (due := [x for x in (self.jobs | self.workers).values() if self.due(x) <= now]):
            first = min(due, key=self.due)
            if first.id in self.workers:
                self.leave(first, now)
            elif first.state != "running" and first.orphan <= now < first.deadline:
                self.end(first, "cancelled", now)
            elif first.deadline <= now or first.state == "waiting":
                self.end(first, "timed out", now)
            elif first.state == "running":
                self.over(self.mark_stuck(first, now), "timed out", False, now)
            else:
                self.wait(first, now)

    def wait(self, job, now):
        job.state, job.arrival = "waiting", job.arrival if job.tried else now
        job.until = job.queue_due = job.queue_due or now + job.options.queue_timeout
