"""The dump of a broker's state has neither payloads nor tokens (I19)."""

from __future__ import annotations

import json

from dragoman.server.state_dump import dump
from pairs import asgi, native


def test_dump_has_jobs_and_workers_without_payloads_and_tokens() -> None:
    with asgi.one_world() as world:
        worker = native.NativeWorker(world)
        callers = [native.NativeCaller(world) for _ in range(2)]  # both stay: ids of jobs come from their addresses
        for caller, payload in zip(callers, (b"planted one", b"planted two"), strict=True):
            caller.submit(payload)
        assert worker.jobs() == [b"planted one"]
        shown = dump(world.broker)
        text = json.dumps(shown)
    assert [(job["state"], job["worker"] is not None) for job in shown["jobs"]] == [  # type: ignore[attr-defined]
        ("running", True),
        ("waiting", False),
    ]
    assert "planted" not in text
    assert worker._token.hex() not in text
