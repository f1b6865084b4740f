"""Ladders over HTTP: each format with its content type."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from http_world import World


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    world.broker.job_registry.conversations.start()
    yield world
    world.close()


def test_each_format_has_its_content_type(world: World) -> None:
    world.worker("s")
    job = world.ask("POST", "/v1/jobs?service=s", content=b"x").json()["id"]
    found = {
        format: world.ask("GET", f"/v1/jobs/{job}/ladder?format={format}")
        for format in ("json", "svg", "mermaid", "text")
    }
    kinds = {format: answer.headers["content-type"].partition(";")[0] for format, answer in found.items()}
    assert kinds == {"json": "application/json", "svg": "image/svg+xml", "mermaid": "text/plain", "text": "text/plain"}
    assert found["json"].json()["messages"][0]["from"] == "c"
    assert found["json"].json()["messages"][0]["message"] == "POST /v1/jobs"
    assert found["svg"].text.startswith('<svg class="ladder"')
    assert found["svg"].headers["content-disposition"] == f'attachment; filename="{job}.svg"'
    assert found["mermaid"].text.startswith("sequenceDiagram")
    assert "--- POST /v1/jobs --> broker" in found["text"].text
    assert world.ask("GET", f"/v1/jobs/{job}/ladder?format=png").status_code == 422
