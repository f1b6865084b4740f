"""A Majordomo client, from RFC 7 alone: one REQ socket, one job after the other.

    majordomo_client.py ENDPOINT SERVICE JOB... [--timeout S]

A job's frames have `|` between them. Prints `answer` and the reply's frames, likewise; `gave up` if none came in time.
"""

import argparse

import zmq

HEADER = b"MDPC01"

parser = argparse.ArgumentParser()
parser.add_argument("endpoint")
parser.add_argument("service")
parser.add_argument("jobs", nargs="+")
parser.add_argument("--timeout", type=float, default=15)
options = parser.parse_args()

context = zmq.Context()
broker = context.socket(zmq.REQ)  # it puts the empty frame in front
broker.linger = 0
broker.rcvtimeo = int(options.timeout * 1000)
broker.connect(options.endpoint)
for job in options.jobs:
    broker.send_multipart([HEADER, options.service.encode(), *job.encode().split(b"|")])
    print("sent", job)
    try:
        header, service, *body = broker.recv_multipart()
    except zmq.Again:
        print("gave up", job)
        raise SystemExit(1) from None
    assert (header, service) == (HEADER, options.service.encode())
    print("answer", b"|".join(body).decode("utf-8", "replace"))
