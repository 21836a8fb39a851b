"""The two compacted topics of the gateway: read at the start, then followed, and appended to with its own account."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from moldau.base.errors import ErrorCode, KafkaError
from moldau.gateway.ports import Account, Following, FoundRecord, NewRecord, Place

log = logging.getLogger(__name__)

RECORDS_PER_TURN: Final = 100
PARTITIONS_CHECK_S: Final = 60.0
LOAD_CHECK_S: Final = 5.0
"""The last offsets of a topic may have no records: then its reader gets there without returning any."""
AGAIN_S: Final = 1.0


class StoredTopic:
    def __init__(self, own: Account, topic: str, apply: Callable[[FoundRecord], None]) -> None:
        self._own = own
        self._topic = topic
        self._apply = apply
        self._positions: dict[int, int] = {}
        self._following: Following | None = None
        """None: the topic cannot be read now."""
        self._task: asyncio.Task[None] | None = None
        self._waiting: list[asyncio.Future[None]] = []
        self._check: asyncio.Timeout | None = None
        """When the reader that waits for records looks for new partitions."""

    async def load(self) -> None:
        """Read everything that is there, then go on in the background; nothing if that was done. KafkaError if there is
        no such topic, or no right to read it."""
        if self._task is not None:
            return
        try:
            await self._own.check_read(self._topic)
            bounds = await self._own.bounds(self._topic)
        except KafkaError as error:
            raise KafkaError(
                error.code, f"the topic {self._topic}: {error}; create it with cleanup.policy=compact"
            ) from error
        ends = {partition: end for partition, (first, end) in bounds.items() if end > first}
        try:
            following = self._follow(bounds)
            while any(following.positions.get(partition, 0) < end for partition, end in ends.items()):
                await self._read(following, LOAD_CHECK_S)
        except BaseException:
            self._close()
            raise
        self._task = asyncio.create_task(self._read_on(), name=f"mqtt reader of {self._topic}")

    async def append(self, records: Sequence[NewRecord]) -> list[Place]:
        """Append records. KafkaError if one of them is not."""
        outcome = await self._own.append(self._topic, records)
        for each in outcome:
            if isinstance(each, KafkaError):
                raise each
        return [each for each in outcome if isinstance(each, Place)]

    async def applied(self, places: Sequence[Place]) -> None:
        """Wait until records that were appended have been read back. KafkaError if the topic is not read now."""
        while self._following is not None:
            if all(self._positions.get(partition, 0) > offset for partition, offset in places):
                return
            if self._check is not None and any(partition not in self._positions for partition, _ in places):
                self._check.reschedule(asyncio.get_running_loop().time())
            future = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            await future
        raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"{self._topic} is not read now")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._close()

    async def _read_on(self) -> None:
        """It never ends by itself: a topic that cannot be read now may be read later."""
        while True:
            try:
                if self._following is None or not await self._read(self._following, PARTITIONS_CHECK_S):
                    self._follow(await self._own.bounds(self._topic))
                continue
            except KafkaError as error:
                if self._following is not None:
                    log.error("mqtt: %s cannot be read now: %s", self._topic, error.code.name)
            except Exception:
                log.exception("mqtt: internal error in the reader of %s", self._topic)
            self._close()
            await asyncio.sleep(AGAIN_S)

    def _follow(self, bounds: Mapping[int, tuple[int, int]]) -> Following:
        """Follow all partitions there are, each from where it was read to. Where that cannot be, because records were
        deleted or the topic is another one by now, it is read from its start: what was applied may be again."""
        following = self._following
        if following is None or bounds.keys() != self._positions.keys():
            before = self._positions
            self._close()
            self._positions = {
                partition: position if first <= (position := before.get(partition, first)) <= end else first
                for partition, (first, end) in bounds.items()
            }
            following = self._following = self._own.follow(self._topic, self._positions)
        return following

    def _close(self) -> None:
        if self._following is not None:
            self._following.close()
            self._following = None
        self._wake()

    async def _read(self, following: Following, check_s: float) -> bool:
        """Apply the next records; return whether there were some within this time."""
        try:
            async with asyncio.timeout(check_s) as self._check:
                records = await following.next()
        except TimeoutError:
            return False
        finally:
            self._check = None
        for count, record in enumerate(records, 1):
            self._positions[record.partition] = record.offset + 1
            self._apply(record)
            if count % RECORDS_PER_TURN == 0:
                await asyncio.sleep(0)
        self._wake()
        return True

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)
