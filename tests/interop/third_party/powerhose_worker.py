"""A Powerhose worker, from the document alone: one thread, silent while it works.

    powerhose_worker.py MASTER [--at ENDPOINT] [--name NAME] [--ping S] [--attempts N] [--jobs N] [--no-id]

The job `sleep S …` takes S seconds, `wait FILE` ends when there is that file,
`size N` gives N bytes; all others are answered at once with `NAME did JOB`. It
says REMOVE when it is to end, or has done N jobs. Without a PONG it connects anew, and kills itself after N attempts.
"""

import argparse
import os
import signal
import time

import zmq

parser = argparse.ArgumentParser()
parser.add_argument("master")
parser.add_argument("--at", default="tcp://127.0.0.1:*", help="its own socket")
parser.add_argument("--name", default="worker")
parser.add_argument("--ping", type=float, default=0.2)
parser.add_argument("--attempts", type=int, default=10)
parser.add_argument("--jobs", type=int, default=0, help="leave after so many")
parser.add_argument("--no-id", action="store_true", help="leave the job's id out of JOBRES")
options = parser.parse_args()
context = zmq.Context()
context.linger = 0
work = context.socket(zmq.REP)
work.bind(options.at)
endpoint = work.getsockopt(zmq.LAST_ENDPOINT).rstrip(b"\0")
if options.at.startswith("ipc://") and not options.at.startswith("ipc:///"):
    endpoint = options.at.encode()  # as it was told, relative
over = []
signal.signal(signal.SIGTERM, lambda *_: over.append(True))


def say(word):
    """Send a message to the master, on a new socket each time it does not answer."""
    for _ in range(options.attempts):
        master = context.socket(zmq.REQ)
        master.connect(options.master)
        master.send(word + b":::" + endpoint)
        answer = master.recv() if master.poll(500) else None
        master.close()
        if answer is not None:
            print(answer.decode())
            return answer
        print("no answer")
    print("suicide")
    raise SystemExit(3)


def do(data):
    words = data[:400].split()
    print("job", data[:40].decode("utf-8", "replace"))
    if words[:1] == [b"sleep"]:
        time.sleep(float(words[1]))
    while words[:1] == [b"wait"] and not os.path.exists(words[1]):
        time.sleep(0.005)
    if words[:1] == [b"size"]:
        return b"x" * int(words[1])
    return options.name.encode() + b" did " + data


print("at", endpoint.decode())
done = 0
pinged = -options.ping
while not over:
    if time.monotonic() - pinged >= options.ping:
        pinged = time.monotonic()
        if say(b"PING") == b"ERROR":
            raise SystemExit("the master does not want us")
    if work.poll(20):
        word = work.recv()
        if word == b"WAKE":
            work.send(b"GIVE")
        else:
            _, job, data = word.split(b":::", 2)
            work.send(b":::".join([b"JOBRES", do(data)] if options.no_id else [b"JOBRES", job, do(data)]))
            done += 1
            if done == options.jobs:
                break
say(b"REMOVE")
