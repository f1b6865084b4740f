"""A broker that is killed or stopped with jobs in every state: their states afterwards (R105, R107, R111)."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import datetime, timedelta
from http.client import HTTPException
from pathlib import Path
from typing import Any

from chaos_services import result_of
from survivor import Survivor
from workforce import Workforce

from programs import PATIENCE, Programs, until

RESTS = {"retry_first": 3600, "retry_jitter": 0}
S = r"\d+(\.\d)? s"


class ManualWorker:
    """An HTTP worker that does nothing by itself."""

    def __init__(self, setup: Survivor) -> None:
        self._setup = setup
        status, about = setup.say("POST", "/v1/workers", services=["helper's"], name="helper", capacity=5)
        assert status == 201, about
        self._path, self._token = f"/v1/workers/{about['id']}", about["token"]

    def take(self) -> str:
        """Take the next job. Returns the token of its attempt."""
        path = f"{self._path}/next?wait=10"
        status, headers, _ = self._setup.ask("POST", path, Dragoman_Worker_Token=self._token)
        assert status == 200
        return headers["dragoman-attempt"]

    def deliver(self, attempt: str, result: bytes, outcome: str = "done") -> int:
        path = f"{self._path}/result?outcome={outcome}"
        said = {"Dragoman_Attempt": attempt, "Dragoman_Worker_Token": self._token}
        return self._setup.ask("POST", path, result, **said)[0]


def begun(workforce: Workforce, job: str) -> None:
    until(lambda: job in workforce.executions.read_text(), f"job {job} has begun")


def short(view: dict[str, Any]) -> tuple[Any, ...]:
    """Return a job's state, outcome, and the ends of its attempts."""
    return view["state"], view["outcome"], [each["outcome"] for each in view["attempts"]]


# -------------------------------------------------------------------- kill -9


def test_jobs_of_every_state_survive_a_kill(programs: Programs) -> None:
    setup = Survivor(programs, "--set", "worker_resume_timeout=5")
    workforce = Workforce(programs, setup)
    remote = ManualWorker(setup)
    gate = programs.folder / "gate"
    jobs, attempts = one_of_each(setup, remote, workforce, gate)
    before = {name: setup.job(id) for name, id in jobs.items()}
    setup.kill_and_start()
    told = setup.numbers()
    assert told["dragoman_jobs_restored_total"] == sum(view["state"] != "ended" for view in before.values())
    assert told["dragoman_outcomes_kept"] == sum(view["state"] == "ended" for view in before.values())

    # What a worker has of it is still its own, under the attempt that it was given (R107).
    assert remote.deliver(attempts["delivered late"], b"late, but here") == 204
    assert remote.deliver(attempts["failed late"], b"too hard", "failed") == 204
    assert remote.deliver(attempts["delivered late"], b"again") in (409, 410)
    # Who does not come back within `resume` has lost it.
    gate.touch()
    setup.becomes(jobs["forgotten"], "waiting")
    setup.becomes(jobs["at a native worker"], "done")
    after = {name: setup.job(id) for name, id in jobs.items()}
    assert {name: short(view) for name, view in after.items()} == {
        "waiting": ("waiting", None, []),
        "delayed": ("delayed", None, []),
        "at a native worker": ("ended", "done", ["lost", "done"]),
        "resting": ("delayed", None, ["failed"]),
        "in quarantine": ("ended", "failed", ["failed"]),
        "done": ("ended", "done", ["done"]),
        "cancelled": ("ended", "cancelled", []),
        "delivered late": ("ended", "done", ["done"]),
        "failed late": ("delayed", None, ["failed"]),
        "forgotten": ("waiting", None, ["lost"]),
        "paused": ("waiting", None, []),
    }
    assert {name: view["result"] for name, view in after.items() if view["outcome"] == "done"} == {
        "at a native worker": result_of(jobs["at a native worker"], f"until {gate}".encode()).decode(),
        "done": "well done",
        "delivered late": "late, but here",
    }
    kept = ("id", "service", "priority", "max_attempts", "created", "key", "quarantined", "retry_of")
    assert {name: [view[each] for each in kept] for name, view in after.items()} == {
        name: [view[each] for each in kept] for name, view in before.items()
    }
    for name in ("delayed", "resting"):
        was, is_now = (datetime.fromisoformat(view[name]["not_before"]) for view in (before, after))
        assert abs(is_now - was) < timedelta(seconds=1), name
    judge_whys(setup.whys(jobs))

    # What can be done with them can still be done.
    assert setup.enqueue("helper's", "done", key="the key") == jobs["done"]
    status, retried = setup.say("POST", f"/v1/jobs/{jobs['in quarantine']}/retry")
    assert (status, retried["retry_of"]) == (202, jobs["in quarantine"])
    assert setup.say("POST", "/v1/services/paused/resume")[1]["paused"] is False


