"""A Majordomo worker of one thread, from RFC 7 alone: it sends nothing while it works.

    majordomo_worker.py ENDPOINT SERVICE [--name NAME] [--heartbeat S] [--liveness N] [--id ID]

The job `sleep S …` takes S seconds, `wait FILE` ends when there is that file.
All are answered with `NAME did` and the job's frames. SIGTERM: DISCONNECT.
"""

import argparse
import os
import signal
import time

import zmq

HEAD = [b"", b"MDPW01"]
READY, REQUEST, REPLY, HEARTBEAT, DISCONNECT = (bytes((number,)) for number in range(1, 6))

parser = argparse.ArgumentParser()
parser.add_argument("endpoint")
parser.add_argument("service")
parser.add_argument("--name", default="W")
parser.add_argument("--heartbeat", type=float, default=2.5)
parser.add_argument("--liveness", type=int, default=3)
parser.add_argument("--id", default="")
options = parser.parse_args()

stopping = []
signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
context = zmq.Context()


def connect():
    """Open a new socket, and send READY."""
    made = context.socket(zmq.DEALER)
    made.linger = 1000
    if options.id:
        made.routing_id = options.id.encode()
    made.connect(options.endpoint)
    made.send_multipart([*HEAD, READY, options.service.encode()])
    print("ready")
    return made


broker = connect()
heard = beaten = time.monotonic()
while not stopping:
    if time.monotonic() - beaten >= options.heartbeat:
        beaten = time.monotonic()
        broker.send_multipart([*HEAD, HEARTBEAT])
    if not broker.poll(20):
        if time.monotonic() - heard > options.heartbeat * options.liveness:
            print("silence")
            broker.close(linger=0)
            broker = connect()
            heard = time.monotonic()
        continue
    heard = time.monotonic()
    empty, header, command, *rest = broker.recv_multipart()
    assert [empty, header] == HEAD
    if command == HEARTBEAT:
        print("heartbeat")
    elif command == DISCONNECT:
        print("disconnect")
        broker.close(linger=0)
        broker = connect()
    else:
        assert command == REQUEST
        client, empty, *body = rest
        assert empty == b""
        print("job", b"|".join(body)[:60].decode("utf-8", "replace"))
        words = body[0].split()
        if words[:1] == [b"sleep"]:
            time.sleep(float(words[1]))
        while words[:1] == [b"wait"] and not os.path.exists(words[1]):
            time.sleep(0.005)
        broker.send_multipart([*HEAD, REPLY, client, b"", options.name.encode() + b" did", *body])
        heard = time.monotonic()
broker.send_multipart([*HEAD, DISCONNECT])
broker.close()
context.term()
