"""A Powerhose master, from the document alone, to the letter.

    powerhose_master.py JOB... [--at ENDPOINT] [--timeout S] [--wake S] [--mute] [--stay]

Gives each job in turn to the longest idle worker. Prints its place, what it hears, and `result ID RESULT` for each
job. With --mute it answers no PING; with --stay it goes on answering them when the jobs are done.
"""

import argparse
import signal

import zmq

parser = argparse.ArgumentParser()
parser.add_argument("jobs", nargs="*")
parser.add_argument("--at", default="tcp://127.0.0.1:*")
parser.add_argument("--timeout", type=float, default=5, help="for a job")
parser.add_argument("--wake", type=float, default=1, help="for GIVE")
parser.add_argument("--mute", action="store_true")
parser.add_argument("--stay", action="store_true")
options = parser.parse_args()
context = zmq.Context()
context.linger = 0
registration = context.socket(zmq.REP)
registration.bind(options.at)
print("at", registration.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0"))
available = []  # endpoints, longest idle first
busy = {}  # endpoint -> its socket


def receive():
    """Receive one message of a worker."""
    word, _, endpoint = registration.recv().decode("utf-8", "replace").partition(":::")
    print("heard", word, endpoint)
    if options.mute:
        signal.pause()
    if word == "PING" and endpoint not in available and endpoint not in busy:
        available.append(endpoint)
        print("registered", endpoint)
    if word == "REMOVE" and endpoint in available:
        available.remove(endpoint)
    registration.send({"PING": b"PONG", "REMOVE": b"REMOVED"}.get(word, b"ERROR"))


def answer(worker, seconds):
    """Return the worker's answer, or None after the time-out; pings are answered meanwhile."""
    for _ in range(int(seconds * 100)):
        if registration.poll(0):
            receive()
        if worker.poll(10):
            return worker.recv()
    return None


def execute(number, data):
    while True:
        while not available:
            receive()
        endpoint = available.pop(0)
        worker = busy[endpoint] = context.socket(zmq.REQ)
        worker.connect(endpoint)
        worker.send(b"WAKE")
        if answer(worker, options.wake) == b"GIVE":
            worker.send(b"JOB:::%d:::%s" % (number, data.encode()))
            result = answer(worker, options.timeout)
            if result is not None:
                available.append(endpoint)
                worker.close()
                del busy[endpoint]
                return result
        print("laggy", endpoint)
        worker.close()
        del busy[endpoint]


for number, data in enumerate(options.jobs):
    print("result", number, execute(number, data).decode("utf-8", "replace"))
while options.stay:
    receive()
