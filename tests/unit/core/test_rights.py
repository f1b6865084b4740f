"""Rights, limits and principals."""

from __future__ import annotations

import itertools

import pytest

from dragoman.core.broker import Broker
from dragoman.core.errors import InvariantBroken
from dragoman.core.model import Caller
from dragoman.core.options import WorkerProfile
from dragoman.core.policy import Policy
from dragoman.core.recipients import Recipient
from dragoman.core.rights import (
    ADMINISTER,
    ALL_RIGHTS,
    CALL,
    NO_LIMITS,
    NO_RIGHTS,
    SEE,
    WORK,
    AccessChanges,
    Principal,
    PrincipalLimits,
    Principals,
    Right,
    Rights,
    check_pattern,
    lowest,
)
from dragoman.testing.entropy import SeededEntropy

PATTERNS = ("*", "a", "ab", "a*", "ab*", "b", "mail.*", "mail.send", "é*")
NAMES = (
    "a",
    "ab",
    "abc",
    "b",
    "ba",
    "mail",
    "mail.",
    "mail.send",
    "mail.sender",
    "é",
    "élan",
    "A",
    "*",
    "a*b",
    "x" * 128,
)


def naive_may(lists: dict[Right, tuple[str, ...]], right: Right, service: str) -> bool:
    """Compare letter by letter."""
    patterns = [*lists[right], *(lists[ADMINISTER] if right is SEE else ())]
    for pattern in patterns:
        for place in range(len(service) + 1):
            if pattern[place : place + 1] == "*":
                return True
            if pattern[place : place + 1] != service[place : place + 1]:
                break
        else:
            if len(pattern) == len(service):
                return True
    return False


def test_rights_product() -> None:
    """Every right × every list of up to two patterns × every name, in each of the four lists."""
    lists_of_patterns = [(), *itertools.product(PATTERNS, repeat=1), *itertools.permutations(PATTERNS, 2)]
    for given, patterns in itertools.product(Right, lists_of_patterns):
        lists = {right: (patterns if right is given else ()) for right in Right}
        rights = Rights(*(lists[right] for right in (CALL, WORK, SEE, ADMINISTER)))
        for asked, service in itertools.product(Right, NAMES):
            expected = naive_may(lists, asked, service)
            assert rights.may(asked, service) is expected, (given, patterns, asked, service)
        for asked in Right:
            assert rights.may_some(asked) is any(naive_may(lists, asked, each) for each in (*NAMES, *PATTERNS))
            assert rights.patterns(asked) == lists[asked]
        everything = [naive_may(lists, asked, "\N{SNOWMAN}") for asked in (CALL, WORK, SEE, ADMINISTER)]
        assert [rights.calls_all, rights.works_all, rights.sees_all, rights.administers_all] == everything


def test_the_four_lists_are_independent_except_that_administer_includes_see() -> None:
    rights = Rights(call=["c"], work=["w"], see=["s"], administer=["a"])
    allowed = {(right, name) for right in Right for name in "cwsa" if rights.may(right, name)}
    assert allowed == {(CALL, "c"), (WORK, "w"), (SEE, "s"), (SEE, "a"), (ADMINISTER, "a")}


def test_rights_are_equal_if_their_lists_are() -> None:
    assert Rights(call=["a", "b*"]) == Rights(call=("a", "b*"))
    assert hash(Rights(call=["a"])) == hash(Rights(call=["a"]))
    assert Rights(call=["a"]) != Rights(work=["a"])
    assert Rights() == NO_RIGHTS
    assert object() != NO_RIGHTS


@pytest.mark.parametrize("pattern", ["", "a*b", "**", "*a", "a**", "a\nb", "\x00*", "x" * 129, "é" * 65, "\ud800"])
def test_invalid_pattern_is_refused_with_the_allowed_forms(pattern: str) -> None:
    with pytest.raises(ValueError, match="write the name of a service, a prefix that ends in '\\*', or '\\*'"):
        check_pattern(pattern)
    for right in ("call", "work", "see", "administer"):
        with pytest.raises(ValueError, match="pattern "):
            Rights(**{right: ["fine", pattern]})


