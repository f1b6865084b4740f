"""The configuration of NATS in deploy, at a real server: its users may do what they need, and create no streams."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from cluster_files import made_secrets, nats_config
from dragoman.cluster.jetstream import (
    ApiRequest,
    account_info,
    append,
    direct_get,
    message_get,
    stream_create,
    stream_info,
    stream_purge,
)
from dragoman.cluster.layout import Layout, log_subject, stream_config, stream_name
from dragoman.cluster.requests import AnswerKind
from dragoman.server import cluster_init
from dragoman.server.nats_connection import Denied, NatsConnection
from nats_servers import NatsServer, start_on_free_ports

LAYOUT = Layout("a1b2", 2, 1, True)
PATIENCE = 30.0


def server_settings(path: Path) -> str:
    """The settings of one server alone: without routes, and without the lines that the tests write."""
    text = re.sub(r"^cluster \{.*?^\}$", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"^(server_name|listen|http): .*$", "", text, flags=re.MULTILINE)


async def is_answered(connection: NatsConnection, request: ApiRequest, patience: float = PATIENCE) -> bool:
    try:
        return (await connection.request(request, patience)).kind is AnswerKind.REPLY
    except Denied:
        return False


async def check(url: str, folders: dict[str, Path]) -> None:
    def connect(role: str) -> asyncio.Task[NatsConnection]:
        return asyncio.create_task(cluster_init.connect(url, "dragoman", str(folders[role] / "nats"), role))

    init, broker, again = await connect("init"), await connect("broker"), await connect("broker")
    try:
        assert await cluster_init.initialise(init, "dragoman", LAYOUT, -1) == (LAYOUT, 2)
        name, subject = stream_name("dragoman", 0), log_subject("dragoman", 0)
        for request in (
            account_info(),
            stream_info(name),
            append(subject, b"one", 0, name),
            append(subject, b"two", 1, name),
            message_get(name, 2),
            direct_get(name, 2),
            stream_purge(name, 2),
        ):
            assert await is_answered(broker, request), request.subject
        batch = await broker.batch(name, 1, 10, PATIENCE)
        assert [bytes(each.payload) for each in batch.messages] == [b"two"]
        config = stream_config("dragoman", 2, LAYOUT)
        assert not await is_answered(broker, stream_create(config))
        assert await is_answered(init, stream_create(config))
        assert not await is_answered(init, append(subject, b"three", 2, name))
        with pytest.raises(Denied, match=r"Permissions Violation.*STREAM\.CREATE\.DGM_other_00"):
            await asyncio.wait_for(cluster_init.initialise(again, "other", LAYOUT, -1), PATIENCE)
    finally:
        init.close()
        broker.close()
        again.close()


def test_users_may_do_what_they_need_and_no_more(tmp_path: Path) -> None:
    """`DGM_dragoman_*` in a permission matched no stream: a wildcard of NATS stands for a whole token."""
    folders = made_secrets(tmp_path, "DNS:localhost,IP:127.0.0.1")
    settings = server_settings(nats_config(tmp_path, folders["nats"], "solo")).replace(
        "nats/passwords", "../nats/passwords"
    )
    server = start_on_free_ports(lambda: NatsServer(tmp_path / "server", "solo", settings))
    try:
        url = f"tls://localhost:{server.port}?ca={folders['broker']}/ca.crt"
        asyncio.run(check(url, folders))
    finally:
        server.kill()
