"""What the gateway asks the cluster as itself, with the client that blocks: rarely, and in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

from moldau.base.errors import ErrorCode, KafkaError, MalformedData
from moldau.base.settings.topics import CLEANUP_POLICY
from moldau.client.cluster import Cluster

T = TypeVar("T")
COMPACTED: Final = {CLEANUP_POLICY.name: "compact"}


async def ask_cluster(bootstrap: str, properties: Mapping[str, str], action: Callable[[Cluster], T]) -> T:
    """Return what the action returns. KafkaError if that fails, or no broker can be reached."""
    return await asyncio.to_thread(_ask, bootstrap, properties, action)


async def create_compacted(bootstrap: str, properties: Mapping[str, str], names: Iterable[str]) -> None:
    """Create those of these topics that are not there, compacted, with one partition. Whoever may not create topics is
    refused also if they are there: then whether they are is what counts."""
    topics = list(names)

    def create(cluster: Cluster) -> None:
        for topic in topics:
            try:
                cluster.create_topic(topic, 1, configs=COMPACTED)
            except KafkaError as error:
                if error.code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED or not _is_there(cluster, topic):
                    raise KafkaError(error.code, f"the topic {topic} cannot be created: {error}") from None

    await ask_cluster(bootstrap, properties, create)


def _is_there(cluster: Cluster, topic: str) -> bool:
    try:
        cluster.topic(topic)
    except KafkaError as error:
        if error.code not in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_AUTHORIZATION_FAILED):
            raise
        return False
    return True


def _ask(bootstrap: str, properties: Mapping[str, str], action: Callable[[Cluster], T]) -> T:
    cluster = Cluster(bootstrap, properties)
    try:
        return action(cluster)
    except (OSError, MalformedData) as error:
        raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, str(error)) from None
    finally:
        cluster.close()
