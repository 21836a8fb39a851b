"""One node of a cluster inside this process: a thread and a loop of its own, which can be stopped, killed, frozen and
started again from the thread of the test.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

from moldau.base.local_cluster import NodeAddress
from moldau.node import Node, new_loop
from moldau.settings import Settings
from moldau.testing.faulty_peers import FaultyPeers, Link

READY_TIMEOUT_S = 30.0
END_TIMEOUT_S = 30.0


class _Life:
    """One run of a node, from its start to its end, whichever that is."""

    def __init__(self, settings: Settings, link: Link) -> None:
        self._settings = settings
        self._link = link
        self._loop = new_loop()
        self._ordered: asyncio.Future[None] = self._loop.create_future()
        self._is_clean = True
        self._gate = threading.Event()
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
    def is_frozen(self) -> bool:
        return not self._gate.is_set()

    def freeze(self) -> None:
        self._gate.clear()
        self._call(self._stand_still)

    def thaw(self) -> None:
        self._gate.set()

    def end(self, is_clean: bool) -> None:
        self._is_clean = is_clean
        self._call(self._obey)
        self._gate.set()
        self._thread.join(END_TIMEOUT_S)
        assert self.is_over, f"node {self._settings.node_id} did not end within {END_TIMEOUT_S:.0f} s"

    def _call(self, call: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop is closed: the life is over
            self._loop.call_soon_threadsafe(call)

    def _stand_still(self) -> None:
        """Blocks the loop and with it everything the node does. Killed meanwhile, it does nothing more on waking."""
        self._gate.wait()
        if not self._is_clean:
            self._obey()

    def _obey(self) -> None:
        if not self._is_clean and self.node is not None and self.ready.done() and not self._ordered.done():
            self.node.abandon()
        if not self._ordered.done():
            self._ordered.set_result(None)

    def _serve(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._run())
        except BaseException as fault:
            self.fault = fault
        if not self.ready.done():
            self.ready.set_exception(self.fault or RuntimeError("it ended before it was ready"))

    async def _run(self) -> None:
        node = self.node = Node(self._settings, peers=FaultyPeers(self._loop, self._link))
        starting = self._loop.create_task(node.start())
        await asyncio.wait([starting, self._ordered], return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            with suppress(asyncio.CancelledError):
                await starting
            return
        starting.result()
        self.ready.set_result(None)
        failed: asyncio.Future[Any] = node.failed
        await asyncio.wait([self._ordered, failed], return_when=asyncio.FIRST_COMPLETED)
        if not self._ordered.done():
            node.abandon()
            raise node.failed.result()
        if self._is_clean:
            await node.stop()


class ClusterNode:
    """A place in the cluster: an id, ports and a directory. Lives come and go in it."""

    def __init__(self, address: NodeAddress, settings: Settings, link: Link) -> None:
        self.id = address.id
        self.address = address.address
        """Where clients reach it."""
        self.controller_port = address.controller_port
        self.port = address.port
        self.data_dir = Path(settings.log_dirs[0])
        self.settings = settings
        self._link = link
        self._life: _Life | None = None

    @property
    def is_running(self) -> bool:
        """Not stopped, not killed, not fallen over; it may be frozen."""
        return self._life is not None and not self._life.is_over

    @property
    def is_paused(self) -> bool:
        return self._life is not None and self._life.is_frozen

    @property
    def node(self) -> Node | None:
        """The node itself while it runs and is ready: what it knows may be looked at, from any thread, not changed."""
        life = self._life
        if life is None or life.is_over or not life.ready.done() or life.ready.exception():
            return None
        return life.node

    def start(self) -> None:
        """Begins to start; `await_ready` waits for it."""
        assert not self.is_running, f"node {self.id} runs already"
        self._life = _Life(self.settings, self._link)

    def await_ready(self) -> None:
        assert self._life is not None, f"node {self.id} was never started"
        self._life.ready.result(READY_TIMEOUT_S)

    def stop(self) -> None:
        self._end(is_clean=True)

    def kill(self) -> None:
        self._end(is_clean=False)

    def pause(self) -> None:
        self._running().freeze()

    def resume(self) -> None:
        self._running().thaw()

    def fault(self) -> BaseException | None:
        """What made it fall over by itself, if anything did."""
        return None if self._life is None else self._life.fault

    def _end(self, is_clean: bool) -> None:
        self._running().end(is_clean)

    def _running(self) -> _Life:
        if self._life is None or self._life.is_over:
            raise ValueError(f"node {self.id} does not run")
        return self._life

    def __repr__(self) -> str:
        state = "paused" if self.is_paused else "up" if self.node else "starting" if self.is_running else "down"
        return f"<Moldau node {self.id} at {self.address}, {state}>"
