"""A cluster with damaged logs: what brokers say about it, and the way of its jobs into another cluster."""

from __future__ import annotations

import base64
import json
import signal
import socket
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from cluster_members import PATIENCE, Member, initialise, start_members, start_nats, wait_for_owners

from dragoman import Client, NotFound
from dragoman.cluster.ranks import shard_of_key
from nats_servers import NatsServer
from programs import Programs, until

LISTENERS = ("tcp://127.0.0.1:0", "http://127.0.0.1:0")
SHARDS = 4
UNREADABLE, DELETED, WHOLE = 1, 2, 3


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[NatsServer]:
    server = start_nats(tmp_path / "nats")
    yield server
    server.kill()


def stop(member: Member) -> None:
    member.program.signal(signal.SIGTERM)
    assert member.program.ends(PATIENCE) == 0


def test_what_is_left_of_a_damaged_cluster_goes_on_in_another_one(
    programs: Programs, nats: NatsServer, tmp_path: Path
) -> None:
    """One log has a message that cannot be read, and another one was deleted. Nothing of it is left out silently."""
    initialise(programs, nats.url, SHARDS)
    [member] = start_members(programs, nats, ("eu1",), listeners=LISTENERS)
    wait_for_owners([member], SHARDS)
    with closing(Client(member.url)) as client:
        ids = {f"k{number}": client.enqueue("later", b"payload", key=f"k{number}") for number in range(24)}
        shards = {key: int(id[-2:], 16) for key, id in ids.items()}
        assert set(shards.values()) == set(range(SHARDS))
        lost = next(key for key in ids if shards[key] == DELETED)
        key = next(
            f"a{number}" for number in range(99) if shard_of_key("local", "later", f"a{number}", SHARDS) == WHOLE
        )
        waits = client.enqueue("later", b"payload", key=key, after=[ids[lost]])
    stop(member)
    nats.ask(f"dgm.dragoman.log.{UNREADABLE:02}", "nonsense")
    assert nats.ask(f"$JS.API.STREAM.DELETE.DGM_dragoman_{DELETED:02}")["success"]

    [member] = start_members(programs, nats, ("eu1",), listeners=LISTENERS)
    wait_for_owners([member], SHARDS - 2)
    check_what_brokers_say(programs, member, next(key for key in ids if shards[key] == UNREADABLE))
    stop(member)

    refused = programs.run("export", "--cluster", nats.url)
    assert refused.ends(PATIENCE) == 1
    assert "export what can be read with --skip-damaged" in refused.err
    done = programs.run("export", "--cluster", nats.url, "--skip-damaged")
    assert done.ends(PATIENCE) == 65, done.err
    (tmp_path / "jobs").write_bytes(done.out_bytes)
    sentences = [
        "shard 1: message ",
        "(1 message): cannot be read: ",
        "shard 2: its stream DGM_dragoman_02 is gone: all jobs and groups of the shard are left out",
        f"shard 3: 1 id: jobs come after jobs or groups that are not in the file: the broker cancels them, or runs "
        f"them if they run after failures: {waits}",
    ]
    assert [each for each in sentences if each not in done.err] == [], done.err
    lines = [json.loads(line) for line in done.out_bytes.splitlines()]
    kept = {line["job"] for line in lines if "job" in line}
    assert kept == {id for key, id in ids.items() if shards[key] != DELETED} | {waits}
    assert [line["damage"]["shard"] for line in lines if "damage" in line] == [1, 1, 1, 2, 3]

    init = programs.run("cluster", "init", "--cluster", nats.url, "--cluster-name", "rescued", "--replicas", 1)
    assert init.ends(PATIENCE) == 0, init.err
    where = ("--cluster", nats.url, "--cluster-name", "rescued")
    asked = programs.run("import", tmp_path / "jobs", *where)
    assert asked.ends(PATIENCE) == 65
    assert [each for each in sentences if each not in asked.err] == [], asked.err
    accepted = programs.run("import", tmp_path / "jobs", *where, "--accept-damage")
    assert accepted.ends(PATIENCE) == 0, accepted.err
    assert [each for each in sentences if each not in accepted.err] == [], accepted.err
    rescued = Member(programs, nats, "eu1", listeners=LISTENERS, flags=("--cluster-name", "rescued"))
    rescued.wait()
    wait_for_owners([rescued], 12)
    with closing(Client(rescued.url)) as client:
        for name, id in ids.items():
            if shards[name] == DELETED:
                with pytest.raises(NotFound):
                    client.job(id)
            else:
                assert (client.job(id).state, client.payload(id)) == ("waiting", b"payload")
        until(lambda: client.job(waits).outcome == "cancelled", "it is cancelled", PATIENCE)
        assert ids[lost] in str(client.job(waits).reason)
        assert client.enqueue("later", b"payload", key=lost) != ids[lost]
    stop(rescued)


