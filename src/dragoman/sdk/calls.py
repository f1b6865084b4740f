"""Methods `call`, `submit` and `map` of both clients: options, checks, overloads and docstrings.

`Client` and `AsyncClient` add the waiting. Each class is generic in the return types of its method: with the client's
codec, with codec="bytes", and with any other codec.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, Unpack, overload

from dragoman.dialects.sides import SubmitOptions
from dragoman.sdk.address_list import Urls
from dragoman.sdk.client_settings import CONNECTIONS, client_is_closed, settings_of, window_of
from dragoman.sdk.codecs import Codec
from dragoman.sdk.codecs import codec as codec_of
from dragoman.sdk.credentials import credentials_of
from dragoman.sdk.default_url import url_or_default
from dragoman.sdk.option_types import CallOptions, CredentialOptions, MapOptions
from dragoman.sdk.submit_options import SubmitOptionsCache
from dragoman.sdk.unset import JOB_TIMEOUT, QUEUE_TIMEOUT, TIMEOUT

if TYPE_CHECKING:
    from dragoman.sdk.engine import Engine

Own = TypeVar("Own", covariant=True)
OfBytes = TypeVar("OfBytes", covariant=True)
OfAny = TypeVar("OfAny", covariant=True)
Payloads = TypeVar("Payloads", contravariant=True)


class ClientSettings:
    """The validated address, codec and settings of a client."""

    url: str | tuple[str, ...]
    options_cache: SubmitOptionsCache
    _codec: Codec
    _settings: dict[str, Any]
    _is_closed = True  # until __init__ has succeeded, there is nothing to close

    def _set_up(
        self,
        url: Urls | None,
        codec: str,
        connect_timeout: float = 10.0,
        connections: int = CONNECTIONS,
        wait_for_broker: bool = True,
        **credentials: Unpack[CredentialOptions],
    ) -> None:
        """Raises AddressError, CredentialError and ValueError."""
        self.url = url_or_default(url)
        self.options_cache = SubmitOptionsCache(self.url, credentials_of(**credentials))
        self._codec = codec_of(codec)
        self._settings = settings_of(connect_timeout, connections, wait_for_broker)

    def _chosen(self, codec: str | Codec | None) -> Codec:
        return self._codec if codec is None else codec_of(codec)

    def _check_open(self) -> None:
        """Raises RuntimeError."""
        if self._is_closed:
            raise client_is_closed()

    @property
    def engine(self) -> Engine:
        """The client's engine. It is created with the first job."""
        raise NotImplementedError


