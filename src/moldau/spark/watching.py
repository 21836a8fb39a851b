"""Waits for new records without polling: a Fetch at the end of the partitions returns when one of them grows.

The requests stay in flight between calls, on separate connections. The records they return are dropped (one batch at
most, by `max_bytes`): it only matters that there are some.
"""

from __future__ import annotations

import selectors
from collections.abc import Iterable
from typing import Final

from moldau.base.errors import KafkaError, MalformedData
from moldau.base.ids import TopicPartition
from moldau.client.channel import Channel
from moldau.client.cluster import Offsets
from moldau.client.fetching.requests import Fetch, FetchLimits
from moldau.spark.connections import connect
from moldau.spark.options import ReadOptions
from moldau.wire.apis import ApiKey
from moldau.wire.messages.fetch import FetchResponse

PARKED: Final = FetchLimits(wait_ms=5_000, bytes_max=1, partition_bytes_max=1)
"""The broker keeps a Fetch so long without new records."""


class Watch:
    def __init__(self, options: ReadOptions) -> None:
        self._cluster = connect(options)
        self._options = options
        self._parked: dict[Channel, Fetch] = {}

    def wait(self, ends: Offsets, seconds: float) -> bool:
        """Wait for records after `ends`, and return whether there may be some.

        After an error return True: the caller's next request meets the same error and handles it.
        """
        try:
            for node, partitions in self._cluster.by_leader(ends).items():
                self._park(node, partitions, ends)
            ready = _readable(self._parked, seconds)
            answered = [
                each
                for channel in ready
                for each in self._parked.pop(channel).partitions(channel.receive(FetchResponse))
            ]
            if any(each.error for each in answered):
                self.close()  # a leader has moved or a topic was created again: look it up before the next request
        except (OSError, MalformedData, KafkaError):
            self.close()
            return True
        return bool(ready)

    def close(self) -> None:
        self._parked.clear()
        self._cluster.close()

    def _park(self, node: int, partitions: list[TopicPartition], ends: Offsets) -> None:
        channel = self._cluster.channel(node)
        if not channel.in_flight:
            positions = {partition: ends[partition] for partition in partitions}
            sent = Fetch(self._cluster.topic, positions, PARKED, self._options.read_committed)
            channel.send(ApiKey.FETCH, sent.request)
            self._parked[channel] = sent


def _readable(channels: Iterable[Channel], seconds: float) -> list[Channel]:
    """Wait until a response arrives or the time is over. Return the channels that have a response.

    `select.select` would fail for file descriptors above 1023: a driver may have more open files.
    """
    if buffered := [channel for channel in channels if channel.has_buffered]:
        return buffered
    with selectors.DefaultSelector() as selector:
        for channel in channels:
            selector.register(channel, selectors.EVENT_READ, channel)
        return [key.data for key, _ in selector.select(seconds)]
