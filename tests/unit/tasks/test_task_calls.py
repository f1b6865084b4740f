"""Cost of a typed job in calls, which are the same on every machine. `make bench ARGS="--only tasks"` measures it."""

from __future__ import annotations

from call_counts import counting
from dragoman import task


@task
def add(a: int, b: int) -> int:
    return a + b


def test_a_typed_job_takes_six_calls_of_the_task_layer() -> None:
    handler = add.task_handler("add")
    assert not handler.wants_context, "a context is not made for a function that takes none"
    with counting() as calls:
        assert handler.perform(add.payload(1, 2), None) == b"3"
    assert calls == {
        ("tasks.task", "payload"): 1,
        ("tasks.arguments", "encode"): 1,
        ("tasks.arguments", "bind"): 1,
        ("tasks.arguments", "decode"): 1,
        ("tasks.task", "_perform"): 1,
        ("tasks.round_trip", "encode"): 1,  # of the result, which a format may change
    }


def test_arguments_of_a_map_are_bound_once() -> None:
    with counting() as calls:
        payloads = list(add._signature.encode_each(range(100), (2,), {}))
    assert payloads[5] == b'{"a":5,"b":2}'
    assert calls["tasks.arguments", "bind"] == 1
    assert sum(calls.values()) == 103, "one for each value, which the generator resumes for, and three at the start"
