"""Limits on handshakes: a second, and at once (R168)."""

from __future__ import annotations

from functools import partial

from dragoman.core.owners import network_of
from dragoman.server.admission import Admission, AdmissionLimits
from dragoman.server.handshakes import PATIENCE, Handshakes


class Clock:
    def __init__(self, now: float = 10.25) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def never() -> None:
    raise AssertionError("this handshake keeps its place")


def never_mind() -> None:
    pass


def nobody(*rejected: str) -> None:
    raise AssertionError(rejected)


def test_handshakes_of_a_second() -> None:
    clock = Clock()
    handshakes = Handshakes(2, 100, clock, nobody)
    for moment in (10.25, 10.5):
        clock.now = moment
        assert handshakes.wait_time() == 0.0
        handshakes.end(handshakes.begin("tls", "here", never), is_done=True)
    assert handshakes.wait_time() == 0.5
    clock.now = 11.0
    assert handshakes.wait_time() == 0.0


def test_handshakes_of_a_second_are_spread_over_it() -> None:
    """With the default of 200 a second, 5 begin at once: they take 5 ms at most, and heartbeats are not late."""
    clock = Clock(10.0)
    handshakes = Handshakes(200, 1_000, clock, nobody)
    begun = []
    while clock.now < 11.0:
        while not (seconds := handshakes.wait_time()):
            handshakes.begin("tls", "here", never)
            begun.append(clock.now)
        clock.now += seconds + 1e-9
    assert max(begun.count(moment) for moment in begun) == 5
    assert len(begun) == 200


def test_handshakes_at_once() -> None:
    """The one that waits continues when any of the others has ended, done or failed."""
    handshakes = Handshakes(100, 2, Clock(), nobody)
    resumed: list[str] = []
    first, second = (handshakes.begin(mechanism, "here", never) for mechanism in ("curve", "tls"))
    assert (handshakes.is_full, handshakes.wait_time()) == (True, PATIENCE)
    handshakes.when_one_ends(lambda: resumed.append("a"))
    assert resumed == []
    handshakes.end(first, is_done=False)
    assert (resumed, handshakes.in_progress, handshakes.wait_time()) == (["a"], 1, 0.0)
    handshakes.end(second, is_done=True)
    assert resumed == ["a"]  # called once
    assert handshakes.totals == {("curve", "failed"): 1, ("tls", "done"): 1}


def test_one_address_has_a_quarter_of_the_handshakes_in_progress() -> None:
    rejected: list[tuple[str, ...]] = []
    handshakes = Handshakes(10_000, 256, Clock(), lambda *each: rejected.append(each))
    begun = []
    while handshakes.admits("tls", "flood"):
        begun.append(handshakes.begin("curve", "flood", never))
    reason = "64 handshakes of this address are in progress, the maximum (a quarter of max_unauthenticated)"
    assert rejected == [("tls", "flood", reason)]
    assert (len(begun), handshakes.wait_time(), handshakes.admits("tls", "another")) == (64, 0.0, True)
    handshakes.end(begun.pop(), is_done=False)
    assert handshakes.admits("tls", "flood")
    for each in begun:
        handshakes.end(each, is_done=False)
    assert (handshakes.in_progress, handshakes._by_network) == (0, {})


def test_half_handshakes_of_four_addresses_do_not_keep_out_others() -> None:
    """A bug: 64 connections of each of four addresses that sent nothing kept all 256 places until their time-out of
    ten seconds, and opened others then. Everybody else waited, on every listener with TLS, CURVE or tokens."""
    clock = Clock()
    dropped: list[str] = []
    handshakes = Handshakes(10_000, 256, clock, lambda mechanism, address, reason: dropped.append(address))
    addresses = [f"192.0.2.{number}" for number in range(4)]
    for address in addresses:
        for _ in range(64):
            handshakes.begin("tls", address, never_mind)
    assert handshakes.wait_time() == PATIENCE
    clock.now += PATIENCE
    genuine = []
    for number in range(60):  # of other addresses: each takes the place of a flooding address, in turn
        assert (handshakes.wait_time(), handshakes.admits("tls", f"198.51.100.{number}")) == (0.0, True)
        genuine.append(handshakes.begin("tls", f"198.51.100.{number}", never))
    assert dropped == addresses * 15
    for address in addresses:  # one that fills its share again loses its own oldest handshakes
        for _ in range(100):
            if handshakes.wait_time() == 0.0 and handshakes.admits("tls", address):
                handshakes.begin("tls", address, never_mind)
    assert handshakes.in_progress <= 256
    assert not any(each.is_over for each in genuine)


def test_an_address_over_its_share_loses_its_own_oldest_handshake() -> None:
    clock = Clock()
    ended: list[int] = []
    handshakes = Handshakes(10_000, 64, clock, lambda *rejected: None)
    begun = [handshakes.begin("curve", "192.0.2.1", partial(ended.append, number)) for number in range(16)]
    other = handshakes.begin("curve", "192.0.2.2", never)
    clock.now += PATIENCE
    assert handshakes.admits("curve", "192.0.2.1")
    assert (ended, begun[0].is_over, other.is_over, handshakes.in_progress) == ([0], True, False, 16)
    handshakes.end(begun[0], is_done=False)  # its connection has ended, too
    assert (handshakes.in_progress, handshakes.totals) == (16, {("curve", "failed"): 1})


def test_ipv6_counts_by_network() -> None:
    """A bug: each of the 2^64 addresses that every machine with IPv6 has counted as another machine."""
    rejected: list[str] = []
    handshakes = Handshakes(10_000, 64, Clock(), lambda mechanism, address, reason: rejected.append(address))
    for number in range(16):
        handshakes.begin("tls", f"2001:db8:0:1::{number:x}", never)
    assert not handshakes.admits("tls", "2001:db8:0:1:ffff::1")
    assert handshakes.admits("tls", "2001:db8:0:2::1")
    assert rejected == ["2001:db8:0:1:ffff::1"]
    admission = Admission(AdmissionLimits(max_connections_per_remote_address=2))
    for number in range(2):
        admission.enter(f"2001:db8::{number:x}")
    reason = "2 connections of 2001:db8::/64 are open, the maximum (max_connections_per_remote_address)"
    assert admission.rejection_reason("2001:db8::7", False, 2, None, proves_more=True) == reason
    for number in range(2):
        admission.leave(f"2001:db8::{number:x}")
    assert admission.addresses == 0


def test_networks_of_addresses() -> None:
    networks = {
        "192.0.2.1": "192.0.2.1",
        "::ffff:192.0.2.1": "192.0.2.1",
        "2001:db8::1": "2001:db8::/64",
        "2001:db8:0:0:1:2:3:4": "2001:db8::/64",
        "fe80::1%eth0": "fe80::1%eth0",
        "::1": "::1",
        "uid 1000": "uid 1000",
        "broker: eu1": "broker: eu1",
    }
    assert {address: network_of(address) for address in networks} == networks
