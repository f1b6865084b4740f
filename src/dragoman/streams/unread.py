"""Asks the kernel how much of what was sent a peer that has gone cannot have read.

Only certain knowledge counts: a job that is taken for unread is given to another worker, and must not run twice.
"""

from __future__ import annotations

import errno
import fcntl
import socket
import struct
import sys
import termios

TCP_CLOSE = 7  # tcp_states.h: the connection was reset


def unread_bytes(gone: socket.socket, error: int) -> int:
    """How many bytes at the end of the stream the peer has certainly not read. `error`: what ended it, 0 for its end.

    Unix: a peer that closes with bytes unread resets the connection, so at least the last byte was not read.
    TCP: a peer that closes says up to where its kernel has accepted our bytes. What comes after that is answered with a
    reset and reaches nobody. A reset without such an end proves nothing: the peer may have read all and been killed.
    """
    if sys.platform != "linux":
        return 0
    try:
        if gone.family == socket.AF_UNIX:
            return 1 if error == errno.ECONNRESET else 0
        if error not in (0, errno.EPIPE):
            return 0
        state = gone.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
        if state != TCP_CLOSE:
            return 0
        unaccepted: int = struct.unpack("i", fcntl.ioctl(gone, termios.TIOCOUTQ, bytes(4)))[0]
    except OSError:
        return 0
    return unaccepted
