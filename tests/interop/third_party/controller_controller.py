"""A Worker-Controller controller, from the document to the letter: it executes the given steps, and then continues to
answer pulses. It never checks the tasks that pulses name; it prints them.

    controller_controller.py FOLDER [--shifted] STEP...

    register      wait for a worker that has registered; the steps that follow are about it
    do TEXT       set TEXT, fetch-me, fetch
    set TEXT      SET_TASK, with the next task id; `set x*1000` has a thousand bytes
    fetch, status, restart, number N    one control message and its answer; N is any number
    fetch-me, ok, shutdown              wait for such a pulse of it that came after the last one waited for
    forget        know no worker any more, as if it had been started again
    touch FILE, wait FILE               for whoever watches
"""

import argparse
import itertools
import os
import queue
import socket
import threading
import time

import controller_messages as wire

parser = argparse.ArgumentParser()
parser.add_argument("folder")
parser.add_argument("steps", nargs="*")
parser.add_argument("--shifted", action="store_true")
options = parser.parse_intermixed_args()

ERRORS, CONTROLS = wire.numbers("ControllerError", options.shifted), wire.numbers("ControlType", options.shifted)
registered, ids = queue.Queue(), itertools.count(1)
pulses = {}  # of the workers that are known: a queue of the kinds of their pulses
every = {}  # the same of all that there ever were


def answer(kind, worker):
    """Return the error's name, the assigned id, and the queue in which the pulse is put."""
    if kind == "REGISTER":
        worker = next(ids)
        pulses[worker] = every[worker] = queue.Queue()
        return "OK", worker, registered
    if kind not in ("OK", "FETCH_ME", "SHUTDOWN"):
        return "UNKNOWN_TYPE", 0, None
    known = pulses.pop(worker, None) if kind == "SHUTDOWN" else pulses.get(worker)
    return ("OK" if known else "UNKNOWN_ID"), 0, known


def answer_pulses(listening):
    while True:
        connection, _ = listening.accept()
        with connection:
            pulse, _ = wire.receive(connection, wire.WorkerPulse)
            kind = wire.word("PulseType", pulse.type, options.shifted)
            error, worker, waiting = answer(kind, pulse.worker_id)
            wire.tell("pulse", kind, pulse.worker_id, pulse.task_id, pulse.next_pulse, "->", error, worker)
            wire.send(connection, wire.PulseResponse(error=ERRORS[error], worker_id=worker))
        if waiting:
            waiting.put(worker or kind)


class Steps:
    worker = task = 0

    def control(self, name, number, task_id=0, extra=b""):
        path = f"{options.folder}/{self.worker}.sock"
        control = wire.ControlMsg(type=number, extra_size=len(extra), task_id=task_id)
        while True:
            try:
                response, outcome = wire.exchange(path, control, wire.WorkerResponse, extra)
                break
            except (FileNotFoundError, ConnectionRefusedError):  # it listens after our answer
                time.sleep(0.005)
        shown = outcome if len(outcome) < 1000 else f"{len(outcome)} bytes of {set(outcome)}"
        wire.tell(name, "->", wire.word("WorkerError", response.error, options.shifted), response.task_id, shown)

    def wait_for_pulse(self, kind):
        while every[self.worker].get() != kind:
            pass

    def do(self, step):
        name, _, text = step.partition(" ")
        if name == "do":
            for each in (f"set {text}", "fetch-me", "fetch"):
                self.do(each)
        elif name == "register":
            self.worker = registered.get()
        elif name == "set":
            self.task += 1
            byte, _, count = text.partition("*")
            extra = byte.encode() * int(count) if count else text.encode()
            self.control(f"set {self.task}", CONTROLS["SET_TASK"], self.task, extra)
        elif name in ("fetch-me", "ok", "shutdown"):
            self.wait_for_pulse(name.upper().replace("-", "_"))
        elif name == "forget":
            pulses.clear()
        elif name == "touch":
            open(text, "w").close()
        elif name == "wait":
            while not os.path.exists(text):
                time.sleep(0.005)
        else:
            number = CONTROLS[{"status": "GET_STATUS"}.get(name, name.upper())] if name != "number" else int(text)
            self.control(step, number, 99, b"to be ignored")


main = socket.socket(socket.AF_UNIX)
main.bind(f"{options.folder}/main.sock")
main.listen(64)
threading.Thread(target=answer_pulses, args=(main,)).start()
steps = Steps()
for each in options.steps:
    steps.do(each)
    wire.tell("did", each)
