"""The broker's side of Majordomo: every row and decision of its page."""

from __future__ import annotations

from itertools import product

import pytest

from case_tables import check_every_row
from dragoman.core.policy import Policy
from dragoman.core.states import Outcome
from dragoman.dialects.majordomo import session as module
from dragoman.server.admission import Limits

from .world import ECHO, FIELD, MAX_PAYLOAD, RFC7, RFC18, SPEECHES, Speech, World

every = pytest.mark.parametrize("speech", SPEECHES, ids=str)
UNKNOWN = b"made up by him.."


# -------------------------------------------------------------------- jobs there, results back


@pytest.mark.parametrize("clients", SPEECHES, ids=str)
@pytest.mark.parametrize("workers", SPEECHES, ids=str)
def test_a_client_of_every_edition_is_served_by_a_worker_of_every_edition(workers: Speech, clients: Speech) -> None:
    world = World()
    worker, client = world.busy(workers, clients)
    assert worker.reply(b"result") == []
    assert client.done(b"result")
    assert world.state(worker) == "idle"
    assert world.ended == {"done": 1}


@pytest.mark.parametrize("frames", [[b"one", b"two"], [b"", b"x", b""], [b""], [b"y" * 3000, b"z" * 3000]])
def test_frames_of_a_body_are_kept_between_majordomos_peers(frames: list[bytes]) -> None:
    def check(workers: Speech, clients: Speech) -> None:
        world = World()
        worker = world.worker(workers)
        client = world.client(*frames, speech=clients)
        assert worker.words() == [b"|".join(frames).decode()]
        worker.reply(*frames[::-1])
        assert client.done(*frames[::-1])

    check_every_row(check, product(SPEECHES, repeat=2))


@every
def test_every_request_has_a_client_frame_of_its_own(speech: Speech) -> None:
    """Frames: correlation for free (D2)."""
    world = World()
    worker = world.worker(speech)
    seen = set()
    for _ in range(5):
        client = world.client()
        assert worker.words() == ["job"]
        seen.add(worker.client)
        worker.reply()
        assert client.done(b"result")
    assert len(seen) == 5


def test_jobs_wait_for_a_worker_and_go_out_in_the_order_they_came() -> None:
    world = World()
    clients = [world.client(b"%d" % number) for number in range(3)]
    worker = world.worker()
    given = worker.words()
    for number, client in enumerate(clients):
        assert given == [str(number)]
        given = worker.reply(b"did %d" % number)
        assert client.done(b"did %d" % number)


def test_a_request_for_a_service_without_workers_waits_for_queue_timeout_and_ends_in_silence() -> None:
    world = World(queue_timeout=4)
    client = world.client(service=b"nobody")
    world.wait(4)
    assert client.told() == []
    assert world.ended == {"timed out": 1}
    assert world.counters.silent_endings == {Outcome.TIMED_OUT: 1}


def test_by_default_a_request_waits_for_a_worker_as_long_as_its_client_is_there() -> None:
    """A bug: queue_timeout was 10 s, and of 100,000 requests sent at once 87,221 came to nothing without a word."""
    world = World()
    client = world.client(b"patient", service=b"late")
    world.wait(3_600)
    worker = world.worker(service=b"late")
    assert worker.words() == ["patient"]
    worker.reply(b"at last")
    assert client.told() == [RFC7.answer(b"late", b"at last")]


def test_services_are_kept_apart() -> None:
    world = World()
    one, two = world.worker(service=b"one"), world.worker(RFC18, service=b"two")
    client = world.connect()
    client.call(b"for two", service=b"two")
    client.call(b"for one", service=b"one")
    assert (one.words(), two.words()) == (["for one"], ["for two"])
    one.reply(b"1")
    two.reply(b"2")
    assert client.told() == [RFC7.answer(b"one", b"1"), RFC7.answer(b"two", b"2")]


def test_a_client_may_have_many_requests_under_way() -> None:
    world = World()
    workers = [world.worker() for _ in range(3)]
    client = world.connect(FIELD)
    for number in range(3):
        client.call(b"%d" % number)
    for number, worker in reversed(list(enumerate(workers))):
        assert worker.words() == [str(number)]
        worker.reply(b"did %d" % number)
    assert client.told() == [FIELD.answer(ECHO, b"did %d" % number) for number in (2, 1, 0)]


# -------------------------------------------------------------------- parts


