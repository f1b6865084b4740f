"""A native client, from the dialect's page alone: it sends all jobs in one message and waits for their outcomes.

    native_client.py URL SERVICE JOB... [--deadline S] [--wait] [--break-off]

With --break-off it closes its connection as soon as it has sent them, comes back on another one, and resumes. Prints
for each job, in the order they were given, `answer RESULT` or `OUTCOME TYPE: MESSAGE`, and parts as they come.
"""

import argparse
import json
import secrets
import struct

import zmq

HELLO, WELCOME, BYE, SUBMIT, RESUME, MISSING = b"\x01", b"\x02", b"\x06", b"\x10", b"\x14", b"\x15"
RESULT, FAILED, PROGRESS, PART = b"\x20", b"\x21", b"\x22", b"\x23"
OUTCOMES = ("", "failed", "timed out", "lost", "cancelled", "refused")

parser = argparse.ArgumentParser()
parser.add_argument("url")
parser.add_argument("service")
parser.add_argument("jobs", nargs="+")
parser.add_argument("--deadline", type=float, default=0)
parser.add_argument("--wait", action="store_true")
parser.add_argument("--break-off", action="store_true")
options = parser.parse_args()

session, epoch = secrets.token_hex(16), None
jobs = {secrets.token_bytes(16): job.encode() for job in options.jobs}
outcomes = {}


def connect():
    global epoch
    broker = zmq.Context.instance().socket(zmq.DEALER)
    broker.connect(options.url)
    about = {"session": session} | ({"epoch": epoch} if epoch else {})
    broker.send_multipart([HELLO + b"\x01\x01", json.dumps(about).encode()])
    head, welcome = broker.recv_multipart()
    assert head[:2] == WELCOME + b"\x01"
    epoch = json.loads(welcome)["epoch"]
    print("resumed" if json.loads(welcome)["resumed"] else "welcome")
    return broker


def submit(broker, ids):
    head = struct.pack(">cBBBIII", SUBMIT, options.wait, 255, 0, int(options.deadline * 1000), 0, 0)
    payloads = [jobs[id] for id in ids]
    broker.send_multipart([head + options.service.encode(), b"".join(ids), *payloads])


def names(frame):
    return [frame[at : at + 16] for at in range(0, len(frame), 16)]


broker = connect()
submit(broker, list(jobs))
if options.break_off:
    broker.close(linger=1000)
    broker = connect()
    broker.send_multipart([RESUME, b"".join(jobs)])
while len(outcomes) < len(jobs):
    head, *frames = broker.recv_multipart()
    if head[:1] == RESULT:
        outcomes |= {id: "answer " + result.decode() for id, result in zip(names(head[1:]), frames, strict=True)}
    elif head[:1] == FAILED:
        type, message, _ = (frame.decode() for frame in frames)
        outcomes[head[2:18]] = f"{OUTCOMES[head[1]]} {type}: {message}"
    elif head[:1] in (PROGRESS, PART):
        print("part" if head[:1] == PART else "progress", int.from_bytes(head[17:19], "big"), frames[0].decode())
    elif head[:1] == MISSING:
        print("missing", len(names(frames[0])))
        submit(broker, names(frames[0]))
print(*(outcomes[id] for id in jobs), sep="\n")
broker.send(BYE)
broker.close(linger=1000)
