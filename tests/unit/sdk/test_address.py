"""Addresses: valid forms, and the errors for invalid ones."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass, field
from enum import Enum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.sdk.address import (
    Address,
    AddressError,
    TcpAddress,
    TlsAddress,
    UnixAddress,
    is_loopback,
    parse,
    parse_frontend,
    read_options,
    verifies_clients,
)
from dragoman.streams.tls_context import TlsFiles

DIALECTS = ("native", "pingpong", "powerhose", "memodb", "controller", "majordomo", "http")
URL = "pingpong+tcp://127.0.0.1:7401"
HOME = TcpAddress("127.0.0.1", 7401)
FILES = TlsFiles("c.pem", "k.pem")
SAFE = TlsAddress("127.0.0.1", 7401, FILES)


@pytest.mark.parametrize(
    ("url", "dialect", "transport", "place"),
    [
        ("native+tcp://127.0.0.1:7400", "native", "tcp", TcpAddress("127.0.0.1", 7400)),
        ("tcp://127.0.0.1:7400", "native", "tcp", TcpAddress("127.0.0.1", 7400)),
        ("tcp://127.0.0.1:7400/", "native", "tcp", TcpAddress("127.0.0.1", 7400)),
        ("ipc:///tmp/n.sock", "native", "ipc", UnixAddress("/tmp/n.sock")),
        ("http://127.0.0.1:7480", "http", "http", TcpAddress("127.0.0.1", 7480)),
        ("http://broker.example:7480/", "http", "http", TcpAddress("broker.example", 7480)),
        ("http+ipc:///tmp/h.sock", "http", "ipc", UnixAddress("/tmp/h.sock")),
        ("memodb+tcp://[::1]:12701", "memodb", "tcp", TcpAddress("::1", 12701)),
        ("memodb+tcp://[fe80::1%25eth0]:1", "memodb", "tcp", TcpAddress("fe80::1%eth0", 1)),
        ("memodb+ipc:///tmp/m.sock", "memodb", "ipc", UnixAddress("/tmp/m.sock")),
        ("powerhose+ipc:///tmp/master-routing.ipc", "powerhose", "ipc", UnixAddress("/tmp/master-routing.ipc")),
        ("controller+unix:///run/controller", "controller", "unix", UnixAddress("/run/controller")),
        ("PingPong+TCP://localhost:0", "pingpong", "tcp", TcpAddress("localhost", 0)),
        ("tcp://my_host-1.lan:65535", "native", "tcp", TcpAddress("my_host-1.lan", 65535)),
        ("ipc:///tmp/a%20b%3F%23%25.sock", "native", "ipc", UnixAddress("/tmp/a b?#%.sock")),
        ("ipc:///tmp/user@host:1.sock", "native", "ipc", UnixAddress("/tmp/user@host:1.sock")),
        ("ipc:///tmp/größe.sock", "native", "ipc", UnixAddress("/tmp/größe.sock")),
        ("ipc:///" + "x" * 106, "native", "ipc", UnixAddress("/" + "x" * 106)),
    ],
)
def test_an_address_is_read_into_its_parts(
    url: str, dialect: str, transport: str, place: TcpAddress | UnixAddress
) -> None:
    assert parse(url, DIALECTS) == Address(url, dialect, transport, place, {})


@pytest.mark.parametrize(
    ("scheme", "dialect", "protocol"),
    [
        ("native+tls", "native", "dragoman/1"),
        ("tls", "native", "dragoman/1"),
        ("memodb+tls", "memodb", ""),
        ("https", "http", "http/1.1"),
        ("http+tls", "http", "http/1.1"),
    ],
)
def test_files_of_tls_belong_to_the_place(scheme: str, dialect: str, protocol: str) -> None:
    query = "cert=a%20b.pem&key=k.pem&job_timeout=3&ca=ca.pem&client_ca=clients.pem&server_name=broker"
    address = parse(f"{scheme}://[::1]:7400?{query}", DIALECTS)
    files = TlsFiles("a b.pem", "k.pem", "ca.pem", "clients.pem", "broker", protocol)
    assert (address.dialect, address.place) == (dialect, TlsAddress("::1", 7400, files))
    assert address.options == {"job_timeout": "3"}
    assert str(address.place) == "[::1]:7400"
    assert verifies_clients(address.place)
    assert not verifies_clients(parse("tls://localhost:1?cert=c&key=k", DIALECTS).place)


def test_files_of_tls_are_unknown_without_it() -> None:
    assert parse("tcp://localhost:1?cert=c", DIALECTS).options == {"cert": "c"}


@pytest.mark.parametrize(
    ("query", "options"),
    [
        ("", {}),
        ("?", {}),
        ("?frontend=7402&service=resize", {"frontend": "7402", "service": "resize"}),
        ("?frontend=ipc%3A%2F%2F%2Ftmp%2Ff.ipc", {"frontend": "ipc:///tmp/f.ipc"}),
        ("?service=a=b", {"service": "a=b"}),
        ("?service=a+b%26c", {"service": "a+b&c"}),
        ("?service=", {"service": ""}),
    ],
)
def test_options_are_split_and_percent_decoded(query: str, options: dict[str, str]) -> None:
    assert parse(URL + query, DIALECTS).options == options


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "'://' is missing"),
        ("127.0.0.1:7400", "looks like tcp://127.0.0.1:7400, http://127.0.0.1:7480 or ipc:///tmp/broker.sock"),
        ("localhost", "'://' is missing; an address looks like tcp://"),
        ("tcp:/127.0.0.1:7400", "'://' is missing"),
        (
            "pingpog+tcp://h:1",
            "unknown dialect 'pingpog' (did you mean 'pingpong'?); known dialects: controller, http,",
        ),
        ("pingpog://h:1", "unknown scheme 'pingpog' (did you mean 'pingpong'?)"),
        ("://h:1", "unknown scheme ''"),
        (
            "tpc://h:1",
            "unknown scheme 'tpc' (did you mean 'tcp'?); allowed are tcp://, ipc://, http://, tls://, https://, ",
        ),
        (
            "udp://h:1",
            "unknown scheme 'udp'; allowed are tcp://, ipc://, http://, tls://, https://, DIALECT+tcp://, "
            "DIALECT+ipc://, where DIALECT is one of controller, http, majordomo, memodb, native, pingpong, powerhose",
        ),
        ("htps://h:1", "unknown scheme 'htps' (did you mean 'https'?)"),
        ("+tcp://h:1", "unknown dialect ''"),
        ("pingpong://h:1", "the transport is missing; write pingpong+tcp://"),
        ("unix:///run/x", "unix:// needs a dialect in front of it"),
        ("memodb+ws://h:1", "unknown transport 'ws'; transports are tcp, ipc, unix, http, tls, https"),
        ("native+https://h:1", "https:// has no dialect in front of it; write https://127.0.0.1:7480"),
        ("memodb+inproc://h", "unknown transport 'inproc'"),
        ("memodb+tpc://h:1", "did you mean 'tcp'?"),
        ("memodb+tcp+x://h:1", "unknown transport 'tcp+x'"),
        ("native+http://h:1", "http:// has no dialect in front"),
        ("tcp://", "host and port are missing; write host:port"),
        ("tcp:///x", "remove '/x'"),
        ("tcp://?a=1", "host and port are missing"),
        ("tcp://:7400", "the host is missing"),
        ("tcp://*:7400", "write 0.0.0.0"),
        ("tcp://127.0.0.1", "the port is missing; write 127.0.0.1:PORT (port 0 means any free port)"),
        ("tcp://[::1]", "the port is missing; write [::1]:PORT"),
        ("tcp://127.0.0.1:", "the port '' is not a number from 0 to 65535"),
        ("tcp://127.0.0.1:65536", "the port '65536' is not a number"),
        ("tcp://127.0.0.1:-1", "the port '-1' is not a number"),
        ("tcp://127.0.0.1:7４", "the port '7４' is not a number"),
        pytest.param("tcp://127.0.0.1:" + "9" * 5000, "is not a number", id="port of 5000 digits"),
        ("tcp://::1:7400", "in brackets"),
        ("tcp://[::g]:7400", "'::g' is not an IP address"),
        ("tcp://[]:7400", "is not an IP address"),
        ("tcp://[::1]x:7400", "is not a host"),
        ("tcp://127.0.0.300:1", "'127.0.0.300' is not an IP address"),
        ("tcp://häuser.example:1", "is not a host"),
        ("tcp://-x:1", "is not a host"),
        ("tcp://h:1/path", "remove '/path'"),
        ("tcp://user@h:1", "no user or password"),
        ("ipc://", "the path is missing"),
        ("ipc:///", "the path is missing"),
        ("ipc://foo.sock", "three slashes and the whole path, such as ipc:///tmp/foo.sock"),
        ("ipc://run/foo.sock", "such as ipc:///tmp/foo.sock"),
        ("ipc://user:pass@/tmp/x", "the path is relative"),
        ("ipc://@hidden", "abstract sockets are not supported"),
        ("ipc:///" + "x" * 107, "the path has 108 bytes; a Unix socket allows 107"),
        ("ipc:///" + "ü" * 54, "the path has 109 bytes"),
        ("ipc:///tmp/a%00b", "control characters"),
        ("ipc:///tmp/a%zz", "two hex digits"),
        ("ipc:///tmp/a%ff", "must be UTF-8"),
        ("ipc:///tmp/a b", "write a space as %20"),
        ("tcp://h:1\n", "control characters"),
        ("tcp://h:1\udc80", "control characters"),
        ("tcp://h:1#top", "no fragment"),
        ("tcp://h:1?a=1#top", "no fragment"),
        ("tcp://h:1?a=1&a=2", "the option 'a' occurs twice"),
        ("tcp://h:1?a=1&%61=2", "the option 'a' occurs twice"),
        ("tcp://h:1?a", "the option 'a' is not of the form name=value"),
        ("tcp://h:1?a=1&", "the option '' is not of the form"),
        ("tcp://h:1?=1", "the option '=1' is not of the form"),
    ],
)
def test_a_wrong_address_is_refused_with_what_would_be_right(url: str, says: str) -> None:
    with pytest.raises(AddressError) as caught:
        parse(url, DIALECTS)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("http://localhost", "the port is missing; write localhost:PORT (the broker prints its ports when it starts)"),
        ("tcp://127.0.0.1:65536", "the port '65536' is not a number from 1 to 65535"),
    ],
)
def test_the_error_of_a_client_or_a_worker_does_not_suggest_port_0(url: str, says: str) -> None:
    """Only a listener can choose a free port."""
    with pytest.raises(AddressError) as caught:
        parse(url, DIALECTS, dials=True)
    assert str(caught.value) == f"bad address {url!r}: {says}"


def test_an_error_names_the_variable_that_has_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAGOMAN_URL", "tcp://h")
    with pytest.raises(
        AddressError, match=r"^bad address 'tcp://h' \(the value of DRAGOMAN_URL\): the port is missing"
    ):
        parse("tcp://h", DIALECTS)
    with pytest.raises(AddressError, match=r"^bad address 'tcp://other': the port is missing"):
        parse("tcp://other", DIALECTS)


def test_an_error_shows_the_url() -> None:
    with pytest.raises(AddressError, match=r"bad address 'tcp://h:x\?a=1': "):
        parse("tcp://h:x?a=1", DIALECTS)


@pytest.mark.parametrize("url", ["tcp://me:secret@h:1", "wrong+tcp://me:secret@h:1", "tcp://me:s@secret@h:1"])
def test_an_error_never_shows_a_password(url: str) -> None:
    with pytest.raises(AddressError) as caught:
        parse(url, DIALECTS)
    assert "secret" not in str(caught.value)
    assert "***@h:1" in str(caught.value)


def test_a_dialect_that_is_not_spoken_here_is_refused_in_its_plain_form_too() -> None:
    with pytest.raises(AddressError, match="unknown dialect 'http'; known dialects: native"):
        parse("http://h:1", ["native"])


def test_an_address_cannot_be_changed() -> None:
    address = parse(URL + "?service=a", DIALECTS)
    with pytest.raises(FrozenInstanceError):
        address.url = "x"  # type: ignore[misc]
    with pytest.raises(TypeError):
        address.options["service"] = "b"  # type: ignore[index]


def test_equal_addresses_have_equal_hashes() -> None:
    assert len({parse(URL + "?service=a", DIALECTS), parse(URL + "?service=a", DIALECTS)}) == 1


# Other than st.text() alone this has lone surrogates, which the command line gives for bytes that are no UTF-8.
ANY_TEXT = st.text(st.characters())
PIECES = st.sampled_from(
    [*DIALECTS, "+", "tcp", "ipc", "unix", "://", "/", "?", "&", "=", "#", "%", "%2", "[", "]", "::1", ":", "@", "7400"]
)


@given(ANY_TEXT | st.lists(PIECES | st.text(max_size=3)).map("".join) | ANY_TEXT.map("tcp://h:1?".__add__))
def test_any_text_gives_an_address_or_an_address_error(text: str) -> None:
    try:
        address = parse(text, DIALECTS)
    except AddressError:
        return
    assert address.url == text
    assert address.dialect in DIALECTS


@given(ANY_TEXT | ANY_TEXT.map("ipc:///".__add__), st.sampled_from([HOME, UnixAddress("/tmp/x")]))
def test_any_frontend_gives_a_place_or_an_address_error(text: str, beside: TcpAddress | UnixAddress) -> None:
    try:
        place = parse_frontend(text, beside, URL)
    except AddressError:
        return
    assert isinstance(place, TcpAddress | UnixAddress)


@pytest.mark.parametrize(
    ("place", "text"),
    [
        (TcpAddress("127.0.0.1", 7400), "127.0.0.1:7400"),
        (TcpAddress("::1", 7400), "[::1]:7400"),
        (TcpAddress("localhost", 0), "localhost:0"),
        (UnixAddress("/tmp/x"), "/tmp/x"),
    ],
)
def test_a_place_is_written_as_people_write_it(place: TcpAddress | UnixAddress, text: str) -> None:
    assert str(place) == text


@pytest.mark.parametrize(
    ("text", "beside", "place"),
    [
        ("7402", HOME, TcpAddress("127.0.0.1", 7402)),
        ("7402", TcpAddress("::1", 7401), TcpAddress("::1", 7402)),
        ("0", HOME, TcpAddress("127.0.0.1", 0)),
        ("tcp://0.0.0.0:7402", HOME, TcpAddress("0.0.0.0", 7402)),
        ("tcp://[::1]:7402", UnixAddress("/tmp/b"), TcpAddress("::1", 7402)),
        ("ipc:///tmp/f.ipc", HOME, UnixAddress("/tmp/f.ipc")),
        ("unix:///tmp/100%.ipc", HOME, UnixAddress("/tmp/100%.ipc")),
        ("7402", SAFE, TlsAddress("127.0.0.1", 7402, FILES)),
        ("tls://[::1]:7402", SAFE, TlsAddress("::1", 7402, FILES)),
        ("ipc:///tmp/f.ipc", SAFE, UnixAddress("/tmp/f.ipc")),
    ],
)
def test_a_frontend_is_a_port_on_the_same_host_or_a_whole_place(
    text: str, beside: TcpAddress | UnixAddress, place: TcpAddress | UnixAddress
) -> None:
    assert parse_frontend(text, beside, URL) == place


@pytest.mark.parametrize(
    ("text", "beside", "says"),
    [
        ("", HOME, "the port '' is not a number"),
        ("70000", HOME, "the port '70000' is not a number"),
        ("/tmp/f.ipc", HOME, "the port '/tmp/f.ipc' is not a number"),
        ("7402", UnixAddress("/tmp/b"), "must be a whole percent-encoded URL"),
        ("tcp://h", HOME, "the port is missing"),
        ("ipc://f.ipc", HOME, "three slashes"),
        ("http://h:1", HOME, "must be a port, or start with tcp:// or ipc://"),
        ("pingpong+tcp://h:1", HOME, "start with tcp:// or ipc:// (no dialect)"),
        ("tcp://h:1?a=1", HOME, "frontend=tcp://h:1?a=1: has no options of its own"),
        ("tcp://me:secret@h:1", HOME, "no user or password"),
        ("tls://h:1", HOME, "must be a port, or start with tcp:// or ipc://"),
        ("tcp://h:1", SAFE, "must be a port, or start with tls:// or ipc://"),
    ],
)
def test_a_wrong_frontend_is_refused(text: str, beside: TcpAddress | UnixAddress, says: str) -> None:
    with pytest.raises(AddressError) as caught:
        parse_frontend(text, beside, URL)
    assert says in str(caught.value)
    assert URL in str(caught.value)


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        (UnixAddress("/tmp/x"), True),
        (TcpAddress("127.0.0.1", 1), True),
        (TcpAddress("127.255.0.9", 1), True),
        (TcpAddress("::1", 1), True),
        (TcpAddress("::ffff:127.0.0.1", 1), True),
        (TcpAddress("localhost", 1), True),
        (TcpAddress("LocalHost", 1), True),
        (TcpAddress("0.0.0.0", 1), False),
        (TcpAddress("::", 1), False),
        (TcpAddress("::ffff:10.0.0.1", 1), False),
        (TcpAddress("10.0.0.1", 1), False),
        (TcpAddress("broker.example", 1), False),
        (TcpAddress("localhost.example", 1), False),
    ],
)
def test_loopback_is_what_only_this_machine_reaches(place: TcpAddress | UnixAddress, expected: bool) -> None:
    assert is_loopback(place) is expected


class Edition(Enum):
    PLAIN = "plain"
    PACKAGE = "package"


@dataclass(frozen=True, slots=True)
class Options:
    lease: float = field(default=3.0, metadata={"min": 0, "max": 100})
    offset: float = 0.0
    n_timeouts: int = field(default=3, metadata={"min": 1})
    max_payload: int = 1024
    insecure: bool = False
    service: str = "default"
    token: str | None = None
    attempts: int | None = None
    edition: Edition = Edition.PLAIN

    def __post_init__(self) -> None:
        if self.insecure and self.token:
            raise ValueError("insecure=true and token= exclude each other; leave one out")


@dataclass(frozen=True, slots=True)
class Needy:
    name: str


def test_without_options_the_defaults_hold() -> None:
    assert read_options(Options, {}, URL) == Options()


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("lease", "0", 0.0),
        ("lease", "2.5", 2.5),
        ("lease", ".5", 0.5),
        ("lease", "5.", 5.0),
        ("lease", "1e2", 100.0),
        ("offset", "-1.5", -1.5),
        ("n_timeouts", "7", 7),
        ("max_payload", "4KiB", 4096),
        ("max_payload", "64MiB", 64 << 20),
        ("max_payload", "2GiB", 2 << 30),
        ("insecure", "true", True),
        ("insecure", "Yes", True),
        ("insecure", "1", True),
        ("insecure", "false", False),
        ("insecure", "no", False),
        ("insecure", "0", False),
        ("service", "", ""),
        ("service", "größe", "größe"),
        ("token", "x", "x"),
        ("attempts", "2", 2),
        ("edition", "package", Edition.PACKAGE),
    ],
)
def test_an_option_is_read_as_its_field_s_type(name: str, text: str, value: object) -> None:
    read = getattr(read_options(Options, {name: text}, URL), name)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("lease", "", "option lease=: must be a finite number"),
        ("lease", "abc", "option lease=abc: must be a finite number such as 30 or 0.5"),
        ("lease", "nan", "must be a finite number"),
        ("lease", "inf", "must be a finite number"),
        ("lease", "1e999", "must be a finite number"),
        ("lease", "1_0", "must be a finite number"),
        ("lease", " 1", "must be a finite number"),
        ("lease", "٣", "must be a finite number"),
        ("lease", "-1", "option lease=-1: must be 0 or more"),
        ("lease", "101", "option lease=101: must be 100 or less"),
        ("n_timeouts", "0", "must be 1 or more"),
        ("n_timeouts", "1.5", "must be a whole number"),
        pytest.param("n_timeouts", "9" * 5000, "must be a whole number", id="5000 digits"),
        ("max_payload", "64MB", "with KiB, MiB or GiB such as 64MiB"),
        ("max_payload", "MiB", "must be a whole number"),
        ("max_payload", "1_000", "must be a whole number"),
        ("insecure", "on", "must be true or false"),
        ("insecure", "", "must be true or false"),
        ("edition", "packge", "must be one of plain, package (did you mean 'package'?)"),
        ("edition", "PLAIN", "must be one of plain, package"),
    ],
)
def test_a_wrong_option_is_refused_with_what_would_be_right(name: str, text: str, says: str) -> None:
    with pytest.raises(AddressError) as caught:
        read_options(Options, {name: text}, URL)
    assert says in str(caught.value)
    assert URL in str(caught.value)


def test_an_unknown_option_is_refused_with_the_nearest_and_the_list() -> None:
    with pytest.raises(AddressError) as caught:
        read_options(Options, {"leese": "1"}, URL, also=["frontend"])
    assert "unknown option 'leese' (did you mean 'lease'?); known options: attempts, edition, frontend," in str(
        caught.value
    )


def test_options_that_somebody_else_reads_are_left_alone() -> None:
    assert read_options(Options, {"frontend": "7402", "lease": "1"}, URL, also=["frontend"]) == Options(lease=1.0)


def test_an_option_without_default_must_be_given() -> None:
    assert read_options(Needy, {"name": "x"}, URL) == Needy("x")
    with pytest.raises(AddressError, match="the option name= is missing"):
        read_options(Needy, {}, URL)


def test_options_that_exclude_each_other_are_an_address_error() -> None:
    with pytest.raises(AddressError, match="exclude each other"):
        read_options(Options, {"insecure": "true", "token": "x"}, URL)


@given(st.sampled_from(list(Options.__dataclass_fields__)), ANY_TEXT)
def test_any_text_gives_an_option_or_an_address_error(name: str, text: str) -> None:
    try:
        options = read_options(Options, {name: text}, URL)
    except AddressError:
        return
    assert isinstance(options, Options)
