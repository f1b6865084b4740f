"""Rows of the catalogue: the code that they name exists, and unused dialects are not loaded."""

from __future__ import annotations

import subprocess
import sys
from enum import EnumMeta
from importlib import import_module
from pkgutil import resolve_name
from typing import Any, get_args, get_type_hints

import pytest

from case_tables import check_every_row
from dragoman.dialects.catalogue import DIALECTS, Dialect
from dragoman.sdk.dialect_sides import Sides, _absent
from dragoman.sdk.targets import SPOKEN, sides_of


def test_what_a_row_names_is_there_and_on_its_own_side() -> None:
    def check(row: Dialect) -> None:
        assert DIALECTS[row.name] is row
        assert callable(resolve_name(row.listen))
        assert row.listen.startswith("dragoman.server.")
        assert isinstance(resolve_name(row.limits), type)
        assert isinstance(resolve_name(f"{row.options}:ListenerOptions"), type)
        if row.sides is not None:
            assert row.sides.startswith("dragoman.sdk.")
            assert row.worker.startswith("dragoman.sdk.")
            assert isinstance(resolve_name(row.sides)(), Sides)
            assert callable(resolve_name(row.worker).serve)

    check_every_row(check, [(row,) for row in DIALECTS.values()])


def test_a_row_and_the_sides_agree_on_what_the_wire_can_do() -> None:
    def check(row: Dialect) -> None:
        sides, options = sides_of(row), import_module(row.options)
        dials = row.worker.endswith(":DiallingWorker")
        assert (sides.worker_side is not _absent, sides.worker_carrier is not _absent) == (dials, dials)
        assert (sides.client_side is not _absent, sides.client_carrier is not _absent) == (row.has_callers,) * 2
        assert (sides.check_services is not _absent) == row.has_service_names
        assert hasattr(options, "ClientOptions") == row.has_callers

    check_every_row(check, [(row,) for row in SPOKEN.values()])


def test_a_row_has_the_editions_that_its_options_take() -> None:
    def check(row: Dialect) -> None:
        options = getattr(import_module(row.options), "WorkerOptions", None)
        hint = get_type_hints(options).get("edition") if options is not None else None
        kinds: list[Any] = [each for each in (hint, *get_args(hint)) if isinstance(each, EnumMeta)]
        assert [each.value for kind in kinds for each in kind] == [*row.editions]

    check_every_row(check, [(row,) for row in DIALECTS.values()])


def test_no_two_dialects_have_a_port_or_a_scheme_in_common() -> None:
    ports = [port for row in DIALECTS.values() for port in (row.port, row.frontend_port) if port is not None]
    schemes = [scheme for row in DIALECTS.values() for scheme in row.schemes]
    assert len({*ports}) == len(ports)
    assert len({*schemes}) == len(schemes)


CLIENT = "from dragoman.sdk.targets import caller_target; import dragoman.sdk.client; caller_target({url!r}, None)"


@pytest.mark.parametrize("name", [name for name, row in SPOKEN.items() if row.has_callers])
def test_a_client_loads_its_own_dialect_and_no_server(name: str) -> None:
    loaded = _loaded_by(CLIENT.format(url=f"{name}+tcp://127.0.0.1:1"))
    assert "dragoman.server" not in loaded
    assert {each.split(".")[2] for each in loaded if each.startswith("dragoman.dialects.")} & DIALECTS.keys() == {name}


def test_a_broker_loads_no_client_and_no_worker() -> None:
    loaded = _loaded_by("import dragoman.server.serve, dragoman.server.wiring")
    assert {each for each in loaded if each.startswith("dragoman.sdk.")} == {"dragoman.sdk.address"}


def test_a_broker_loads_http_for_its_listeners_only() -> None:
    loaded = _loaded_by("import dragoman.server.serve")
    assert not loaded & {"dragoman.http.server", "dragoman.http.app"}


def test_a_broker_loads_the_dialects_of_its_listeners_only() -> None:
    loaded = _loaded_by("import dragoman.server.serve, dragoman.server.wiring")
    assert "dragoman.dialects.catalogue" in loaded
    assert not {each for each in loaded if each.startswith(tuple(f"dragoman.dialects.{name}." for name in DIALECTS))}


def _loaded_by(statement: str) -> set[str]:
    """Return Dragoman's modules that a new interpreter has after this statement."""
    script = f"{statement}\nimport sys; print(*(name for name in sys.modules if name.split('.')[0] == 'dragoman'))"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    return set(done.stdout.split())
