"""The reference page of operations is the one that the table makes."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import operations_page

from dragoman.operations.table import OPERATIONS


def test_the_page_is_the_one_that_the_table_makes() -> None:
    assert operations_page.PAGE.read_text() == operations_page.page(OPERATIONS.values()), "run `make generate`"


def test_pages_of_the_wires_name_every_operation() -> None:
    docs = operations_page.PAGE.parent
    native, http = (docs / "dialects" / "native.md").read_text(), (docs / "http.md").read_text()
    assert [row.name for row in OPERATIONS.values() if f"`{row.name}`" not in native] == []
    assert [row.path for row in OPERATIONS.values() if row.path not in http] == []
