"""A PingPong client: one REQ socket, one job after the other.

    pingpong_client.py ENDPOINT JOB...  [--timeout S]

Prints for each job `answer RESULT` or `error REASON`; `gave up` if nothing came in time.
"""

import argparse

import zmq

parser = argparse.ArgumentParser()
parser.add_argument("endpoint")
parser.add_argument("jobs", nargs="+")
parser.add_argument("--timeout", type=float, default=15)
options = parser.parse_args()

frontend = zmq.Context().socket(zmq.REQ)
frontend.linger = 0
frontend.rcvtimeo = int(options.timeout * 1000)
frontend.connect(options.endpoint)
for job in options.jobs:
    frontend.send(job.encode())
    print("sent", job)
    try:
        answer = frontend.recv_multipart()
    except zmq.Again:
        print("gave up", job)
        raise SystemExit(1) from None
    if len(answer) == 1:
        print("answer", answer[0].decode("utf-8", "replace"))
    else:
        print("error", answer[-1].decode("utf-8", "replace"))
