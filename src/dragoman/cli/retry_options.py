"""Options that say how long a job rests between two attempts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

DAY = 86_400
OPTIONS = (
    click.option(
        "--retry-first",
        type=click.FloatRange(0, DAY),
        metavar="S",
        help="Rest so long after the first attempt.  [default: the broker's]",
    ),
    click.option(
        "--retry-cap",
        type=click.FloatRange(0, DAY),
        metavar="S",
        help="Each rest is longer than the last, up to this one.  [default: the broker's]",
    ),
    click.option(
        "--retry-jitter",
        type=click.FloatRange(0, 1),
        metavar="0..1",
        help="By what part chance changes each rest.  [default: the broker's]",
    ),
)


def retry_options(command: Command) -> Command:
    for option in reversed(OPTIONS):
        command = option(command)
    return command
