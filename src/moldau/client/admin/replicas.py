"""Directories of replicas, and changes of configs, sent to the node that accepts them.

For other requests to the cluster as a whole see cluster_admin.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from moldau.base.errors import ErrorCode, KafkaError, MalformedData
from moldau.base.ids import by_topic
from moldau.client.admin.cluster_admin import ClusterAdmin
from moldau.client.admin.cluster_values import Replica, ReplicaLogDir
from moldau.client.controllers import Controllers
from moldau.client.requests.configs import BROKER, TOPIC, alter_configs
from moldau.client.requests.partitions import describe_log_dirs
from moldau.wire.apis import ApiKey
from moldau.wire.messages import alter_replica_log_dirs

ConfigChanges = Mapping[str, str | None]
"""Configs to set; None removes one."""


def replica_log_dirs(admin: ClusterAdmin, replicas: Iterable[Replica]) -> dict[Replica, ReplicaLogDir]:
    """Return the directory of each replica; ReplicaLogDir(None, None) for one that its broker does not have."""
    log_dirs: dict[Replica, ReplicaLogDir] = {}
    for broker, its_replicas in by_broker(replicas).items():
        log_dirs.update(dict.fromkeys(its_replicas, ReplicaLogDir(None, None)))
        response = describe_log_dirs(partial(admin.ask, node_id=broker), (each.where for each in its_replicas))
        for result in response.results:
            if result.error_code:
                continue
            for topic in result.topics:
                for each in topic.partitions:
                    replica = Replica(topic.name, each.partition_index, broker)
                    change = {"future" if each.is_future_key else "current": result.log_dir}
                    log_dirs[replica] = log_dirs.get(replica, ReplicaLogDir(None, None))._replace(**change)
    return log_dirs


def move_replicas(admin: ClusterAdmin, target_dirs: Mapping[Replica, str]) -> dict[Replica, KafkaError | None]:
    """Start to move replicas to other directories of their brokers; return the error of each, or None."""
    api = alter_replica_log_dirs
    results: dict[Replica, KafkaError | None] = {}
    for broker, its_replicas in by_broker(target_dirs).items():
        paths: dict[str, list[Replica]] = {}
        for replica in its_replicas:
            paths.setdefault(target_dirs[replica], []).append(replica)
        dirs = [
            api.AlterReplicaLogDir(
                path,
                [
                    api.AlterReplicaLogDirTopic(name, indexes)
                    for name, indexes in by_topic(replica.where for replica in its_moves).items()
                ],
            )
            for path, its_moves in paths.items()
        ]
        request = api.AlterReplicaLogDirsRequest(dirs)
        response = admin.ask(ApiKey.ALTER_REPLICA_LOG_DIRS, request, api.AlterReplicaLogDirsResponse, broker)
        for topic in response.results:
            for each in topic.partitions:
                error = KafkaError(ErrorCode(each.error_code)) if each.error_code else None
                results[Replica(topic.topic_name, each.partition_index, broker)] = error
    return results


def alter_broker_configs(admin: ClusterAdmin, brokers: Iterable[int], changes: ConfigChanges) -> None:
    """Make the same changes for each broker, then raise the first error. A broker accepts only its own; a controller
    accepts those of all."""
    by_controller = isinstance(admin.cluster, Controllers)
    errors: list[Exception] = []
    for broker in brokers:
        try:
            ask = admin.ask if by_controller else partial(admin.ask, node_id=broker)
            alter_configs(ask, {(BROKER, str(broker)): changes.items()})
        except (KafkaError, OSError, MalformedData) as error:
            errors.append(error)
    if errors:
        raise errors[0]


def alter_topic_configs(admin: ClusterAdmin, changes: Mapping[str, ConfigChanges]) -> None:
    if changes:
        alter_configs(admin.ask, {(TOPIC, name): its_changes.items() for name, its_changes in changes.items()})


def by_broker(replicas: Iterable[Replica]) -> dict[int, list[Replica]]:
    grouped: dict[int, list[Replica]] = {}
    for replica in replicas:
        grouped.setdefault(replica.broker, []).append(replica)
    return grouped