def one_of_each(
    setup: Survivor, remote: ManualWorker, workforce: Workforce, gate: Path
) -> tuple[dict[str, str], dict[str, str]]:
    """Create a job of each kind. Returns their ids by name, and the tokens of the attempts that the HTTP worker holds.
    The last job is acknowledged after everything else was decided, so all of it is on disk."""
    native = setup.enqueue("tasks", f"until {gate}")
    begun(workforce, native)
    jobs, attempts = {"at a native worker": native}, {}
    for name, order in {"resting": RESTS, "in quarantine": {"attempts": 1}}.items():
        jobs[name] = setup.enqueue("helper's", name, **order)
        assert remote.deliver(remote.take(), b"no luck", "failed") == 204
    jobs["done"] = setup.enqueue("helper's", "done", key="the key")
    assert remote.deliver(remote.take(), b"well done") == 204
    for name in ("delivered late", "failed late", "forgotten"):
        jobs[name] = setup.enqueue("helper's", name, **RESTS)
        attempts[name] = remote.take()
    jobs["waiting"] = setup.enqueue("nobody's", "w", priority=7)
    jobs["delayed"] = setup.enqueue("tasks", "d", delay=3600)
    jobs["cancelled"] = setup.enqueue("nobody's", "c")
    assert setup.say("DELETE", f"/v1/jobs/{jobs['cancelled']}")[0] == 200
    assert setup.say("POST", "/v1/services/paused/pause", by="the night shift")[0] == 200
    jobs["paused"] = setup.enqueue("paused", "p")
    return jobs, attempts


def judge_whys(told: dict[str, str]) -> None:
    expected = {
        "waiting": r"It waits: no worker offers 'nobody's'\.",
        "delayed": rf"It may start in {S}: it was submitted with a delay\.",
        "at a native worker": r"It is done, on attempt 2\.",
        "resting": rf"Retry in {S}: attempt 1 of 3 failed on worker helper: no luck\.",
        "in quarantine": r"It ended failed: attempt 1 of 1 failed on worker helper: no luck\. "
        r"It is in quarantine: a retry makes a new job from it\.",
        "done": r"It is done\.\nIt holds the key 'the key' while its outcome is kept\.",
        "cancelled": r"It ended cancelled: cancelled on request\.",
        "delivered late": r"It is done\.",
        "failed late": rf"Retry in {S}: attempt 1 of 3 failed on worker helper: too hard\.",
        "forgotten": r"It waits: no worker offers 'helper's'\.",
        "paused": r"It waits: service 'paused' is paused by the night shift\.",
    }
    odd = {name: said for name, said in told.items() if not re.fullmatch(expected[name], said)}
    assert not odd


def test_job_with_one_attempt_runs_once_however_the_broker_is_killed(programs: Programs) -> None:
    """R108, I8. A bug: a job was sent to its worker before the attempt was on disk. One whose handler killed the broker
    at once ran again after the restart, with attempts=1, and four times with attempts=3."""
    setup = Survivor(programs, "--set", "worker_resume_timeout=0.1")
    workforce = Workforce(programs, setup)
    victim = programs.folder / "victim"
    allowed = {}
    for attempts in (1, 1, 1, 3):
        setup.say("POST", "/v1/services/tasks/pause")
        job = setup.enqueue("tasks", f"slay {victim}", attempts=attempts, retry_first=0.01)
        allowed[job] = attempts
        for _ in range(attempts):
            victim.write_text(str(setup.broker.pid))
            with suppress(OSError, HTTPException):  # it may be killed before it answers
                setup.say("POST", "/v1/services/tasks/resume")
            setup.broker.process.wait(PATIENCE)
            workforce.replace_the_dead()
            setup.start()
        assert setup.becomes(job, "ended")["outcome"] == "lost"
    executed = [line.split()[0] for line in workforce.executions.read_text().splitlines()]
    assert {job: executed.count(job) for job in allowed} == allowed


