"""Closed connections: the client listener forgets the client, the controller listener ends the broker's session. Also
a stop with open connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.patience import PATIENCE_S, Patience

from moldau.node import Node
from moldau.node import node as node_module
from moldau.server.listener import Listener
from moldau.settings import from_properties
from moldau.wire.apis import ApiKey
from moldau.wire.frames import request_frame
from moldau.wire.messages.api_versions import ApiVersionsRequest
from moldau.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.wire.messages.metadata import MetadataRequest, MetadataRequestTopic


async def ask_for_versions(port: int) -> tuple[str, asyncio.StreamWriter]:
    """Connect, send the client's software in ApiVersions, and return the client's address."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request_frame(ApiKey.API_VERSIONS, 3, 1, "c", ApiVersionsRequest("n" * 30_000, "v" * 30_000)))
    await asyncio.wait_for(reader.readexactly(4), PATIENCE_S)
    return f"127.0.0.1:{writer.get_extra_info('sockname')[1]}", writer


def test_a_closed_client_connection_is_forgotten_and_ends_no_broker_session(tmp_path: Path) -> None:
    properties = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path)}

    async def run() -> None:
        node = Node(from_properties(properties))
        await node.start()
        broker, controller = node.assembly.broker_side, node.assembly.controller_side
        assert broker is not None
        assert controller is not None
        closed, forget = asyncio.Event(), broker.telemetry.connection_gone

        def connection_gone(address: str) -> None:
            forget(address)
            closed.set()

        broker.telemetry.connection_gone = connection_gone  # type: ignore[method-assign]
        address, writer = await ask_for_versions(node.addresses[0].port)
        assert [len(word) for word in broker.telemetry.software.of(address)] == [100, 100]
        controller.duties.heartbeat_received(address)  # the same port, but of the controller listener
        controller.duties.heartbeat_accepted(node.settings.node_id, address)
        writer.close()
        await asyncio.wait_for(closed.wait(), PATIENCE_S)
        assert broker.telemetry.software.of(address) == ("unknown", "unknown")
        assert controller.duties._connections == {address: node.settings.node_id}
        controller.connection_gone(address)
        assert controller.duties._connections == {}
        await node.stop()

    asyncio.run(run())


async def until(condition: Callable[[], bool]) -> None:
    patience = Patience("a condition of the node")
    while not condition():
        patience.check()
        await asyncio.sleep(0)


def test_a_stop_does_not_wait_for_a_fetch_that_came_while_another_listener_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    properties = {
        "listeners": "FIRST://127.0.0.1:0,SECOND://127.0.0.1:0",
        "listener.security.protocol.map": "FIRST:PLAINTEXT,SECOND:PLAINTEXT",
        "log.dirs": str(tmp_path),
    }
    monkeypatch.setattr(node_module, "STOP_GRACE_S", 2 * PATIENCE_S)
    stop = Listener.stop
    an_hour_ms = 3_600_000
    fetch = FetchRequest(
        max_wait_ms=an_hour_ms,
        min_bytes=1,
        topics=[FetchTopic(topic="t", partitions=[FetchPartition(0, fetch_offset=0)])],
    )

    async def live() -> None:
        node = Node(from_properties(properties))
        await node.start()
        broker = node.assembly.broker_side
        assert broker is not None
        reader, writer = await asyncio.open_connection("127.0.0.1", node.addresses[1].port)
        writer.write(request_frame(ApiKey.METADATA, 4, 1, "c", MetadataRequest([MetadataRequestTopic(name="t")])))
        await until(lambda: broker.partitions.find("t", 0) is not None)

        async def stop_and_fetch(listener: Listener, grace_s: float) -> None:
            await stop(listener, grace_s)
            if listener.name == "FIRST":
                writer.write(request_frame(ApiKey.FETCH, 11, 2, "c", fetch))
                await until(lambda: len(broker.parked) == 1)

        monkeypatch.setattr(Listener, "stop", stop_and_fetch)
        await node.stop()
        assert await reader.read()
        writer.close()

    asyncio.run(asyncio.wait_for(live(), PATIENCE_S))
