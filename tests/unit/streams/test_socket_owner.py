"""The bytes of questions to the kernel about the owner of a socket, and of its answers."""

from __future__ import annotations

import errno
import socket
import struct
from typing import Any

import pytest

from case_tables import check_every_row
from dragoman.streams import socket_owner
from dragoman.streams.socket_owner import number_of, overflow_uid, pair_of, question, read_answer

V4 = (("127.0.0.1", 40_000), ("127.0.0.1", 7400))
V6 = (("::1", 40_000, 0, 0), ("::1", 7400, 0, 0))
MAPPED = (("::ffff:127.0.0.1", 40_000, 0, 0), ("::ffff:127.0.0.1", 7400, 0, 0))
PORTS = "9c401ce8"  # 40000 and 7400, big-endian
LOOPBACK = "7f000001"
FIN_WAIT1, LISTEN = 4, 10


def answer(names: Any = V4, *, uid: int = 1000, inode: int = 77, state: int = 1, number: int = 5) -> bytes:
    """An answer as the kernel writes it; longer than needed, because attributes follow."""
    (peer, peer_port, *_), (local, local_port, *_) = names
    family = socket.AF_INET6 if ":" in peer else socket.AF_INET
    body = struct.pack("=BBBB", family, state, 0, 0) + struct.pack("!HH", peer_port, local_port)
    body += b"".join(socket.inet_pton(family, each).ljust(16, b"\0") for each in (peer, local))
    body += struct.pack("=III", 1, 0xAAAA, 0xBBBB) + struct.pack("=IIIII", 9, 8, 7, uid, inode)
    body += struct.pack("=HHI", 8, 15, 0)
    return struct.pack("=IHHII", 16 + len(body), 20, 0, number, 4242) + body


def failure(code: int) -> bytes:
    return struct.pack("=IHHII", 36, 2, 0, 5, 4242) + struct.pack("=i", -code) + bytes(16)


def little(number: int, size: int = 4) -> str:
    return struct.pack("=I" if size == 4 else "=H", number).hex()


def test_a_question_names_exactly_one_socket() -> None:
    def check(names: Any, family: int, addresses: str) -> None:
        request = bytes([family, socket.IPPROTO_TCP, 0, 0]).hex() + "ffffffff"
        head = little(72) + little(20, 2) + little(1, 2) + little(5) + little(0)
        expected = head + request + PORTS + addresses + little(0) + "ff" * 8
        assert question(pair_of(*names), 5).hex() == expected

    ipv4 = (LOOPBACK + "00" * 12) * 2
    check_every_row(
        check,
        [(V4, socket.AF_INET, ipv4), (MAPPED, socket.AF_INET, ipv4), (V6, socket.AF_INET6, ("00" * 15 + "01") * 2)],
    )


def test_a_zone_is_not_part_of_an_address() -> None:
    assert pair_of(("fe80::1%eth0", 1), ("::1", 2)) == pair_of(("fe80::1", 1), ("::1", 2))


def test_the_owner_of_a_connected_socket_is_its_user() -> None:
    def check(asked: Any, answered: Any) -> None:
        assert read_answer(answer(answered), pair_of(*asked)) == 1000

    # A socket of IPv6 that is connected to an IPv4 address is an answer to both spellings.
    check_every_row(check, [(V4, V4), (V6, V6), (V4, MAPPED), (MAPPED, MAPPED), (MAPPED, V4)])


def test_an_answer_that_is_no_proof_names_no_user() -> None:
    def check(answered: bytes) -> None:
        assert read_answer(answered, pair_of(*V4)) is None

    (host, _), local = V4
    rows = [
        answer(uid=0, inode=0),  # no process holds the socket any more
        answer(inode=0),
        answer(state=FIN_WAIT1),
        answer(state=LISTEN),
        answer(((host, 40_000), (host, 0)), state=LISTEN),  # in place of a connected socket that does not exist
        answer(((host, 40_001), local)),
        answer((V4[0], (host, 7401))),
        answer((("127.0.0.2", 40_000), local)),
        answer((V4[0], ("127.0.0.2", 7400))),
        answer(V6),
        failure(errno.ENOENT),
    ]
    check_every_row(check, [(row,) for row in rows])


def test_an_error_of_the_kernel_is_an_error() -> None:
    with pytest.raises(OSError, match="Operation not permitted") as raised:
        read_answer(failure(errno.EPERM), pair_of(*V4))
    assert raised.value.errno == errno.EPERM


def test_an_answer_that_is_cut_short_is_an_error() -> None:
    whole = answer()[: 16 + 72]
    assert read_answer(whole, pair_of(*V4)) == 1000

    def check(size: int) -> None:
        with pytest.raises(OSError, match="cannot be read"):
            read_answer(whole[:size], pair_of(*V4))

    check_every_row(check, [(size,) for size in range(len(whole))])


def test_an_answer_has_the_number_of_its_question() -> None:
    assert number_of(answer(number=9)) == 9
    assert number_of(b"") == -1


def test_the_overflow_user_is_the_one_of_this_system(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "overflowuid"
    monkeypatch.setattr(socket_owner, "OVERFLOW_FILE", str(file))
    assert overflow_uid() == 65_534  # where the system does not have the file
    file.write_text("99\n")
    assert overflow_uid() == 99
