"""Numbers as scrapers read them: OpenMetrics text, and the older Prometheus text.

Written here instead of by a client library: with a thousand services a scrape has fifty thousand lines, and what is
made for each line stands still the loop that all jobs pass through.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from itertools import accumulate

from dragoman.core.histogram import BOUNDS, Histogram


class Kind(Enum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    INFO = "info"


OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"

# How a histogram's lines end, after its name and its labels.
_BUCKETS = tuple(f'le="{bound!r}"}} ' for bound in (*BOUNDS, float("inf")))
_BUCKETS = tuple(each.replace("inf", "+Inf") for each in _BUCKETS)


def labels(**values: str) -> str:
    """Labels as they stand in a line, without braces."""
    return ",".join(f'{name}="{escape(value)}"' for name, value in values.items())


def escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def head(name: str, kind: Kind, meaning: str, is_openmetrics: bool) -> str:
    """The lines above a metric's samples. Its name is the samples': counters end in _total, infos in _info."""
    word = kind.value
    if is_openmetrics:
        name = name.removesuffix("_total") if kind is Kind.COUNTER else name
        name = name.removesuffix("_info") if kind is Kind.INFO else name
    elif kind is Kind.INFO:
        word = "gauge"
    return f"# HELP {name} {meaning}\n# TYPE {name} {word}\n"


def sample(name: str, labelled: str, value: float) -> str:
    return f"{name}{{{labelled}}} {value}\n" if labelled else f"{name} {value}\n"


def histogram(name: str, labelled: str, counted: Histogram) -> str:
    begin = f"{name}_bucket{{{labelled}," if labelled else f"{name}_bucket{{"
    sums = list(accumulate(counted.counts))
    lines = [f"{begin}{end}{value}\n" for end, value in zip(_BUCKETS, sums, strict=True)]
    lines += sample(f"{name}_count", labelled, sums[-1]), sample(f"{name}_sum", labelled, counted.total)
    return "".join(lines)


def media_type(accept: str) -> str:
    """OpenMetrics, unless the older text, or a page to look at, is preferred."""
    job_options = _job_options(accept)
    older = max(job_options.get("text/plain", 0.0), job_options.get("text/html", 0.0))
    return PROMETHEUS if older > job_options.get("application/openmetrics-text", 0.0) else OPENMETRICS


def _job_options(accept: str) -> Mapping[str, float]:
    """Each media type with how much it is wished for, the most over its parameters."""
    found: dict[str, float] = {}
    for each in accept.lower().split(","):
        media, *parameters = (part.strip() for part in each.split(";"))
        found[media] = max(found.get(media, 0.0), _quality(parameters))
    return found


def _quality(parameters: Sequence[str]) -> float:
    for each in parameters:
        name, _, value = each.partition("=")
        if name.strip() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0