def check_what_brokers_say(programs: Programs, member: Member, key: str) -> None:
    """Status, readiness and refusals name the shard, the reason and the way out."""
    until(lambda: len(unusable(member)) == 2, "both are unusable", PATIENCE)
    reason, gone = unusable(member).values()
    assert "cannot be used: stream not found" in gone
    sentence = f"shard {UNREADABLE} of the cluster is unusable: {reason}"
    assert "; repair the log, or move what can be read with `dragoman export --skip-damaged`" in sentence
    with urllib.request.urlopen(f"{member.urls['http']}/readyz") as answer:
        assert (answer.status, answer.read().decode().splitlines()[:2]) == (200, ["ready", f"degraded: {sentence}"])
    health = programs.run("health", "--connect", member.url)
    assert (health.ends(PATIENCE), sentence in health.out) == (0, True), health.out
    refused = programs.run("enqueue", "later", "x", "--key", key, "--connect", member.url)
    assert (refused.ends(PATIENCE), sentence in refused.err) == (1, True), refused.err


def unusable(member: Member) -> dict[int, str]:
    with closing(Client(member.url)) as client:
        return {each.number: each.problem for each in client.cluster().shards if each.state == "unusable"}


def test_commits_behind_missing_messages_count(programs: Programs, nats: NatsServer) -> None:
    """A gap in the middle of a log, as JetStream shows it."""
    initialise(programs, nats.url, 1)
    [member] = start_members(programs, nats, ("eu1",), listeners=LISTENERS)
    wait_for_owners([member], 1)
    with closing(Client(member.url)) as client:
        ids = [client.enqueue("later", b"payload %d" % number) for number in range(5)]
    stop(member)
    cut_out(nats, "DGM_dragoman_00", ids[2])
    refused = programs.run("export", "--cluster", nats.url)
    assert (refused.ends(PATIENCE), "is missing" in refused.err) == (1, True), refused.err
    done = programs.run("export", "--cluster", nats.url, "--skip-damaged")
    assert (done.ends(PATIENCE), "(1 message): missing" in done.err) == (65, True), done.err
    lines = [json.loads(line) for line in done.out_bytes.splitlines()]
    assert {line["job"] for line in lines if "job" in line} == {id for id in ids if id != ids[2]}
    [older] = [line["damage"]["jobs"] for line in lines if line.get("damage", {}).get("jobs")]
    assert set(older) == set(ids[:2])


def cut_out(nats: NatsServer, stream: str, id: str) -> None:
    """Write a stream again without the message that has the first row of a job. Logs forbid that it is deleted."""
    config = nats.ask(f"$JS.API.STREAM.INFO.{stream}")["config"]
    last = nats.ask(f"$JS.API.STREAM.INFO.{stream}")["state"]["last_seq"]
    found = [nats.ask(f"$JS.API.STREAM.MSG.GET.{stream}", {"seq": number + 1})["message"] for number in range(last)]
    payloads = [base64.b64decode(each["data"]) for each in found]
    assert nats.ask(f"$JS.API.STREAM.DELETE.{stream}")["success"]
    assert "error" not in nats.ask(f"$JS.API.STREAM.CREATE.{stream}", config | {"deny_delete": False})
    with socket.create_connection(("127.0.0.1", nats.port), 5.0) as connection:
        connection.sendall(b'CONNECT {"verbose":false}\r\n')
        for payload in payloads:
            subject = config["subjects"][0].encode()
            connection.sendall(b"PUB %b %d\r\n%b\r\n" % (subject, len(payload), payload))
        connection.sendall(b"PING\r\n")
        replies = connection.makefile("rb")
        while replies.readline() != b"PONG\r\n":
            pass
    [lost] = [number for number, payload in enumerate(payloads, 1) if bytes.fromhex(id) in payload]
    assert nats.ask(f"$JS.API.STREAM.MSG.DELETE.{stream}", {"seq": lost})["success"]
    assert "error" not in nats.ask(f"$JS.API.STREAM.UPDATE.{stream}", config)


def test_the_first_log_may_be_gone_and_an_end_may_be_known_to_be_lost(programs: Programs, nats: NatsServer) -> None:
    """Shard 0 has the layout, which the others have, too."""
    initialise(programs, nats.url, SHARDS)
    [member] = start_members(programs, nats, ("eu1",), listeners=LISTENERS)
    wait_for_owners([member], SHARDS)
    with closing(Client(member.url)) as client:
        keys = [f"k{number}" for number in range(24)]
        ids = [client.enqueue("later", b"payload", key=key) for key in keys]
    stop(member)
    known = programs.run("export", "--cluster", nats.url, "--had", f"{WHOLE}:999")
    assert known.ends(PATIENCE) == 1
    assert f"shard {WHOLE}: the log ends with " in known.err
    assert nats.ask("$JS.API.STREAM.DELETE.DGM_dragoman_00")["success"]
    done = programs.run("export", "--cluster", nats.url, "--skip-damaged", "--had", f"{WHOLE}:999")
    assert done.ends(PATIENCE) == 65, done.err
    assert "all jobs, groups, schedules, pauses and limits of the shard are left out" in done.err
    assert " messages): lost: the log ended before them" in done.err
    lines = [json.loads(line) for line in done.out_bytes.splitlines()]
    assert {line["job"] for line in lines if "job" in line} == {id for id in ids if not id.endswith("00")}
    older = {id for line in lines for id in line.get("damage", {}).get("jobs", ())}
    assert older == {id for id in ids if id.endswith(f"{WHOLE:02}")}
    wrong = programs.run("export", "--cluster", nats.url, "--skip-damaged", "--had", "3")
    assert (wrong.ends(PATIENCE), "--had 3: write the shard" in wrong.err) == (2, True)