class Calls(ClientSettings, Generic[Own, OfBytes, OfAny]):
    @overload
    def call(self, service: str, payload: Any = b"", *, codec: None = None, **options: Unpack[CallOptions]) -> Own: ...

    @overload
    def call(
        self, service: str, payload: Any = b"", *, codec: Literal["bytes"], **options: Unpack[CallOptions]
    ) -> OfBytes: ...

    @overload
    def call(
        self, service: str, payload: Any = b"", *, codec: str | Codec, **options: Unpack[CallOptions]
    ) -> OfAny: ...

    def call(
        self,
        service: str,
        payload: Any = b"",
        *,
        timeout: float | None = TIMEOUT,
        codec: str | Codec | None = None,
        priority: int | None = None,
        attempts: int | None = None,
        job_timeout: float | None = JOB_TIMEOUT,
        queue_timeout: float | None = QUEUE_TIMEOUT,
        wait_for_worker: bool = False,
        tenant: str | None = None,
    ) -> Any:
        """Submit a job and wait for its result. Raises JobError or BrokerUnavailable.

        All time-outs are in seconds, up to 49 days; None means no limit. `timeout`: total wait of the caller, including
        queueing and retries; it is sent to the broker. `job_timeout`: run time of one attempt; the default is no limit
        if `timeout` is set, else the listener's setting (60). `queue_timeout`: wait for a free worker. `priority`: 0
        (lowest) to 9 (highest), default 5. `attempts`: maximum number of attempts, 1 to 100. `wait_for_worker`:
        wait even if no worker offers the service. `tenant`: customer or account that the job is for; tenants take
        turns.
        """
        values = (service, timeout, job_timeout, queue_timeout, priority, attempts, wait_for_worker, True, tenant)
        return self._call(values, payload, codec)

    def _call(self, values: OptionValues, payload: Any, codec: str | Codec | None) -> Any:
        """Submit a job with these options and wait for its result."""
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
    def submit(
        self, service: str, payload: Any = b"", *, codec: str | Codec, **options: Unpack[CallOptions]
    ) -> OfAny: ...

    def submit(
        self,
        service: str,
        payload: Any = b"",
        *,
        timeout: float | None = TIMEOUT,
        codec: str | Codec | None = None,
        priority: int | None = None,
        attempts: int | None = None,
        job_timeout: float | None = JOB_TIMEOUT,
        queue_timeout: float | None = QUEUE_TIMEOUT,
        wait_for_worker: bool = False,
        tenant: str | None = None,
    ) -> Any:
        """Submit a job and return its future at once. The options are those of `call`."""
        submit_options = self.options_cache.submit_options(
            service, timeout, job_timeout, queue_timeout, priority, attempts, wait_for_worker, False, tenant
        )
        return self._enter(submit_options, payload, self._codec if codec is None else codec_of(codec))

    def submit_whole(self, service: str, payload: Any, *, codec: Codec, **options: Unpack[CallOptions]) -> OfAny:
        """Submit a job as `submit` does, but its result has the parts in front, as that of `call`."""
        submit_options = self.options_cache.submit_options(service, is_whole=True, **options)
        found: OfAny = self._enter(submit_options, payload, codec)
        return found

    def _enter(self, submit_options: SubmitOptions, payload: Any, codec: Codec) -> Any:
        """Start a job and return its future."""
        raise NotImplementedError


class Maps(ClientSettings, Generic[Payloads, Own, OfBytes, OfAny]):
    @overload
    def map(self, service: str, payloads: Payloads, *, codec: None = None, **options: Unpack[MapOptions]) -> Own: ...

    @overload
    def map(
        self, service: str, payloads: Payloads, *, codec: Literal["bytes"], **options: Unpack[MapOptions]
    ) -> OfBytes: ...

    @overload
    def map(self, service: str, payloads: Payloads, *, codec: str | Codec, **options: Unpack[MapOptions]) -> OfAny: ...

    def map(
        self,
        service: str,
        payloads: Any,
        *,
        window: int | None = None,
        timeout: float | None = TIMEOUT,
        codec: str | Codec | None = None,
        priority: int | None = None,
        attempts: int | None = None,
        job_timeout: float | None = JOB_TIMEOUT,
        queue_timeout: float | None = QUEUE_TIMEOUT,
        wait_for_worker: bool = False,
        tenant: str | None = None,
    ) -> Any:
        """Submit one job for each payload and iterate over the results, in the order of the payloads.

        At most `window` jobs run at once. A payload is not taken from `payloads` before there is room for its job, so
        `payloads` may be infinite. `timeout` applies to each job; the other options are those of `call`. The error of a
        job is raised in its place and ends the iteration. When the iteration ends, the jobs that still run are
        cancelled.
        """
        submit_options = self.options_cache.submit_options(
            service, timeout, job_timeout, queue_timeout, priority, attempts, wait_for_worker, True, tenant
        )
        return self._map(submit_options, payloads, self._chosen(codec), window_of(self.options_cache.target, window))

    def _map(self, submit_options: SubmitOptions, payloads: Iterable[Any], codec: Codec, window: int) -> Any:
        """Return the iterator over the results."""
        raise NotImplementedError


OptionValues = tuple[str, float | None, float | None, float | None, int | None, int | None, bool, bool, str | None]
