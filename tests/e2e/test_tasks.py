"""Tasks through a broker: a module of tasks is run by `dragoman worker`, and called from here."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from greeting_tasks import Greeting, Refused, add, add_three, divide, fetch, greet, open_twice, parse, twice

from case_tables import check_every_row
from dragoman import AsyncClient, Client, JobFailed, LocalBroker, NoSuchJob, Task, WrongArguments, task, using
from programs import Programs

HERE = Path(__file__).parent


@task(name="divide")
def divide_loosely(a: object, b: object) -> float:
    raise AssertionError("the worker runs it, and has other annotations")


@pytest.fixture
def broker(programs: Programs) -> Iterator[LocalBroker]:
    """A broker with a worker of all tasks, and a client that tasks use."""
    with LocalBroker() as broker, Client(broker.urls["native"]) as client, using(client):
        programs.environment["PYTHONPATH"] = str(HERE)
        worker = programs.dragoman("worker", "greeting_tasks", "--connect", broker.urls["native"])
        worker.prints("services offered: greet, numbers.add, add_three, twice, divide, parse, fetch, open_twice")
        worker.prints("connected to")
        yield broker


def test_tasks_are_called_enqueued_and_mapped(broker: LocalBroker) -> None:
    assert greet(["Ada"]) == Greeting("hello Ada", ["Ada"])  # here
    assert greet.call(["Ada", "Bob"], word="hi") == Greeting("hi Ada and Bob", ["Ada", "Bob"])
    assert greet.submit(["Eve"]).result(timeout=60) == Greeting("hello Eve", ["Eve"])
    assert list(add.map(range(4), b=10)) == [10, 11, 12, 13]
    assert twice.call(b"\x00\xff") == b"\x00\xff\x00\xff"
    handle = twice.enqueue(b"ab")
    assert handle.result(timeout=60) == b"abab"
    assert handle.why() == "It is done."
    assert handle.job().service == "twice"
    assert handle.progress() is None or handle.progress()["note"] == "half"  # kept while it runs
    assert not handle.cancel()
    assert twice.handle(handle.id).result() == b"abab"


def test_task_with_a_fixed_key_runs_once_at_a_time_and_is_found(broker: LocalBroker) -> None:
    """R24: the key is free when the job has ended."""
    nightly = twice.with_options(key="nightly", unique="unfinished", keep=600)
    first = nightly.enqueue(b"monday")
    assert first.result(timeout=60) == b"mondaymonday"
    second = nightly.enqueue(b"tuesday")
    assert second.id != first.id
    found = twice.find("nightly")
    assert (found.id, found.result(timeout=60)) == (second.id, b"tuesdaytuesday")
    assert (found.job().unique, found.job().keep) == ("unfinished", 600.0)
    with pytest.raises(NoSuchJob, match="has key 'weekly'"):
        twice.find("weekly")


def test_tasks_are_awaited(broker: LocalBroker) -> None:
    async def with_an_async_client() -> None:
        async with AsyncClient(broker.urls["native"]) as client:
            with using(client):
                await awaited()
                with pytest.raises(RuntimeError, match="this block uses an AsyncClient: await acall"):
                    greet.call([])

    async def awaited() -> None:
        assert await add(1, 2) == 3  # here
        assert await add.acall(1, 2) == 3
        assert await add.asubmit(3, 4) == 7
        assert [each async for each in add.amap([1, 2], b=5)] == [6, 7]
        handle = await greet.with_options(key="ada").aenqueue(["Ada"])
        assert (await greet.afind("ada")).id == handle.id
        assert (await handle.aresult(timeout=60)).to == ["Ada"]
        assert (await handle.ajob()).outcome == "done"
        assert await handle.awhy() == "It is done."
        assert not await handle.acancel()

    asyncio.run(awaited())  # with the Client of the fixture
    asyncio.run(with_an_async_client())


def test_errors_name_the_parameter_or_the_line(broker: LocalBroker) -> None:
    with pytest.raises(WrongArguments, match=r"^argument 'b' of divide: expected `float`, got `str`$"):
        divide.call(1, "2")  # type: ignore[arg-type]
    with pytest.raises(JobFailed, match=r"WrongArguments: argument 'b' of divide: expected `float`, got `str`$"):
        divide_loosely.call(1, "2")
    with pytest.raises(JobFailed) as failed:
        divide.call(1, 0)
    assert failed.value.remote_type == "ZeroDivisionError"
    lines = failed.value.remote_traceback.splitlines()
    assert "greeting_tasks.py" in lines[1], lines
    with pytest.raises(TypeError, match=r"^divide: missing a required argument: 'b'"):
        divide.call(1)  # type: ignore[call-arg]


@pytest.mark.parametrize("dialect", ["native", "http"])
def test_handlers_decide_about_retries(programs: Programs, dialect: str) -> None:
    """R181, by workers of both dialects that have it."""
    with LocalBroker("tcp://127.0.0.1:0", "http://127.0.0.1:0") as broker, Client(broker.urls["native"]) as client:
        programs.environment["PYTHONPATH"] = str(HERE)
        worker = programs.dragoman("worker", "greeting_tasks", "--connect", broker.urls[dialect])
        worker.prints("services offered")
        broker.wait_for_workers(service="fetch")
        with using(client):
            quick = fetch.with_options(retry_first=0.01, retry_jitter=0)
            assert quick.enqueue("later").result(timeout=60) == "later at attempt 3"
            worker.prints(r"INFO job \w+ of fetch requests another attempt after 0 s: .*Retry: not there yet\n.*INFO")
            assert quick.enqueue("flaky").result(timeout=60) == "flaky at attempt 2"
            decided = "Its worker has decided that it is not retried."
            for job in (quick.enqueue("gone"), quick.enqueue("wrong"), parse.enqueue("seven")):
                with pytest.raises(JobFailed):
                    job.result(timeout=60)
                view = job.job()
                assert (len(view.attempts), view.quarantined) == (1, True)
                assert view.error is not None
                assert view.error.permanent
                assert decided in job.why()
                shown = programs.run("job", job.id, "--connect", broker.urls[dialect])
                assert shown.ends() == 0
                assert "failed, not retried: its worker has decided so, in quarantine" in shown.out


def test_callers_decide_about_retries_of_one_job(broker: LocalBroker) -> None:
    """Rules of a caller replace those of the task. A `Retry` is followed whatever the rules are."""

    def attempts(task: Task[[str], int], kind: str) -> int:
        """Return the number of attempts, negative if the job failed for good."""
        job = task.enqueue(kind)
        try:
            return job.result(timeout=60)
        except JobFailed:
            return -len(job.job().attempts)

    def check(task: Task[[str], int], refused: int, value: int, retry: int) -> None:
        found = tuple(attempts(task, kind) for kind in ("refused", "value", "retry"))
        assert found == (refused, value, retry)

    check_every_row(
        check,
        [
            (open_twice, 2, -1, 2),
            (open_twice.with_options(retry_on=ValueError), -1, 2, 2),
            (open_twice.with_options(retry_on=(ValueError, Refused)), 2, 2, 2),
            (open_twice.with_options(retry_on=()), 2, 2, 2),
            (open_twice.with_options(never_retry_on=Refused), -1, -1, 2),
            (open_twice.with_options(retry_on=(), never_retry_on=Exception), -1, -1, 2),
            (open_twice.with_options(retry_on=(), never_retry_on=ConnectionError).with_options(attempts=5), -1, 2, 2),
            (open_twice.with_options(attempts=1), -1, -1, -1),
        ],
    )


def test_rules_change_neither_the_exception_nor_its_cause(broker: LocalBroker) -> None:
    """A bug: a task with rules raised its exception `from None`, and the cause was not in the traceback."""
    with pytest.raises(JobFailed) as failed:
        open_twice.call("value")
    assert failed.value.remote_type == "ValueError"
    assert "KeyError: 'the cause'" in failed.value.remote_traceback
    assert "greeting_tasks.py" in failed.value.remote_traceback.splitlines()[-3]


def test_results_of_another_type_than_the_caller_expects_are_failures(broker: LocalBroker) -> None:
    """A bug: a background job raised the exception of the format's library, and a call JobFailed."""

    @task(name="numbers.add")
    def add_to_text(a: int, b: int) -> str:
        raise AssertionError("it runs in the worker, where it returns a number")

    wrong = r"Expected `str`, got `int`"
    with pytest.raises(JobFailed, match=r"the result of numbers.add is not valid json: ValidationError: " + wrong):
        add_to_text.call(1, 2)
    with pytest.raises(JobFailed, match=r"does not have the type of its task: ValidationError: " + wrong):
        add_to_text.enqueue(1, 2).result(timeout=60)


