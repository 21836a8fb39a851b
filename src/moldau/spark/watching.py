"""Waits for new records without polling: a Fetch at the end of the partitions returns when one of them grows.

The requests stay in flight between calls, on separate connections. The records they return are dropped (one batch at
most, by `max_bytes`): it only matters that there are some.
"""

from __future__ import annotations

import selectors
from collections.abc import Sequence
from typing import Final

from moldau.base.errors import KafkaError, MalformedData
from moldau.base.ids import TopicPartition, by_topic
from moldau.client.channel import Channel
from moldau.client.cluster import Offsets
from moldau.spark.connections import connect
from moldau.spark.options import ReadOptions
from moldau.wire.apis import ApiKey
from moldau.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic

PARKED_MS_MAX: Final = 5_000
"""How long the broker keeps a Fetch without new records."""


class Watch:
    def __init__(self, options: ReadOptions) -> None:
        self._cluster = connect(options)
        self._options = options

    def wait(self, ends: Offsets, seconds: float) -> bool:
        """Wait for records after `ends`, and return whether there may be some.

        After an error return True: the caller's next request meets the same error and handles it.
        """
        try:
            channels = [
                self._park(node, partitions, ends) for node, partitions in self._cluster.by_leader(ends).items()
            ]
            ready = _readable(channels, seconds)
            responses = [channel.receive(FetchResponse) for channel in ready]
            if any(map(_has_error, responses)):
                self.close()  # a leader has moved or a topic was created again: look it up before the next request
        except (OSError, MalformedData, KafkaError):
            self.close()
            return True
        return bool(ready)

    def close(self) -> None:
        self._cluster.close()

    def _park(self, node: int, partitions: list[TopicPartition], ends: Offsets) -> Channel:
        channel = self._cluster.channel(node)
        if not channel.in_flight:
            channel.send(ApiKey.FETCH, self._request(partitions, ends))
        return channel

    def _request(self, partitions: list[TopicPartition], ends: Offsets) -> FetchRequest:
        return FetchRequest(
            max_wait_ms=PARKED_MS_MAX,
            min_bytes=1,
            max_bytes=1,
            isolation_level=int(self._options.read_committed),
            topics=[
                FetchTopic(
                    self._cluster.topic(name).topic_id,
                    name,
                    [
                        FetchPartition(index, fetch_offset=ends[TopicPartition(name, index)], partition_max_bytes=1)
                        for index in indexes
                    ],
                )
                for name, indexes in by_topic(partitions).items()
            ],
        )


def _has_error(response: FetchResponse) -> bool:
    return bool(response.error_code) or any(
        data.error_code for topic in response.responses for data in topic.partitions
    )


def _readable(channels: Sequence[Channel], seconds: float) -> list[Channel]:
    """Wait until a response arrives or the time is over. Return the channels that have a response.

    `select.select` would fail for file descriptors above 1023: a driver may have more open files.
    """
    if buffered := [channel for channel in channels if channel.has_buffered]:
        return buffered
    with selectors.DefaultSelector() as selector:
        for channel in channels:
            selector.register(channel, selectors.EVENT_READ, channel)
        return [key.data for key, _ in selector.select(seconds)]
