"""Runs a node as a process, until a signal or a fault stops it."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Final

from moldau import __version__
from moldau.base.errors import StorageFault
from moldau.base.listeners import Listener
from moldau.base.loop_watch import LOOP_WATCH
from moldau.node.node import Node
from moldau.platforms.event_loop import new_loop
from moldau.platforms.open_files import open_files_limit, raise_open_files_limit, reserve_descriptors
from moldau.runtime.garbage import GarbageCollector
from moldau.settings import Settings

log = logging.getLogger("moldau.node")
GARBAGE_CHECK_S: Final = 60.0
SWITCH_S: Final = 0.001
"""Python's switch interval: how long a busy thread may keep the interpreter when the loop wants to go on."""
STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

Announce = Callable[[str, Listener, Listener | None], None]
"""Gets the line that says that a node is ready, the first of the addresses in it, and that of metrics."""


def run(settings: Settings, *, announce: Announce) -> int:
    """Run a node until SIGTERM or SIGINT; return the exit status. Raise what prevents the start. The caller configures
    logging."""
    raise_open_files_limit()
    reserve_descriptors(open_files_limit())
    sys.setswitchinterval(SWITCH_S)
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(_run(settings, announce))


async def _run(settings: Settings, announce: Announce) -> int:
    loop = asyncio.get_running_loop()
    stop_requested = loop.create_future()

    def request_stop() -> None:
        if not stop_requested.done():
            stop_requested.set_result(None)

    def listen_for_signals() -> None:
        for number in STOP_SIGNALS:
            loop.add_signal_handler(number, request_stop)

    # The loop does not run while logs are recovered. Ending at once is safe: the next start recovers them again.
    for number in STOP_SIGNALS:
        signal.signal(number, _exit_at_once)
    node = Node(settings, on_recovered=listen_for_signals)
    if not await _start_unless_stopped(node, stop_requested):
        return 0
    garbage = GarbageCollector(LOOP_WATCH)
    garbage.start()
    addresses = node.advertised() or node.advertised_controllers()
    addresses_text = ", ".join(dict.fromkeys(address.address for address in addresses))
    line = (
        f"Moldau {__version__} is ready: {addresses_text} (node {settings.node_id}, data in {settings.log_dirs[0]})."
        " Stop with Ctrl-C."
    )
    try:
        announce(line, addresses[0], node.metrics_address)
        while not stop_requested.done() and not node.failed.done():
            await asyncio.wait(
                [stop_requested, node.failed], timeout=GARBAGE_CHECK_S, return_when=asyncio.FIRST_COMPLETED
            )
            garbage.collect_if_due()
    finally:
        await node.stop()
        garbage.stop()
    if node.failed.done():
        log.error("node %d: stopped: %s", settings.node_id, _reason(node.failed.result()))
        return 1
    return 0


def _exit_at_once(number: int, frame: FrameType | None) -> None:
    log.info("stopped by %s while logs were recovered; the next start recovers them again", signal.Signals(number).name)
    raise SystemExit(0)


async def _start_unless_stopped(node: Node, stop_requested: asyncio.Future[None]) -> bool:
    """Start the node; return False if a stop is requested before it is ready: waiting for a quorum may never end.
    Raise what prevents the start."""
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
