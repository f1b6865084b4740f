"""Rolling deploys of a task that gets a parameter, under load: callers first, and workers first (R267 to R269)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from deploy_tasks import first, second

from dragoman import Client, JobHandle, LocalBroker, using
from programs import Program, Programs, until

HERE = Path(__file__).parent
OLD, NEW = "first", "second"


class Deploy:
    """A broker under load, with workers and callers of both versions."""

    def __init__(self, client: Client[bytes], programs: Programs, runs: Path, url: str) -> None:
        self.client = client
        self.expected: list[tuple[JobHandle[float], float]] = []
        self._programs = programs
        self._runs = runs
        self._url = url
        programs.environment |= {"PYTHONPATH": str(HERE), "DEPLOY_RUNS": str(runs)}

    def worker(self, version: str) -> Program:
        self._programs.environment["DEPLOY_VERSION"] = version
        how = ("--processes", "1") if version == OLD else ("--threads", "2")
        worker = self._programs.dragoman("worker", f"deploy_tasks:{version}", "--connect", self._url, *how)
        worker.prints("connected to")
        return worker

    def old_callers(self, jobs: int = 24) -> list[JobHandle[float]]:
        handles = [first.enqueue([1.0, float(number)]) for number in range(jobs // 2)]
        handles += first.enqueue_many([[1.0, float(number)] for number in range(jobs // 2)])
        self.expected += [(each, 1.0 + number % (jobs // 2)) for number, each in enumerate(handles)]
        return handles

    def new_callers(self, jobs: int = 24) -> list[JobHandle[float]]:
        """They use the new parameter in one job of two."""
        handles = [second.enqueue([1.0, 1.0], discount=0.5) for _ in range(jobs // 4)]
        handles += second.enqueue_many([[1.0, 1.0]] * (jobs // 4), discount=0.5)
        self.expected += [(each, 1.0) for each in handles]
        plain = [second.enqueue([1.0, 1.0]) for _ in range(jobs // 2)]
        self.expected += [(each, 2.0) for each in plain]
        return handles

    def check(self) -> Counter[str]:
        """All jobs are done, each by one attempt, and run once. Returns the number of runs by version."""
        for handle, result in self.expected:
            assert handle.result(timeout=60) == result
            assert [each.outcome for each in handle.job().attempts] == ["done"]
        assert self.client.quarantine() == []
        lines = [line.split() for line in self._runs.read_text().splitlines()]
        assert sorted(id for id, _ in lines) == sorted(handle.id for handle, _ in self.expected)
        return Counter(version for _, version in lines)


@pytest.fixture
def deploy(request: pytest.FixtureRequest, programs: Programs, tmp_path: Path) -> Iterator[Deploy]:
    """Callers and workers use one dialect, by default native."""
    with LocalBroker("tcp://127.0.0.1:0", "http://127.0.0.1:0") as broker:
        url = broker.urls[getattr(request, "param", "native")]
        with Client(url) as client, using(client):
            yield Deploy(client, programs, tmp_path / "runs", url)


@pytest.mark.parametrize("deploy", ["native", "http"], indirect=True)
def test_callers_first(deploy: Deploy) -> None:
    """All jobs of new callers with the new parameter ended in quarantine, at the first old worker."""
    olds = [deploy.worker(OLD), deploy.worker(OLD)]
    deploy.old_callers()
    newer = deploy.new_callers()
    until(lambda: "does not know the parameter 'discount'" in newer[0].why(), "the job waits for a newer worker")
    deploy.old_callers()
    olds[0].terminate()
    deploy.worker(NEW)  # both versions side by side
    deploy.new_callers()
    deploy.old_callers()
    olds[1].terminate()
    deploy.worker(NEW)
    deploy.new_callers()
    assert deploy.check().keys() == {OLD, NEW}


def test_workers_first(deploy: Deploy) -> None:
    olds = [deploy.worker(OLD), deploy.worker(OLD)]
    deploy.old_callers()
    deploy.worker(NEW)  # both versions side by side
    deploy.old_callers()
    for job in deploy.new_callers():  # some callers are faster than the other workers, which get some of these jobs
        job.result(timeout=60)
    olds[0].terminate()
    deploy.old_callers()
    deploy.new_callers()
    olds[1].terminate()
    deploy.new_callers()
    assert deploy.check().keys() == {OLD, NEW}


def test_parameter_that_no_version_has_fails_at_once(deploy: Deploy) -> None:
    """A caller that is no task tells nothing, and nobody has declared the name."""
    deploy.worker(OLD)
    id = deploy.client.enqueue("deploy.total", b'{"prices": [], "discuont": 0.5}')
    with pytest.raises(Exception, match=r"has no parameter 'discuont'; its parameters: prices"):
        deploy.client.result(id, timeout=60)
    assert deploy.client.job(id).quarantined
