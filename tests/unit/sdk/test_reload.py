"""Watching the files of a program for changes."""

from __future__ import annotations

import sysconfig

import pytest

from dragoman.sdk.reload import FileWatcher


def test_looking_again_does_not_ask_where_packages_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug: it asked again for each module that was loaded, and a worker that watched used most of a core."""
    watch = FileWatcher()
    asked: list[str] = []
    monkeypatch.setattr(sysconfig, "get_path", asked.append)
    assert watch.look() == []
    assert asked == []
