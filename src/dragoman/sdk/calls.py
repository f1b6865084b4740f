"""Calls of both kinds of client: their options, checks, overloads and texts. A client adds how it waits.

Each class is generic in what its method returns: with the client's codec, with codec="bytes", and with any other.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, Unpack, overload

from dragoman.dialects.sides import SubmitOptions
from dragoman.sdk.client_settings import CONNECTIONS, client_is_closed, settings_of, url_or_default, window_of
from dragoman.sdk.codecs import Codec
from dragoman.sdk.codecs import codec as codec_of
from dragoman.sdk.option_types import CallOptions, MapOptions
from dragoman.sdk.submit_options import SubmitOptionsCache
from dragoman.sdk.unset import JOB_TIMEOUT, QUEUE_TIMEOUT, TIMEOUT

if TYPE_CHECKING:
    from dragoman.sdk.engine import Engine

Own = TypeVar("Own", covariant=True)
OfBytes = TypeVar("OfBytes", covariant=True)
OfAny = TypeVar("OfAny", covariant=True)
Payloads = TypeVar("Payloads", contravariant=True)


class ClientSettings:
    """The address, the codec and the settings of a client, checked."""

    url: str
    asking: SubmitOptionsCache
    _codec: Codec
    _settings: dict[str, Any]
    _is_closed = True  # nothing to close, should making it fail

    def _set_up(
        self,
        url: str | None,
        codec: str,
        connect_timeout: float = 10.0,
        connections: int = CONNECTIONS,
        wait_for_broker: bool = True,
    ) -> None:
        """Raises AddressError and ValueError."""
        self.url = url_or_default(url)
        self.asking = SubmitOptionsCache(self.url)
        self._codec = codec_of(codec)
        self._settings = settings_of(connect_timeout, connections, wait_for_broker)

    def _chosen(self, codec: str | None) -> Codec:
        return self._codec if codec is None else codec_of(codec)

    def _check_open(self) -> None:
        """Raises RuntimeError."""
        if self._is_closed:
            raise client_is_closed()

    @property
    def engine(self) -> Engine:
        """The engine that does the work; it begins with the first job."""
        raise NotImplementedError


class Calls(ClientSettings, Generic[Own, OfBytes, OfAny]):
    @overload
    def call(self, service: str, payload: Any = b"", *, codec: None = None, **options: Unpack[CallOptions]) -> Own: ...

    @overload
    def call(
        self, service: str, payload: Any = b"", *, codec: Literal["bytes"], **options: Unpack[CallOptions]
    ) -> OfBytes: ...

    @overload
    def call(self, service: str, payload: Any = b"", *, codec: str, **options: Unpack[CallOptions]) -> OfAny: ...

    def call(
        self,
        service: str,
        payload: Any = b"",
        *,
        timeout: float | None = TIMEOUT,
        codec: str | None = None,
        priority: int | None = None,
        attempts: int | None = None,
        job_timeout: float | None = JOB_TIMEOUT,
        queue_timeout: float | None = QUEUE_TIMEOUT,
        wait_for_worker: bool = False,
    ) -> Any:
        """Submit a job and wait for its result. Raises JobError or BrokerUnavailable.

        `timeout`: how long to wait for all of it; the broker knows it. `job_timeout`: how long one attempt may run; not
        said, it has no limit if there is a `timeout`, else that of the listener, which is 60 unless it was changed.
        `queue_timeout`: how long it may wait for a free worker. None means no limit, for all three; the longest that
        can be said otherwise is 49 days. `priority`: 0 to 9, the higher the sooner; 5 if it is not said. `attempts`:
        how often it may be handed out. `wait_for_worker`: wait for a worker even if none offers the service.
        """
        asked = (service, timeout, job_timeout, queue_timeout, priority, attempts, wait_for_worker, True)
        return self._call(asked, payload, codec)

    def _call(self, asked: OptionValues, payload: Any, codec: str | None) -> Any:
        """Wait for the result of a job that asks for this."""
        raise NotImplementedError


class Submits(ClientSettings, Generic[Own, OfBytes, OfAny]):
    @overload
    def submit(
        self, service: str, payload: Any = b"", *, codec: None = None, **options: Unpack[CallOptions]
    ) -> Own: ...

    @overload
    def submit(
        self, service: str, payload: Any = b"", *, codec: Literal["bytes"], **options: Unpack[CallOptions]
    ) -> OfBytes: ...

    @overload
    def submit(self, service: str, payload: Any = b"", *, codec: str, **options: Unpack[CallOptions]) -> OfAny: ...

    def submit(
        self,
        service: str,
        payload: Any = b"",
        *,
        timeout: float | None = TIMEOUT,
        codec: str | None = None,
        priority: int | None = None,
        attempts: int | None = None,
        job_timeout: float | None = JOB_TIMEOUT,
        queue_timeout: float | None = QUEUE_TIMEOUT,
        wait_for_worker: bool = False,
    ) -> Any:
        """Submit a job and go on: its future. Options as for `call`."""
        submit_options = self.asking.submit_options(
            service, timeout, job_timeout, queue_timeout, priority, attempts, wait_for_worker
        )
        return self._enter(submit_options, payload, self._codec if codec is None else codec_of(codec))

    def _enter(self, submit_options: SubmitOptions, payload: Any, codec: Codec) -> Any:
        """The future of a job that is on its way."""
        raise NotImplementedError


class Maps(ClientSettings, Generic[Payloads, Own, OfBytes, OfAny]):
    @overload
    def map(self, service: str, payloads: Payloads, *, codec: None = None, **options: Unpack[MapOptions]) -> Own: ...

    @overload
    def map(
        self, service: str, payloads: Payloads, *, codec: Literal["bytes"], **options: Unpack[MapOptions]
    ) -> OfBytes: ...

    @overload
    def map(self, service: str, payloads: Payloads, *, codec: str, **options: Unpack[MapOptions]) -> OfAny: ...

    def map(
        self,
        service: str,
        payloads: Any,
        *,
        window: int | None = None,
        timeout: float | None = TIMEOUT,
        codec: str | None = None,
        priority: int | None = None,
        attempts: int | None = None,
        job_timeout: float | None = JOB_TIMEOUT,
        queue_timeout: float | None = QUEUE_TIMEOUT,
        wait_for_worker: bool = False,
    ) -> Any:
        """The results of many jobs, in the order of their payloads.

        At most `window` jobs are under way at once, and no payload is taken before there is room for it: there may be
        any number of them, even without end. `timeout` is for each job, and the other options are those of `call`. A
        job's error is raised in its place, and ends the iteration; whoever ends it, what is under way then is
        cancelled.
        """
        submit_options = self.asking.submit_options(
            service, timeout, job_timeout, queue_timeout, priority, attempts, wait_for_worker, True
        )
        return self._map(submit_options, payloads, self._chosen(codec), window_of(self.asking.target, window))

    def _map(self, submit_options: SubmitOptions, payloads: Iterable[Any], codec: Codec, window: int) -> Any:
        """The results as they are iterated over."""
        raise NotImplementedError


OptionValues = tuple[str, float | None, float | None, float | None, int | None, int | None, bool, bool]
