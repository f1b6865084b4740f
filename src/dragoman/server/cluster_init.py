"""Makes the logs of a cluster, once; and looks whether they were made."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from dragoman.carriers.nats_connect import ConnectOptions
from dragoman.cluster.jetstream import ApiError, ApiRequest, StreamState, read_stream, stream_create, stream_info
from dragoman.cluster.layout import Layout, layout_of, stream_config, stream_name
from dragoman.cluster.nats_address import parse_nats
from dragoman.sdk.address import AddressError
from dragoman.server.clock import random_bytes
from dragoman.server.cluster_member import credentials_in
from dragoman.server.cluster_shards import STREAM_NOT_FOUND, not_initialised
from dragoman.server.config import Config
from dragoman.server.nats_connection import Denied, NatsConnection, NatsUnavailable, open_nats

CONNECT_TIMEOUT: Final = 5.0
REQUEST_TIMEOUT: Final = 5.0
TRIES: Final = 12  # of one request: the servers may have to elect a leader first
PAUSE: Final = 0.5


class InitError(Exception):
    """The logs cannot be made. The message says why."""


async def connect(url: str, cluster: str, credentials: str, purpose: str) -> NatsConnection:
    """Connect a command to NATS. Raises NatsUnavailable, AddressError, OSError and ValueError."""
    path = Path(credentials).expanduser() if credentials else None
    options = ConnectOptions(f"dragoman {purpose}", credentials=credentials_in(path))
    inbox = f"dgm.{cluster}.r.{purpose}.{random_bytes(8).hex()}".encode()
    return await open_nats(parse_nats(url), options, inbox, CONNECT_TIMEOUT)


async def initialise(connection: NatsConnection, cluster: str, wanted: Layout, max_bytes: int) -> tuple[Layout, int]:
    """Make the streams of a cluster. Those that an interrupted call has made are kept. `wanted`: with a new identity.
    Returns the layout and the number of streams that are new. Raises InitError."""
    first = await _ask(connection, stream_name(cluster, 0))
    layout = wanted
    if first is not None:
        found = layout_of(first)
        if found is None:
            raise InitError(f"stream {first.name} exists and is not of this command; choose another --cluster-name")
        if (found.shards, found.replicas, found.is_synced) != (wanted.shards, wanted.replicas, wanted.is_synced):
            synced = ", synced" if found.is_synced else ""
            facts = f"{found.shards} shards and {found.replicas} replicas{synced}"
            raise InitError(f"cluster {cluster} was initialised with {facts}, which cannot be changed")
        layout = found
    made = 0
    for shard in range(layout.shards):
        config = stream_config(cluster, shard, layout, max_bytes)
        known = await _ask(connection, config.name)
        if known is None:
            await _request(connection, config.name, stream_create(config))
            made += 1
        elif layout_of(known) != layout:
            raise InitError(f"stream {config.name} exists and is not of this cluster; choose another --cluster-name")
    return layout, made


async def _ask(connection: NatsConnection, name: str) -> StreamState | None:
    """Return the state of a stream; None: there is none."""
    return await _request(connection, name, stream_info(name))


async def _request(connection: NatsConnection, name: str, request: ApiRequest) -> StreamState | None:
    problem = ""
    for _ in range(TRIES):
        found = read_stream(await connection.request(request, REQUEST_TIMEOUT))
        if not isinstance(found, ApiError):
            return found
        if found.err_code == STREAM_NOT_FOUND:
            return None
        problem = found.description
        if not found.is_temporary:
            break
        await asyncio.sleep(PAUSE)
    raise InitError(f"JetStream refuses stream {name}: {problem}")


async def check_initialised(config: Config) -> None:
    """Raise AddressError if NATS answers that the cluster has no logs. If it does not answer, the broker starts, and
    waits for it."""
    try:
        connection = await connect(config.cluster, config.cluster_name, config.cluster_credentials, "check")
    except (NatsUnavailable, OSError):
        return
    except ValueError as error:
        raise AddressError(str(error)) from None
    found: StreamState | ApiError
    try:
        asked = stream_info(stream_name(config.cluster_name, 0))
        found = read_stream(await connection.request(asked, REQUEST_TIMEOUT))
    except Denied as error:
        raise AddressError(str(error)) from None
    finally:
        connection.close()
    if isinstance(found, ApiError) and found.err_code == STREAM_NOT_FOUND:
        raise AddressError(not_initialised(config.cluster_name))
    if isinstance(found, ApiError) and found.description == "no responders":
        raise AddressError("the NATS servers have no JetStream; enable it, then run `dragoman cluster init`")
