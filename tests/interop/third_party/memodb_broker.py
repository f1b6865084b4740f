"""A MemoDB broker, from the document to the letter and no further: after any error there is no reply.

    memodb_broker.py URL HEARTBEAT

A rep socket, with a thread and a context for each request that may wait. HEARTBEAT is in seconds. Prints what it hears.
"""

import io
import secrets
import sys
import threading

import cbor2
import pynng

READY, JOB, RESULT, HEARTBEAT, DISCONNECT = range(1, 6)
changed = threading.Condition()  # everything below is touched only by whoever holds it
services = {}  # of each worker, by its id
waiting = []  # jobs, oldest first
working = {}  # jobs by the id of the worker that has them


class Job:
    def __init__(self, service, timeout, payload):
        self.service, self.timeout, self.payload, self.result = service, timeout, payload, None


def write(*fields, payload=b""):
    return cbor2.dumps(["memo01", *fields], canonical=True) + payload


def run(job):
    """Return a client's reply: the result, or nothing."""
    waiting.append(job)
    changed.notify_all()
    changed.wait_for(lambda: job not in waiting)
    changed.wait_for(lambda: job.result is not None, None if job.timeout < 0 else job.timeout / 1000)
    return None if job.result is None else write(RESULT, b"", payload=job.result)


def next_job(worker):
    """Return a worker's reply: a job, or a heartbeat if there is none in time."""
    if not changed.wait_for(lambda: any(job.service in services[worker] for job in waiting), float(sys.argv[2])):
        return write(HEARTBEAT, worker)
    job = working[worker] = next(job for job in waiting if job.service in services[worker])
    waiting.remove(job)
    changed.notify_all()
    return write(JOB, worker, job.service, job.timeout, payload=job.payload)


def answer(kind, worker, fields, payload):
    if kind == JOB:
        return run(Job(*fields, payload))
    if kind == READY:
        worker = secrets.token_bytes(4)
        services[worker] = fields[0]
    elif worker not in services or (kind == RESULT) != (worker in working):  # out of sync
        return write(DISCONNECT, worker)
    elif kind == RESULT:
        working.pop(worker).result = payload
        changed.notify_all()
    return write(DISCONNECT, worker) if fields == [True] else next_job(worker)


def serve(context):
    while True:
        stream = io.BytesIO(context.recv())
        _, kind, worker, *fields = cbor2.load(stream)
        print(" ".join(map(str, ("heard", kind, worker.hex(), *fields))) + "\n", end="", flush=True)  # in one piece
        with changed:
            reply = answer(kind, worker, fields, stream.read())
        if reply is not None:
            context.send(reply)


broker = pynng.Rep0(listen=sys.argv[1], recv_max_size=0)
print("listens", broker.listeners[0].local_address)
for context in [broker.new_context() for _ in range(16)]:
    threading.Thread(target=serve, args=(context,)).start()