@pytest.mark.parametrize("speech", SPEECHES[1:], ids=str)
def test_parts_go_ahead_of_the_rest(speech: Speech) -> None:
    world = World()
    worker, client = world.busy(RFC18, speech)
    worker.reply(b"one", part=True)
    assert client.told() == [speech.answer(ECHO, b"one", part=True)]
    worker.reply(b"two", b"frames", part=True)
    assert client.told() == [speech.answer(ECHO, b"two", b"frames", part=True)]
    assert world.state(worker) == "busy"
    worker.reply(b"rest")
    assert client.done(b"rest")
    assert world.counters.dropped_parts == 0


def test_a_client_without_a_word_for_parts_gets_them_in_front_of_the_rest() -> None:
    """They were dropped: it took the last part of its result for all of it."""
    world = World()
    worker, client = world.busy(RFC18, RFC7)
    worker.reply(b"one", part=True)
    worker.reply(b"two", part=True)
    assert client.told() == []
    worker.reply(b"rest")
    assert client.done(b"onetworest")
    assert world.counters.dropped_parts == 0


def test_a_result_whose_parts_are_too_large_together_fails() -> None:
    world = World()
    worker, client = world.busy(RFC18, RFC7)
    worker.reply(b"x" * (MAX_PAYLOAD // 2), part=True)
    worker.reply(b"x" * (MAX_PAYLOAD // 2 + 1))
    assert client.told() == []
    assert world.ended == {"failed": 1}


def test_a_part_of_a_job_that_is_over_is_dropped() -> None:
    world = World(job_timeout=5)
    worker, client = world.busy(RFC18, RFC18)
    world.wait(5)
    worker.words()
    assert worker.reply(b"one", part=True) == []
    assert client.told() == []
    assert (world.counters.dropped_parts, world.counters.late_results) == (1, 0)
    assert world.state(worker) == "unproven"


# -------------------------------------------------------------------- heartbeats and leases


@every
def test_every_worker_hears_of_us_each_period_idle_or_busy(speech: Speech) -> None:
    world = World(heartbeat=2)
    idle = world.worker(speech, service=b"idle")
    busy, _ = world.busy(speech)
    for _ in range(5):
        world.wait_beating(2, idle)
        assert (idle.words(), busy.words()) == (["HEARTBEAT"], ["HEARTBEAT"])


def test_heartbeats_are_sent_when_each_is_due_and_to_nobody_who_left() -> None:
    world = World(heartbeat=3, liveness=100)
    workers = []
    for _ in range(3):
        workers.append(world.worker())
        world.wait(1)
    first, second, third = workers
    assert [each.words() for each in workers] == [["HEARTBEAT"], [], []]
    second.disconnect()
    world.wait(2)
    assert [each.words() for each in workers] == [[], [], ["HEARTBEAT"]]
    first.cut()
    third.cut()
    assert world.session.tick(world.now) == float("inf")


def test_a_crowd_that_joined_at_once_is_told_in_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BEATS_AT_ONCE", 2)
    world = World(heartbeat=2, liveness=100)
    crowd = [world.worker() for _ in range(5)]
    world.now += 2
    told = []
    while (due := world.runner.turn()) == world.now:
        told.append(sum(bool(each.stream.taken) for each in crowd))
    assert told == [2, 4]
    assert due > world.now
    world.turn()
    assert [each.words() for each in crowd] == [["HEARTBEAT"]] * 5


def test_a_new_connection_that_says_nothing_gets_nothing() -> None:
    world = World()
    side = world.connect()
    world.wait(20)
    assert side.told() == []


def test_an_idle_worker_silent_for_liveness_heartbeats_gets_disconnect_and_is_forgotten() -> None:
    world = World(heartbeat=2, liveness=3)
    worker = world.worker()
    world.wait(5.9)
    worker.words()
    world.wait(0.2)
    assert worker.words()[-1] == "DISCONNECT"
    assert world.state(worker) == "parted"
    assert world.counters.expired_workers == 1


@every
def test_any_command_but_disconnect_is_a_life_sign(speech: Speech) -> None:
    world = World(heartbeat=2, liveness=3)
    worker = world.worker(speech)
    for _ in range(4):
        world.wait(5)
        worker.heartbeat()
    client = world.client()
    worker.words()
    world.wait(5)
    worker.reply()
    client.told()
    world.wait(5)
    worker.reply(client=worker.client)  # late, and a life sign all the same
    world.wait(5)
    assert world.state(worker) == "idle"


def test_d5_a_busy_worker_may_be_silent_until_its_jobs_time_is_over() -> None:
    world = World(job_timeout=60)
    worker, client = world.busy()
    world.wait(59)
    assert world.state(worker) == "busy"
    worker.reply(b"slow")
    assert client.done(b"slow")


def test_d12_a_frozen_busy_worker_is_lost_by_the_carriers_ping() -> None:
    world = World(job_timeout=600)
    worker, client = world.busy()
    worker.pump = lambda: False  # type: ignore[method-assign]
    world.wait(16)
    assert world.ended == {"lost": 1}
    assert client.told() == []


def test_d13_our_own_pause_expires_nobody() -> None:
    world = World()
    worker = world.worker()
    world.wait(1)
    world.late(500)
    assert world.state(worker) == "idle"
    world.wait(1)
    assert worker.words() == ["HEARTBEAT"]


# -------------------------------------------------------------------- late and made up


def test_d2_d11_a_reply_after_the_jobs_time_is_late_and_proves_its_worker() -> None:
    world = World(job_timeout=5)
    worker, client = world.busy()
    world.wait(5)
    assert world.state(worker) == "unproven"
    other = world.client(b"next")
    assert worker.words() == ["HEARTBEAT", "HEARTBEAT"]
    old = worker.client
    assert worker.reply(b"too late", client=old) == ["next"]
    assert world.counters.late_results == 1
    assert client.told() == other.told() == []
    worker.reply(b"in time")
    assert other.done(b"in time")


def test_a_heartbeat_does_not_prove_an_unproven_worker() -> None:
    """D1: alive is not idle."""
    world = World(job_timeout=5)
    worker, _ = world.busy()
    world.wait(5)
    world.client(b"next")
    assert "next" not in worker.heartbeat()
    assert world.state(worker) == "unproven"


def test_an_unproven_worker_is_waited_for_unproven_limit() -> None:
    world = World(job_timeout=5, unproven_limit=20)
    worker, _ = world.busy()
    world.wait_beating(26, worker)
    assert worker.words()[-1] == "DISCONNECT"


@every
def test_the_same_reply_again_is_late_and_not_unexpected(speech: Speech) -> None:
    world = World()
    worker, client = world.busy(speech)
    worker.reply(b"once")
    assert worker.reply(b"twice") == []
    assert client.done(b"once")
    assert world.counters.late_results == 1
    assert world.state(worker) == "idle"
    assert world.bad == {}


def test_the_same_reply_again_while_the_next_job_runs_is_late() -> None:
    world = World()
    worker, _ = world.busy()
    first = worker.client
    other = world.client(b"next")
    assert worker.reply(b"once") == ["next"]
    assert worker.reply(b"twice", client=first) == []
    assert world.state(worker) == "busy"
    assert other.told() == []
    worker.reply(b"right")
    assert other.done(b"right")
    assert world.counters.late_results == 1


def test_a_reply_for_a_job_of_an_earlier_connection_is_late() -> None:
    """R39's hole is closed here: the token tells."""
    world = World()
    worker, client = world.busy()
    token = worker.client
    worker.cut()
    again = world.worker()
    assert again.reply(b"of another life", client=token) == []
    assert (world.counters.late_results, world.state(again), client.told()) == (1, "idle", [])
    fresh = world.client(b"next")
    assert again.words() == ["next"]
    assert again.reply(b"of another life", client=token) == []
    again.reply(b"right")
    assert fresh.done(b"right")


def test_t8_a_reply_with_a_token_of_another_workers_job_finishes_nothing() -> None:
    world = World()
    honest, client = world.busy()
    liar = world.worker(service=b"other")
    assert liar.reply(b"forged", client=honest.client) == ["DISCONNECT"]
    assert client.told() == []
    honest.reply(b"right")
    assert client.done(b"right")


def test_only_so_many_tokens_of_the_past_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OWED_KEPT", 2)
    world = World()
    tokens = []
    for _ in range(3):
        worker, _ = world.busy()
        tokens.append(worker.client)
        worker.cut()
    worker = world.worker()
    assert worker.reply(client=tokens[2]) == worker.reply(client=tokens[1]) == []
    assert worker.reply(client=tokens[0]) == ["DISCONNECT"]


# -------------------------------------------------------------------- unexpected: DISCONNECT, forgotten, D8


@every
def test_a_second_ready_is_answered_with_disconnect(speech: Speech) -> None:
    world = World()
    worker = world.worker(speech)
    assert worker.ready() == ["DISCONNECT"]
    assert world.state(worker) == "parted"
    assert world.bad == {"unexpected command": 1}


@every
def test_ready_from_a_busy_worker_is_answered_with_disconnect_and_its_job_is_lost(speech: Speech) -> None:
    world = World()
    worker, client = world.busy(speech)
    assert worker.ready() == ["DISCONNECT"]
    assert world.ended == {"lost": 1}
    assert client.told() == []
    assert world.counters.silent_endings == {Outcome.LOST: 1}


def test_d8_with_more_attempts_another_worker_gets_the_job_of_one_that_was_out_of_turn() -> None:
    world = World(attempts=2)
    worker, client = world.busy()
    other = world.worker()
    assert worker.ready() == ["DISCONNECT"]
    world.wait(0.2)
    assert other.words() == ["job"]
    assert worker.reply(b"late") == []  # parted, and told so already
    other.reply(b"second try")
    assert client.done(b"second try")
    assert world.counters.late_results == 1


@every
def test_a_reply_to_nothing_is_answered_with_disconnect(speech: Speech) -> None:
    world = World()
    for side in (world.connect(speech), world.worker(speech)):
        assert side.reply(client=UNKNOWN) == ["DISCONNECT"]
        assert world.state(side) == "parted"
    assert world.counters.late_results == 0


def test_a_reply_to_nothing_from_a_busy_worker_costs_it_its_job() -> None:
    world = World()
    worker, client = world.busy()
    assert worker.reply(client=UNKNOWN) == ["DISCONNECT"]
    assert world.ended == {"lost": 1}
    assert client.told() == []


@every
def test_a_heartbeat_before_ready_is_answered_with_disconnect_once(speech: Speech) -> None:
    world = World()
    side = world.connect(speech)
    assert side.heartbeat() == ["DISCONNECT"]
    assert side.heartbeat() == []
    assert side.ready() == []
    assert world.state(side) == "idle"


def test_after_disconnect_ready_on_the_same_connection_makes_a_new_worker() -> None:
    world = World()
    worker = world.worker()
    worker.ready()
    client = world.client()
    assert worker.ready() == ["job"]
    worker.reply(b"done")
    assert client.done(b"done")


def test_a_worker_that_says_disconnect_is_gone() -> None:
    world = World()
    worker = world.worker()
    assert worker.disconnect() == []
    assert world.state(worker) == "parted"
    world.client()
    assert worker.words() == []
    world.wait(3)
    assert worker.words() == []


def test_a_busy_worker_that_says_disconnect_has_lost_its_job() -> None:
    world = World()
    worker, client = world.busy()
    assert worker.disconnect() == []
    assert world.ended == {"lost": 1}
    assert client.told() == []


def test_a_worker_for_which_there_is_no_room_hears_nothing_and_may_try_again() -> None:
    world = World(policy=Policy(max_services=1))
    world.worker(service=b"first")
    late = world.connect()
    assert late.ready(b"second") == []
    assert late.heartbeat() == []
    world.wait(3)
    assert late.words() == []
    assert world.remarked("worker refused")
    assert late.ready(b"first") == []
    assert world.state(late) == "idle"


# -------------------------------------------------------------------- rubbish


@every
def test_rubbish_from_a_worker_is_answered_with_disconnect_and_its_job_is_lost(speech: Speech) -> None:
    world = World()
    worker, client = world.busy(speech)
    assert worker.command(b"\x09") == ["DISCONNECT"]
    assert world.bad == {"unknown command": 1}
    assert world.ended == {"lost": 1}
    assert client.told() == []


@every
def test_rubbish_from_a_client_gets_silence_and_what_it_waits_for_still_comes(speech: Speech) -> None:
    world = World()
    worker, client = world.busy(RFC7, speech)
    assert client.raw(b"", b"nonsense") == []
    assert client.raw(*speech.client) == []
    worker.reply(b"fine")
    assert client.done(b"fine")
    assert world.bad == {"wrong header": 1, "too few frames": 1}


def test_a_header_that_nobody_knows_gets_silence_and_may_be_followed_by_a_good_one() -> None:
    world = World()
    side = world.connect()
    assert side.raw(b"", b"PING") == side.raw(b"", b"MDPW03", b"\x01", b"echo") == []
    assert world.bad == {"unknown header": 2}
    assert side.ready() == []
    assert world.state(side) == "idle"


def test_a_connection_stays_what_its_first_message_was() -> None:
    world = World()
    worker = world.worker(RFC18)
    assert worker.raw(b"", b"MDPC01", ECHO, b"x") == [[b"MDPW02", b"\x06"]]
    client = world.client()
    assert client.raw(b"", b"MDPW01", b"\x01", ECHO) == []
    assert not world.broker.roster.workers
    assert world.bad == {"wrong header": 2}


def test_l23_twenty_bad_messages_close_the_connection() -> None:
    world = World()
    side = world.connect()
    for _ in range(Limits().bad_messages):
        side.raw(b"rubbish")
    assert side.is_over


def test_a_worker_cannot_offer_an_mmi_service() -> None:
    world = World()
    assert world.connect().ready(b"mmi.service") == ["DISCONNECT"]
    assert world.bad == {"reserved service": 1}


# -------------------------------------------------------------------- too large


@every
def test_a_result_over_max_payload_fails_its_job_and_frees_its_worker(speech: Speech) -> None:
    world = World()
    worker, client = world.busy(speech)
    assert worker.reply(bytes(MAX_PAYLOAD)) == []
    assert world.ended == {"failed": 1}
    assert world.counters.silent_endings == {Outcome.FAILED: 1}
    assert world.state(worker) == "idle"
    assert client.told() == []
    assert worker.reply(b"again") == []
    assert world.counters.late_results == 1


def test_a_late_result_over_max_payload_proves_its_worker() -> None:
    world = World(job_timeout=5)
    worker, _ = world.busy()
    world.wait(5)
    worker.words()
    assert worker.reply(bytes(MAX_PAYLOAD)) == []
    assert world.state(worker) == "idle"
    assert world.counters.late_results == 1


def test_a_part_over_max_payload_is_the_end_of_its_worker() -> None:
    world = World()
    worker, _ = world.busy(RFC18, RFC18)
    assert worker.reply(bytes(MAX_PAYLOAD), part=True) == ["DISCONNECT"]
    assert world.ended == {"lost": 1}
    assert world.bad == {"too large": 1}


@every
def test_a_request_over_max_payload_gets_silence(speech: Speech) -> None:
    world = World()
    for client in (world.connect(speech), world.client(speech=speech)):
        assert client.call(bytes(MAX_PAYLOAD)) == []
    assert world.bad == {"too large": 2}
    assert world.counters.refused == 2
    assert world.counters.silent_endings == {Outcome.REFUSED: 2}


def test_a_large_message_of_somebody_unknown_gets_silence() -> None:
    world = World()
    assert world.connect().raw(b"", b"who am I", bytes(MAX_PAYLOAD)) == []
    assert world.bad == {"unknown header": 1}


@every
def test_a_large_message_of_a_worker_that_holds_nothing_gets_disconnect(speech: Speech) -> None:
    world = World()
    for side in (world.connect(speech), world.worker(speech)):
        assert side.reply(bytes(MAX_PAYLOAD), client=UNKNOWN) == ["DISCONNECT"]


# -------------------------------------------------------------------- connections end


def test_a_busy_workers_connection_ends_and_its_job_is_lost() -> None:
    world = World()
    worker, client = world.busy()
    worker.cut()
    assert world.ended == {"lost": 1}
    assert client.told() == []


def test_r8_a_job_that_never_left_us_goes_to_another_worker_and_costs_no_attempt() -> None:
    world = World()
    worker = world.worker()
    worker.stream.room = 0
    client = world.client()
    other = world.worker()
    worker.cut()
    assert other.words() == ["job"]
    other.reply(b"done")
    assert client.done(b"done")


def test_r18_a_waiting_job_of_a_client_that_has_gone_is_withdrawn() -> None:
    world = World()
    world.client().cut()
    assert world.ended == {"cancelled": 1}


def test_r19_a_running_job_of_a_client_that_has_gone_may_end() -> None:
    world = World()
    worker, client = world.busy()
    client.cut()
    assert world.state(worker) == "busy"
    worker.reply()
    assert world.state(worker) == "idle"
    assert world.counters.unclaimed_results == 1


def test_d3_a_routing_id_on_a_new_connection_ends_the_former_life_of_a_worker() -> None:
    world = World()
    worker = world.worker(identity=b"W")
    client = world.client()
    token = (worker.words(), worker.client)[1]
    again = world.worker(identity=b"W")
    assert worker.is_over
    assert world.ended == {"lost": 1}
    assert world.counters.takeovers == 1
    assert again.reply(client=token) == []
    assert world.counters.late_results == 1
    assert client.told() == []
    assert len(world.broker.roster.workers) == 1


def test_d3_a_routing_id_on_a_new_connection_ends_the_former_life_of_a_client() -> None:
    world = World()
    first = world.connect(identity=b"C")
    first.call(b"job")
    second = world.connect(identity=b"C")
    assert first.is_over
    assert world.ended == {"cancelled": 1}
    second.cut()
    assert world.session.routing_ids.owners == {}


# -------------------------------------------------------------------- dismissed, refused, mmi


def test_a_drained_worker_gets_disconnect_behind_its_result() -> None:
    world = World()
    worker, client = world.busy()
    world.broker.drain(world.worker_of(worker), world.now)
    world.turn()
    assert worker.words() == []
    assert worker.reply(b"the last") == ["DISCONNECT"]
    assert client.done(b"the last")


def test_a_worker_that_an_operator_drained_stays_and_gets_nothing() -> None:
    """Told DISCONNECT, it was back at once and got the next job: RFC 7 has it so."""
    world = World()
    worker, client = world.busy()
    drained = world.worker_of(worker)
    assert drained.terms.comes_back
    world.broker.drain(drained, world.now, stays=True)
    assert worker.reply(b"the last") == []
    assert client.done(b"the last")
    for _ in range(10):
        world.wait(2.5)
        assert set(worker.words()) <= {"HEARTBEAT"}
        worker.heartbeat()
    world.client(b"next")
    assert worker.words() == []
    assert world.worker_of(worker) is drained
    assert str(drained.state) == "draining"
    worker.cut()
    assert world.worker().words() == ["next"]


def test_a_killed_worker_gets_disconnect_at_once() -> None:
    world = World()
    worker, _ = world.busy()
    world.broker.drain(world.worker_of(worker), world.now, at_once=True)
    world.turn()
    assert worker.words() == ["DISCONNECT"]
    assert world.ended == {"lost": 1}
    assert worker.reply() == []
    assert world.counters.late_results == 1


def test_a_request_while_the_broker_drains_gets_silence() -> None:
    world = World()
    world.worker()
    world.broker.close(world.now)
    world.client()
    assert world.counters.silent_endings == {Outcome.REFUSED: 1}


def test_a_withdrawn_job_ends_in_silence_and_its_late_reply_proves_the_worker() -> None:
    world = World()
    worker, client = world.busy()
    world.broker.withdraw(world.job(), world.now)
    world.turn()
    assert world.state(worker) == "unproven"
    worker.reply()
    assert world.state(worker) == "idle"
    assert client.told() == []
    assert world.counters.silent_endings == {Outcome.CANCELLED: 1}


@every
def test_mmi_service_says_200_or_404(speech: Speech) -> None:
    world = World()
    worker = world.worker()
    client = world.connect(speech)
    mmi = b"mmi.service"
    assert client.call(b"echo", service=mmi) == [speech.answer(mmi, b"200")]
    for unknown in (b"ech", b"", b"\xff", b"x" * 5000, b"mmi.service"):
        assert client.call(unknown, service=mmi) == [speech.answer(mmi, b"404")]
    worker.cut()
    assert client.call(b"echo", service=mmi) == [speech.answer(mmi, b"404")]
    assert world.counters.accepted == 0


@every
def test_other_mmi_services_say_501(speech: Speech) -> None:
    world = World()
    client = world.connect(speech)
    for name in (b"mmi.echo", b"mmi.", b"mmi.service2"):
        assert client.call(b"x", service=name) == [speech.answer(name, b"501")]
    assert world.counters.accepted == 0


def test_a_busy_service_is_there() -> None:
    world = World()
    world.busy()
    client = world.connect(RFC18)
    assert client.call(ECHO, service=b"mmi.service") == [RFC18.answer(b"mmi.service", b"200")]


def test_late_replies_are_logged_once_a_second() -> None:
    world = World()
    worker, _ = world.busy()
    for _ in range(5):
        worker.reply()
    assert len(world.remarked("late result")) == 1
    world.wait(1)
    worker.reply()
    assert len(world.remarked("late result")) == 2