@pytest.mark.parametrize("pattern", ["*", "a", "a*", "mail.*", "x" * 128, "x" * 128 + "*", "with space", "é"])
def test_valid_pattern_is_accepted(pattern: str) -> None:
    check_pattern(pattern)


@pytest.mark.parametrize("name", ["max_waiting", "max_waiting_bytes", "max_running", "max_payload", "max_peers"])
def test_a_limit_below_one_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="0 is less than 1"):
        PrincipalLimits(**{name: 0})


@pytest.mark.parametrize("rate", [0.0, -1.0, float("inf"), float("nan")])
def test_a_rate_is_finite_and_above_zero(rate: float) -> None:
    with pytest.raises(ValueError, match="finite number above 0"):
        PrincipalLimits(max_rate=rate)


def test_without_a_rate_every_submit_is_allowed() -> None:
    principal = Principal("web")
    assert all(principal.take_rate(0.0) for _ in range(1_000))


def test_rate_allows_one_second_at_once_and_then_the_rate() -> None:
    principal = Principal("web", limits=PrincipalLimits(max_rate=4.0))
    assert [principal.take_rate(10.0) for _ in range(6)] == [True] * 4 + [False] * 2
    assert [principal.take_rate(10.25) for _ in range(2)] == [True, False]
    assert [principal.take_rate(99.0) for _ in range(6)] == [True] * 4 + [False] * 2


def test_rate_below_one_allows_one_submit_at_once() -> None:
    principal = Principal("web", limits=PrincipalLimits(max_rate=0.5))
    assert [principal.take_rate(now) for now in (0.0, 1.0, 2.0, 3.0, 4.0)] == [True, False, True, False, True]


def test_rate_gains_nothing_from_a_clock_that_goes_back() -> None:
    principal = Principal("web", limits=PrincipalLimits(max_rate=1.0))
    assert [principal.take_rate(now) for now in (10.0, 9.0, 9.5, 10.0)] == [True, False, False, True]


def test_new_rate_applies_at_once() -> None:
    principal = Principal("web", limits=PrincipalLimits(max_rate=100.0))
    assert principal.take_rate(0.0)
    principal.limit(PrincipalLimits(max_rate=1.0))
    assert [principal.take_rate(0.0) for _ in range(3)] == [True, False, False]


def test_lowest_of_each_limit() -> None:
    first = PrincipalLimits(5, None, 3, None, 7.0, 1)
    second = PrincipalLimits(8, 90, 2, 4, None, None)
    assert lowest(first, [second]) == lowest(second, [first]) == PrincipalLimits(5, 90, 2, 4, 7.0, 1)
    assert lowest(NO_LIMITS, [NO_LIMITS]) == NO_LIMITS
    assert lowest(first, []) is first


def test_default_of_max_waiting_is_not_shared_in_a_cluster() -> None:
    principals = Principals()
    principals.apply({"plain": (ALL_RIGHTS, PrincipalLimits()), "web": (ALL_RIGHTS, PrincipalLimits(max_waiting=9))})
    principals.share()
    assert list(principals.shared) == ["web"]
    assert principals.named("plain").max_waiting == 200_000
    principals.apply({"plain": (ALL_RIGHTS, PrincipalLimits(max_peers=3)), "web": (ALL_RIGHTS, PrincipalLimits())})
    assert list(principals.shared) == ["plain"]
    assert principals.named("web").share is None


def test_limits_of_another_table_hold_until_they_are_taken_back() -> None:
    principals = Principals()
    web = principals.named("web")
    web.limit(PrincipalLimits(max_running=5))
    assert principals.limit_elsewhere("eu2", {"web": PrincipalLimits(max_running=3)}) == [web]
    assert principals.limit_elsewhere("eu2", {"web": PrincipalLimits(max_running=3)}) == []
    assert web.max_running == 3
    assert principals.limit_elsewhere("eu3", {"web": PrincipalLimits(max_running=2)}) == [web]
    assert principals.limit_elsewhere("eu2", {}) == [web]
    assert web.max_running == 2
    assert principals.limit_elsewhere("eu3", {}) == [web]
    assert web.max_running == 5
    principals.limit_elsewhere("eu2", {"local": PrincipalLimits(max_running=1)})
    assert principals.local.limits is NO_LIMITS


