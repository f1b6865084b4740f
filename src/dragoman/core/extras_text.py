"""Extras of a job as text, for stores and recordings: a JSON object of the given facts. Ids are hex digits."""

from __future__ import annotations

import json
from typing import Any

from dragoman.core.ids import JobId
from dragoman.core.job_extras import JobExtras


def extras_text(extras: JobExtras) -> str:
    facts: dict[str, Any] = {}
    if extras.parent is not None:
        facts["parent"] = extras.parent.hex()
    if extras.traceparent:
        facts["traceparent"] = extras.traceparent
    if extras.request:
        facts["request"] = extras.request
    return json.dumps(facts, separators=(",", ":"))


def extras_of(text: str) -> JobExtras:
    """Read the extras of a stored job. Raises ValueError for a text that `extras_text` does not write."""
    facts = json.loads(text)
    if type(facts) is not dict:
        raise ValueError("not an object")
    extras = JobExtras(
        parent=_id_of(facts.pop("parent", None)),
        traceparent=_text_of(facts.pop("traceparent", "")),
        request=_text_of(facts.pop("request", "")),
    )
    if facts:
        raise ValueError(f"unknown: {', '.join(facts)}")
    return extras


def _id_of(value: object) -> JobId | None:
    if value is None:
        return None
    id = bytes.fromhex(_text_of(value))
    if len(id) != 16:
        raise ValueError(f"{value!r} is not the id of a job")
    return JobId(id)


def _text_of(value: object) -> str:
    if type(value) is not str:
        raise ValueError(f"{value!r} is not text")
    return value
