"""Steps of tests about native clients that reconnect."""

from __future__ import annotations

from .world import SECRET, End, World, names, result


def resume(world: World, *ids: bytes, secret: str = SECRET) -> End:
    """Reconnect the client, and resume these jobs."""
    again, is_resumed = world.resumed(secret)
    assert is_resumed
    again.receive(names("RESUME", *ids))
    world.run_once()
    return again


def done(world: World, worker: End, client: End, payload: bytes = b"DONE") -> bytes:
    """Run a job to its end. Returns its id; its outcome is on the way."""
    token, id = world.running(worker, client)
    worker.say(*result((token, payload)))
    return id