def test_tasks_within_a_task_use_the_broker_of_the_worker(broker: LocalBroker) -> None:
    """A bug: with `dragoman worker --connect URL`, they used the default address."""
    assert add_three.call(1, 2, 3) == 6


def test_any_program_calls_a_task(broker: LocalBroker, programs: Programs) -> None:
    called = programs.run("call", "numbers.add", '{"a": 1, "b": 2}', "--connect", broker.urls["native"])
    assert (called.ends(), called.out) == (0, "3"), called.err


def test_default_client_has_the_address_of_the_environment(broker: LocalBroker, programs: Programs) -> None:
    """In a process of its own, and in its child after a fork."""
    program = programs.folder / "caller.py"
    program.write_text(
        "import os\n"
        "from greeting_tasks import add\n"
        "assert add.call(1, 2) == 3\n"
        "if child := os.fork():\n"
        "    assert os.waitpid(child, 0)[1] == 0\n"
        "    print(add.call(3, 4))\n"
        "else:\n"
        "    assert add.call(5, 6) == 11\n"
        "    os._exit(0)\n"
    )
    done = programs.start(sys.executable, program, DRAGOMAN_URL=broker.urls["native"])
    assert (done.ends(), done.out) == (0, "7\n"), done.err


def test_module_without_tasks_is_refused_with_advice(programs: Programs) -> None:
    programs.environment["PYTHONPATH"] = os.fspath(HERE)
    (programs.folder / "other.py").write_text("from dragoman import Worker\nmy_worker = Worker()\n")
    programs.environment["PYTHONPATH"] = os.fspath(programs.folder)
    worker = programs.run("worker", "other")
    assert worker.ends() == 2
    assert "the module has no tasks (functions with @dragoman.task); run its Worker: other:my_worker" in worker.err
