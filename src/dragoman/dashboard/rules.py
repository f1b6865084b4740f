"""Rules of attention: findings about one sample, each with a sentence and an advice."""

from __future__ import annotations

from dragoman.dashboard.attention import Finding
from dragoman.dashboard.snapshot import Sources


def findings(sources: Sources, now: float) -> list[Finding]:
    """Return what needs attention now."""
    return []
