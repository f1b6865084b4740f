"""The file with a broker's credentials for NATS: its contents and its mode."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.carriers.nats import Nats
from dragoman.sdk.address import AddressError
from dragoman.server.cluster_member import credentials_in


def written(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = folder / "credentials"
    path.write_text(text)
    path.chmod(mode)
    return path


def fields(path: Path | None) -> dict[str, str]:
    """The fields of CONNECT."""
    return credentials_in(path).fields(Nats().info)


def test_a_token_or_a_user_with_a_password_is_read(tmp_path: Path) -> None:
    assert fields(None) == {}
    assert fields(written(tmp_path, "secret\n")) == {"auth_token": "secret"}
    assert fields(written(tmp_path, "broker:pass:word\n")) == {"user": "broker", "pass": "pass:word"}


def test_a_file_without_credentials_is_refused(tmp_path: Path) -> None:
    for text in ("", "one\ntwo\n"):
        with pytest.raises(AddressError, match="it has no credentials"):
            credentials_in(written(tmp_path, text))


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AddressError, match="chmod 600"):
        credentials_in(written(tmp_path, "secret", 0o640))


def test_the_mode_of_a_mounted_secret_is_not_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kubernetes lets the group of a pod read its Secrets, so a broker could not use one: it refused the mode."""
    path = written(tmp_path, "secret", 0o440)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    assert fields(path) == {"auth_token": "secret"}
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path / "other"))
    with pytest.raises(AddressError, match="chmod 600"):
        credentials_in(path)
