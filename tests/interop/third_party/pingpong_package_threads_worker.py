"""A PingPong worker of edition `package` that works in a thread and repeats READY on the same socket meanwhile.

    pingpong_package_threads_worker.py ENDPOINT [--name NAME] [--ping S]

A job is `["", job, client, "", ""]`, its result `["", "JOB COMPLETE", client, "", result]`. The worker sends PING every
S seconds, and READY in place of each third PING: it does not know whether the broker has forgotten it. The job
`wait for N READY` ends after N of them; all are answered with `NAME did JOB`.
"""

import argparse
import queue
import threading
import time

import zmq

parser = argparse.ArgumentParser()
parser.add_argument("endpoint")
parser.add_argument("--name", default="package")
parser.add_argument("--ping", type=float, default=0.15)
options = parser.parse_args()

jobs, results, greetings = queue.Queue(), queue.Queue(), queue.Queue()


def work():
    while True:
        job, client = jobs.get()
        print("job", job.decode("utf-8", "replace"))
        words = job.split()
        for _ in range(int(words[2]) if words[:2] == [b"wait", b"for"] else 0):
            greetings.get()
        results.put((client, options.name.encode() + b" did " + job))


threading.Thread(target=work, daemon=True).start()
broker = zmq.Context().socket(zmq.DEALER)
broker.linger = 0
broker.connect(options.endpoint)
broker.send_multipart([b"", b"READY"])
print("ready")
pinged, pings = time.monotonic(), 0
while True:
    if broker.poll(20):
        _, *message = broker.recv_multipart()
        if message == [b"EXIT"]:
            break
        if len(message) > 1:
            jobs.put(message[:2])
    while not results.empty():
        client, result = results.get()
        broker.send_multipart([b"", b"JOB COMPLETE", client, b"", result])
        print("done")
    if time.monotonic() - pinged >= options.ping:
        pinged, pings = time.monotonic(), pings + 1
        if pings % 3:
            broker.send_multipart([b"", b"PING"])
        else:
            broker.send_multipart([b"", b"READY"])
            greetings.put(None)
