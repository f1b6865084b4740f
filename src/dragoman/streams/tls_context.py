"""TLS contexts of listeners and of clients, built from files.

A context is built whole, tested by a handshake in memory, and only then used: `load_cert_chain` on a context in use is
not atomic. A key that does not match leaves it broken, and with another type of key it still serves the old
certificate.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

from dragoman.streams.certificates import Certificate, read_certificate, read_pem

NATIVE_PROTOCOL = "dragoman/1"  # application protocol (ALPN) of the native dialect
HTTP_PROTOCOL = "http/1.1"
CIPHERS_OF_1_2 = "ECDHE+AESGCM:ECDHE+CHACHA20"
NO_CHECK_TIME = 0x200000  # X509_V_FLAG_NO_CHECK_TIME of OpenSSL; the time is checked here


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Files and names of one side of TLS, as an address names them. A client needs none."""

    cert: str = ""  # certificate of this side, with its chain
    key: str = ""  # its private key; empty: in the same file
    ca: str = ""  # client: certificates that issue the broker's, or that certificate itself; empty: the system's
    client_ca: str = ""  # listener: the same for clients, which then must show a certificate, unless it is optional
    server_name: str = ""  # client: name in the broker's certificate; empty: the host of the address
    protocol: str = ""  # application protocol (ALPN)


@dataclass(frozen=True, slots=True)
class TlsRole:
    """Everything that a TLS connection needs to start."""

    context: ssl.SSLContext
    is_server: bool
    server_name: str | None = None  # client: name to verify
    required_protocol: str = ""


class TlsFileError(ValueError):
    """A file of TLS that cannot be used. The message names the file, the problem and the next step."""


class ListenerTls:
    """TLS of one listener. New connections use the context of the moment."""

    def __init__(self, files: TlsFiles, pinned: Sequence[bytes] = (), *, is_optional: bool = False) -> None:
        """`is_optional`: clients may show no certificate, because they can prove who they are in another way."""
        self.listener = ""  # its address, in logs and metrics
        self._files = files
        self._is_optional = is_optional
        self._certificate: Certificate | None = None
        self.reload(pinned)

    @property
    def role(self) -> TlsRole:
        return self._role

    @property
    def certificate(self) -> Certificate:
        """Facts of the certificate in use."""
        assert self._certificate is not None
        return self._certificate

    def reload(self, pinned: Sequence[bytes] = ()) -> None:
        """Read all files again. Raises TlsFileError; then the context of before stays in use."""
        self.prepare_reload(pinned)()

    def prepare_reload(self, pinned: Sequence[bytes] = ()) -> Callable[[], None]:
        """Read all files again. Returns the function that uses them from then on. Raises TlsFileError.

        The certificate in use may have expired: that is no reason to reject a reload, which may revoke a key.
        """
        context, certificate = _listener_context(self._files, pinned, self._is_optional, self._certificate)

        def use() -> None:
            self._role = TlsRole(context, True, None, _required(self._files))
            self._certificate = certificate

        return use


def client_role(files: TlsFiles, host: str) -> TlsRole:
    """Return the role of a client that connects to `host`. Files are read again if they have changed. Raises
    TlsFileError."""
    return _client_role(files, host, tuple(_version(path) for path in (files.cert, files.key, files.ca)))


