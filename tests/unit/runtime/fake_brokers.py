"""A BrokerClient whose responses are given by the test."""

from __future__ import annotations

from typing import Any

from moldau.base.persistent_map import PersistentMap
from moldau.base.promise import Promise
from moldau.metadata.current import CurrentImage
from moldau.metadata.image import MetadataImage, PartitionState, TopicImage
from moldau.runtime.broker.broker_client import BrokerClient
from moldau.testing.ports import NoPeers
from moldau.wire.apis import ApiKey
from moldau.wire.schema import Message


class FakeBrokers(BrokerClient):
    def __init__(self) -> None:
        super().__init__(1, CurrentImage(), NoPeers(), "PLAINTEXT", "test", lambda api, request: request)
        self.requests: list[tuple[int, Any, Promise[Any]]] = []

    def ask(self, node_id: int, api: ApiKey, request: Message) -> Promise[Any]:
        answer: Promise[Any] = Promise()
        self.requests.append((node_id, request, answer))
        return answer

    def take(self) -> tuple[int, Any, Promise[Any]]:
        """Return the next request: node, request and the promise of its response."""
        return self.requests.pop(0)


def image_of(**leaders: list[int]) -> MetadataImage:
    """Return an image with topics and the leaders of their partitions."""
    topics = {
        name: TopicImage(
            name,
            name.encode().ljust(16, b"."),
            tuple(PartitionState((1, 2, 3), (1, 2, 3), leader, 1, 1) for leader in each),
        )
        for name, each in leaders.items()
    }
    return MetadataImage(topics=PersistentMap(topics))
