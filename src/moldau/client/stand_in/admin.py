"""confluent_kafka's AdminClient, as far as the tools use it. Every call is made at once and returns finished
futures."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Any, Final, NamedTuple, TypeVar

from moldau.base.errors import MalformedData
from moldau.base.ids import TopicPartition as PartitionId
from moldau.client.cluster import CONNECT_SECONDS, EARLIEST, LATEST, Cluster
from moldau.client.groups import Groups
from moldau.client.stand_in.metadata import ClusterMetadata, list_topics
from moldau.client.stand_in.settings import addresses, require_valid
from moldau.client.stand_in.values import (
    CLIENT_ERRORS,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicPartition,
    as_kafka_exceptions,
    broker_error,
    to_kafka_error,
)
from moldau.wire.apis import ApiKey
from moldau.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from moldau.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from moldau.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from moldau.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from moldau.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from moldau.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

REQUEST_SECONDS: Final = 30.0
EXTRA_SECONDS: Final = 5.0
"""How much longer than the broker may take its response is awaited, if the request must not be repeated: when it was
only slow, its topic already exists, or no longer does."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NewTopic:
    topic: str
    num_partitions: int = -1
    replication_factor: int = -1
    replica_assignment: Sequence[Sequence[int]] = ()
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NewPartitions:
    topic: str
    new_total_count: int
    replica_assignment: Sequence[Sequence[int]] | None = None


