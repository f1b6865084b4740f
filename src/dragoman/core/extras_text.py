"""Extras of a job as text, for stores and recordings: a JSON object of the given facts. Ids are hex digits."""

from __future__ import annotations

import json
from typing import Any

from dragoman.core.ids import JobId
from dragoman.core.job_extras import JobExtras, JobInput


def extras_text(extras: JobExtras) -> str:
    facts: dict[str, Any] = {}
    if extras.parent is not None:
        facts["parent"] = extras.parent.hex()
    if extras.traceparent:
        facts["traceparent"] = extras.traceparent
    if extras.tenant:
        facts["tenant"] = extras.tenant
    if extras.after:
        facts["after"] = [each.hex() for each in extras.after]
    if extras.runs_after_failure:
        facts["runs_after_failure"] = True
    if extras.input is not JobInput.PAYLOAD:
        facts["input"] = extras.input.value
    if extras.is_ready:
        facts["is_ready"] = True
    if extras.group is not None:
        facts["group"] = extras.group.hex()
        facts["place"] = extras.place
    if extras.needs:
        facts["needs"] = extras.needs
        facts["refused_by"] = extras.refused_by
        facts["refusal"] = extras.refusal
    return json.dumps(facts, separators=(",", ":"))


def extras_of(text: str) -> JobExtras:
    """Read the extras of a stored job. Raises ValueError for a text that `extras_text` does not write."""
    facts = json.loads(text)
    if type(facts) is not dict:
        raise ValueError("not an object")
    return extras_from(facts)


def extras_from(facts: dict[str, Any]) -> JobExtras:
    """As `extras_of`, for a parsed text."""
    extras = JobExtras(
        parent=_id_of(facts.pop("parent", None)),
        traceparent=_text_of(facts.pop("traceparent", "")),
        tenant=_text_of(facts.pop("tenant", "")),
        after=_ids_of(facts.pop("after", [])),
        runs_after_failure=_flag_of(facts.pop("runs_after_failure", False)),
        input=JobInput(_text_of(facts.pop("input", "payload"))),
        is_ready=_flag_of(facts.pop("is_ready", False)),
        group=_id_of(facts.pop("group", None)),
        place=_number_of(facts.pop("place", 0)),
        needs=_texts_of(facts.pop("needs", [])),
        refused_by=_text_of(facts.pop("refused_by", "")),
        refusal=_text_of(facts.pop("refusal", "")),
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


def _ids_of(value: object) -> tuple[JobId, ...]:
    if not isinstance(value, list):
        raise ValueError(f"{value!r} is not a list of ids")
    ids = []
    for each in value:
        id = _id_of(each)
        if id is None:
            raise ValueError(f"{value!r} is not a list of ids")
        ids.append(id)
    return tuple(ids)


def _text_of(value: object) -> str:
    if type(value) is not str:
        raise ValueError(f"{value!r} is not text")
    return value


def _texts_of(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError(f"{value!r} is not a list of texts")
    return tuple([_text_of(each) for each in value])


def _flag_of(value: object) -> bool:
    if type(value) is not bool:
        raise ValueError(f"{value!r} is not true or false")
    return value


def _number_of(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is not a number from 0 on")
    return value
