"""Recordings of two ZMTP carriers that complete a handshake with each other."""

from __future__ import annotations

from dragoman.carriers.zmtp import Zmtp


def handshake_between(server: Zmtp, client: Zmtp) -> tuple[bytes, bytes]:
    """Let both complete the handshake. Returns the bytes that the server and that the client received."""
    to_server, to_client = b"", b""
    while server.outgoing or client.outgoing:
        from_server, from_client = b"".join(server.outgoing), b"".join(client.outgoing)
        server.outgoing.clear()
        client.outgoing.clear()
        client.feed(from_server)
        server.feed(from_client)
        to_server += from_client
        to_client += from_server
    return to_server, to_client
