"""The OpenAPI document is valid, and the HTTP listener conforms to it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from urllib.request import urlopen

from programs import Program, Programs

SCHEMATHESIS = str(Path(sys.executable).with_name("schemathesis"))
HOW = Path(__file__).with_name("openapi.toml")
MOST_SECONDS = 90.0  # a quarter of it is enough on a machine with nothing else to do


def start_broker(programs: Programs) -> tuple[Program, str]:
    broker = programs.dragoman("serve", "http://127.0.0.1:0", "--data", "memory", "--strict")
    return broker, broker.prints(r"(http://\S+) +both")


def test_the_document_is_openapi(programs: Programs) -> None:
    from openapi_spec_validator import validate  # 0.3 s of CPU, in each process that collects this module

    _, url = start_broker(programs)
    with urlopen(f"{url}/openapi.json") as answer:
        document = json.load(answer)
    validate(document)
    operations = [each for path in document["paths"].values() for each in path.values()]
    assert len({each["operationId"] for each in operations}) == len(operations) > 30
    assert all(each["summary"] and each["description"] for each in operations)


def test_the_listener_does_as_the_document_says(programs: Programs) -> None:
    broker, url = start_broker(programs)
    checked = programs.start(
        *(SCHEMATHESIS, "--config-file", HOW, "run", f"{url}/openapi.json"),
        *("--phases", "examples,coverage,fuzzing", "--max-examples", 6, "--seed", 1, "--generation-deterministic"),
        *("--suppress-health-check", "all", "--request-timeout", 20, "--no-color"),
    )
    code = checked.ends(MOST_SECONDS)
    assert code == 0, checked.out + checked.err
    assert "internal error" not in broker.err
    assert broker.process.poll() is None
