"""When a client that takes nothing is cut off: once the time has passed without a pause in between."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from harness.patience import PATIENCE_S

from moldau.web.connections import CutsSlowClients


def protocol_with(seconds: float, abort: Any) -> CutsSlowClients:
    protocol = CutsSlowClients()
    protocol.slow_seconds_max = seconds
    protocol.transport = SimpleNamespace(abort=abort)  # type: ignore[assignment]
    return protocol


def test_a_client_that_takes_nothing_is_cut_off() -> None:
    async def main() -> None:
        aborted = asyncio.Event()
        protocol_with(0.001, aborted.set).pause_writing()
        await asyncio.wait_for(aborted.wait(), PATIENCE_S)

    asyncio.run(main())


@pytest.mark.parametrize("how", ["reads on", "goes away"])
def test_one_that_reads_on_or_goes_away_is_not(how: str) -> None:
    async def main() -> None:
        aborted: list[int] = []
        protocol = protocol_with(0, lambda: aborted.append(1))
        for _ in range(3):
            protocol.pause_writing()
            if how == "reads on":
                protocol.resume_writing()
            else:
                protocol.connection_lost(None)
        for _ in range(10):
            await asyncio.sleep(0)
        assert not aborted

    asyncio.run(main())
