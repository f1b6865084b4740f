"""Handler of workers that run the functions sent by `Client.executor(service, codec="pickle")`.

    dragoman worker dragoman.sdk.pickled_calls:run --service python --connect tcp://127.0.0.1:7400

Every caller of such a service can run any code in the worker.
"""

from __future__ import annotations

from dragoman.sdk.codecs import CODECS, Payload


def run(payload: Payload) -> Payload:
    """Call the received function and return its result."""
    codec = CODECS["pickle"]
    function, arguments, named = codec.decode(payload)
    return codec.encode(function(*arguments, **named))
