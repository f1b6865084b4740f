"""The table of operations: its rows are complete, and each has its method."""

from __future__ import annotations

import inspect
import subprocess
import sys
from typing import Any, get_type_hints

import pytest

from dragoman.operations.field_types import JobIdText, ScheduleName, WorkerNumber
from dragoman.operations.group_schemas import GroupId
from dragoman.operations.handlers import FUNCTIONS, METHODS, OperationHandlers
from dragoman.operations.internal_table import INTERNAL
from dragoman.operations.merged_views import MERGERS
from dragoman.operations.operation import Operation
from dragoman.operations.schemas import EmptyRequest, JobRef, JobView, OperationRequest
from dragoman.operations.table import OPERATIONS


def request_of(function: Any) -> Any:
    """The type of a function's first argument, if that is a request."""
    first = next(iter(get_type_hints(function).values()), None)
    return first if isinstance(first, type) and issubclass(first, OperationRequest) else None


def test_every_row_has_a_function_and_every_function_a_row() -> None:
    methods = inspect.getmembers(OperationHandlers, inspect.isfunction)
    functions = {name for name, each in methods if not name.startswith("_") and request_of(each) is not None}
    assert functions == {METHODS.get(name, row.python_name) for name, row in (OPERATIONS | INTERNAL).items()}
    assert set(FUNCTIONS) == set(OPERATIONS | INTERNAL)


def test_a_function_takes_the_request_of_its_row() -> None:
    for name, function in FUNCTIONS.items():
        assert request_of(function) is (OPERATIONS | INTERNAL)[name].request, name


def test_no_two_rows_share_a_name_a_path_or_a_command() -> None:
    rows = list(OPERATIONS.values())
    for fact in (
        [row.name for row in rows],
        [(row.method, row.path) for row in rows],
        [row.command or row.name for row in rows],
    ):
        assert len(set(fact)) == len(rows) > 20


def test_names_of_old_clients_are_kept() -> None:
    """Names on the native wire: a client of an earlier version sends them."""
    assert {"delete schedule", "pause schedule", "resume schedule", "schedule"} < set(OPERATIONS)


def test_paging_rows_have_the_fields_of_pages() -> None:
    for row in OPERATIONS.values():
        paging = {"limit", "after"} <= {*row.request.__struct_fields__} and "after" in row.view.__struct_fields__
        assert row.pages == paging, row.name
        assert row.returned in ("", *row.view.__struct_fields__), row.name


FACTS: dict[str, Any] = {
    "name": "forget",
    "request": JobRef,
    "view": JobView,
    "summary": "Forget a job.",
    "method": "POST",
    "path": "/v1/jobs/{id}/forget",
    "answered_by": "job owner",
}


def test_a_row_without_a_right_and_its_target_cannot_be_made() -> None:
    """R146"""
    assert Operation(**FACTS, right="administer", target="job").right == "administer"
    with pytest.raises(TypeError, match="right"):
        Operation(**FACTS, target="job")
    with pytest.raises(TypeError, match="target"):
        Operation(**FACTS, right="see")
    with pytest.raises(ValueError, match="unknown right 'any'; allowed are call, work, see, administer"):
        Operation(**FACTS, right="any", target="job")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="unknown target 'jobs'; allowed are service, job, worker, schedule, group"):
        Operation(**FACTS, right="see", target="jobs")  # type: ignore[arg-type]


def test_a_row_says_which_brokers_of_a_cluster_answer() -> None:
    facts = {name: fact for name, fact in FACTS.items() if name != "answered_by"}
    with pytest.raises(TypeError, match="answered_by"):
        Operation(**facts, right="see", target="job")
    with pytest.raises(
        ValueError, match="operation 'forget': answered by 'nobody'; allowed are this broker, job owner"
    ):
        Operation(**facts, right="see", target="job", answered_by="nobody")


def test_views_of_all_brokers_can_be_merged() -> None:
    asked = {name for name, row in OPERATIONS.items() if row.answered_by == "all"}
    assert asked == set(MERGERS)
    for name in asked:
        assert "unanswered" in OPERATIONS[name].view.__struct_fields__, name


def test_an_operation_about_one_object_names_it_in_its_first_field() -> None:
    ids = {"job owner": JobIdText, "group owner": GroupId, "worker": WorkerNumber, "schedule": ScheduleName}
    for name, row in OPERATIONS.items():
        if row.answered_by in ids:
            first = row.request.__struct_fields__[0]
            assert get_type_hints(row.request, include_extras=True)[first] == ids[row.answered_by], name
        assert "partitioned" in row.all_errors or row.answered_by == "this broker", name


def test_a_target_without_a_field_that_names_it_cannot_be_made() -> None:
    facts = {**FACTS, "request": EmptyRequest, "path": "/v1/forget"}
    with pytest.raises(ValueError, match="operation 'forget': no field of its request names the job"):
        Operation(**facts, right="see", target="job")


def test_a_path_that_names_no_field_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="its path names 'name', which is no field of its request"):
        Operation(**{**FACTS, "path": "/v1/jobs/{name}"}, right="see", target="job")


def test_clients_load_the_table_without_the_broker() -> None:
    """The table loads schemas and nothing of the broker; `import dragoman` and a client load neither."""
    program = (
        "import sys, dragoman; dragoman.Client; dragoman.AsyncClient; "
        "early = [each for each in sys.modules if each == 'msgspec' or each.startswith('dragoman.operations')]; "
        "import dragoman.operations.table; "
        "late = [each for each in sys.modules if each.startswith(('dragoman.server', 'dragoman.core.broker'))]; "
        "print(early, late)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[] []\n"
