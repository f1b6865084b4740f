"""A scheduler with a fake broker and store, and two clocks."""

from __future__ import annotations

from datetime import datetime

from dragoman.core.model import JobId
from dragoman.operations.scheduler import Scheduler, ScheduleState
from dragoman.operations.schemas import ScheduleRequest, ScheduleView

NOON = datetime.fromisoformat("2024-05-15T12:00:00+00:00").timestamp()
MINUTE, HOUR, DAY = 60.0, 3_600.0, 86_400.0
STARTED = 5_000.0  # the clock of jobs, at noon


class World:
    """A broker that records submitted jobs, a store that commits at the end of a tick, and two clocks."""

    def __init__(self) -> None:
        self.jobs: dict[str, JobId] = {}  # by key, as committed
        self.notes: dict[str, str] = {}
        self.made: list[tuple[str, bytes]] = []
        self.owners: list[str] = []  # of the runs
        self.powerless: set[str] = set()  # principals without rights
        self.paused: list[tuple[str, str]] = []  # by the scheduler itself: name and reason
        self.over: set[JobId] = set()
        self.is_open = True  # runs are accepted
        self.now, self.wall = STARTED, NOON
        self._pending_jobs: dict[str, JobId] = {}
        self._pending_notes: list[tuple[str, str | None]] = []
        self.scheduler = self._new_scheduler()

    def _new_scheduler(self) -> Scheduler:
        scheduler = Scheduler(self._submit, self._note, self._is_over, self._forbidden)
        scheduler.when_paused = lambda name, reason: self.paused.append((name, reason))
        return scheduler

    def _forbidden(self, owner: str, service: str) -> str | None:
        return f"{owner} may not call '{service}'" if owner in self.powerless else None

    def _submit(self, state: ScheduleState, payload: bytes, key: str, now: float) -> JobId | None:
        assert now == self.now
        assert key.startswith(f"cron/{state.request.name}/")
        assert key not in self.jobs, f"{key} is made twice"
        assert key not in self._pending_jobs, f"{key} is made twice"
        if not self.is_open:
            return None
        job = JobId((len(self.jobs) + len(self._pending_jobs) + 1).to_bytes(16))
        self._pending_jobs[key] = job
        self.made.append((key, payload))
        self.owners.append(state.owner)
        return job

    def _note(self, key: str, value: str | None) -> None:
        self._pending_notes.append((key, value))

    def _is_over(self, job: JobId) -> bool:
        return job in self.over

    def commit(self) -> None:
        self.jobs |= self._pending_jobs
        self._pending_jobs = {}
        for key, value in self._pending_notes:
            if value is None:
                self.notes.pop(key, None)
            else:
                self.notes[key] = value
        self._pending_notes = []

    def crash(self, down: float = 0.0) -> None:
        """Restart after `down` seconds: uncommitted changes are lost, the clock of jobs starts again."""
        self._pending_jobs, self._pending_notes = {}, []
        self.now, self.wall = STARTED, self.wall + down
        self.scheduler = self._new_scheduler()
        assert self.scheduler.load(self.notes, self.now, self.wall) == {}

    def finish_all(self) -> None:
        self.over |= set(self.jobs.values()) | set(self._pending_jobs.values())

    def put(self, name: str = "report", owner: str = "local", **fields: object) -> ScheduleView:
        if "every" not in fields:
            fields.setdefault("cron", "0 * * * *")
        request = ScheduleRequest(name=name, service="s", **fields)  # type: ignore[arg-type]
        view = self.scheduler.put(request, self.now, self.wall, owner)
        self.commit()
        return view

    def tick(self) -> float:
        due = self.scheduler.tick(self.now, self.wall)
        self.commit()
        return due

    def advance(self, seconds: float) -> None:
        """Let time pass, with the ticks that the scheduler requests."""
        end, start = self.now + seconds, self.now
        wall = self.wall
        while (due := self.tick()) <= end:
            self.now = max(due, self.now)
            self.wall = wall + self.now - start
        self.now, self.wall = end, wall + seconds
        self.tick()

    def moments(self) -> list[str]:
        """Return the scheduled times of the runs made since the last call."""
        made, self.made = self.made, []
        return [key.rpartition("/")[2].partition("+00:00")[0] for key, _ in made]


def clock(moment: datetime | None) -> str | None:
    return moment.isoformat(timespec="seconds") if moment is not None else None
