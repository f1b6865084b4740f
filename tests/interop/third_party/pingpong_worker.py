"""A PingPong worker, from the document alone: one thread, silent while it works.

    pingpong_worker.py ENDPOINT [--name NAME] [--identity ID] [--ping S] [--timeout S] [--count]

The job `sleep S …` takes S seconds, `wait FILE` waits for the file, `size N` gives N bytes; all others are answered at
once with `NAME did JOB`.
"""

import argparse
import os
import time

import zmq

parser = argparse.ArgumentParser()
parser.add_argument("endpoint")
parser.add_argument("--name", default="worker")
parser.add_argument("--identity", default="")
parser.add_argument("--ping", type=float, default=0.2)
parser.add_argument("--timeout", type=float, default=0.5, help="BROKER_TIMEOUT")
parser.add_argument("--count", action="store_true", help="send the ping count along (the second text)")
options = parser.parse_args()

N_TIMEOUTS = 3
context = zmq.Context()


def connect():
    frontend = context.socket(zmq.DEALER)
    frontend.linger = 0
    if options.identity:
        frontend.identity = options.identity.encode()
    frontend.connect(options.endpoint)
    frontend.send_multipart([b"", b"READY"])
    print("ready")
    return frontend


def work(job):
    words = job.split()
    print("job", job[:40].decode("utf-8", "replace"))
    if words[:1] == [b"sleep"]:
        time.sleep(float(words[1]))
    while words[:1] == [b"wait"] and not os.path.exists(words[1]):
        time.sleep(0.005)  # the job itself: it lasts until the test makes the file
    if words[:1] == [b"size"]:
        return b"x" * int(words[1])
    return options.name.encode() + b" did " + job


frontend = connect()
heard = pinged = time.monotonic()
pings = 0
while True:
    now = time.monotonic()
    if now - heard > N_TIMEOUTS * options.timeout:
        print("broker is silent")
        frontend.close()
        frontend = connect()
        heard = now
    if now - pinged >= options.ping:
        pings += 1
        pinged = now
        frontend.send_multipart([b"", b"PING", str(pings).encode()] if options.count else [b"", b"PING"])
    if frontend.poll(20):
        _, word, *rest = frontend.recv_multipart()
        heard = time.monotonic()
        if word == b"PONG":
            print("pong", *(each.decode() for each in rest))
        elif word == b"EXIT":
            print("exit")
            break
        else:
            frontend.send_multipart([b"", work(word)])
            heard = pinged = time.monotonic()
            print("done")
