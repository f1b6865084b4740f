"""Addresses of NATS servers, and the order in which they are dialled."""

from __future__ import annotations

import pytest

from case_tables import check_every_row
from dragoman.carriers.nats import Encryption
from dragoman.cluster.nats_address import is_loopback, parse_nats
from dragoman.cluster.server_pool import LEAVING, ServerPool
from dragoman.sdk.address import AddressError, TcpAddress, TlsAddress
from dragoman.streams.tls_context import TlsFiles
from dragoman.testing.entropy import SeededEntropy


def pool(url: str = "nats://a,b,c", seed: int = 0) -> ServerPool:
    return ServerPool(parse_nats(url), SeededEntropy(seed).jitter)


def hosts(servers: ServerPool) -> list[str]:
    return [str(each) for each in servers.places]


# ---- addresses


def test_addresses_are_read() -> None:
    def check(url: str, places: list[str], encryption: Encryption) -> None:
        address = parse_nats(url)
        assert [str(each) for each in address.places] == places
        assert address.encryption is encryption

    check_every_row(
        check,
        [
            ("nats://a", ["a:4222"], Encryption.NONE),
            ("nats://a:1,b.example:65535,10.0.0.1/", ["a:1", "b.example:65535", "10.0.0.1:4222"], Encryption.NONE),
            ("nats://[::1],[::2]:7", ["[::1]:4222", "[::2]:7"], Encryption.NONE),
            ("tls://a", ["a:4222"], Encryption.AFTER_INFO),
            ("tls://a?tls_first=false", ["a:4222"], Encryption.AFTER_INFO),
            ("tls://a,b?tls_first=true", ["a:4222", "b:4222"], Encryption.BEFORE_INFO),
        ],
    )


def test_files_of_tls_are_those_of_the_address() -> None:
    (place,) = parse_nats("tls://a?ca=/x/ca.pem&cert=/x/c%20d.pem&key=k&server_name=s").places
    assert isinstance(place, TlsAddress)
    assert place.tls == TlsFiles(cert="/x/c d.pem", key="k", ca="/x/ca.pem", server_name="s")


def test_wrong_addresses_are_refused_with_the_way_out() -> None:
    def check(url: str, problem: str) -> None:
        with pytest.raises(AddressError, match=problem) as caught:
            parse_nats(url)
        assert "s3cret" not in str(caught.value)

    check_every_row(
        check,
        [
            ("a", "looks like nats://"),
            ("http://a", "looks like nats://"),
            ("nats://", "is not a host"),
            ("nats://a,,b", "is not a host"),
            ("nats://a b", "spaces"),
            ("nats://a:0", "is not a number from 1"),
            ("nats://a:65536", "is not a number from 1"),
            ("nats://a:x", "is not a number from 1"),
            ("nats://::1", "is not a number from 1"),
            ("nats://[1]", "is not an IPv6 address"),
            ("nats://a/path", "is not a host"),
            ("nats://me:s3cret@a", "no user or password"),
            ("nats://s3cret@a:1,b", "no user or password"),
            ("nats://a?ca=x", "needs TLS; write tls://"),
            ("tls://a?ca=x&ca=y", "unknown or occurs twice"),
            ("tls://a?tokn=x", "unknown or occurs twice"),
            ("tls://a?tls_first=yes", "write true or false"),
            ("nats://" + ",".join(f"h{number}" for number in range(65)), "64 are allowed"),
        ],
    )


def test_servers_that_a_server_names_are_places_of_the_same_kind() -> None:
    plain = parse_nats("nats://a")
    assert plain.other("10.0.0.2:4222", plain.places[0]) == TcpAddress("10.0.0.2", 4222)
    assert plain.other("not a place", plain.places[0]) is None
    tls = parse_nats("tls://a.example,10.0.0.9?ca=x")
    by_name, by_ip = tls.places
    files = TlsFiles(ca="x")
    named = TlsFiles(ca="x", server_name="a.example")
    assert tls.other("10.0.0.2:7", by_name) == TlsAddress("10.0.0.2", 7, named)
    assert tls.other("b.example:7", by_name) == TlsAddress("b.example", 7, files)
    assert tls.other("10.0.0.2:7", by_ip) == TlsAddress("10.0.0.2", 7, files)


