"""Methods of clients come from the table of operations, and type checkers see each of them."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from dragoman.operations.request_fields import request_fields
from dragoman.operations.table import OPERATIONS
from dragoman.sdk.async_operations import AsyncClientOperations
from dragoman.sdk.operations import ClientOperations

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "tools"))

import client_methods  # noqa: E402

NAMES = {row.python_name for row in OPERATIONS.values()}


@pytest.mark.parametrize("client", client_methods.CLIENTS, ids=lambda client: str(client.name))
def test_methods_are_those_that_the_table_makes(client: Any) -> None:
    written = client_methods.source(client, OPERATIONS.values())
    assert (client_methods.SDK / client.file).read_text() == written, "run `make generate`"


@pytest.mark.parametrize("client", [ClientOperations, AsyncClientOperations])
def test_every_operation_is_a_method_with_the_defaults_of_its_request(client: type[Any]) -> None:
    public = {name for name, _ in inspect.getmembers(client, inspect.isfunction) if not name.startswith("_")}
    assert public == NAMES | {"operation", "pages", "enqueue_group", "enqueue_jobs"}
    for row in OPERATIONS.values():
        parameters = inspect.signature(getattr(client, row.python_name)).parameters
        for field in request_fields(row.request):
            if (row.name, field.name) == ("enqueue many", "service"):
                continue  # the method has one service for all jobs, and no jobs with services of their own
            if field.name in parameters and not field.is_required and field.name not in client_methods.IN_PAYLOAD:
                assert parameters[field.name].default == field.default, (row.name, field.name)


@pytest.mark.parametrize("call", [r"(?<!await )client\.(\w+)\(", r"await client\.(\w+)\("], ids=["sync", "async"])
def test_type_checkers_see_every_method_of_both_clients(call: str) -> None:
    text = (ROOT / "tests" / "typing" / "background.py").read_text()
    assert set(re.findall(call, text)) >= NAMES
