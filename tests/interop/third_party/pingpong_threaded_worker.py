"""A PingPong worker as the second text recommends it for heavy jobs: a separate thread works, so the pings go on.

    pingpong_threaded_worker.py ENDPOINT [--name NAME] [--ping S]

The job `sleep S …` takes S seconds; all are answered with `NAME did JOB`.
"""

import argparse
import queue
import threading
import time

import zmq

parser = argparse.ArgumentParser()
parser.add_argument("endpoint")
parser.add_argument("--name", default="threaded")
parser.add_argument("--ping", type=float, default=0.1)
options = parser.parse_args()

jobs, results = queue.Queue(), queue.Queue()


def work():
    while True:
        job = jobs.get()
        print("job", job.decode("utf-8", "replace"))
        words = job.split()
        if words[:1] == [b"sleep"]:
            time.sleep(float(words[1]))
        results.put(options.name.encode() + b" did " + job)


threading.Thread(target=work, daemon=True).start()
frontend = zmq.Context().socket(zmq.DEALER)
frontend.linger = 0
frontend.connect(options.endpoint)
frontend.send_multipart([b"", b"READY"])
print("ready")
pinged = time.monotonic()
while True:
    if frontend.poll(20):
        word = frontend.recv_multipart()[1]
        if word == b"EXIT":
            break
        if word == b"PONG":
            print("pong")
        else:
            jobs.put(word)
    while not results.empty():
        frontend.send_multipart([b"", results.get()])
        print("done")
    if time.monotonic() - pinged >= options.ping:
        pinged = time.monotonic()
        frontend.send_multipart([b"", b"PING"])