def test_built_in_principals_have_all_rights_and_no_limits() -> None:
    principals = Principals()
    for each in (principals.local, principals.anyone):
        assert (each.rights, each.limits) == (ALL_RIGHTS, NO_LIMITS)
        assert principals.find(each.name) is each


def test_an_empty_table_takes_the_rights_of_anyone_and_leaves_those_of_local() -> None:
    principals = Principals()
    assert principals.apply({}) == AccessChanges(changed=("anyone",))
    assert principals.anyone.rights == NO_RIGHTS
    assert principals.local.rights == ALL_RIGHTS
    assert principals.apply({}) == AccessChanges()


def test_a_table_may_list_anyone() -> None:
    principals = Principals()
    rights = Rights(call=["public.*"])
    assert principals.apply({"anyone": (rights, NO_LIMITS)}) == AccessChanges(changed=("anyone",))
    assert principals.anyone.may(CALL, "public.echo")
    assert not principals.anyone.may(CALL, "secret")


def test_a_table_never_lists_local() -> None:
    principals = Principals()
    with pytest.raises(InvariantBroken, match="'local' is built in"):
        principals.apply({"local": (NO_RIGHTS, NO_LIMITS), "web": (ALL_RIGHTS, NO_LIMITS)})
    assert principals.find("web") is None


def test_changes_of_a_table_are_named_and_seen_through_the_same_object() -> None:
    principals = Principals()
    limits = PrincipalLimits(max_peers=3)
    first = {each: (Rights(call=[each]), limits) for each in ("web", "gpu", "ops")}
    assert principals.apply(first) == AccessChanges(added=("gpu", "ops", "web"), changed=("anyone",))
    web, gpu, ops = (principals.named(each) for each in ("web", "gpu", "ops"))
    gpu.running = 2
    second = {"web": (Rights(call=["*"]), limits), "ops": first["ops"], "new": first["gpu"]}
    assert principals.apply(second) == AccessChanges(added=("new",), removed=("gpu",), changed=("web",))
    assert web.may(CALL, "anything")
    assert ops.may(CALL, "ops")
    assert (gpu.rights, gpu.is_listed, gpu.running) == (NO_RIGHTS, False, 2)
    assert principals.apply(first) == AccessChanges(added=("gpu",), removed=("new",), changed=("web",))
    assert principals.named("gpu") is gpu
    assert gpu.may(CALL, "gpu")


def test_new_limits_alone_are_a_change() -> None:
    principals = Principals()
    principals.apply({"web": (NO_RIGHTS, NO_LIMITS)})
    assert principals.apply({"web": (NO_RIGHTS, PrincipalLimits())}).changed == ("web",)
    assert principals.named("web").limits.max_waiting == 200_000


def test_owner_of_a_stored_job_that_is_in_no_table_has_no_rights() -> None:
    principals = Principals()
    owner = principals.named("gone")
    assert not any(owner.may(right, "a") for right in Right)
    assert principals.apply({"gone": (Rights(call=["a"]), NO_LIMITS)}).added == ("gone",)
    assert owner.may(CALL, "a")


def test_principal_is_gone_if_no_table_lists_it_and_it_is_not_built_in() -> None:
    """R142. `anyone` has all rights without a table, and then only those of the table."""
    principals = Principals()
    local, anyone, web = principals.local, principals.anyone, principals.named("web")
    assert [each.is_gone for each in (local, anyone, web)] == [False, False, True]
    principals.apply({"web": (NO_RIGHTS, NO_LIMITS)})
    assert [each.is_gone for each in (local, anyone, web)] == [False, True, False]
    principals.apply({"anyone": (Rights(call=["a"]), NO_LIMITS)})
    assert [each.is_gone for each in (local, anyone, web)] == [False, False, True]


def test_nobody_calls_or_works_without_an_owner() -> None:
    """A dialect that does not know whose a message is cannot pass it on: no owner is assumed."""
    with pytest.raises(TypeError, match="owner"):
        Caller(Recipient())  # type: ignore[call-arg]
    broker = Broker(Policy(), SeededEntropy())
    with pytest.raises(TypeError, match="owner"):
        broker.join(Recipient(), None, "worker", ("s",), WorkerProfile(), 0.0)  # type: ignore[call-arg]
    assert Principal("somebody").rights == NO_RIGHTS
