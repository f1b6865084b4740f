"""A PingPong broker, from the first text to the letter: even a PING of a busy worker puts it into the ready queue.

    pingpong_broker.py [--backend PORT] [--frontend PORT] [--expire S] [--mute]

With --mute it answers no PING. Prints its places, then what it hears from workers.
"""

import argparse
import time
from collections import deque

import zmq

parser = argparse.ArgumentParser()
parser.add_argument("--backend", default="*")
parser.add_argument("--frontend", default="*")
parser.add_argument("--expire", type=float, default=3, help="WORKER_EXPIRE_SECONDS")
parser.add_argument("--mute", action="store_true")
options = parser.parse_args()

context = zmq.Context()
places = {}
for name in ("backend", "frontend"):
    places[name] = context.socket(zmq.ROUTER)
    places[name].bind(f"tcp://127.0.0.1:{getattr(options, name)}")
    print(name, places[name].getsockopt_string(zmq.LAST_ENDPOINT))
backend, frontend = places["backend"], places["frontend"]

ready = []  # worker ids, longest idle first
expires = {}  # worker id -> when
waiting = deque()  # (client, job)
client_of = {}  # worker id -> client

while True:
    for worker in [each for each in ready if expires[each] < time.monotonic()]:
        ready.remove(worker)
    if frontend.poll(10):
        client, _, job = frontend.recv_multipart()
        waiting.append((client, job))
    while backend.poll(0):
        worker, _, *message = backend.recv_multipart()
        word = message[0]
        print("heard", word[:20].decode("utf-8", "replace"), worker.hex())
        expires[worker] = time.monotonic() + options.expire
        if word == b"PING" and not options.mute:
            backend.send_multipart([worker, b"", b"PONG"])
        elif word not in (b"READY", b"PING"):
            frontend.send_multipart([client_of.pop(worker), b"", *message])
        if worker not in ready:
            ready.append(worker)
    while waiting and ready:
        client, job = waiting.popleft()
        worker = ready.pop(0)
        client_of[worker] = client
        backend.send_multipart([worker, b"", job])
        print("gave", worker.hex())