class AlterConfigOpType(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigSource(Enum):
    DYNAMIC_TOPIC_CONFIG = 1


class ConfigEntry:
    def __init__(
        self,
        name: str,
        value: str | None,
        source: int = -1,
        synonyms: Mapping[str, ConfigEntry] | None = None,
        incremental_operation: AlterConfigOpType = AlterConfigOpType.SET,
    ) -> None:
        self.name = name
        self.value = value
        self.source = source
        self.synonyms = synonyms or {}
        self.incremental_operation = incremental_operation


class ConfigResource:
    class Type(IntEnum):
        TOPIC = 2
        BROKER = 4

    def __init__(self, restype: Type, name: str, incremental_configs: Sequence[ConfigEntry] = ()) -> None:
        self.restype = restype
        self.name = name
        self.incremental_configs = incremental_configs


class OffsetSpec(NamedTuple):
    time_ms: int

    @classmethod
    def earliest(cls) -> OffsetSpec:
        return cls(EARLIEST)

    @classmethod
    def latest(cls) -> OffsetSpec:
        return cls(LATEST)

    @classmethod
    def for_timestamp(cls, time_ms: int) -> OffsetSpec:
        return cls(time_ms)


class ListedOffset(NamedTuple):
    offset: int


class DeletedRecords(NamedTuple):
    low_watermark: int


class ListedGroups(NamedTuple):
    errors: list[KafkaError]


class AdminClient:
    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config
        self._cluster = connect(config)
        weakref.finalize(self, self._cluster.close)

    def list_topics(self, topic: str | None = None, timeout: float = REQUEST_SECONDS) -> ClusterMetadata:
        return call_on_new_connection(self._config, timeout, lambda cluster: list_topics(cluster, topic))

    def create_topics(
        self, topics: Iterable[NewTopic], request_timeout: float = REQUEST_SECONDS
    ) -> dict[str, Future[None]]:
        requested = [
            CreatableTopic(
                each.topic,
                -1 if each.replica_assignment else each.num_partitions,
                -1 if each.replica_assignment else each.replication_factor,
                [CreatableReplicaAssignment(index, ids) for index, ids in enumerate(each.replica_assignment)],
                [CreatableTopicConfig(name, value) for name, value in each.config.items()],
            )
            for each in topics
        ]

        def attempt() -> dict[str, Future[None]]:
            request = CreateTopicsRequest(requested, timeout_ms=int(request_timeout * 1000))
            response = self._cluster.ask_any_patiently(
                ApiKey.CREATE_TOPICS, request, CreateTopicsResponse, request_timeout + EXTRA_SECONDS
            )
            return {each.name: _future(None, each.error_code, each.error_message) for each in response.topics}

        return self._call(attempt, [each.name for each in requested])

    def create_partitions(
        self, growth: Iterable[NewPartitions], request_timeout: float = REQUEST_SECONDS
    ) -> dict[str, Future[None]]:
        requested = [
            CreatePartitionsTopic(
                each.topic,
                each.new_total_count,
                None
                if each.replica_assignment is None
                else [CreatePartitionsAssignment(ids) for ids in each.replica_assignment],
            )
            for each in growth
        ]

        def attempt() -> dict[str, Future[None]]:
            request = CreatePartitionsRequest(requested, timeout_ms=int(request_timeout * 1000))
            response = self._cluster.ask_any_patiently(
                ApiKey.CREATE_PARTITIONS, request, CreatePartitionsResponse, request_timeout + EXTRA_SECONDS
            )
            return {each.name: _future(None, each.error_code, each.error_message) for each in response.results}

        return self._call(attempt, [each.name for each in requested])

    def delete_topics(self, names: Sequence[str], request_timeout: float = REQUEST_SECONDS) -> dict[str, Future[None]]:
        def attempt() -> dict[str, Future[None]]:
            states = [DeleteTopicState(name=name) for name in names]
            request = DeleteTopicsRequest(states, names, timeout_ms=int(request_timeout * 1000))
            response = self._cluster.ask_any_patiently(
                ApiKey.DELETE_TOPICS, request, DeleteTopicsResponse, request_timeout + EXTRA_SECONDS
            )
            return {each.name or "": _future(None, each.error_code, each.error_message) for each in response.responses}

        return self._call(attempt, names)

    def describe_configs(self, resources: Sequence[ConfigResource]) -> dict[ConfigResource, Future[dict[str, Any]]]:
        def attempt() -> dict[ConfigResource, Future[dict[str, Any]]]:
            requested = [DescribeConfigsResource(each.restype, each.name, None) for each in resources]
            request = DescribeConfigsRequest(requested, include_synonyms=True)
            response = self._cluster.ask_any(ApiKey.DESCRIBE_CONFIGS, request, DescribeConfigsResponse)
            return {
                resource: _future(
                    {each.name: _entry(each) for each in result.configs}, result.error_code, result.error_message
                )
                for resource, result in _with_results(resources, response.results)
            }

        return self._call(attempt, resources)

    def incremental_alter_configs(self, resources: Sequence[ConfigResource]) -> dict[ConfigResource, Future[None]]:
        def attempt() -> dict[ConfigResource, Future[None]]:
            requested = [
                AlterConfigsResource(
                    each.restype,
                    each.name,
                    [
                        AlterableConfig(change.name, change.incremental_operation, change.value)
                        for change in each.incremental_configs
                    ],
                )
                for each in resources
            ]
            response = self._cluster.ask_any(
                ApiKey.INCREMENTAL_ALTER_CONFIGS,
                IncrementalAlterConfigsRequest(requested),
                IncrementalAlterConfigsResponse,
            )
            return {
                resource: _future(None, result.error_code, result.error_message)
                for resource, result in _with_results(resources, response.responses)
            }

        return self._call(attempt, resources)

    def list_offsets(
        self,
        specs: Mapping[TopicPartition, OffsetSpec],
        isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[TopicPartition, Future[ListedOffset]]:
        def attempt() -> dict[TopicPartition, Future[ListedOffset]]:
            at = {PartitionId(each.topic, each.partition): spec.time_ms for each, spec in specs.items()}
            offsets = self._cluster.list_offsets(at, isolation_level is IsolationLevel.READ_COMMITTED)
            return {each: _future(ListedOffset(offsets[PartitionId(each.topic, each.partition)])) for each in specs}

        return self._call(attempt, list(specs))

    def delete_records(self, before: Sequence[TopicPartition]) -> dict[TopicPartition, Future[DeletedRecords]]:
        def attempt(each: TopicPartition) -> dict[TopicPartition, Future[DeletedRecords]]:
            topics = [DeleteRecordsTopic(each.topic, [DeleteRecordsPartition(each.partition, each.offset)])]
            node = self._cluster.leader(PartitionId(each.topic, each.partition))
            request = DeleteRecordsRequest(topics, int(REQUEST_SECONDS * 1000))
            response = self._cluster.channel(node).ask(ApiKey.DELETE_RECORDS, request, DeleteRecordsResponse)
            (result,) = response.topics[0].partitions
            return {each: _future(DeletedRecords(result.low_watermark), result.error_code)}

        futures: dict[TopicPartition, Future[DeletedRecords]] = {}
        for partition in before:
            futures |= self._call(lambda partition=partition: attempt(partition), [partition])  # type: ignore[misc]
        return futures

    def list_consumer_groups(self, request_timeout: float = REQUEST_SECONDS) -> Future[ListedGroups]:
        try:
            Groups(self._cluster, int(request_timeout * 1000)).listed()
        except CLIENT_ERRORS as error:
            return _future(ListedGroups([to_kafka_error(error)]))
        return _future(ListedGroups([]))

    def _call(self, call: Callable[[], dict[Any, Future[Any]]], subjects: Sequence[Any]) -> dict[Any, Future[Any]]:
        """Return the futures of `call`; if it fails, a failed future for each subject."""
        try:
            return self._cluster.retry(call, REQUEST_SECONDS * 1000)
        except CLIENT_ERRORS as error:
            kafka_error = to_kafka_error(error)
            return {subject: _failed_future(kafka_error) for subject in subjects}


def connect(config: Mapping[str, Any], timeout_seconds: float = CONNECT_SECONDS) -> Cluster:
    """Return the cluster for librdkafka's properties; of the callbacks among them only `oauth_cb` is used."""
    properties = {name: value for name, value in config.items() if isinstance(value, str)}
    with as_kafka_exceptions():
        require_valid(config)
        return Cluster(addresses(properties["bootstrap.servers"]), properties, timeout_seconds, config.get("oauth_cb"))


def call_on_new_connection(config: Mapping[str, Any], timeout: float, call: Callable[[Cluster], T]) -> T:
    """Call on a new connection, which waits no longer than the caller's timeout."""
    cluster = connect(config, min(timeout, CONNECT_SECONDS))
    with as_kafka_exceptions(), closing(cluster):
        return cluster.retry(lambda: call(cluster), timeout * 1000)


def _with_results(resources: Sequence[ConfigResource], results: Iterable[Any]) -> list[tuple[ConfigResource, Any]]:
    """Return each resource with its result. Apache Kafka puts those last that the user may not see or change."""
    by_name = {(each.resource_type, each.resource_name): each for each in results}
    try:
        return [(each, by_name[each.restype, each.name]) for each in resources]
    except KeyError as error:
        raise MalformedData(f"the response has no result for {error}") from error


def _entry(config: DescribeConfigsResourceResult) -> ConfigEntry:
    synonyms = {each.name: ConfigEntry(each.name, each.value, each.source) for each in config.synonyms}
    return ConfigEntry(config.name, config.value, config.config_source, synonyms)


def _future(result: Any, error_code: int = 0, message: str | None = None) -> Future[Any]:
    if error_code:
        return _failed_future(broker_error(error_code, message))
    future: Future[Any] = Future()
    future.set_result(result)
    return future


def _failed_future(error: KafkaError) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_exception(KafkaException(error))
    return future
