"""A Majordomo broker, from RFC 7 alone, after the Guide's: it sends heartbeats to idle workers only, and never retries.

    majordomo_broker.py [HEARTBEAT]

Prints `at ENDPOINT`, and each command that it hears from a worker.
"""

import sys
import time
from collections import defaultdict

import zmq

NAMES = {1: "READY", 3: "REPLY", 4: "HEARTBEAT", 5: "DISCONNECT"}
HEARTBEAT = float(sys.argv[1]) if len(sys.argv) > 1 else 2.5
LIVENESS = 30

listener = zmq.Context().socket(zmq.ROUTER)
listener.linger = 0
listener.bind("tcp://127.0.0.1:*")
print("at", listener.last_endpoint.rstrip(b"\0").decode())

service_of = {}  # of every worker that has said READY
expiry = {}  # of every worker that waits, longest waiting first
requests = defaultdict(list)


def tell_worker(worker, command, *rest):
    listener.send_multipart([worker, b"", b"MDPW01", command, *rest])


def receive_worker(worker, command, rest):
    print("heard", NAMES[command[0]])
    is_known = worker in service_of
    if command == b"\x01" and not is_known:
        service_of[worker] = rest[0]
        expiry[worker] = time.monotonic() + HEARTBEAT * LIVENESS
    elif command == b"\x03" and is_known and worker not in expiry:
        client, empty, *body = rest
        assert empty == b""
        listener.send_multipart([client, b"", b"MDPC01", service_of[worker], *body])
        expiry[worker] = time.monotonic() + HEARTBEAT * LIVENESS
    elif command == b"\x04" and is_known:
        if worker in expiry:
            expiry[worker] = time.monotonic() + HEARTBEAT * LIVENESS
    else:
        service_of.pop(worker, None)
        expiry.pop(worker, None)
        if command != b"\x05":
            tell_worker(worker, b"\x05")


beat_at = time.monotonic() + HEARTBEAT
while True:
    if listener.poll(20):
        sender, empty, header, *rest = listener.recv_multipart()
        assert empty == b""
        if header == b"MDPC01":
            requests[rest[0]].append([sender, b"", *rest[1:]])
        else:
            assert header == b"MDPW01"
            receive_worker(sender, rest[0], rest[1:])
    now = time.monotonic()
    for worker in [each for each, until in expiry.items() if until < now]:
        del expiry[worker], service_of[worker]
    for worker in list(expiry):
        if requests[service_of[worker]]:
            del expiry[worker]
            tell_worker(worker, b"\x02", *requests[service_of[worker]].pop(0))
    if now >= beat_at:
        beat_at = now + HEARTBEAT
        for worker in expiry:
            tell_worker(worker, b"\x04")