def _version(path: str) -> object:
    """Return a value that changes with the file; None if there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size, status.st_mode


@lru_cache(16)  # the system's certificates take milliseconds to load, and a client connects often
def _client_role(files: TlsFiles, host: str, _: object) -> TlsRole:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # verifies certificate and name
    _restrict(context, files)
    if files.ca:
        _trust(context, files.ca, "ca")
    else:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    if files.cert:
        _load_certificate(context, files)
    name = files.server_name or host
    try:
        context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname=name)
    except ValueError as error:
        raise TlsFileError(f"server_name={name}: {error}; write a host name or an IP address") from None
    return TlsRole(context, False, name, _required(files))


def _listener_context(
    files: TlsFiles, pinned: Sequence[bytes], is_optional: bool, in_use: Certificate | None
) -> tuple[ssl.SSLContext, Certificate]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _restrict(context, files)
    context.num_tickets = 0  # a resumed session skips the check of the certificate
    if not files.cert:
        raise TlsFileError("the certificate is missing: name its file with cert=, and its private key with key=")
    der, certificate = _load_certificate(context, files, in_use)
    if files.client_ca:
        _trust(context, files.client_ca, "client_ca")
    if pinned:
        context.load_verify_locations(cadata=b"".join(pinned))
    _test(context, der, files)
    if files.client_ca or pinned:
        context.verify_mode = ssl.CERT_OPTIONAL if is_optional else ssl.CERT_REQUIRED
    return context, certificate


def _restrict(context: ssl.SSLContext, files: TlsFiles) -> None:
    is_native = files.protocol == NATIVE_PROTOCOL
    context.minimum_version = ssl.TLSVersion.TLSv1_3 if is_native else ssl.TLSVersion.TLSv1_2
    context.set_ciphers(CIPHERS_OF_1_2)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_NO_TICKET
    # A certificate that is trusted itself needs no issuer. Default from Python 3.13.
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    if files.protocol:
        context.set_alpn_protocols([files.protocol])


def _required(files: TlsFiles) -> str:
    return NATIVE_PROTOCOL if files.protocol == NATIVE_PROTOCOL else ""


def _load_certificate(
    context: ssl.SSLContext, files: TlsFiles, in_use: Certificate | None = None
) -> tuple[bytes, Certificate]:
    ders = _certificates(files.cert, "cert")
    certificate = _facts(ders[0], files.cert)
    now = datetime.now(UTC)
    if certificate.not_after <= now and certificate != in_use:
        day = certificate.not_after.date().isoformat()
        raise TlsFileError(f"cert={files.cert}: the certificate expired on {day}; renew it")
    if certificate.not_before > now:
        day = certificate.not_before.date().isoformat()
        raise TlsFileError(f"cert={files.cert}: the certificate is valid from {day}; check the clock of this machine")
    key = files.key or files.cert
    _check_private(key)
    try:
        context.load_cert_chain(files.cert, key, password=_no_password)
    except _Encrypted:
        raise TlsFileError(
            f"key={key}: the private key has a password; write it without one to a file of mode 0600: "
            f"openssl pkey -in {key} -out FILE"
        ) from None
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise TlsFileError(
                f"key={key}: the private key does not belong to the certificate in {files.cert}; name the key with "
                "which that certificate was requested"
            ) from None
        what = error.reason.lower().replace("_", " ") if error.reason else "it has no private key in PEM form"
        raise TlsFileError(
            f"key={key}: cannot be used with {files.cert}: {what}; write a private key in PEM form"
        ) from None
    except OSError as error:
        raise TlsFileError(f"key={key}: {error.strerror}; check the path and its permissions") from None
    return ders[0], certificate


class _Encrypted(Exception):
    pass


def _no_password() -> str:
    raise _Encrypted  # without this, OpenSSL asks on the terminal


def _check_private(path: str) -> None:
    """Refuse a private key that other users can read or write."""
    try:
        status = os.stat(path)
    except OSError as error:
        raise TlsFileError(f"key={path}: {error.strerror}; check the path and its permissions") from None
    credentials = os.environ.get("CREDENTIALS_DIRECTORY")  # systemd sets the mode of its own files
    if credentials and Path(path).resolve().is_relative_to(Path(credentials).resolve()):
        return
    if not hasattr(os, "getuid"):  # Windows: files have neither owners nor modes that Python reads (R263)
        return
    if status.st_mode & 0o077:
        mode = f"{status.st_mode & 0o777:04o}"
        raise TlsFileError(f"key={path}: mode {mode} lets other users read the private key; run: chmod 600 {path}")
    if status.st_uid not in (os.getuid(), 0):
        raise TlsFileError(f"key={path}: belongs to user {status.st_uid}; run: chown {os.getuid()} {path}")


def _certificates(path: str, option: str) -> list[bytes]:
    try:
        ders = read_pem(Path(path).read_text("ascii", errors="replace"))
    except OSError as error:
        raise TlsFileError(f"{option}={path}: {error.strerror}; check the path and its permissions") from None
    except ValueError:
        ders = []
    if not ders:
        raise TlsFileError(f"{option}={path}: the file has no valid certificate in PEM form (BEGIN CERTIFICATE)")
    return ders


def _facts(der: bytes, path: str) -> Certificate:
    try:
        return read_certificate(der)
    except ValueError as error:
        raise TlsFileError(f"cert={path}: {error}; write the certificate in PEM form") from None


def _trust(context: ssl.SSLContext, path: str, option: str) -> None:
    """Trust all certificates of the file, as issuers or as certificates of the other side itself."""
    ders = _certificates(path, option)
    try:
        context.load_verify_locations(cadata=b"".join(ders))
    except ssl.SSLError as error:
        raise TlsFileError(f"{option}={path}: {error.reason or error}; write certificates in PEM form") from None


def _test(context: ssl.SSLContext, der: bytes, files: TlsFiles) -> None:
    """Complete a handshake in memory with a client that trusts this certificate. Raises TlsFileError."""
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _restrict(trusting, files)
    trusting.check_hostname = False  # the listener does not know its names; clients check them
    trusting.verify_flags |= NO_CHECK_TIME
    trusting.load_verify_locations(cadata=der)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = context.wrap_bio(to_server, to_client, server_side=True)
    client = trusting.wrap_bio(to_client, to_server)
    try:
        for _ in range(4):
            for side in (client, server):
                try:
                    side.do_handshake()
                except ssl.SSLWantReadError:
                    pass
    except ssl.SSLError as error:
        problem = getattr(error, "verify_message", "") or error.reason or str(error)
        raise TlsFileError(f"cert={files.cert}: a test of this certificate failed: {problem}; issue another") from None
