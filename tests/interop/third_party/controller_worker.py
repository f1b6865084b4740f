"""A Worker-Controller worker on the protobuf runtime, from the document alone: a thread runs tasks, so that it can
answer meanwhile.

    controller_worker.py FOLDER [--shifted] [--next-pulse S] [--stale]

A task is upper-cased, but for `fail TEXT`, `hang`, `sleep S TEXT`, and `wait FILE TEXT`, which waits for the file.
--stale: it names the task before, never the one in hand. Prints what it says and hears.
"""

import argparse
import os
import socket
import threading
import time

import controller_messages as wire

parser = argparse.ArgumentParser()
parser.add_argument("folder")
parser.add_argument("--shifted", action="store_true")
parser.add_argument("--next-pulse", type=int, default=2)
parser.add_argument("--stale", action="store_true")
options = parser.parse_args()

PULSES, ERRORS = wire.numbers("PulseType", options.shifted), wire.numbers("WorkerError", options.shifted)
pulsing = threading.Lock()  # one pulse at a time


class Worker:
    def __init__(self):
        self.id = self.task = self.before = 0
        self.is_held, self.error, self.outcome = False, None, b""

    @property
    def named(self):
        return self.before if options.stale else self.task

    def pulse(self, kind):
        pulse = wire.WorkerPulse(
            type=PULSES[kind], worker_id=self.id, task_id=self.named, next_pulse=options.next_pulse
        )
        with pulsing:
            response, _ = wire.exchange(f"{options.folder}/main.sock", pulse, wire.PulseResponse)
        error = wire.word("ControllerError", response.error, options.shifted)
        wire.tell("pulse", kind, self.named, "->", error, response.worker_id)
        if kind == "REGISTER":
            assert error == "OK"
            self.id = response.worker_id
        elif error == "UNKNOWN_ID" and kind != "SHUTDOWN":
            os._exit(9)  # whoever has started us starts us again

    def pulse_on(self):
        while True:
            time.sleep(options.next_pulse / 2)
            self.pulse("FETCH_ME" if self.is_held and self.error else "OK")

    def work(self, task):
        first, _, rest = task.decode("utf-8", "replace").partition(" ")
        if first == "hang":
            return
        if first == "sleep":
            seconds, _, rest = rest.partition(" ")
            time.sleep(float(seconds))
        if first == "wait":
            file, _, rest = rest.partition(" ")
            while not os.path.exists(file):
                time.sleep(0.005)
        self.outcome = rest.encode() if first in ("fail", "sleep", "wait") else task.upper()
        self.error = "TASK_FAILED" if first == "fail" else "OK"
        self.pulse("FETCH_ME")

    def answer(self, kind, task_id, extra):
        """Return the error's name, and the extra bytes."""
        if kind == "SET_TASK":
            if self.is_held:
                return "BUSY", b""
            self.before, self.task, self.is_held, self.error = self.task, task_id, True, None
            threading.Thread(target=self.work, args=(extra,), daemon=True).start()
        elif kind == "FETCH":
            if not self.is_held or self.error is None:
                return "NO_FETCH", b""
            self.is_held = False
            return self.error, self.outcome
        return ("OK", b"") if kind in ("SET_TASK", "GET_STATUS", "RESTART") else ("FAILED", b"what?")

    def live(self):
        self.pulse("REGISTER")
        path = f"{options.folder}/{self.id}.sock"
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(path)
        listening.listen()
        threading.Thread(target=self.pulse_on, daemon=True).start()
        kind = ""
        while kind != "RESTART":
            connection, _ = listening.accept()
            with connection:
                control, extra = wire.receive(connection, wire.ControlMsg)
                kind = wire.word("ControlType", control.type, options.shifted)
                error, outcome = self.answer(kind, control.task_id, extra)
                wire.tell("control", kind, control.task_id, "->", error)
                response = wire.WorkerResponse(error=ERRORS[error], task_id=self.named, extra_size=len(outcome))
                wire.send(connection, response, outcome)
        self.pulse("SHUTDOWN")
        os.unlink(path)


Worker().live()
