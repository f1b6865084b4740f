"""An option that is a number of seconds, or the word `none` for no limit."""

from __future__ import annotations

from math import nan
from typing import Any

import click

NO_LIMIT = "null"  # as in the query of a request


class Seconds(click.ParamType):  # type: ignore[type-arg]  # generic in some versions of click only
    """A number of seconds over 0, or `none`."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value in ("none", NO_LIMIT):
            return NO_LIMIT
        try:
            seconds = float(value)
        except ValueError:
            seconds = nan
        if not seconds > 0:
            self.fail(f"{value!r}: must be a number of seconds over 0, such as 30 or 0.5, or none", param, ctx)
        return seconds


SECONDS = Seconds()
