"""The bandwidth limits of a reassignment: the configs that --execute sets and --verify removes.

A config of each topic names the throttled replicas, one of each broker sets the rate (KIP-73). The computations here
are pure; `client.admin.replicas` changes the configs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from moldau.base.ids import TopicPartition
from moldau.base.settings import accepted, cluster, topics
from moldau.cli.kafka.reassignment.plan import Plan
from moldau.client.admin import replicas as broker_admin
from moldau.client.admin.cluster_admin import ClusterAdmin
from moldau.client.admin.cluster_values import Reassignment

LEADER_RATE: Final = cluster.LEADER_REPLICATION_THROTTLED_RATE.name
FOLLOWER_RATE: Final = cluster.FOLLOWER_REPLICATION_THROTTLED_RATE.name
LOG_DIRS_RATE: Final = accepted.REPLICA_ALTER_LOG_DIRS_IO_MAX_BYTES_PER_SECOND.name
LEADER_REPLICAS: Final = topics.LEADER_REPLICATION_THROTTLED_REPLICAS.name
FOLLOWER_REPLICAS: Final = topics.FOLLOWER_REPLICATION_THROTTLED_REPLICAS.name


class Move(NamedTuple):
    """From any of these brokers, to those that do not have the partition yet."""

    sources: frozenset[int]
    destinations: frozenset[int]


Moves = dict[TopicPartition, Move]


def proposed_moves(
    active: Mapping[TopicPartition, Reassignment],
    proposed: Mapping[TopicPartition, Sequence[int]],
    current: Mapping[TopicPartition, Sequence[int]],
) -> Moves:
    """Return all moves once the plan has started. A partition that is moving already keeps its original sources."""
    moves = {
        partition: Move(
            frozenset(reassignment.replicas) - frozenset(reassignment.adding), frozenset(reassignment.adding)
        )
        for partition, reassignment in active.items()
    }
    for partition, replicas in proposed.items():
        sources = moves[partition].sources if partition in moves else frozenset(current[partition])
        moves[partition] = Move(sources, frozenset(replicas) - sources)
    return moves


def throttled_replicas(moves: Moves) -> dict[str, dict[str, str | None]]:
    """Return the two configs of each topic, as `partition:broker,...`."""
    leaders: dict[str, set[str]] = {}
    followers: dict[str, set[str]] = {}
    for (topic, partition), move in moves.items():
        leaders.setdefault(topic, set()).update(f"{partition}:{broker}" for broker in move.sources)
        followers.setdefault(topic, set()).update(f"{partition}:{broker}" for broker in move.destinations)
    return {
        topic: {
            LEADER_REPLICAS: ",".join(sorted(leaders[topic])),
            FOLLOWER_REPLICAS: ",".join(sorted(followers[topic])),
        }
        for topic in leaders
    }


def throttle_moves(admin: ClusterAdmin, moves: Moves, bytes_per_second: int) -> None:
    broker_admin.alter_topic_configs(admin, throttled_replicas(moves))
    brokers = sorted(frozenset[int]().union(*(move.sources | move.destinations for move in moves.values())))
    rate = str(bytes_per_second)
    broker_admin.alter_broker_configs(admin, brokers, {LEADER_RATE: rate, FOLLOWER_RATE: rate})
    print(f"The inter-broker throttle limit was set to {rate} B/s")


def throttle_log_dirs(admin: ClusterAdmin, brokers: Iterable[int], bytes_per_second: int) -> None:
    broker_admin.alter_broker_configs(admin, sorted(set(brokers)), {LOG_DIRS_RATE: str(bytes_per_second)})
    print(f"The replica-alter-dir throttle limit was set to {bytes_per_second} B/s")


def clear_throttles(admin: ClusterAdmin, plan: Plan) -> None:
    """Clear the throttles on all brokers: those that a past reassignment moved from are not known any more. A broker
    that does not answer is an error, after the others and the topics."""
    brokers_in_plan = [broker for _, replicas in plan.rows for broker in replicas]
    brokers = sorted({*admin.described().nodes, *brokers_in_plan})
    print(f"Clearing broker-level throttles on broker{_s(brokers)} {','.join(map(str, brokers))}", flush=True)
    try:
        broker_admin.alter_broker_configs(admin, brokers, dict.fromkeys((LEADER_RATE, FOLLOWER_RATE, LOG_DIRS_RATE)))
    finally:
        topics = plan.topics
        print(f"Clearing topic-level throttles on topic{_s(topics)} {','.join(topics)}", flush=True)
        cleared = dict.fromkeys((LEADER_REPLICAS, FOLLOWER_REPLICAS))
        broker_admin.alter_topic_configs(admin, dict.fromkeys(topics, cleared))


def _s(items: Sequence[object]) -> str:
    return "" if len(items) == 1 else "s"
