"""Owners of TCP sockets on this machine: the user id of the socket at the other end of a loopback connection.

Linux reports it through NETLINK_SOCK_DIAG (sock_diag(7), linux/inet_diag.h), to any user and about any user's sockets.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from typing import Any, Final

NETLINK_SOCK_DIAG: Final = 4
SOCK_DIAG_BY_FAMILY: Final = 20
NLMSG_ERROR: Final = 2
NLM_F_REQUEST: Final = 1
NO_COOKIE: Final = 0xFFFFFFFF
ALL_STATES: Final = 0xFFFFFFFF
ESTABLISHED: Final = 1  # of the states of TCP

HEADER: Final = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence number, port
REQUEST: Final = struct.Struct("=BBBxI")  # inet_diag_req_v2: family, protocol, extensions, states
PORTS: Final = struct.Struct("!HH")  # inet_diag_sockid: ports; both addresses follow, 16 bytes each
INTERFACE: Final = struct.Struct("=III")  # inet_diag_sockid: interface, cookie
ANSWER: Final = struct.Struct(
    "=BBxx4s16s16s24xII"
)  # inet_diag_msg: family, state, ports, both addresses; user id, inode
ERROR: Final = struct.Struct("=i")
MOST_BYTES: Final = 8192
MAPPED: Final = bytes(10) + b"\xff\xff"  # before an IPv4 address in an IPv6 address
OVERFLOW_FILE: Final = "/proc/sys/kernel/overflowuid"

SocketName = tuple[Any, ...]  # of getpeername and getsockname: host, port


def pair_of(peer: SocketName, local: SocketName) -> bytes:
    """Return the ports and addresses of a socket that is bound to `peer` and connected to `local`, in 36 bytes."""
    return PORTS.pack(peer[1], local[1]) + _packed(peer[0]) + _packed(local[0])


def _packed(host: str) -> bytes:
    """Return the address as IPv6: an IPv4 address is mapped. A zone (`%eth0`) is left out."""
    if ":" in host:
        return socket.inet_pton(socket.AF_INET6, host.partition("%")[0])
    return MAPPED + socket.inet_pton(socket.AF_INET, host)


def question(pair: bytes, number: int) -> bytes:
    """Return the request for one socket."""
    family = socket.AF_INET6
    if pair[4:16] == pair[20:32] == MAPPED:  # the kernel keeps these among its IPv4 sockets
        family = socket.AF_INET
        pair = pair[:4] + pair[16:20] + bytes(12) + pair[32:36] + bytes(12)
    body = REQUEST.pack(family, socket.IPPROTO_TCP, 0, ALL_STATES) + pair + INTERFACE.pack(0, NO_COOKIE, NO_COOKIE)
    return HEADER.pack(HEADER.size + len(body), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, number, 0) + body


def number_of(answer: bytes) -> int:
    """Return the number of the question that this answers, or -1."""
    return int(HEADER.unpack_from(answer)[3]) if len(answer) >= HEADER.size else -1


def read_answer(answer: bytes, pair: bytes) -> int | None:
    """Return the user id of the socket, or None if the answer does not prove one. OSError: there is no answer.

    If no connected socket has these addresses, the kernel answers with one that listens on the port of the peer. For a
    socket that no process holds any more, it reports user id 0 and inode 0. Neither proves anything.
    """
    kind = HEADER.unpack_from(answer)[1] if len(answer) >= HEADER.size else None
    if kind == NLMSG_ERROR and len(answer) >= HEADER.size + ERROR.size:
        code = -ERROR.unpack_from(answer, HEADER.size)[0]
        if code == errno.ENOENT:
            return None
        raise OSError(code, os.strerror(code))
    if kind != SOCK_DIAG_BY_FAMILY or len(answer) < HEADER.size + ANSWER.size:
        raise OSError(errno.EBADMSG, "the kernel's answer about a socket cannot be read")
    family, state, ports, source, target, uid, inode = ANSWER.unpack_from(answer, HEADER.size)
    if family == socket.AF_INET:
        source, target = MAPPED + source[:4], MAPPED + target[:4]
    is_proof = ports + source + target == pair and state == ESTABLISHED and inode
    return int(uid) if is_proof else None


def overflow_uid() -> int:
    """Return the user id that the kernel reports in place of all users that have none here."""
    try:
        with open(OVERFLOW_FILE) as file:
            return int(file.read())
    except (OSError, ValueError):
        return 65_534


class PeerGone(ConnectionError):
    """The connection has ended."""


class SocketOwners:
    """Asks the kernel. Raises OSError if this system has no NETLINK_SOCK_DIAG."""

    def __init__(self) -> None:
        family = getattr(socket, "AF_NETLINK", None)
        if family is None:
            raise OSError(errno.EAFNOSUPPORT, "this system has no AF_NETLINK")
        self._kernel = socket.socket(family, socket.SOCK_RAW, NETLINK_SOCK_DIAG)
        self._kernel.setblocking(False)  # an answer is queued before `send` returns
        self._number = 0

    def uid_of_peer(self, connected: socket.socket) -> int | None:
        """Return the user id of the process that opened the other end, or None if it cannot be proved.

        Raises PeerGone if the connection has ended. Call it before anything is read. A client may send, reset the
        connection, and leave its port to a socket of another user, which the kernel would then report. So the name is
        the one that the kernel has now, not that of `accept`, and the connection must still be open after the answer.
        """
        try:
            peer, local = connected.getpeername(), connected.getsockname()
        except OSError as error:
            raise PeerGone(error.errno, error.strerror) from None
        uid = self.uid_between(peer, local)
        if not _is_established(connected):
            raise PeerGone(errno.ENOTCONN, os.strerror(errno.ENOTCONN))
        return uid

    def uid_between(self, peer: SocketName, local: SocketName) -> int | None:
        """Return the user id of the socket that is bound to `peer` and connected to `local`, or None."""
        self._number = (self._number + 1) & 0xFFFFFFFF
        pair = pair_of(peer, local)
        self._kernel.send(question(pair, self._number))
        answer = self._kernel.recv(MOST_BYTES)
        while number_of(answer) != self._number:  # of an earlier question, which ended with an error
            answer = self._kernel.recv(MOST_BYTES)
        return read_answer(answer, pair)

    def test(self, host: str) -> None:
        """Ask about a connection of this process to itself, at this address. Raises OSError if the answer is wrong."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as listening, socket.socket(family, socket.SOCK_STREAM) as own:
            listening.bind((host, 0))
            listening.listen()
            own.settimeout(5.0)
            own.connect(listening.getsockname())
            uid = self.uid_between(own.getsockname(), own.getpeername()) if _is_established(own) else None
        if uid != os.geteuid():
            reported = "no user id" if uid is None else f"user id {uid}"
            raise OSError(errno.EBADMSG, f"the kernel reports {reported} for a socket of user id {os.geteuid()}")

    def close(self) -> None:
        self._kernel.close()


def _is_established(connected: socket.socket) -> bool:
    return bool(connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == ESTABLISHED)
