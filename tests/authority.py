"""Certificate authorities for tests of TLS, made by the program `openssl` when a test needs them."""

from __future__ import annotations

import itertools
import subprocess
from dataclasses import dataclass
from pathlib import Path

P256 = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256")
RSA = ("-newkey", "rsa:2048")
LOCAL = "subjectAltName=DNS:localhost,IP:127.0.0.1"


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate with its private key."""

    cert: Path
    key: Path

    @property
    def options(self) -> str:
        """The two files as options of an address."""
        return f"cert={self.cert}&key={self.key}"


class Authority:
    """A certificate authority in a folder of its own."""

    def __init__(self, folder: Path, name: str = "Test CA") -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._numbers = itertools.count(1)
        self.cert = folder / "ca.pem"
        self._key = folder / "ca.key"
        openssl("req", "-x509", *P256, "-nodes", "-keyout", self._key, "-out", self.cert, "-subj", f"/CN={name}")

    def issue(
        self, name: str = "server", extensions: str = LOCAL, *, days: int = 2, algorithm: tuple[str, ...] = P256
    ) -> Issued:
        """Issue a certificate. Negative `days`: it has expired."""
        made = Issued(*(self._folder / f"{next(self._numbers)}.{kind}" for kind in ("pem", "key")))
        request, written = made.cert.with_suffix(".csr"), made.cert.with_suffix(".cnf")
        written.write_text(extensions)
        openssl("req", "-new", *algorithm, "-nodes", "-keyout", made.key, "-out", request, "-subj", f"/CN={name}")
        issuer = ("-CA", self.cert, "-CAkey", self._key, "-CAcreateserial")
        openssl("x509", "-req", "-in", request, *issuer, "-days", days, "-extfile", written, "-out", made.cert)
        return made


def openssl(*words: object, given: bytes = b"") -> bytes:
    """Run the program. Returns its output."""
    done = subprocess.run(["openssl", *map(str, words)], input=given, capture_output=True, check=False)
    assert not done.returncode, done.stderr.decode()
    return done.stdout
