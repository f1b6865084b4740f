"""Jobs that handlers submit: they know their parent, and the parent shows its children."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from nested_tasks import by_await, by_batch, by_call, by_enqueue, by_group, by_thread, family

from dragoman import Client, LocalBroker, using
from programs import Programs, until

HERE = Path(__file__).parent


def start_worker(programs: Programs, broker: LocalBroker, dialect: str, *options: str) -> None:
    programs.environment |= {"PYTHONPATH": str(HERE), "DRAGOMAN_URL": broker.urls[dialect]}
    programs.dragoman("worker", "nested_tasks", *options).prints("connected to")


@pytest.mark.parametrize("dialect", ["native", "http"])
@pytest.mark.parametrize("how", ["processes", "threads"])
def test_jobs_that_a_handler_submits_know_their_parent(programs: Programs, dialect: str, how: str) -> None:
    """R200. Also from a thread that the handler starts, if it runs in a child process."""
    with LocalBroker("tcp://127.0.0.1:0", "http://127.0.0.1:0") as broker:
        start_worker(programs, broker, dialect, f"--{how}", "2")
        tasks = [by_call, by_enqueue, by_batch, by_group, by_await] + ([by_thread] if how == "processes" else [])
        with Client(broker.urls["native"]) as client, using(client):
            for each in tasks:
                job, parent = each.with_options(wait_for_worker=True, timeout=60).call()
                assert (each.name, parent) == (each.name, job)


def test_program_that_runs_as_a_job_is_the_parent_of_its_jobs(programs: Programs) -> None:
    with LocalBroker() as broker, Client(broker.url) as client:
        start_worker(programs, broker, "native", "--processes", "1")
        program = f"{sys.executable} {HERE / 'nested_tasks.py'}"
        programs.dragoman("worker", "--exec", program, "--service", "program").prints("connected to")
        job = client.submit("program", timeout=60)
        assert job.result(timeout=60).decode() == job.id


def test_command_shows_parent_and_children(programs: Programs) -> None:
    """R200. The children wait: no worker offers their service."""
    with LocalBroker() as broker, Client(broker.url) as client, using(client):
        start_worker(programs, broker, "native", "--processes", "1")
        handle = family.enqueue("nobody")
        children = handle.result(timeout=60)
        view = client.job(handle.id)
        assert [(each.id, each.service, each.state) for each in view.children] == [
            (id, "nobody", "waiting") for id in reversed(children)
        ]
        shown = programs.run("job", handle.id)
        assert shown.ends() == 0, shown.err
        for child in children:
            assert f"{child}  nobody   waiting  background" in shown.out
        of_child = programs.run("job", children[0])
        assert of_child.ends() == 0, of_child.err
        assert f"parent     {handle.id}" in of_child.out


def test_worker_that_waits_for_itself_is_recognised(programs: Programs) -> None:
    """R201. The only slot runs a job that calls a service which only this worker offers."""
    server = programs.dragoman("serve", "tcp://127.0.0.1:0", "--data", "memory", "--strict")
    url = server.prints(r"native +(tcp://\S+)")
    programs.environment |= {"PYTHONPATH": str(HERE), "DRAGOMAN_URL": url}
    programs.dragoman("worker", "nested_tasks", "--processes", "1").prints("connected to")
    with Client(url) as client, using(client):
        job = by_call.with_options(wait_for_worker=True).submit()
        server.prints(r"\"service\": \"parent_of\", .*\"event\": \"service starved\"")
        (child,) = until(lambda: client.job(job.id).children, "the child is shown")
        assert client.why(child.id) == (
            "It waits: the handler in the only slot of its only worker waits for a job of the same worker; give its "
            "only worker more slots, start another one, or let handlers enqueue jobs instead of calling."
        )
        programs.dragoman("worker", "nested_tasks", "--processes", "1").prints("connected to")  # as the advice says
        assert job.result(timeout=60) == [job.id, job.id]
    assert server.err.count("service starved") == 1