def test_what_runs_elsewhere_is_told_as_such_until_it_is_given_up(programs: Programs) -> None:
    """R107: while its worker may still come, the job is neither lost nor given to another."""
    setup = Survivor(programs)
    remote = ManualWorker(setup)
    job = setup.enqueue("helper's", "x")
    attempt = remote.take()
    setup.enqueue("helper's", "all before it is on disk", delay=3600)
    setup.kill_and_start()
    another = ManualWorker(setup)
    assert short(setup.job(job)) == ("running", None, [None])
    said = setup.why(job)
    assert re.fullmatch(
        rf"Attempt 1 of 3 has run for {S} on worker \d+ \(helper\), which has been unreachable for {S}\.", said
    ), said
    assert remote.deliver(attempt, b"here") == 204
    assert short(setup.job(job)) == ("ended", "done", ["done"])
    del another


def test_recurring_jobs_survive_a_kill(programs: Programs) -> None:
    setup = Survivor(programs)
    assert setup.say("PUT", "/v1/schedules/hourly", service="tasks", every=3600, payload="tick")[0] == 200
    assert (
        setup.say("PUT", "/v1/schedules/nightly", service="tasks", cron="30 3 * * *", timezone="Europe/Vienna")[0]
        == 200
    )
    assert setup.say("POST", "/v1/schedules/nightly/pause")[0] == 200
    assert setup.say("PUT", "/v1/schedules/often", service="tasks", every=1, payload="now")[0] == 200
    until(lambda: setup.get("/v1/schedules/often")["runs"] >= 1, "it has made a job")
    assert setup.say("DELETE", "/v1/schedules/often")[0] == 200
    before = setup.get("/v1/schedules")
    made = [view["id"] for view in setup.jobs()]
    setup.kill_and_start()
    assert setup.get("/v1/schedules") == before
    assert [each["name"] for each in before["schedules"]] == ["hourly", "nightly"]
    assert [each["paused"] for each in before["schedules"]] == [False, True]
    assert [view["id"] for view in setup.jobs()] == made


# -------------------------------------------------------------------- SIGTERM, and who comes second


def test_sigterm_keeps_what_waits_and_lets_end_what_runs(programs: Programs) -> None:
    setup = Survivor(programs)
    workforce = Workforce(programs, setup)
    gate = programs.folder / "gate"
    running = setup.enqueue("tasks", f"until {gate}")
    begun(workforce, running)
    waiting = [setup.enqueue("tasks", str(number)) for number in range(20)]
    delayed = setup.enqueue("tasks", "later", delay=3600)
    second = programs.run("serve", "tcp://127.0.0.1:0", "--data", setup.data)
    assert second.ends() == 73
    assert f"process id {setup.broker.pid}" in second.err

    setup.broker.terminate()
    setup.broker.prints("draining")
    status, problem = setup.say("POST", "/v1/jobs", service="tasks", payload="too late")
    assert (status, problem["type"]) == (503, "urn:dragoman:draining"), problem
    gate.touch()
    assert setup.broker.ends() == 0
    setup.start()
    assert short(setup.job(running)) == ("ended", "done", ["done"])
    until(lambda: all(setup.job(id)["outcome"] == "done" for id in waiting), "what waited is done")
    assert short(setup.job(delayed)) == ("delayed", None, [])
    assert len(list(setup.jobs())) == 22
    assert len(workforce.executions.read_text().splitlines()) == 21, "each was executed once"


def test_sigterm_twice_gives_up_what_runs_but_loses_nothing(programs: Programs) -> None:
    setup = Survivor(programs)
    workforce = Workforce(programs, setup)
    gate = programs.folder / "gate"
    running = setup.enqueue("tasks", f"until {gate}")
    begun(workforce, running)
    waiting = setup.enqueue("tasks", "w")
    setup.broker.terminate()
    setup.broker.prints("draining")
    setup.broker.terminate()
    assert setup.broker.ends() == 0
    gate.touch()
    setup.start()
    for job in (running, waiting):
        setup.becomes(job, "done")
    assert short(setup.job(running)) == ("ended", "done", ["lost", "done"])
