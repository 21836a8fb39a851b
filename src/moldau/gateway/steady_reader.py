"""Follows a topic for as long as it is there, whatever becomes of its records."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from moldau.base.errors import ErrorCode, KafkaError
from moldau.gateway.ports import Account, FoundRecord

PARTITIONS_CHECK_S: Final = 60.0


class SteadyReader:
    """Goes on behind records that were deleted before they were read, and with partitions that were added."""

    def __init__(self, account: Account, topic: str, positions: Mapping[int, int], *, is_whole: bool = False) -> None:
        """`is_whole`: partitions that are added belong to it."""
        self._account, self._topic, self._is_whole = account, topic, is_whole
        self._following = account.follow(topic, positions)
        self._check_at = asyncio.get_running_loop().time() + PARTITIONS_CHECK_S

    @property
    def positions(self) -> Mapping[int, int]:
        return self._following.positions

    async def next(self) -> Sequence[FoundRecord]:
        """Wait for records and return them. KafkaError if it cannot go on."""
        while True:
            try:
                async with asyncio.timeout_at(self._check_at if self._is_whole else None):
                    return await self._following.next()
            except TimeoutError:
                await self._add_partitions()
            except KafkaError as error:
                if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise
                self._begin_again(within(self.positions, await self._account.bounds(self._topic)))

    def close(self) -> None:
        self._following.close()

    async def _add_partitions(self) -> None:
        self._check_at = asyncio.get_running_loop().time() + PARTITIONS_CHECK_S
        bounds = await self._account.bounds(self._topic)
        new = {partition: first for partition, (first, _) in bounds.items() if partition not in self.positions}
        if new:
            self._begin_again({**self.positions, **new})

    def _begin_again(self, positions: Mapping[int, int]) -> None:
        self._following.close()
        self._following = self._account.follow(self._topic, positions)


def within(positions: Mapping[int, int], bounds: Mapping[int, tuple[int, int]]) -> dict[int, int]:
    """Return the positions without those whose records were deleted meanwhile."""
    return {
        partition: max(bounds[partition][0], min(position, bounds[partition][1]))
        for partition, position in positions.items()
        if partition in bounds
    }
