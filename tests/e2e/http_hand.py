"""A hand-written HTTP worker in a thread: results that a dead broker did not take are sent to the next broker."""

from __future__ import annotations

import json
import threading
import time
from http.client import HTTPException
from pathlib import Path

from chaos_services import result_of, write_down
from survivor import Answer, HttpListener

REST = 0.02  # before a listener that was closed is tried again
LOADING = 503


class HttpWorker(threading.Thread):
    def __init__(self, place: str, executions: Path) -> None:
        super().__init__(daemon=True)
        self.brought = 0  # results that a broker took which had not given the job
        self.troubles: list[Answer] = []
        self._place = place
        self._listener = HttpListener(place)
        self._executions = executions
        self._stopping = threading.Event()
        self.start()

    def stop(self) -> None:
        self._stopping.set()
        self.join(30)
        assert not self.is_alive(), "the HTTP worker ends"
        assert not self.troubles, self.troubles

    def run(self) -> None:
        while not self._stopping.is_set():
            status, _, body = self._ask("/v1/workers", json.dumps({"services": ["tasks"]}).encode())
            if status == 201:
                about = json.loads(body)
                self._serve(f"/v1/workers/{about['id']}", about["token"])
            elif status:
                self.troubles.append((status, {}, body))
                return
        self._listener.close()

    def _serve(self, self_path: str, token: str) -> None:
        """Serve until the broker does not know this worker any more."""
        while not self._stopping.is_set():
            status, headers, payload = self._ask(f"{self_path}/next?wait=0.5", Dragoman_Worker_Token=token)
            if status == 410:
                return
            if status == 200:
                self._do(self_path, token, headers, payload)
        self._ask(self_path, method="DELETE", Dragoman_Worker_Token=token)

    def _do(self, self_path: str, token: str, about: dict[str, str], payload: bytes) -> None:
        job, attempt = about["dragoman-job"], about["dragoman-attempt"]
        write_down(job, int(about["dragoman-attempt-number"]), str(self._executions))
        result = result_of(job, payload)
        is_another = False
        while True:
            status, _, said = self._ask(
                f"{self_path}/result", result, Dragoman_Attempt=attempt, Dragoman_Worker_Token=token
            )
            if status not in (0, LOADING):
                break
            is_another = True
        self.brought += is_another and status == 204
        if status not in (204, 409, 410):  # taken; or too late, for the attempt is over or its broker never wrote it
            self.troubles.append((status, {}, said))

    def _ask(self, path: str, body: bytes = b"", method: str = "POST", **headers: str) -> Answer:
        """Send a request. Status 0: the connection was refused or lost."""
        try:
            answer = self._listener.ask(method, path, body, Content_Type=_type(body), **headers)
        except (OSError, HTTPException):
            self._listener.close()
            answer = 0, {}, b""
        if answer[0] in (0, LOADING):
            time.sleep(REST)
        return answer


def _type(body: bytes) -> str:
    return "application/json" if body.startswith(b"{") else "application/octet-stream"
