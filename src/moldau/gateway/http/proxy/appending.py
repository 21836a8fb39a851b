"""Appends the records of a request piece by piece: others get their turn of the event loop in between."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from moldau.base.errors import KafkaError
from moldau.gateway.ports import Account, Appended, NewRecord, Place

PIECE_RECORDS: Final = 250
"""About a millisecond, if they have keys."""


async def appended(account: Account, topic: str, records: Sequence[NewRecord]) -> Appended:
    """Return what became of each record. KafkaError if none could be appended."""
    if len(records) <= PIECE_RECORDS:
        return await account.append(topic, records)
    pieces = [records[start : start + PIECE_RECORDS] for start in range(0, len(records), PIECE_RECORDS)]
    tasks: list[asyncio.Task[Appended]] = []
    try:
        for piece in pieces:  # they begin in order, so the records stay in order
            tasks.append(asyncio.create_task(account.append(topic, piece), name=f"append to {topic}"))
            await asyncio.sleep(0)
        results = await asyncio.gather(*tasks, return_exceptions=True)
    except asyncio.CancelledError:
        for task in tasks:
            task.cancel()
        raise
    outcomes: list[Place | KafkaError] = []
    for piece, result in zip(pieces, results, strict=True):
        if isinstance(result, KafkaError):
            outcomes += [result] * len(piece)
        elif isinstance(result, BaseException):
            raise result
        else:
            outcomes += result
    if isinstance(results[0], KafkaError) and not any(isinstance(each, Place) for each in outcomes):
        raise results[0]
    return outcomes
