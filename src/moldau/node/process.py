"""Runs a node as a process, until a signal or a fault stops it."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
from collections.abc import Callable
from contextlib import suppress

from moldau import __version__
from moldau.base.errors import StorageFault
from moldau.node.node import Node
from moldau.platforms.open_files import raise_open_files_limit
from moldau.settings import Settings

log = logging.getLogger("moldau.node")

Announce = Callable[[str, str], None]
"""Gets the line that says that a node is ready, and the first of the addresses for clients."""


def run(settings: Settings, *, announce: Announce) -> int:
    """Run a node until SIGTERM or SIGINT; return the exit status. Raise what prevents the start. The caller configures
    logging."""
    raise_open_files_limit()
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(_run(settings, announce))


async def _run(settings: Settings, announce: Announce) -> int:
    loop = asyncio.get_running_loop()
    stop_requested = loop.create_future()

    def request_stop() -> None:
        if not stop_requested.done():
            stop_requested.set_result(None)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, request_stop)
    node = Node(settings)
    if not await _start_unless_stopped(node, stop_requested):
        return 0
    _tune_garbage_collector()
    addresses = node.advertised() or settings.controller_listeners
    addresses_text = ", ".join(dict.fromkeys(address.address for address in addresses))
    announce(
        f"Moldau {__version__} is ready: {addresses_text} (node {settings.node_id}, data in {settings.log_dirs[0]}). "
        "Stop with Ctrl-C.",
        addresses[0].address,
    )
    try:
        await asyncio.wait([stop_requested, node.failed], return_when=asyncio.FIRST_COMPLETED)
    finally:
        await node.stop()
    if node.failed.done():
        log.error("node %d: stopped: %s", settings.node_id, _reason(node.failed.result()))
        return 1
    return 0


async def _start_unless_stopped(node: Node, stop_requested: asyncio.Future[None]) -> bool:
    """Start the node; return False if a stop is requested before: waiting for a quorum may take for ever. Raise what
    prevents the start."""
    starting = asyncio.get_running_loop().create_task(node.start())
    await asyncio.wait([starting, stop_requested], return_when=asyncio.FIRST_COMPLETED)
    if starting.done():
        starting.result()
        return True
    starting.cancel()
    with suppress(asyncio.CancelledError):
        await starting
    return False


def _reason(fault: Exception) -> str:
    if not isinstance(fault, StorageFault):
        return f"internal error: {fault!r}"
    return f"the disk failed: {fault}{f'; {fault.next_step}' if fault.next_step else ''}"


def new_loop() -> asyncio.AbstractEventLoop:
    """Return an event loop of uvloop if it is installed: it is several times as fast as asyncio's own loop."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def _tune_garbage_collector() -> None:
    """Exclude all present objects from garbage collection, since they stay, and let the collector run less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
