"""Number of sent bytes that a disconnected remote side cannot have read, according to the kernel.

Only certain cases count: an unread job is given to another worker, and must not run twice.
"""

from __future__ import annotations

import errno
import socket
import sys

from dragoman.streams.sockets import AF_UNIX, queued_bytes

TCP_CLOSE = 7  # tcp_states.h: the connection was reset


def unread_bytes(ended: socket.socket, error: int) -> int:
    """Return the number of bytes at the end of the stream that were certainly not read. `error` is an errno, 0 for EOF.

    Unix: closing with unread bytes resets the connection, so at least the last byte was not read.
    TCP: the FIN of the remote side acknowledges the bytes its kernel accepted. Later bytes are answered with a reset
    and not read. A reset without a FIN proves nothing: the process may have read everything before it was killed.
    """
    if sys.platform != "linux":
        return 0
    try:
        if ended.family == AF_UNIX:
            return 1 if error == errno.ECONNRESET else 0
        if error not in (0, errno.EPIPE):
            return 0
        state = ended.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
        if state != TCP_CLOSE:
            return 0
        return queued_bytes(ended)
    except OSError:
        return 0
