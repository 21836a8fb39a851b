"""What a broker is asked and told that it alone can answer: in which directory its replicas lie, and its own configs.

Each goes to the broker concerned over that broker's connection. For calls to the cluster as a whole see
cluster_admin.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from moldau.base.errors import ErrorCode, KafkaError
from moldau.client.cluster import by_topic
from moldau.client.cluster_admin import ClusterAdmin, raise_refusal
from moldau.client.cluster_values import Replica, ReplicaLogDir
from moldau.client.controllers import Controllers
from moldau.wire.apis import ApiKey
from moldau.wire.messages import alter_replica_log_dirs, describe_log_dirs, incremental_alter_configs

TOPIC: Final = 2
BROKER: Final = 4
"""The types of config resources."""
SET: Final = 0
DELETE: Final = 1

Changes = Mapping[str, str | None]
"""Configs to set; None takes one away."""


def replica_log_dirs(admin: ClusterAdmin, replicas: Iterable[Replica]) -> dict[Replica, ReplicaLogDir]:
    """Where each replica lies; nowhere, for one that its broker does not have."""
    api = describe_log_dirs
    found: dict[Replica, ReplicaLogDir] = {}
    for broker, theirs in by_broker(replicas).items():
        found.update(dict.fromkeys(theirs, ReplicaLogDir(None, None)))
        grouped = by_topic(replica.where for replica in theirs)
        topics = [api.DescribableLogDirTopic(name, indexes) for name, indexes in grouped.items()]
        answer = admin.ask(
            ApiKey.DESCRIBE_LOG_DIRS, api.DescribeLogDirsRequest(topics), api.DescribeLogDirsResponse, broker
        )
        for result in answer.results:
            if result.error_code:
                continue
            for topic in result.topics:
                for each in topic.partitions:
                    replica = Replica(topic.name, each.partition_index, broker)
                    change = {"future" if each.is_future_key else "current": result.log_dir}
                    found[replica] = found.get(replica, ReplicaLogDir(None, None))._replace(**change)
    return found


def move_replicas(admin: ClusterAdmin, wanted: Mapping[Replica, str]) -> dict[Replica, KafkaError | None]:
    """Begins to move replicas to other directories of the brokers they are on; what came of each."""
    api = alter_replica_log_dirs
    found: dict[Replica, KafkaError | None] = {}
    for broker, theirs in by_broker(wanted).items():
        paths: dict[str, list[Replica]] = {}
        for replica in theirs:
            paths.setdefault(wanted[replica], []).append(replica)
        dirs = [
            api.AlterReplicaLogDir(
                path,
                [
                    api.AlterReplicaLogDirTopic(name, indexes)
                    for name, indexes in by_topic(replica.where for replica in moved).items()
                ],
            )
            for path, moved in paths.items()
        ]
        request = api.AlterReplicaLogDirsRequest(dirs)
        answer = admin.ask(ApiKey.ALTER_REPLICA_LOG_DIRS, request, api.AlterReplicaLogDirsResponse, broker)
        for topic in answer.results:
            for each in topic.partitions:
                refusal = KafkaError(ErrorCode(each.error_code)) if each.error_code else None
                found[Replica(topic.topic_name, each.partition_index, broker)] = refusal
    return found


def alter_broker_configs(admin: ClusterAdmin, brokers: Iterable[int], changes: Changes) -> None:
    """The same changes for each of these brokers, asked of each itself: it takes no other's. A controller takes all."""
    by_controller = isinstance(admin.cluster, Controllers)
    for broker in brokers:
        _alter_configs(admin, {(BROKER, str(broker)): changes}, None if by_controller else broker)


def alter_topic_configs(admin: ClusterAdmin, changes: Mapping[str, Changes]) -> None:
    if changes:
        _alter_configs(admin, {(TOPIC, name): wanted for name, wanted in changes.items()}, None)


def _alter_configs(admin: ClusterAdmin, changes: Mapping[tuple[int, str], Changes], broker: int | None) -> None:
    api = incremental_alter_configs
    resources = [
        api.AlterConfigsResource(
            kind,
            name,
            [api.AlterableConfig(key, DELETE if value is None else SET, value) for key, value in wanted.items()],
        )
        for (kind, name), wanted in changes.items()
    ]
    request = api.IncrementalAlterConfigsRequest(resources)
    answer = admin.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, request, api.IncrementalAlterConfigsResponse, broker)
    for result in answer.responses:
        raise_refusal(result)


def by_broker(replicas: Iterable[Replica]) -> dict[int, list[Replica]]:
    grouped: dict[int, list[Replica]] = {}
    for replica in replicas:
        grouped.setdefault(replica.broker, []).append(replica)
    return grouped
