"""Closed connections: the client listener forgets the client, the controller listener ends the broker's session."""

from __future__ import annotations

import asyncio
from pathlib import Path

from patience import PATIENCE_S

from moldau.node import Node
from moldau.settings import from_properties
from moldau.wire.apis import ApiKey
from moldau.wire.frames import request_frame
from moldau.wire.messages.api_versions import ApiVersionsRequest


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
