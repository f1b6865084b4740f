"""Many MemoDB workers over one connection, from the document alone: a thread and an NNG context for each.

    memodb_threads_worker.py URL SERVICE... [--workers N] [--name NAME]

The job `sleep S …` takes S seconds; all are answered with `NAME did JOB`. How many ran at once at the most is printed.
"""

import argparse
import io
import threading
import time

import cbor2
import pynng

READY, JOB, RESULT, HEARTBEAT, DISCONNECT = range(1, 6)

parser = argparse.ArgumentParser()
parser.add_argument("url")
parser.add_argument("services", nargs="+")
parser.add_argument("--workers", type=int, default=4)
parser.add_argument("--name", default="threads")
options = parser.parse_args()

counting = threading.Lock()
running = most = 0


def read(message):
    stream = io.BytesIO(message)
    _, kind, worker, *fields = cbor2.load(stream)
    return kind, worker, fields, stream.read()


def work(payload):
    global running, most
    with counting:
        running += 1
        if running > most:
            most = running
            print("at once", most)
    words = payload[:40].split()
    if words[:1] == [b"sleep"]:
        time.sleep(float(words[1]))
    with counting:
        running -= 1
    return options.name.encode() + b" did " + payload


def live(context):
    header, payload = ["memo01", READY, b"", options.services], b""
    while True:
        context.send(cbor2.dumps(header, canonical=True) + payload)
        kind, worker, _, job = read(context.recv())
        payload = b""
        if kind == JOB:
            header, payload = ["memo01", RESULT, worker], work(job)
        elif kind == HEARTBEAT:
            header = ["memo01", HEARTBEAT, worker]
        else:
            header = ["memo01", READY, b"", options.services]


broker = pynng.Req0(reconnect_time_min=20, reconnect_time_max=20)
broker.dial(options.url, block=False)
contexts = [broker.new_context() for _ in range(options.workers)]
threads = [threading.Thread(target=live, args=(each,)) for each in contexts]
for each in threads:
    each.start()
print("workers", len(threads))
for each in threads:
    each.join()
