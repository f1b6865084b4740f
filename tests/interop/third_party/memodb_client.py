"""A simple MemoDB client, from the document alone; or many of them over one connection.

    memodb_client.py URL SERVICE JOB... [--at-once] [--timeout S] [--resend S] [--patience S]

Sends one job after the other, or with --at-once all of them, each in an NNG context of its own. --timeout is what the
broker is told; --resend is after what time NNG asks again by itself. Prints `answer RESULT` for each job, in order, or
`gave up JOB` when no answer came within --patience.
"""

import argparse
import io

import cbor2
import pynng

JOB, RESULT = 2, 3

parser = argparse.ArgumentParser()
parser.add_argument("url")
parser.add_argument("service")
parser.add_argument("jobs", nargs="+")
parser.add_argument("--at-once", action="store_true")
parser.add_argument("--timeout", type=float, default=60)
parser.add_argument("--resend", type=float, default=60)
parser.add_argument("--patience", type=float, default=15)
options = parser.parse_args()


def ask(context, job):
    header = ["memo01", JOB, b"", options.service, int(options.timeout * 1000)]
    context.send(cbor2.dumps(header, canonical=True) + job.encode())
    print("sent", job)


def receive(context, job):
    try:
        stream = io.BytesIO(context.recv())
    except pynng.Timeout:
        print("gave up", job)
        return False
    version, kind, client, *rest = cbor2.load(stream)
    assert (version, kind, client, rest) == ("memo01", RESULT, b"", [])
    print("answer", stream.read().decode("utf-8", "replace"))
    return True


broker = pynng.Req0(
    resend_time=int(options.resend * 1000),
    recv_timeout=int(options.patience * 1000),
    recv_max_size=0,
)
broker.reconnect_time_min = broker.reconnect_time_max = 20
broker.dial(options.url, block=False)
if options.at_once:
    contexts = [broker.new_context() for _ in options.jobs]
    for context, job in zip(contexts, options.jobs, strict=True):
        ask(context, job)
    heard = [receive(context, job) for context, job in zip(contexts, options.jobs, strict=True)]
    for context in contexts:
        context.close()
else:
    heard = []
    for job in options.jobs:
        ask(broker, job)
        heard.append(receive(broker, job))
broker.close()
raise SystemExit(0 if all(heard) else 1)
