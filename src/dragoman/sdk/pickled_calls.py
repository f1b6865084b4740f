"""A handler for workers that run the functions which `Client.executor(service, codec="pickle")` sends them.

    dragoman worker dragoman.sdk.pickled_calls:run --service python --connect tcp://127.0.0.1:7400

Whoever can submit to such a service can run anything there.
"""

from __future__ import annotations

from dragoman.sdk.codecs import CODECS, Payload


def run(payload: Payload) -> Payload:
    """Call what was sent, and send back what it returned."""
    codec = CODECS["pickle"]
    function, arguments, named = codec.decode(payload)
    return codec.encode(function(*arguments, **named))
