"""The four messages of the Worker-Controller document on the protobuf runtime, and their form on a socket.

8 bytes, little-endian: how many the message has; the message; as many bytes as its extra_size says
"""

import socket
import sys

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

UINT64, INT32 = descriptor_pb2.FieldDescriptorProto.TYPE_UINT64, descriptor_pb2.FieldDescriptorProto.TYPE_INT32
WORDS = {  # by the document's numbers; for the enums of later workers see `numbers`
    "PulseType": ["REGISTER", "OK", "FETCH_ME", "SHUTDOWN"],
    "ControllerError": ["OK", "UNKNOWN_TYPE", "UNKNOWN_ID", "FAILED"],
    "ControlType": ["RESTART", "FETCH", "SET_TASK", "GET_STATUS"],
    "WorkerError": ["OK", "NO_FETCH", "BUSY", "TASK_FAILED", "FAILED"],
}
FIELDS = {
    "WorkerPulse": ["type", "worker_id", "task_id", "next_pulse"],
    "PulseResponse": ["error", "worker_id"],
    "ControlMsg": ["type", "extra_size", "task_id"],
    "WorkerResponse": ["error", "task_id", "extra_size"],
}


def _classes():
    file = descriptor_pb2.FileDescriptorProto(name="stranger.proto", package="stranger", syntax="proto3")
    for name, fields in FIELDS.items():
        message = file.message_type.add(name=name)
        for number, field in enumerate(fields, 1):
            message.field.add(name=field, number=number, type=INT32 if number == 1 else UINT64, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClassesForFiles([file.name], pool)


WorkerPulse, PulseResponse, ControlMsg, WorkerResponse = (_classes()[f"stranger.{name}"] for name in FIELDS)


def numbers(enum, is_shifted):
    """Return the numbers by name. Later workers count from 1, and have OK before REGISTER."""
    words = list(WORDS[enum])
    if is_shifted and enum == "PulseType":
        words[:2] = reversed(words[:2])
    return {word: number for number, word in enumerate(words, is_shifted)}


def word(enum, number, is_shifted):
    return {value: key for key, value in numbers(enum, is_shifted).items()}.get(number, f"number {number}")


def send(connection, message, extra=b""):
    data = message.SerializeToString()
    connection.sendall(len(data).to_bytes(8, "little") + data + extra)


def receive(connection, kind):
    """Return a message and its extra bytes. Raises ConnectionError if it is incomplete."""
    size = int.from_bytes(_exactly(connection, 8), "little")
    message = kind.FromString(_exactly(connection, size))
    return message, _exactly(connection, getattr(message, "extra_size", 0))


def _exactly(connection, size):
    data = bytearray()
    while len(data) < size:
        more = connection.recv(min(size - len(data), 1 << 20))
        if not more:
            raise ConnectionError(f"the end, {size - len(data)} bytes early")
        data += more
    return bytes(data)


def exchange(path, message, kind, extra=b""):
    """Run one exchange on its own connection, which the other side closes. Returns the response."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        send(connection, message, extra)
        answer = receive(connection, kind)
        assert connection.recv(1) == b"", "more than an answer"
        return answer


def tell(*words):
    """Print a line at once, unmixed with lines of other threads."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
