"""What must be done now and then: retention, flushing by time, checkpoints, forgetting idle producers.

Each chore is plain code run from its own small loop; a fault in one of them ends the node, it is not swallowed.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Iterable

from moldau.base.clock import Clock
from moldau.base.errors import StorageFault
from moldau.base.ids import TopicPartition
from moldau.log.store import LogStore
from moldau.replica.flushing import Flusher
from moldau.replica.partition import Partition

log = logging.getLogger("moldau.housekeeping")
DISK_IS_FULL = (errno.ENOSPC, errno.EDQUOT)


class Housekeeping:
    def __init__(
        self,
        partitions: Iterable[Partition],
        store: LogStore,
        flusher: Flusher,
        clock: Clock,
        producer_id_expiration_ms: int,
    ) -> None:
        self._partitions = partitions
        self._store = store
        self._flusher = flusher
        self._clock = clock
        self._producer_id_expiration_ms = producer_id_expiration_ms
        self._writing: asyncio.Future[None] | None = None

    async def every(self, interval_ms: int, chore: Callable[[], None]) -> None:
        while True:
            await asyncio.sleep(interval_ms / 1000)
            chore()

    async def keep_checkpoints(self, interval_ms: int) -> None:
        """Writes how far the logs are safe, where they begin and how far consumers may read; a thread waits for the
        disk."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(interval_ms / 1000)
            for name, content in self._store.checkpoints(self.high_watermarks()):
                self._writing = loop.run_in_executor(None, self._store.write_checkpoint, name, content)
                await self._written(name)

    async def _written(self, name: str) -> None:
        """A full disk is no reason to stop: the checkpoint that is there stays true, and those who read are served."""
        assert self._writing is not None
        try:
            await asyncio.shield(self._writing)
        except StorageFault as fault:
            if fault.cause.errno not in DISK_IS_FULL:
                raise
            log.warning("%s stays as it was: %s", name, fault)

    async def finish(self) -> None:
        """Waits for a checkpoint that a thread is still writing."""
        if self._writing is not None:
            await asyncio.wait([self._writing])

    def high_watermarks(self) -> dict[TopicPartition, int]:
        return {partition.name: partition.high_watermark for partition in self._partitions}

    def retain(self) -> None:
        """Takes out segments whose time has come, and removes the files of those taken out before."""
        now_ms = self._clock.now_ms()
        for partition in list(self._partitions):
            dropped = partition.delete_expired(now_ms)
            if dropped:
                log.info("%s: %d segments deleted by retention", partition.name, dropped)
        self._store.purge(now_ms)

    def flush_by_time(self) -> None:
        now_ms = self._clock.now_ms()
        for partition in self._partitions:
            log = partition.log
            if log.end_offset != log.recovery_point and log.flush_due(now_ms):
                self._flusher.request(partition)

    def expire_producers(self) -> None:
        now_ms = self._clock.now_ms()
        for partition in self._partitions:
            partition.log.producers.expire(now_ms, self._producer_id_expiration_ms)
