"""An option that is a number of seconds, or the word `none` for no limit."""

from __future__ import annotations

from typing import Any

import click

NO_LIMIT = "null"  # as in the query of a request


class Seconds(click.FloatRange):
    """A number of seconds over 0, or `none`."""

    name = "seconds"

    def __init__(self) -> None:
        super().__init__(min=0, min_open=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return NO_LIMIT if value in ("none", NO_LIMIT) else super().convert(value, param, ctx)


SECONDS = Seconds()
