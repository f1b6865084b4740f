"""A native worker, from the dialect's page alone: one thread, with the announced capacity.

    native_worker.py URL SERVICE... [--name NAME] [--capacity N] [--jobs N]

The job `sleep S …` takes S seconds, `fail …` fails, `parts …` says PROGRESS and a PART first; all others are answered
with `NAME did JOB`. With --jobs it says DRAIN after the Nth, gives back what it has not begun, and ends at BYE.
"""

import argparse
import json
import struct
import time

import zmq

HELLO, WELCOME, HEARTBEAT, DRAIN, BYE = b"\x01", b"\x02", b"\x04", b"\x05", b"\x06"
RESULT, FAILED, PROGRESS, PART, JOB, RECALL, RETURN = b"\x20", b"\x21", b"\x22", b"\x23", b"\x30", b"\x31", b"\x32"

parser = argparse.ArgumentParser()
parser.add_argument("url")
parser.add_argument("services", nargs="+")
parser.add_argument("--name", default="worker")
parser.add_argument("--capacity", type=int, default=1)
parser.add_argument("--jobs", type=int, default=0)
options = parser.parse_args()

broker = zmq.Context().socket(zmq.DEALER)
broker.linger = 1000
broker.connect(options.url)
about = {"services": options.services, "capacity": options.capacity, "name": options.name}
broker.send_multipart([HELLO + b"\x01\x02", json.dumps(about).encode()])
heartbeat, at_hand, done, is_leaving = 2.5, {}, 0, False


def work(token, payload):
    words = payload[:40].split()
    if words[:1] == [b"sleep"]:
        time.sleep(float(words[1]))
    if words[:1] == [b"fail"]:
        broker.send_multipart([FAILED + b"\x01" + token, b"Failed", b"as it was told to", b"the detail"])
        return
    if words[:1] == [b"parts"]:
        broker.send_multipart([PROGRESS + token, b'{"done": 1, "total": 2}'])
        broker.send_multipart([PART + token, b"the first part, "])
    broker.send_multipart([RESULT + token, options.name.encode() + b" did " + payload])


while True:
    if broker.poll(0 if at_hand else heartbeat * 1000):
        head, *frames = broker.recv_multipart()
        word = head[:1]
        print("heard", word.hex())
        if word == WELCOME:
            heartbeat = json.loads(frames[0])["heartbeat"]
        elif word == JOB:
            records = struct.iter_unpack(">16s16sHI", frames[0])
            jobs = {token: payload for (token, *_), payload in zip(records, frames[1:], strict=True)}
            if is_leaving:
                broker.send_multipart([RETURN, b"".join(jobs)])
            else:
                at_hand |= jobs
        elif word == RECALL and at_hand.pop(head[1:17], None) is not None:
            broker.send_multipart([RETURN, head[1:17]])
        elif word == BYE:
            break
    elif at_hand:
        token = next(iter(at_hand))
        work(token, at_hand.pop(token))
        done += 1
        if done == options.jobs:
            is_leaving = True
            broker.send(DRAIN)
            if at_hand:
                broker.send_multipart([RETURN, b"".join(at_hand)])
                at_hand = {}
    else:
        broker.send(HEARTBEAT)
broker.close()
