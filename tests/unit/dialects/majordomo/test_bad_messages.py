"""Messages that cannot be read, and those over max_payload."""

from __future__ import annotations

from dragoman.core.states import Outcome
from dragoman.server.admission import AdmissionLimits

from .world import ECHO, MAX_PAYLOAD, RFC7, RFC18, UNKNOWN, Speech, World, every

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
    assert not world.broker.worker_registry.workers
    assert world.bad == {"wrong header": 2}


def test_l23_twenty_bad_messages_close_the_connection() -> None:
    world = World()
    side = world.connect()
    for _ in range(AdmissionLimits().bad_messages):
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
    assert world.counters.unreported_outcomes == {Outcome.FAILED: 1}
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
    assert world.counters.unreported_outcomes == {Outcome.REFUSED: 2}


def test_a_large_message_of_somebody_unknown_gets_silence() -> None:
    world = World()
    assert world.connect().raw(b"", b"who am I", bytes(MAX_PAYLOAD)) == []
    assert world.bad == {"unknown header": 1}


@every
def test_a_large_message_of_a_worker_that_holds_nothing_gets_disconnect(speech: Speech) -> None:
    world = World()
    for side in (world.connect(speech), world.worker(speech)):
        assert side.reply(bytes(MAX_PAYLOAD), client=UNKNOWN) == ["DISCONNECT"]
