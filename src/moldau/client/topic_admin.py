"""Requests about topics over our own channel: create, grow, delete, and the configs of topics and brokers.

The command line uses confluent-kafka for these; the console keeps no librdkafka client in memory.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from moldau.base.errors import ErrorCode, KafkaError
from moldau.client.broker_admin import BROKER, TOPIC
from moldau.client.cluster_admin import ClusterAdmin
from moldau.wire.apis import ApiKey
from moldau.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from moldau.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from moldau.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from moldau.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)

TIMEOUT_MS_MIN: Final = 1_000
TOPICS_PER_REQUEST: Final = 500
"""Topics whose configs are asked for at once."""
ANSWER_MS: Final = 2_000
"""The time for the response itself."""
SOURCES: Final = {1: "topic", 2: "broker", 3: "broker", 4: "broker", 5: "default"}
TYPES: Final = ("UNKNOWN", "BOOLEAN", "STRING", "INT", "SHORT", "LONG", "DOUBLE", "LIST", "CLASS", "PASSWORD")
INLINE_TAGS: Final = frozenset({"a", "b", "code", "em", "i"})
_TAG: Final = re.compile(r"</?([A-Za-z][A-Za-z0-9]*)[^<>]*>")


class Config(NamedTuple):
    name: str
    value: str | None
    default: str | None
    """The value that applies if this one is removed: the next of the synonyms."""
    source: str
    read_only: bool
    sensitive: bool
    type: str
    documentation: str | None


def create_topic(
    admin: ClusterAdmin,
    name: str,
    partitions: int = -1,
    replication_factor: int = -1,
    configs: Mapping[str, str] | None = None,
    validate_only: bool = False,
) -> None:
    """Create a topic, or only check that it could be; -1 is the broker's default. Raises KafkaError."""
    topic = CreatableTopic(
        name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        configs=[CreatableTopicConfig(key, value) for key, value in (configs or {}).items()],
    )
    request = CreateTopicsRequest([topic], timeout_ms=_timeout_ms(admin), validate_only=validate_only)
    response = admin.ask(ApiKey.CREATE_TOPICS, request, CreateTopicsResponse)
    _raise(response.topics[0].error_code, response.topics[0].error_message)


def grow_topic(admin: ClusterAdmin, name: str, partitions: int) -> None:
    """Add partitions, so that there are this many."""
    request = CreatePartitionsRequest([CreatePartitionsTopic(name, partitions, None)], timeout_ms=_timeout_ms(admin))
    response = admin.ask(ApiKey.CREATE_PARTITIONS, request, CreatePartitionsResponse)
    _raise(response.results[0].error_code, response.results[0].error_message)


def delete_topic(admin: ClusterAdmin, name: str) -> None:
    request = DeleteTopicsRequest([DeleteTopicState(name=name)], [name], timeout_ms=_timeout_ms(admin))
    response = admin.ask(ApiKey.DELETE_TOPICS, request, DeleteTopicsResponse)
    _raise(response.responses[0].error_code, response.responses[0].error_message)


def chosen_configs(
    admin: ClusterAdmin, topics: Sequence[str], names: Sequence[str]
) -> dict[str, dict[str, str | None] | KafkaError]:
    """Return these configs of each topic, or why they cannot be read. A broker that does not know them leaves them
    out."""
    found: dict[str, dict[str, str | None] | KafkaError] = {}
    for start in range(0, len(topics), TOPICS_PER_REQUEST):
        resources = [
            DescribeConfigsResource(TOPIC, name, list(names)) for name in topics[start : start + TOPICS_PER_REQUEST]
        ]
        response = admin.ask(ApiKey.DESCRIBE_CONFIGS, DescribeConfigsRequest(resources), DescribeConfigsResponse)
        for result in response.results:
            found[result.resource_name] = (
                KafkaError(ErrorCode(result.error_code), result.error_message)
                if result.error_code
                else {entry.name: entry.value for entry in result.configs}
            )
    return found


def topic_configs(admin: ClusterAdmin, name: str) -> list[Config]:
    return _configs(admin, TOPIC, name, None)


def broker_configs(admin: ClusterAdmin, broker: int) -> list[Config]:
    return _configs(admin, BROKER, str(broker), broker)


def _configs(admin: ClusterAdmin, kind: int, name: str, broker: int | None) -> list[Config]:
    request = DescribeConfigsRequest(
        [DescribeConfigsResource(kind, name, None)], include_synonyms=True, include_documentation=True
    )
    response = admin.ask(ApiKey.DESCRIBE_CONFIGS, request, DescribeConfigsResponse, broker)
    result = response.results[0]
    _raise(result.error_code, result.error_message)
    return sorted(map(_config, result.configs))


def _config(entry: DescribeConfigsResourceResult) -> Config:
    others: Sequence[str | None] = [each.value for each in entry.synonyms if each.source != entry.config_source]
    source = SOURCES.get(entry.config_source, "default")
    return Config(
        entry.name,
        None if entry.is_sensitive else entry.value,
        (others[0] if others else None) if source != "default" else entry.value,
        source,
        entry.read_only,
        entry.is_sensitive,
        TYPES[entry.config_type] if 0 <= entry.config_type < len(TYPES) else TYPES[0],
        plain_text(entry.documentation or "") or None,
    )


def plain_text(documentation: str) -> str:
    """Return the documentation of a config without its markup: that of Apache Kafka is HTML."""
    return html.unescape(_TAG.sub(lambda tag: "" if tag[1].lower() in INLINE_TAGS else " ", documentation)).strip()


def _timeout_ms(admin: ClusterAdmin) -> int:
    """Return how long the broker may take. It has to answer before the client gives up and asks again: the retry of a
    change that was only slow would fail, because the topic exists already, or no longer."""
    return max(TIMEOUT_MS_MIN, admin.cluster.timeout_ms - ANSWER_MS)


def _raise(error_code: int, message: str | None) -> None:
    if error_code:
        raise KafkaError(ErrorCode(error_code), message)
