"""Certificates, keys and contexts of TLS, compared with the program `openssl`."""

from __future__ import annotations

import hashlib
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from authority import LOCAL, P256, RSA, Authority, Issued, openssl
from case_tables import check_every_row
from dragoman.streams.certificates import read_certificate, read_pem
from dragoman.streams.tls_context import (
    HTTP_PROTOCOL,
    NATIVE_PROTOCOL,
    ListenerTls,
    TlsFileError,
    TlsFiles,
    client_role,
)

ALL_NAMES = "subjectAltName=DNS:ops.example.org,URI:spiffe://example/ops,email:ops@example.org,IP:127.0.0.1,IP:::1"


def der_of(issued: Issued) -> bytes:
    [der] = read_pem(issued.cert.read_text())
    return der


@pytest.fixture(scope="module")
def server(authority: Authority) -> Issued:
    return authority.issue()


def files_of(issued: Issued, **others: str) -> TlsFiles:
    return TlsFiles(str(issued.cert), str(issued.key), **others)


# ---------------------------------------------------------------- certificates


@pytest.mark.parametrize("algorithm", [P256, RSA, ("-newkey", "ed25519")], ids=["P-256", "RSA", "Ed25519"])
def test_spki_equals_openssl(authority: Authority, algorithm: tuple[str, ...]) -> None:
    issued = authority.issue(algorithm=algorithm)
    public_key = openssl("x509", "-in", issued.cert, "-noout", "-pubkey")
    spki = openssl("pkey", "-pubin", "-outform", "DER", given=public_key)
    assert read_certificate(der_of(issued)).spki_sha256 == hashlib.sha256(spki).hexdigest()


def test_a_renewed_certificate_with_the_same_key_has_the_same_spki(authority: Authority) -> None:
    first = authority.issue()
    renewed = authority.issue(algorithm=("-key", str(first.key)))
    facts = [read_certificate(der_of(each)) for each in (first, renewed)]
    assert facts[0].spki_sha256 == facts[1].spki_sha256
    assert der_of(first) != der_of(renewed)


def test_names_are_the_alternative_names_else_the_common_name(authority: Authority) -> None:
    rows = {
        ALL_NAMES: ("ops.example.org", "spiffe://example/ops", "ops@example.org", "127.0.0.1", "::1"),
        "extendedKeyUsage=clientAuth": ("müller",),
        f"basicConstraints=critical,CA:FALSE\n{LOCAL}": ("localhost", "127.0.0.1"),
    }

    def check(extensions: str, names: tuple[str, ...]) -> None:
        issued = authority.issue("müller", extensions, algorithm=(*P256, "-utf8"))
        assert read_certificate(der_of(issued)).names == names

    check_every_row(check, rows.items())


def test_the_period_equals_openssl(server: Issued) -> None:
    facts = read_certificate(der_of(server))
    end = openssl("x509", "-in", server.cert, "-noout", "-enddate").decode().strip().partition("=")[2]
    assert facts.not_after == datetime.fromtimestamp(ssl.cert_time_to_seconds(end), UTC)
    assert facts.not_after - facts.not_before == timedelta(days=2)


def test_bytes_that_are_no_certificate_raise_value_error(server: Issued) -> None:
    der = der_of(server)
    for cut in range(0, len(der), 7):
        with pytest.raises(ValueError, match="not a certificate"):
            read_certificate(der[:cut])
    moment = b"\x17\x0d250101000000Z"
    fields = b"\x02\x01\x01" + b"\x30\x00\x30\x00" + b"\x30\x1e" + 2 * moment + b"\x30\x00\x30\x00"
    empty_extensions = b"\x30\x2f\x30\x2d" + fields + b"\xa3\x00"  # raised a RuntimeError
    for wrong in (b"\x30\x00", b"\x30\x02\x30\x00", b"\x30\x80\x00\x00", bytes(40), empty_extensions):
        with pytest.raises(ValueError, match="not a certificate"):
            read_certificate(wrong)


# ---------------------------------------------------------------- contexts


def test_a_listener_has_the_strict_settings(server: Issued) -> None:
    for protocol, minimum in ((NATIVE_PROTOCOL, "TLSv1_3"), (HTTP_PROTOCOL, "TLSv1_2"), ("", "TLSv1_2")):
        context = ListenerTls(files_of(server, protocol=protocol)).role.context
        assert context.minimum_version.name == minimum
        assert context.num_tickets == 0
        for option in (ssl.OP_NO_RENEGOTIATION, ssl.OP_NO_COMPRESSION, ssl.OP_NO_TICKET):
            assert context.options & option
        names = [each["name"] for each in context.get_ciphers()]
        assert all(each.startswith("TLS_") or "GCM" in each or "CHACHA20" in each for each in names)
        assert all(each.startswith(("TLS_", "ECDHE-")) for each in names)


