"""One node of a cluster inside this process: its own thread and event loop; the test's thread can stop, kill, pause
and start it again.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

from moldau.local_cluster import NodeAddress
from moldau.log.files import staying_descriptor_max
from moldau.node import Node
from moldau.platforms.event_loop import new_loop
from moldau.settings import Settings
from moldau.testing.faulty_peers import FaultyPeers, Link
from moldau.testing.fillable_disk import FillableDisk

READY_TIMEOUT_S = 30.0
END_TIMEOUT_S = 30.0


class _NodeRun:
    """One run of a node, from its start to its end."""

    def __init__(self, settings: Settings, link: Link, disk: FillableDisk) -> None:
        self._settings = settings
        self._link = link
        self._disk = disk
        self._loop = new_loop()
        self._end_requested: asyncio.Future[None] = self._loop.create_future()
        self._kill_requested: asyncio.Future[None] = self._loop.create_future()
        self._is_killed = False
        """Set by the test's thread, before the loop knows of it."""
        self._is_started = self._is_abandoned = False
        self._gate = threading.Event()
        """Cleared while the node is paused: its event loop waits for it."""
        self._gate.set()
        self.ready: Future[None] = Future()
        self.fault: BaseException | None = None
        self.node: Node | None = None
        self._thread = threading.Thread(target=self._serve, name=f"moldau node {settings.node_id}", daemon=True)
        self._thread.start()

    @property
    def is_over(self) -> bool:
        return not self._thread.is_alive()

    @property
    def is_paused(self) -> bool:
        return not self._gate.is_set()

    def pause(self) -> None:
        self._gate.clear()
        self._call(self._block)

    def resume(self) -> None:
        self._gate.set()

    def stop(self) -> None:
        self._call(self._request_end)
        self._await_end()

    def kill(self) -> None:
        """End the run, also if a stop has begun and does not end."""
        self._is_killed = True
        self._call(self._request_kill)
        self._await_end()

    def _await_end(self) -> None:
        self._gate.set()
        self._thread.join(END_TIMEOUT_S)
        assert self.is_over, f"node {self._settings.node_id} did not end within {END_TIMEOUT_S:.0f} s"

    def _call(self, call: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop is closed: the run is over
            self._loop.call_soon_threadsafe(call)

    def _block(self) -> None:
        """Block the event loop and so the whole node. If it is killed meanwhile, it does nothing more afterwards."""
        self._gate.wait()
        if self._is_killed:
            self._request_kill()

    def _request_end(self) -> None:
        if not self._end_requested.done():
            self._end_requested.set_result(None)

    def _request_kill(self) -> None:
        self._request_end()
        if not self._kill_requested.done():
            self._kill_requested.set_result(None)
            if self._is_started:
                self._abandon()

    def _abandon(self) -> None:
        """Drop the node as a killed process would be: once, and without a stop."""
        if self.node is not None and not self._is_abandoned:
            self._is_abandoned = True
            self.node.abandon()

    def _serve(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._run())
        except BaseException as fault:
            self.fault = fault
        if not self.ready.done():
            self.ready.set_exception(self.fault or RuntimeError("the node ended before it was ready"))

    async def _run(self) -> None:
        node = self.node = Node(
            self._settings, files=self._disk, peers=lambda loop, tls: FaultyPeers(loop, self._link, tls)
        )
        starting = self._loop.create_task(node.start())
        await asyncio.wait([starting, self._end_requested], return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            await _cancel(starting)
            return
        starting.result()
        self._is_started = True
        self.ready.set_result(None)
        failed: asyncio.Future[Any] = node.failed
        await asyncio.wait([self._end_requested, failed], return_when=asyncio.FIRST_COMPLETED)
        if not self._end_requested.done():
            self._abandon()
            raise node.failed.result()
        if not self._kill_requested.done():
            stopping = self._loop.create_task(node.stop())
            await asyncio.wait([stopping, self._kill_requested], return_when=asyncio.FIRST_COMPLETED)
            if stopping.done():
                stopping.result()
                return
            await _cancel(stopping)
        self._abandon()  # unless the kill has done so: it may have come before the node counted as started


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


class ClusterNode:
    """A node's id, ports and directory. It can be run several times."""

    def __init__(self, address: NodeAddress, settings: Settings, link: Link) -> None:
        self.id = address.id
        self.address = address.address
        """The address for clients."""
        self.controller_port = address.controller_port
        self.port = address.port
        self.data_dir = Path(settings.log_dirs[0])
        self.settings = settings
        self.disk = FillableDisk(staying_descriptor_max())
        self._link = link
        self._run: _NodeRun | None = None

    @property
    def is_running(self) -> bool:
        """Whether it is not stopped, killed or failed; it may be paused."""
        return self._run is not None and not self._run.is_over

    @property
    def is_paused(self) -> bool:
        return self._run is not None and self._run.is_paused

    @property
    def node(self) -> Node | None:
        """The node while it runs and is ready. Any thread may read its state, but not change it."""
        run = self._run
        if run is None or run.is_over or not run.ready.done() or run.ready.exception():
            return None
        return run.node

    def start(self) -> None:
        """Start in the background; `await_ready` waits for it."""
        assert not self.is_running, f"node {self.id} runs already"
        self._run = _NodeRun(self.settings, self._link, self.disk)

    def await_ready(self) -> None:
        assert self._run is not None, f"node {self.id} was never started"
        self._run.ready.result(READY_TIMEOUT_S)

    def stop(self) -> None:
        self._running().stop()

    def kill(self) -> None:
        self._running().kill()

    def pause(self) -> None:
        self._running().pause()

    def resume(self) -> None:
        self._running().resume()

    def fault(self) -> BaseException | None:
        """Return the error by which it failed by itself, if it did."""
        return None if self._run is None else self._run.fault

    def _running(self) -> _NodeRun:
        if self._run is None or self._run.is_over:
            raise ValueError(f"node {self.id} is not running")
        return self._run

    def __repr__(self) -> str:
        state = "paused" if self.is_paused else "up" if self.node else "starting" if self.is_running else "down"
        return f"<Moldau node {self.id} at {self.address}, {state}>"
