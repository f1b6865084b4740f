"""`dragoman.NewJob`: a background job that is not enqueued yet, for batches of different jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from dragoman.sdk.ids import ids_of, new_batch_id
from dragoman.sdk.option_types import EnqueueOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from dragoman.core.packed_jobs import PackedJob


class NewJob:
    """A background job for `Client.enqueue_jobs`. It has its id already, so that others may come after it:

        page = NewJob("fetch", b"https://example.org")
        text = NewJob("strip", after=[page], input="result")
        client.enqueue_jobs([page, text])

    The options are those of `Client.enqueue`. `group`: a string of 32 hex digits; all jobs of the batch with the same
    one are a group of this id.
    """

    __slots__ = ("codec", "id", "options", "payload", "service")

    def __init__(
        self, service: str, payload: Any = b"", *, codec: str | None = None, **options: Unpack[EnqueueOptions]
    ) -> None:
        unknown = next((each for each in options if each not in EnqueueOptions.__annotations__), None)
        if unknown is not None:
            known = ", ".join(EnqueueOptions.__annotations__)
            raise TypeError(f"unknown option {unknown!r} of a background job; known options: {known}")
        self.id = new_batch_id().hex()
        self.service = service
        self.payload = payload
        self.codec = codec
        self.options = options

    def __repr__(self) -> str:
        return f"<NewJob {self.id} for {self.service}>"

    def packed(self, encode: Callable[[Any, str | None], bytes]) -> PackedJob:
        """Return id, fields and payload. `encode`: encodes a payload with a codec."""
        import msgspec

        from dragoman.operations.group_schemas import BatchJob

        given: dict[str, Any] = {**self.options}
        if "after" in given:
            given["after"] = ids_of(given["after"])
        try:  # a value outside its limits is named here, not by the broker
            form = msgspec.convert({"service": self.service, **given}, BatchJob)
        except msgspec.ValidationError as error:
            raise ValueError(f"{self!r}: {error}") from None
        return bytes.fromhex(self.id), msgspec.json.encode(form), encode(self.payload, self.codec)
