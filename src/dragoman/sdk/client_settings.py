"""Settings of both kinds of client, and the address that clients, workers and commands use where none is given."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dragoman.sdk.codecs import Codec
    from dragoman.sdk.targets import Target

URL_VARIABLE = "DRAGOMAN_URL"
DEFAULT_URL = "tcp://127.0.0.1:7400"
CONNECTIONS = 16  # where each carries one call at a time
WINDOW = 256  # jobs of one `map` under way, where the address says nothing of it
BACKGROUND = "background jobs"  # and all else that is asked of the broker itself: the word that a wire has, or has not


def url_or_default(url: str | None) -> str:
    """The address that was given, or that of the environment, or the native port of a broker on this machine."""
    return url or os.environ.get(URL_VARIABLE) or DEFAULT_URL


def settings_of(connect_timeout: float, connections: int, wait_for_broker: bool) -> dict[str, Any]:
    """What an engine is told."""
    if not connect_timeout > 0:
        raise ValueError(f"connect_timeout={connect_timeout}: a number of seconds over 0")
    if connections < 1:
        raise ValueError(f"connections={connections}: at least 1")
    return {"connect_timeout": connect_timeout, "connections": connections, "wait_for_broker": wait_for_broker}


def as_sent(codec: Codec, payload: Any) -> bytes:
    """A payload on its way; what can still be changed is copied."""
    encoded = codec.encode(payload)
    return encoded if type(encoded) is bytes else bytes(encoded)


def window_of(target: Target, asked: int | None) -> int:
    """How many jobs of one `map` may be under way."""
    if asked is None:
        return getattr(target.options, "window", None) or WINDOW
    if asked < 1:
        raise ValueError(f"window={asked}: at least 1")
    return asked


def client_is_closed() -> RuntimeError:
    return RuntimeError("this client is closed: make a new one")
