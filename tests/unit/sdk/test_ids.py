"""Job ids."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import uuid

from dragoman.sdk.ids import POOL, new_job_id


def test_an_id_is_a_uuid_of_version_7_and_of_now() -> None:
    before = time.time_ns() // 1_000_000
    made = [uuid.UUID(bytes=new_job_id()) for _ in range(2 * POOL)]
    after = time.time_ns() // 1_000_000
    assert {(each.version, each.variant) for each in made} == {(7, uuid.RFC_4122)}
    assert all(before <= each.int >> 80 <= after for each in made)


def test_no_id_is_made_twice_by_many_threads() -> None:
    made: list[bytes] = []
    threads = [threading.Thread(target=lambda: made.extend(new_job_id() for _ in range(3 * POOL))) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len({id[6:] for id in made}) == len(made) == 12 * POOL


FORKING = """
import os
from dragoman.sdk import ids
ids.new_job_id()
reading, writing = os.pipe()
child = os.fork()
drawn = [ids.new_job_id()[6:] for _ in range(5)]
if not child:
    os.write(writing, b"".join(drawn))
    os._exit(0)
os.waitpid(child, 0)
there = os.read(reading, 50)
print(len(there), any(each in there for each in drawn))
"""


def test_a_forked_child_draws_its_own() -> None:
    said = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, text=True, check=True)
    assert said.stdout == "50 False\n"
