"""Exit statuses in words."""

from __future__ import annotations

import pytest

from dragoman.sdk.exit_status import exit_text


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (7, "exit code 7"),
        (-11, "signal SIGSEGV"),
        (-9, "signal SIGKILL"),
        (-200, "signal 200"),
        (None, "exit code None"),
    ],
)
def test_signals_have_names(status: int | None, text: str) -> None:
    assert exit_text(status) == text
