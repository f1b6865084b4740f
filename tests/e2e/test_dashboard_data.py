"""The dashboard's data of a running broker, while jobs run."""

from __future__ import annotations

import json
from typing import Any
from urllib.request import urlopen

from programs import DRAGOMAN, PATIENCE, Programs


def test_snapshots_follow_the_jobs_of_a_running_broker(programs: Programs) -> None:
    broker = programs.start(DRAGOMAN, "serve", "http://127.0.0.1:0", "tcp://127.0.0.1:0", "--data", "memory")
    http, native = broker.prints(r"(http://\S+) +both"), broker.prints(r" (tcp://\S+) +both")
    with urlopen(f"{http}/v1/live?page=service/upper", timeout=PATIENCE) as stream:

        def snapshot() -> dict[str, Any]:
            while True:
                line: bytes = stream.readline()
                assert line, "the stream has ended"
                if line.startswith(b"data: "):
                    found: dict[str, Any] = json.loads(line[6:])
                    return found

        assert snapshot()["page"] is None
        programs.dragoman("worker", "--exec", "tr a-z A-Z", "--service", "upper", "--connect", native)
        while (shown := snapshot())["page"] is None:
            pass
        assert shown["services"][0]["dialects"] in ([], ["native"])
        programs.dragoman("call", "upper", "x", "--connect", native)
        while (shown := snapshot())["services"][0]["done"] == 0.0:
            pass
        assert shown["totals"]["done"] > 0.0
        assert "joined" in shown["changes"][0]["text"]
    with urlopen(f"{http}/v1/overview?range=1h", timeout=PATIENCE) as response:
        overview = json.loads(response.read())
    assert overview["instance"] == shown["instance"]
    assert (overview["series"]["step"], len(overview["series"]["total"]["done"])) == (20.0, 180)
    assert overview["series"]["total"]["done"][-1] > 0.0
    broker.terminate()
    assert broker.ends() == 0
