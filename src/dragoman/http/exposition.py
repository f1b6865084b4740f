"""Text formats of metrics: OpenMetrics, and the older Prometheus text.

Written here and not by a client library: with a thousand services a scrape has fifty thousand lines, and the work for
each line blocks the event loop that all jobs pass through.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from itertools import accumulate

from dragoman.core.histogram import BOUNDS, PUBLISHED, Histogram


class MetricType(Enum):
    """Type of a metric."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    INFO = "info"


OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"

# Ends of a histogram's lines, after its name and its labels, with the last bucket that each line counts.
_LINES = [(f'le="{bound!r}"}} ', BOUNDS.index(bound)) for bound in PUBLISHED] + [('le="+Inf"} ', len(BOUNDS))]


def labels(**values: str) -> str:
    """Format labels for a line, without braces."""
    return ",".join(f'{name}="{escape(value)}"' for name, value in values.items())


def escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def head(name: str, kind: MetricType, meaning: str, is_openmetrics: bool) -> str:
    """Return the lines above a metric's samples. Names of samples: counters end in _total, infos in _info."""
    type_name = kind.value
    if is_openmetrics:
        name = name.removesuffix("_total") if kind is MetricType.COUNTER else name
        name = name.removesuffix("_info") if kind is MetricType.INFO else name
    elif kind is MetricType.INFO:
        type_name = "gauge"
    return f"# HELP {name} {meaning}\n# TYPE {name} {type_name}\n"


def sample(name: str, labelled: str, value: float) -> str:
    return f"{name}{{{labelled}}} {value}\n" if labelled else f"{name} {value}\n"


def histogram(name: str, labelled: str, counted: Histogram) -> str:
    begin = f"{name}_bucket{{{labelled}," if labelled else f"{name}_bucket{{"
    sums = list(accumulate(counted.counts))
    lines = [f"{begin}{end}{sums[last]}\n" for end, last in _LINES]
    lines += sample(f"{name}_count", labelled, sums[-1]), sample(f"{name}_sum", labelled, counted.total)
    return "".join(lines)


def media_type(accept: str) -> str:
    """Choose OpenMetrics, unless the older text or HTML is preferred."""
    qualities = _qualities(accept)
    older = max(qualities.get("text/plain", 0.0), qualities.get("text/html", 0.0))
    return PROMETHEUS if older > qualities.get("application/openmetrics-text", 0.0) else OPENMETRICS


def _qualities(accept: str) -> Mapping[str, float]:
    """Return the quality of each media type, the maximum over its parameters."""
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
