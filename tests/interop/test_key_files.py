"""Key files are those of pyzmq: it reads ours, and the reverse."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import zmq
import zmq.auth
from zmq.utils import z85

from dragoman.access.keys import new_key_file, read_key_file
from dragoman.access.private_files import make_folder
from dragoman.access.problems import AccessError
from dragoman.access.secret import Secret

UID = os.getuid()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_folder(tmp_path / "keys")
    return tmp_path / "keys"


def test_pyzmq_reads_our_key_file(folder: Path) -> None:
    pair = new_key_file(folder, "gpu-1", bytes(range(32)))
    public, secret = zmq.auth.load_certificate(folder / "gpu-1.key_secret")
    assert (z85.decode(public), secret and z85.decode(secret)) == (pair.public, pair.secret.reveal())
    assert zmq.curve_public(secret) == public


def test_we_read_a_key_file_of_pyzmq(folder: Path) -> None:
    public_file, secret_file = zmq.auth.create_certificates(folder, "gpu-1", {"role": "worker"})
    os.chmod(secret_file, 0o600)
    public, secret = zmq.auth.load_certificate(secret_file)
    found = read_key_file(Path(secret_file), UID)
    assert secret is not None
    assert (found.public, found.secret) == (z85.decode(public), Secret(z85.decode(secret)))
    os.chmod(public_file, 0o600)
    with pytest.raises(AccessError, match="has no secret key; name the file that ends in"):
        read_key_file(Path(public_file), UID)
