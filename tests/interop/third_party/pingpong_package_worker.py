"""A PingPong worker of edition `package`: jobs come with the client's envelope, which goes back with the result.

    pingpong_package_worker.py ENDPOINT [--name NAME]

The job `sleep S …` takes S seconds; all are answered with `NAME did JOB`. SIGTERM: it says DISCONNECT and leaves.
"""

import argparse
import signal
import time

import zmq

parser = argparse.ArgumentParser()
parser.add_argument("endpoint")
parser.add_argument("--name", default="package")
options = parser.parse_args()

stopping = []
signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
context = zmq.Context()
broker = context.socket(zmq.DEALER)
broker.linger = 1000
broker.connect(options.endpoint)
broker.send_multipart([b"", b"READY"])
print("ready")
pinged = time.monotonic()
while not stopping:
    if time.monotonic() - pinged > 0.2:
        pinged = time.monotonic()
        broker.send_multipart([b"", b"PING"])
    if not broker.poll(20):
        continue
    _, *message = broker.recv_multipart()
    if len(message) == 1:
        # PONG, or a job of the short form, which workers of this edition silently ignore
        if message == [b"EXIT"]:
            break
        continue
    job, client, *_ = message
    print("job", job.decode("utf-8", "replace"), len(message))
    words = job.split()
    if words[:1] == [b"sleep"]:
        time.sleep(float(words[1]))
    broker.send_multipart([b"", b"JOB COMPLETE", client, b"", options.name.encode() + b" did " + job])
    print("done")
if stopping:
    broker.send_multipart([b"", b"DISCONNECT"])
broker.close()
context.term()