def test_loopback_is_this_machine() -> None:
    known = {"127.0.0.1": True, "127.9.9.9": True, "localhost": True, "10.0.0.1": False, "localhost.example": False}
    assert {host: is_loopback(TcpAddress(host, 1)) for host in known} == known
    assert is_loopback(TcpAddress("::1", 1))


# ---- the next server


def test_the_first_server_is_chosen_by_chance() -> None:
    assert {str(pool(seed=seed).pick(0.0)) for seed in range(50)} == {"a:4222", "b:4222", "c:4222"}


def test_after_a_failure_the_others_come_first() -> None:
    servers = pool()
    seen = []
    for _ in range(3):
        place = servers.pick(0.0)
        assert place is not None
        seen.append(str(place))
        servers.failed(place, 0.0)
    assert sorted(seen) == ["a:4222", "b:4222", "c:4222"]
    assert servers.pick(0.0) is None
    assert 0.05 <= servers.next_try() <= 0.15


def test_delays_double_up_to_two_seconds_and_differ() -> None:
    servers = pool("nats://a")
    place, now, delays = servers.places[0], 0.0, []
    for _ in range(12):
        servers.failed(place, now)
        delays.append(servers.next_try() - now)
        now = servers.next_try()
        assert servers.pick(now) == place
    assert all(0.05 * 2**index <= delay <= 0.15 * 2**index for index, delay in enumerate(delays[:4]))
    assert all(0.6 <= delay <= 2.0 for delay in delays[6:])
    assert len(set(delays)) == len(delays)
    servers.worked(place, (), now)
    assert servers.pick(now) == place
    servers.failed(place, now)
    assert servers.next_try() - now <= 0.15


def test_a_server_that_failed_less_often_comes_first() -> None:
    servers = pool("nats://a,b")
    first, second = servers.places
    servers.failed(first, 0.0)
    servers.failed(first, 0.0)
    servers.failed(second, 0.0)
    assert servers.pick(10.0) == second
    servers.failed(second, 10.0)
    servers.failed(second, 10.0)
    assert servers.pick(20.0) == first


def test_named_servers_are_learned_and_forgotten_and_those_of_the_address_stay() -> None:
    servers = pool("nats://a")
    (own,) = servers.places
    servers.worked(own, ("b:1", "c:2", "a:4222", "what?"), 0.0)
    assert hosts(servers) == ["a:4222", "b:1", "c:2"]
    servers.learn(own, ("c:2", "d:3"))
    assert hosts(servers) == ["a:4222", "c:2", "d:3"]
    servers.learn(own, ())
    assert len(servers) == 3
    servers.learn(own, [f"h{number}:1" for number in range(100)])
    assert len(servers) == 64
    servers.failed(TcpAddress("unknown", 1), 0.0)
    servers.worked(TcpAddress("unknown", 1), (), 0.0)


def test_the_server_in_use_is_not_forgotten() -> None:
    servers = pool("nats://a")
    servers.learn(servers.places[0], ("b:1", "c:2"))
    used = servers.places[1]
    servers.learn(used, ("c:2",))
    assert hosts(servers) == ["a:4222", "b:1", "c:2"]


def test_a_server_that_stops_is_not_dialled_if_there_is_another() -> None:
    servers = pool("nats://a,b")
    first, second = servers.places
    servers.leaves(first, 0.0)
    assert servers.pick(0.0) == second
    servers.failed(second, 0.0)
    assert servers.pick(0.0) is None
    assert servers.pick(LEAVING) == first
    alone = pool("nats://a")
    alone.leaves(alone.places[0], 0.0)
    assert alone.pick(0.0) == alone.places[0]
