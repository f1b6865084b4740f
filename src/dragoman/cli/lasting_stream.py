"""An event stream of the broker that is opened again when it is lost, until the user ends the command."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

from dragoman.cli.broker_http import BrokerHttp, ServerEvent
from dragoman.cli.exit_codes import warn
from dragoman.sdk.errors import BrokerUnavailable, NotAllowed

RETRY: Final = 1.0  # seconds until a lost stream is opened again


def lasting_events(broker: BrokerHttp, path: str, **query: object) -> Iterator[ServerEvent]:
    """Yield the events of a stream, with a warning on standard error when it is lost. Raises DragomanError if the
    stream cannot be opened at first, or if it is not allowed."""
    has_begun = False
    while True:
        is_open = False
        try:
            for event in broker.events(path, **query):
                is_open = has_begun = True
                yield event
            warn("the broker has closed the stream; opening it again")
        except NotAllowed:
            raise
        except BrokerUnavailable as error:
            if not has_begun:
                raise
            if is_open:
                warn(f"{error}; trying again until Ctrl-C")
        time.sleep(RETRY)
