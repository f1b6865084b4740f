from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class WorkerPulse(_message.Message):
    __slots__ = ("type", "worker_id", "task_id", "next_pulse")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    NEXT_PULSE_FIELD_NUMBER: _ClassVar[int]
    type: int
    worker_id: int
    task_id: int
    next_pulse: int
    def __init__(self, type: _Optional[int] = ..., worker_id: _Optional[int] = ..., task_id: _Optional[int] = ..., next_pulse: _Optional[int] = ...) -> None: ...

class PulseResponse(_message.Message):
    __slots__ = ("error", "worker_id")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    error: int
    worker_id: int
    def __init__(self, error: _Optional[int] = ..., worker_id: _Optional[int] = ...) -> None: ...

class ControlMsg(_message.Message):
    __slots__ = ("type", "extra_size", "task_id")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    EXTRA_SIZE_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    type: int
    extra_size: int
    task_id: int
    def __init__(self, type: _Optional[int] = ..., extra_size: _Optional[int] = ..., task_id: _Optional[int] = ...) -> None: ...

class WorkerResponse(_message.Message):
    __slots__ = ("error", "task_id", "extra_size")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    EXTRA_SIZE_FIELD_NUMBER: _ClassVar[int]
    error: int
    task_id: int
    extra_size: int
    def __init__(self, error: _Optional[int] = ..., task_id: _Optional[int] = ..., extra_size: _Optional[int] = ...) -> None: ...
