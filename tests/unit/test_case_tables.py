"""Tables of cases: every row runs, and a failure names all rows that failed and no other."""

from __future__ import annotations

import pytest

from case_tables import check_every_row


def test_a_table_whose_rows_all_pass_passes_and_each_row_runs_once() -> None:
    seen: list[tuple[str, int]] = []
    check_every_row(lambda word, number: seen.append((word, number)), [("a", 1), ("b", 2)])
    assert seen == [("a", 1), ("b", 2)]


def test_a_failure_names_every_row_that_failed_with_its_error_and_no_other_row() -> None:
    def check(word: str, number: int) -> None:
        if word == "broken":
            raise KeyError("no such word")
        if word == "silent":
            with pytest.raises(KeyError):
                str(number)
        assert number < 3, "too large"

    with pytest.raises(AssertionError) as caught:
        check_every_row(check, [("fine", 1), ("broken", 2), ("fine", 3), ("silent", 1), ("last", 2)])
    first, *failed = str(caught.value).splitlines()
    assert first == "3 of 5 rows failed:"
    assert [line.partition(": ")[0] for line in failed if " | " in line] == ["broken | 2", "fine | 3", "silent | 1"]
    assert "KeyError" in str(caught.value)
    assert "too large" in str(caught.value)
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_table_without_rows_fails() -> None:
    with pytest.raises(AssertionError, match="the table has no rows"):
        check_every_row(lambda: None, [])


def test_the_name_of_a_row_is_one_line_of_limited_length() -> None:
    def check(*cells: object) -> None:
        raise KeyError("wrong")

    with pytest.raises(AssertionError) as caught:
        check_every_row(check, [("two\nlines", b"\xff", 7, "x" * 4_000)])
    _, failed = str(caught.value).splitlines()
    assert failed.startswith(r"'two\nlines' | b'\xff' | 7 | " + "x" * 100 + "...: KeyError, line ")
