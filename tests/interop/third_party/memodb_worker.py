"""A MemoDB worker, from the document alone: one thread, one request at a time.

    memodb_worker.py URL SERVICE... [--name NAME] [--jobs N] [--resend S]

The job `sleep S …` takes S seconds, `size N` gives N bytes; all others are answered at once with `NAME did JOB`. With
--jobs it says goodbye with the Nth result and ends when the broker has said DISCONNECT.
"""

import argparse
import io
import time

import cbor2
import pynng

READY, JOB, RESULT, HEARTBEAT, DISCONNECT = range(1, 6)
NAMES = ("", "ready", "job", "result", "heartbeat", "disconnect")

parser = argparse.ArgumentParser()
parser.add_argument("url")
parser.add_argument("services", nargs="+")
parser.add_argument("--name", default="worker")
parser.add_argument("--jobs", type=int, default=0, help="leave after so many")
parser.add_argument("--resend", type=float, default=60, help="NNG's resend time")
options = parser.parse_args()


def write(*fields, payload=b""):
    return cbor2.dumps(["memo01", *fields], canonical=True) + payload


def read(message):
    stream = io.BytesIO(message)
    version, kind, worker, *fields = cbor2.load(stream)
    assert version == "memo01"
    return kind, worker, fields, stream.read()


def work(service, payload):
    print("job", service, payload[:40].decode("utf-8", "replace"))
    words = payload[:40].split()
    if words[:1] == [b"sleep"]:
        time.sleep(float(words[1]))
    if words[:1] == [b"size"]:
        return b"x" * int(words[1])
    return options.name.encode() + b" did " + payload


broker = pynng.Req0(resend_time=int(options.resend * 1000), recv_max_size=0)
broker.reconnect_time_min = broker.reconnect_time_max = 20
broker.dial(options.url, block=False)
done = 0
request = write(READY, b"", options.services)
print("ready", *options.services)
while True:
    broker.send(request)
    kind, worker, fields, payload = read(broker.recv())
    print(NAMES[kind], worker.hex())
    if kind == JOB:
        service, timeout = fields
        result = work(service, payload)
        done += 1
        leaves = (True,) if done == options.jobs else ()
        request = write(RESULT, worker, *leaves, payload=result)
        print("result", worker.hex())
    elif kind == HEARTBEAT:
        request = write(HEARTBEAT, worker)
    elif done and done == options.jobs:
        break
    else:
        request = write(READY, b"", options.services)
        print("ready again")
broker.close()
