"""The proof of identity of a client or a worker: sources of its settings, addresses that have a place for it, and
errors, which never have a secret."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from case_tables import check_every_row
from dragoman import AsyncClient, Client, Tls, Worker
from dragoman.access.keys import key_file, new_key_file, user_key_folder
from dragoman.access.private_files import make_folder
from dragoman.access.secret import Secret
from dragoman.carriers.curve_keys import key_z85, new_key_pair
from dragoman.carriers.zmtp_curve_handshake import CurveClient
from dragoman.carriers.zmtp_handshake import NULL
from dragoman.carriers.zmtp_plain import PlainClient
from dragoman.dialects.catalogue import DIALECTS
from dragoman.sdk.address import AddressError, TlsAddress, parse
from dragoman.sdk.credentials import CredentialError, credentials_of
from dragoman.sdk.proof import VARIABLES, Proof
from dragoman.sdk.targets import caller_target, worker_target

TOKEN = "dgm_" + "t0ken" * 8
OTHER = "dgm_" + "0ther" * 8
SERVER, SECOND = (new_key_pair(bytes([number]) * 32)[0] for number in (7, 8))
GPU, WEB = bytes([1]) * 32, bytes([2]) * 32  # seeds of keys
FAR, NEAR, TLS = "tcp://broker:7400", "tcp://127.0.0.1:7400", "tls://broker:7400"

Given = dict[str, Any]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user with two keys, a file with a token, and no variables."""
    for variable in (*VARIABLES.values(), "DRAGOMAN_URL", "CREDENTIALS_DIRECTORY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    folder = user_key_folder(os.environ)
    make_folder(folder)
    new_key_file(folder, "gpu-1", GPU)
    new_key_file(folder, "web", WEB)
    write_token(tmp_path / "token")
    return tmp_path


def write_token(path: Path, text: str = f"{TOKEN}\n", mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def proof(url: str, **given: Any) -> Proof:
    return caller_target(url, None, credentials_of(**given)).proof


def shape(found: Proof) -> tuple[object, ...]:
    """The parts of a proof that a broker sees, and the setting that errors name."""
    label = found.own.label if found.own is not None else ""
    security = found.security
    if isinstance(security, CurveClient):
        return "key", security.key[0], security.server_key, label
    if isinstance(security, PlainClient):
        assert security.name == b"token"
        return "plain", security.password.decode(), label
    assert security is NULL
    return ("bearer", found.token.reveal().decode(), label) if found.token is not None else ()


def public(seed: bytes) -> bytes:
    return new_key_pair(seed)[0]


# -------------------------------------------------------------------- sources


def test_argument_wins_over_url_and_url_over_environment(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"{FAR}?server_key={SERVER.hex()}&key=web"
    monkeypatch.setenv("DRAGOMAN_KEY", "gpu-1")
    monkeypatch.setenv("DRAGOMAN_SERVER_KEY", SECOND.hex())
    rows: tuple[tuple[str, Given, tuple[object, ...]], ...] = (
        (FAR, {}, ("key", public(GPU), SECOND, "DRAGOMAN_KEY")),
        (url, {}, ("key", public(WEB), SERVER, "key= in the URL")),
        (url, {"key": "gpu-1"}, ("key", public(GPU), SERVER, "the argument key")),
        (url, {"server_key": SECOND.hex()}, ("key", public(WEB), SECOND, "key= in the URL")),
        (f"{FAR}?key=web", {}, ("key", public(WEB), SECOND, "key= in the URL")),
        ("pingpong+tcp://broker:7401", {}, ("key", public(GPU), SECOND, "DRAGOMAN_KEY")),
        ("majordomo+tcp://broker:7406", {}, ("key", public(GPU), SECOND, "DRAGOMAN_KEY")),
        # No place for keys.
        ("http://127.0.0.1:7480", {}, ()),
        ("memodb+tcp://broker:7405", {}, ()),
        (TLS, {}, ()),
        # An explicit token is another choice than the key of the environment.
        (NEAR, {"token": TOKEN}, ("plain", TOKEN, "the argument token")),
    )
    check_every_row(lambda url, given, expected: _same(shape(proof(url, **given)), expected), rows)


def test_token_by_argument_url_and_environment(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = f"token_file={home / 'token'}"
    https, http = "https://broker:7480", "http://127.0.0.1:7480"
    of_url, of_variable = "token_file= in the URL", "DRAGOMAN_TOKEN"
    monkeypatch.setenv("DRAGOMAN_TOKEN", OTHER)
    rows: tuple[tuple[str, Given, tuple[object, ...]], ...] = (
        (https, {"token": TOKEN}, ("bearer", TOKEN, "the argument token")),
        (https, {"token": Secret(TOKEN)}, ("bearer", TOKEN, "the argument token")),
        (https, {"token_file": home / "token"}, ("bearer", TOKEN, "the argument token_file")),
        (f"{https}?{file}", {}, ("bearer", TOKEN, of_url)),
        (f"{https}?{file}", {"token": OTHER}, ("bearer", OTHER, "the argument token")),
        (https, {}, ("bearer", OTHER, of_variable)),
        (f"{TLS}?{file}", {}, ("plain", TOKEN, of_url)),
        (TLS, {}, ("plain", OTHER, of_variable)),
        (http, {}, ("bearer", OTHER, of_variable)),
        ("http+unix:///run/dragoman.sock", {}, ("bearer", OTHER, of_variable)),
        ("ipc:///run/n.sock", {"token": TOKEN}, ("plain", TOKEN, "the argument token")),
        (f"{NEAR}?{file}", {}, ("plain", TOKEN, of_url)),
        ("tcp://localhost:7400", {"token": TOKEN}, ("plain", TOKEN, "the argument token")),
    )
    check_every_row(lambda url, given, expected: _same(shape(proof(url, **given)), expected), rows)


@pytest.mark.parametrize(
    "url", ["tcp://broker:7400", "tcp://127.0.0.1:7400", "ipc:///run/n.sock", "http://broker:7480"]
)
def test_token_of_environment_is_not_sent_where_others_could_read_it_or_a_listener_would_reject_it(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R154."""
    monkeypatch.setenv("DRAGOMAN_TOKEN", TOKEN)
    found = proof(url)
    assert shape(found) == ()
    assert found.authorization == b""
    assert found.withheld == "DRAGOMAN_TOKEN"


@pytest.mark.parametrize("url", ["memodb+tls://broker:7405", "pingpong+tls://broker:7401", "memodb+tcp://127.0.0.1:1"])
def test_token_of_environment_is_ignored_where_the_wire_has_none(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAGOMAN_TOKEN", TOKEN)
    monkeypatch.setenv("DRAGOMAN_TOKEN_FILE", "/nowhere")
    assert shape(proof(url)) == ()


def test_empty_variable_is_no_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in VARIABLES.values():
        monkeypatch.setenv(variable, "")
    assert shape(proof(NEAR)) == ()
    assert shape(proof(TLS)) == ()


def test_key_is_a_name_or_a_path_and_server_key_hex_or_z85(home: Path) -> None:
    path = key_file(user_key_folder(os.environ), "gpu-1")
    expected = public(GPU), SERVER
    for key in ("gpu-1", str(path), path):
        for server_key in (SERVER.hex(), SERVER.hex().upper(), key_z85(SERVER)):
            assert shape(proof(FAR, key=key, server_key=server_key))[1:3] == expected


def test_frontend_of_a_dialect_gets_the_key_of_its_url() -> None:
    url = f"pingpong+tcp://broker:7401?frontend=7402&server_key={SERVER.hex()}&key=gpu-1"
    assert shape(proof(url)) == shape(worker_target(url).proof)
    assert shape(proof(url))[0] == "key"


def test_credential_of_systemd_may_have_its_mode(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = home / "credentials"
    folder.mkdir()
    file = write_token(folder / "token", mode=0o440)
    with pytest.raises(CredentialError, match="other users may read it"):
        proof("https://broker:1", token_file=file)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(folder))
    assert shape(proof("https://broker:1", token_file=file))[1] == TOKEN


# -------------------------------------------------------------------- TLS


def test_argument_tls_makes_the_address_one_of_tls(home: Path) -> None:
    rows = (("tcp://h:1", "tls"), ("native+TCP://h:1", "tls"), ("http://h:1", "https"), ("tls://h:1", "tls"))

    def check(url: str, transport: str) -> None:
        for tls in (True, Tls(), Tls(server_name="broker.example")):
            place = caller_target(url, None, credentials_of(tls=tls)).place
            assert isinstance(place, TlsAddress)
            assert (place.host, place.port) == ("h", 1)
            assert place.tls.server_name == ("broker.example" if tls == Tls(server_name="broker.example") else "")
            assert place.tls.protocol == ("http/1.1" if transport == "https" else "dragoman/1")

    check_every_row(check, rows)
    place = caller_target("tls://h:1?server_name=url", None, credentials_of(tls=True)).place
    assert isinstance(place, TlsAddress)
    assert place.tls.server_name == "url"
    place = worker_target("tls://h:1?server_name=url", (), credentials_of(tls=Tls(server_name="argument"))).place
    assert isinstance(place, TlsAddress)
    assert place.tls.server_name == "argument"


def test_argument_tls_frees_a_token_for_an_address_off_loopback() -> None:
    assert shape(proof(FAR, tls=True, token=TOKEN))[0] == "plain"
    assert shape(proof("http://broker:7480", tls=True, token=TOKEN))[0] == "bearer"


# -------------------------------------------------------------------- errors


def test_setting_without_a_place_is_an_error_that_says_what_to_use(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = f"server_key={SERVER.hex()}&key=gpu-1"
    file = home / "token"
    readable = "a token would be readable by everybody on the way to broker:"
    rows: tuple[tuple[str, Given, type[ValueError], str], ...] = (
        (FAR, {"token": TOKEN}, CredentialError, f"the argument token: {readable}7400; use tls://, or a key"),
        (f"{FAR}?token_file={file}", {}, AddressError, f"option token_file: {readable}7400; use tls://, or a key"),
        ("http://broker:7480", {"token": TOKEN}, CredentialError, f"{readable}7480; use https://"),
        (FAR, {"key": "gpu-1"}, CredentialError, "the broker's public key is missing: set server_key"),
        (f"{FAR}?key=gpu-1", {}, AddressError, "`dragoman keys list` prints it on the broker's machine"),
        (f"{FAR}?server_key={SERVER.hex()}", {}, AddressError, "make one with `dragoman keys new NAME`"),
        (f"http://127.0.0.1:1?{pair}", {}, AddressError, "http has no keys; set a token"),
        (f"memodb+tcp://h:1?{pair}", {}, AddressError, "memodb has no keys; use TLS with a certificate"),
        ("memodb+tcp://127.0.0.1:1", {"token": TOKEN}, CredentialError, "memodb has no tokens; use TLS with a cert"),
        ("pingpong+tls://h:1", {"token": TOKEN}, CredentialError, "pingpong has no tokens; set a key"),
        (TLS, {"key": "gpu-1", "server_key": "00"}, CredentialError, "CURVE, which has no place inside TLS; set cert="),
        (f"{TLS}?server_key={SERVER.hex()}", {}, AddressError, "CURVE, which has no place inside TLS"),
        (f"{NEAR}?{pair}", {"token": TOKEN}, AddressError, "the argument token is set, too; a connection has a key or"),
        (NEAR, {"token": TOKEN, "token_file": file}, CredentialError, "token and token_file are both set; set one"),
        (NEAR, {"token": ""}, CredentialError, "no token: it has 1 to 255 ASCII characters"),
        (NEAR, {"token": "two words"}, CredentialError, "no token: it has 1 to 255 ASCII characters without spaces"),
        (NEAR, {"token_file": home / "none"}, CredentialError, "No such file or directory; write the token to a file"),
        (NEAR, {"token_file": home}, CredentialError, "is not a file"),
        (FAR, {"key": "none", "server_key": SERVER.hex()}, CredentialError, "make one with `dragoman keys new`"),
        (FAR, {"key": "gpu-1", "server_key": "00"}, CredentialError, "server_key: a key of 2 characters; a key is 64"),
        (FAR, {"key": "gpu-1", "server_key": "00" * 32}, CredentialError, "the server key is a constant"),
        (FAR, {"key": GPU.hex(), "server_key": SERVER.hex()}, CredentialError, "the path of its file, never the key"),
        ("ipc:///run/n.sock", {"tls": True}, CredentialError, "is a Unix socket, which has no TLS; leave tls out"),
        ("tcp://h:1", {"tls": Tls(ca="/none.pem")}, CredentialError, "the argument tls: ca=/none.pem: No such file"),
    )

    def check(url: str, given: Given, kind: type[ValueError], problem: str) -> None:
        with pytest.raises(kind) as caught:
            proof(url, **given)
        assert problem in str(caught.value)
        assert TOKEN not in str(caught.value)
        assert GPU.hex() not in str(caught.value)

    check_every_row(check, rows)
    with pytest.raises(TypeError, match=r"it must be dragoman\.Tls"):
        credentials_of(tls="ca.pem")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="token is of type bytes; it must be text"):
        credentials_of(token=TOKEN.encode())  # type: ignore[arg-type]


def test_two_tokens_of_the_environment_are_an_error_where_one_is_sent(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAGOMAN_TOKEN", TOKEN)
    monkeypatch.setenv("DRAGOMAN_TOKEN_FILE", str(home / "token"))
    with pytest.raises(CredentialError, match="DRAGOMAN_TOKEN_FILE: DRAGOMAN_TOKEN is set, too; set one of them"):
        proof(TLS)
    assert shape(proof(TLS, token=OTHER))[1] == OTHER


def test_file_that_others_may_read_is_refused_with_the_command(home: Path) -> None:
    file = write_token(home / "open", mode=0o644)
    with pytest.raises(AddressError, match=f"other users may read it; run: chmod 600 {file}"):
        proof(f"https://broker:1?token_file={file}")


@pytest.mark.parametrize(
    "url",
    [
        f"https://broker:1?token={TOKEN}",
        f"https://broker:1?a=1&token={TOKEN}",
        f"https://broker:1?access_token={TOKEN}",
        f"https://broker:1?%74oken={TOKEN}",
        f"https://broker:1?TOKEN={TOKEN}",
        f"https://broker:1?key={TOKEN}",
        f"https://broker:1?{TOKEN}",
        f"https://broker:99999?token={TOKEN}",
        f"nothing?token={TOKEN}",
        f"https://me:{TOKEN}@broker:1",
        f"https://{TOKEN}@broker:1?token={TOKEN}",
    ],
)
def test_token_in_an_address_is_refused_and_not_repeated(url: str) -> None:
    """R153. An address is visible in the list of processes."""
    worker = Worker(url)
    worker.service("default")(print)
    attempts: tuple[Callable[[], object], ...] = (lambda: Client(url), lambda: AsyncClient(url), worker.run)
    for attempt in attempts:
        with pytest.raises(AddressError) as caught:
            attempt()
        assert "t0ken" not in str(caught.value)
        assert "token_file=" in str(caught.value)


def test_token_in_the_address_of_a_listener_is_refused_and_not_repeated() -> None:
    with pytest.raises(AddressError) as caught:
        parse(f"http://127.0.0.1:0?token={TOKEN}", DIALECTS)
    assert str(caught.value).startswith("bad address 'http://127.0.0.1:0?***': an address must not have a token")
    assert "token_file" not in str(caught.value)


# -------------------------------------------------------------------- secrets


def test_secret_is_in_no_text_of_its_objects(home: Path) -> None:
    found = proof("https://broker:1", token=TOKEN)
    given = credentials_of(token=TOKEN)
    target = caller_target("https://broker:1", None, given)
    client = AsyncClient("https://broker:1", token=TOKEN)
    worker = Worker("https://broker:1", token=TOKEN)
    key = proof(FAR, key="gpu-1", server_key=SERVER.hex())
    texts = [
        *(repr(each) for each in (found, found.own, given, target, client, worker, key, key.security)),
        *(repr(vars(each)) for each in (client, worker)),
        repr(proof(TLS, token=TOKEN).security),
        str(pickle.dumps(given)),
    ]
    for text in texts:
        assert "t0ken" not in text
        assert GPU.hex() not in text


def test_authorization_is_a_bearer_token() -> None:
    assert proof("https://broker:1", token=TOKEN).authorization == f"authorization: Bearer {TOKEN}\r\n".encode()
    assert proof("https://broker:1").authorization == b""


def _same(found: object, expected: object) -> None:
    assert found == expected


def test_every_variable_is_documented() -> None:
    docs = Path(__file__).parents[3] / "docs"
    for page in ("python.md", "reference/settings.md"):
        text = (docs / page).read_text()
        assert [each for each in VARIABLES.values() if f"`{each}` |" not in text] == []
