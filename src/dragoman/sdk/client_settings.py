"""Settings of both clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dragoman.sdk.codecs import Codec
    from dragoman.sdk.targets import Target

CONNECTIONS = 16  # default of `connections`
WINDOW = 256  # default number of running jobs of one `map`, if the URL has no `window`
BACKGROUND = "background jobs"  # capability of dialects that have operations


def settings_of(connect_timeout: float, connections: int, wait_for_broker: bool) -> dict[str, Any]:
    """Return the checked settings of an engine."""
    if not connect_timeout > 0:
        raise ValueError(f"connect_timeout={connect_timeout}: must be a number of seconds over 0")
    if connections < 1:
        raise ValueError(f"connections={connections}: must be at least 1")
    return {"connect_timeout": connect_timeout, "connections": connections, "wait_for_broker": wait_for_broker}


def encode_payload(codec: Codec, payload: Any) -> bytes:
    """Encode a payload; a mutable one is copied."""
    encoded = codec.encode(payload)
    return encoded if type(encoded) is bytes else bytes(encoded)


def window_of(target: Target, window: int | None) -> int:
    """Return the maximum number of running jobs of one `map`."""
    if window is None:
        return getattr(target.options, "window", None) or WINDOW
    if window < 1:
        raise ValueError(f"window={window}: must be at least 1")
    return window


def client_is_closed() -> RuntimeError:
    return RuntimeError("this client is closed; create a new one")
