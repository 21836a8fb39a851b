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
LOAD_QUIET_S: Final = 5.0
"""If no record comes for so long, the topic is read to its end: behind the last record there may be offsets without."""


class StoredTopic:
    def __init__(self, own: Account, topic: str, apply: Callable[[FoundRecord], None]) -> None:
        self._own = own
        self._topic = topic
        self._apply = apply
        self._positions: dict[int, int] = {}
        self._following: Following | None = None
        self._task: asyncio.Task[None] | None = None
        self._waiting: list[asyncio.Future[None]] = []
        self._is_followed = False

    async def load(self) -> None:
        """Read everything that is there, then go on in the background; nothing if that was done. KafkaError if there is
        no such topic."""
        if self._is_followed:
            return
        try:
            bounds = await self._own.bounds(self._topic)
        except KafkaError as error:
            raise KafkaError(
                error.code, f"the topic {self._topic}: {error}; create it with cleanup.policy=compact"
            ) from error
        self._positions = {partition: first for partition, (first, _) in bounds.items()}
        following = self._own.follow(self._topic, self._positions)
        try:
            await self._read_to(
                {partition: end for partition, (first, end) in bounds.items() if end > first}, following
            )
        except BaseException:
            following.close()
            raise
        self._following = following
        self._is_followed = True
        self._task = asyncio.create_task(self._follow(following), name=f"mqtt reader of {self._topic}")

    async def append(self, records: Sequence[NewRecord]) -> list[Place]:
        """Append records. KafkaError if one of them is not."""
        outcome = await self._own.append(self._topic, records)
        for each in outcome:
            if isinstance(each, KafkaError):
                raise each
        return [each for each in outcome if isinstance(each, Place)]

    async def applied(self, places: Sequence[Place]) -> None:
        """Wait until records that were appended have been read back."""
        while any(self._positions.get(partition, 0) <= offset for partition, offset in places):
            if not self._is_followed:
                raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"{self._topic} is not read any more")
            future = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            await future

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._following is not None:
            self._following.close()

    async def _read_to(self, ends: Mapping[int, int], following: Following) -> None:
        while any(following.positions.get(partition, 0) < end for partition, end in ends.items()):
            try:
                records = await asyncio.wait_for(following.next(), LOAD_QUIET_S)
            except TimeoutError:
                log.info("mqtt: %s: nothing more to read", self._topic)
                return
            await self._apply_all(records)

    async def _follow(self, following: Following) -> None:
        try:
            while True:
                await self._apply_all(await following.next())
        except KafkaError as error:
            log.error("mqtt: %s cannot be read any more: %s", self._topic, error.code.name)
        finally:
            self._is_followed = False
            self._wake()

    async def _apply_all(self, records: Sequence[FoundRecord]) -> None:
        for count, record in enumerate(records, 1):
            self._apply(record)
            self._positions[record.partition] = record.offset + 1
            if count % RECORDS_PER_TURN == 0:
                await asyncio.sleep(0)
        self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)
