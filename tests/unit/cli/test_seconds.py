"""How long something may take, as people type it."""

from __future__ import annotations

import click
import pytest

from dragoman.cli.seconds import NO_LIMIT, SECONDS


@pytest.mark.parametrize(("typed", "meant"), [("1.5", 1.5), ("86400", 86_400.0), ("none", NO_LIMIT)])
def test_a_number_or_the_word_none(typed: str, meant: object) -> None:
    assert SECONDS.convert(typed, None, None) == meant


@pytest.mark.parametrize("typed", ["0", "-1", "", "never"])
def test_all_else_is_refused(typed: str) -> None:
    with pytest.raises(click.BadParameter):
        SECONDS.convert(typed, None, None)
