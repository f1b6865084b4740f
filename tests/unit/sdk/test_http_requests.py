"""HTTP requests of operations."""

from __future__ import annotations

import json
from typing import Any

from case_tables import check_every_row
from dragoman.http.app import all_routes
from dragoman.operations.table import OPERATIONS
from dragoman.sdk.http_requests import http_request_for

JSON = b"content-type: application/json\r\n"
BYTES = b"content-type: application/octet-stream\r\n"
JOB = "0197f3a2c4d87b12a9e05c61f38d2b74"


def test_every_operation_has_a_route_that_the_broker_has() -> None:
    served = {(each.method, each.path) for each in all_routes()}
    assert {(each.method, each.path) for each in OPERATIONS.values()} <= served


def test_a_request_says_what_the_form_says() -> None:
    def check(operation: str, form: dict[str, Any], payload: bytes, line: bytes, fields: bytes, body: bytes) -> None:
        assert http_request_for(operation, json.dumps(form).encode(), payload) == [line, fields, body]

    order = {"service": "a b", "timeout": None, "priority": 7, "key": "k&1", "not_before": "2030-01-01T08:00:00+01:00"}
    query = b"service=a%20b&timeout=null&priority=7&key=k%261&not_before=2030-01-01T08%3A00%3A00%2B01%3A00"
    recur = {"service": "echo", "every": 5.0, "payload_base64": "/w=="}
    check_every_row(
        check,
        [
            ("services", {}, b"", b"GET /v1/services", b"", b""),
            ("job", {"id": JOB}, b"", f"GET /v1/jobs/{JOB}".encode(), b"", b""),
            ("result", {"id": JOB, "wait": 2.5}, b"", f"GET /v1/jobs/{JOB}/result?wait=2.5".encode(), b"", b""),
            ("jobs", {"quarantined": True}, b"", b"GET /v1/jobs?quarantined=true", b"", b""),
            ("cancel", {"id": JOB}, b"", f"DELETE /v1/jobs/{JOB}".encode(), b"", b""),
            ("enqueue", order, b"\xff", b"POST /v1/jobs?" + query, BYTES, b"\xff"),
            ("pause", {"name": "a/b"}, b"", b"POST /v1/services/a%2Fb/pause", b"", b""),
            ("pause", {"name": "a", "by": "Ada"}, b"", b"POST /v1/services/a/pause", JSON, b'{"by": "Ada"}'),
            ("drain", {"id": 7, "now": True}, b"", b"POST /v1/workers/7/drain", JSON, b'{"now": true}'),
            ("delete schedule", {"name": "é"}, b"", b"DELETE /v1/schedules/%C3%A9", b"", b""),
            (
                "set schedule",
                {"name": "n", "service": "echo", "every": 5.0},
                b"\xff",
                b"PUT /v1/schedules/n",
                JSON,
                json.dumps(recur).encode(),
            ),
        ],
    )
