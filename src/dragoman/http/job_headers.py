"""Headers of the response that gives a job to an HTTP worker."""

from __future__ import annotations

from math import inf
from urllib.parse import quote

from dragoman.core.model import Attempt

SAFE = "".join(chr(each) for each in range(0x20, 0x7F) if chr(each) != "%")


def job_headers(attempt: Attempt, now: float) -> dict[str, str]:
    """Return the headers that describe a job and this attempt."""
    job = attempt.job
    headers = {
        "dragoman-job": job.id.hex(),
        "dragoman-attempt": attempt.token.hex(),
        "dragoman-attempt-number": str(attempt.number),
        "dragoman-service": header_text(job.service.name),
    }
    left = attempt.over_at - now
    if left != inf:
        headers["dragoman-timeout"] = f"{max(0.0, left):.3f}"
    extras = job.extras
    if extras is not None and extras.traceparent:
        headers["traceparent"] = extras.traceparent
        if not job.spent:  # a retry has waited for its delay, too
            headers["dragoman-waited"] = f"{max(0.0, attempt.given - job.arrival):.6f}"
    return headers


def header_text(name: str) -> str:
    """Encode a service's name for a header: letters outside ASCII, and %, as in URLs."""
    return quote(name, safe=SAFE)