def test_a_client_always_verifies_certificate_and_name(server: Issued, authority: Authority) -> None:
    """R140"""
    for files in (TlsFiles(), TlsFiles(ca=str(authority.cert)), files_of(server, server_name="other")):
        role = client_role(files, "localhost")
        assert role.context.verify_mode is ssl.CERT_REQUIRED
        assert role.context.check_hostname
        assert role.server_name == (files.server_name or "localhost")


def test_client_certificates_are_required_if_they_are_named(server: Issued, authority: Authority) -> None:
    assert ListenerTls(files_of(server)).role.context.verify_mode is ssl.CERT_NONE
    with_authority = ListenerTls(files_of(server, client_ca=str(authority.cert)))
    pinned = ListenerTls(files_of(server), [der_of(server)])
    for listener in (with_authority, pinned):
        assert listener.role.context.verify_mode is ssl.CERT_REQUIRED
        assert listener.role.context.verify_flags & ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN


def test_a_file_that_cannot_be_used_is_an_error_with_the_next_step(authority: Authority, tmp_path: Path) -> None:
    server, other, expired = authority.issue(), authority.issue(), authority.issue(days=-1)
    client_only = authority.issue(extensions="extendedKeyUsage=clientAuth")
    missing, empty, locked, open_key = (str(tmp_path / each) for each in ("missing", "empty", "locked", "open"))
    Path(empty).write_text("nothing")
    Path(empty).chmod(0o600)
    openssl("pkey", "-in", server.key, "-aes256", "-passout", "pass:secret", "-out", locked)
    Path(open_key).write_bytes(server.key.read_bytes())
    Path(open_key).chmod(0o644)
    cert, key = str(server.cert), str(server.key)
    rows = (
        (TlsFiles(), "name its file with cert="),
        (TlsFiles(missing, key), f"cert={missing}: No such file or directory; check the path"),
        (TlsFiles(cert, missing), f"key={missing}: No such file or directory; check the path"),
        (TlsFiles(empty, key), f"cert={empty}: the file has no valid certificate in PEM form"),
        (TlsFiles(cert, empty), f"key={empty}: cannot be used with {cert}"),
        (TlsFiles(cert, str(other.key)), f"key={other.key}: the private key does not belong to the certificate in"),
        (TlsFiles(cert, locked), f"key={locked}: the private key has a password; write it without one"),
        (TlsFiles(cert, open_key), f"mode 0644 lets other users read the private key; run: chmod 600 {open_key}"),
        (TlsFiles(str(expired.cert), str(expired.key)), f"cert={expired.cert}: the certificate expired on "),
        (TlsFiles(str(client_only.cert), str(client_only.key)), "a test of this certificate failed: unsuitable"),
        (TlsFiles(cert, key, client_ca=empty), f"client_ca={empty}: the file has no valid certificate"),
    )

    def check(files: TlsFiles, problem: str) -> None:
        with pytest.raises(TlsFileError) as raised:
            ListenerTls(files)
        assert problem in str(raised.value)

    check_every_row(check, rows)


def test_a_key_of_systemd_may_have_its_mode(server: Issued, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = tmp_path / "key"
    key.write_bytes(server.key.read_bytes())
    key.chmod(0o440)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    ListenerTls(TlsFiles(str(server.cert), str(key)))


def test_a_reload_with_a_wrong_file_keeps_the_context(authority: Authority, tmp_path: Path) -> None:
    """R139: `load_cert_chain` on a context in use would leave it broken."""
    first, second = authority.issue(), authority.issue()
    cert, key = tmp_path / "cert", tmp_path / "key"

    def write(new_cert: Path, new_key: Path) -> None:
        cert.write_bytes(new_cert.read_bytes())
        key.write_bytes(new_key.read_bytes())
        key.chmod(0o600)

    write(first.cert, first.key)
    listener = ListenerTls(TlsFiles(str(cert), str(key)))
    before, facts = listener.role, listener.certificate
    write(second.cert, first.key)
    with pytest.raises(TlsFileError, match="does not belong to the certificate"):
        listener.reload()
    assert listener.role is before
    write(second.cert, second.key)
    listener.reload()
    assert listener.role is not before
    assert listener.certificate.spki_sha256 != facts.spki_sha256


def test_a_reload_goes_on_with_a_certificate_that_has_expired_while_in_use(
    authority: Authority, tmp_path: Path
) -> None:
    """A bug: with it every reload failed, so that no key could be revoked before the certificate was renewed."""
    valid, expired = authority.issue(), authority.issue(days=-1)
    cert, key = tmp_path / "cert", tmp_path / "key"
    key.touch(0o600)

    def write(issued: Issued) -> None:
        cert.write_bytes(issued.cert.read_bytes())
        key.write_bytes(issued.key.read_bytes())

    write(valid)
    listener = ListenerTls(TlsFiles(str(cert), str(key)))
    write(expired)
    with pytest.raises(TlsFileError, match="the certificate expired on"):
        listener.reload()
    listener._certificate = read_certificate(der_of(expired))  # it was valid when it was read
    listener.reload()
    assert listener.certificate.not_after < datetime.now(UTC)
