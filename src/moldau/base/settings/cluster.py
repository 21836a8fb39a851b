"""Broker keys of replication and of the controllers' quorum."""

from __future__ import annotations

from typing import Final

from moldau.base.config_def import BOOLEAN, CLUSTER_WIDE, INT, LONG, STRING, ConfigDef, Range
from moldau.base.limits import INT64_MAX

# fmt: off
# Replication
CONTROLLED_SHUTDOWN_ENABLE: Final = ConfigDef(
    "controlled.shutdown.enable", BOOLEAN, True, None,
    "Whether a broker moves its leaderships to others before it stops.")
BROKER_HEARTBEAT_INTERVAL_MS: Final = ConfigDef(
    "broker.heartbeat.interval.ms", INT, 2000, None,
    "Interval of a broker's heartbeats to the controller.")
BROKER_SESSION_TIMEOUT_MS: Final = ConfigDef(
    "broker.session.timeout.ms", INT, 9000, None,
    "Time without heartbeats after which the controller fences a broker.")
REPLICA_LAG_TIME_MAX_MS: Final = ConfigDef(
    "replica.lag.time.max.ms", LONG, 30_000, None,
    "How long a follower may be behind its leader and still be in sync.")
REPLICA_SOCKET_TIMEOUT_MS: Final = ConfigDef(
    "replica.socket.timeout.ms", INT, 30_000, None,
    "How long a follower waits for its leader's response.")
REPLICA_FETCH_MAX_BYTES: Final = ConfigDef(
    "replica.fetch.max.bytes", INT, 1_048_576, Range(0),
    "Maximum bytes of one partition in a follower's fetch.")
REPLICA_FETCH_WAIT_MAX_MS: Final = ConfigDef(
    "replica.fetch.wait.max.ms", INT, 500, None,
    "How long a leader may delay a follower's fetch when there are no new records.")
REPLICA_FETCH_BACKOFF_MS: Final = ConfigDef(
    "replica.fetch.backoff.ms", INT, 1000, Range(0),
    "How long a follower waits before it fetches a partition again after an error.")
REPLICA_FETCH_MIN_BYTES: Final = ConfigDef(
    "replica.fetch.min.bytes", INT, 1, None,
    "Least bytes that a follower's fetch waits for.")
REPLICA_FETCH_RESPONSE_MAX_BYTES: Final = ConfigDef(
    "replica.fetch.response.max.bytes", INT, 10_485_760, Range(0),
    "Maximum bytes of the response to a follower's fetch.")
AUTO_LEADER_REBALANCE_ENABLE: Final = ConfigDef(
    "auto.leader.rebalance.enable", BOOLEAN, True, None,
    "Whether leaderships return to the preferred replicas automatically.")
LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS: Final = ConfigDef(
    "leader.imbalance.check.interval.seconds", LONG, 300, Range(1),
    "How often leaderships return to the preferred replicas.")
UNCLEAN_LEADER_ELECTION_ENABLE: Final = ConfigDef(
    "unclean.leader.election.enable", BOOLEAN, False, None,
    "Whether a replica that is not in sync may lead when no other is left.", update_mode=CLUSTER_WIDE)
REPLICA_SELECTOR_CLASS: Final = ConfigDef(
    "replica.selector.class", STRING, None, None,
    "Which replica consumers read from: RackAwareReplicaSelector for the nearest.")
LEADER_REPLICATION_THROTTLED_RATE: Final = ConfigDef(
    "leader.replication.throttled.rate", LONG, INT64_MAX, Range(0),
    "Bytes per second that a leader sends to throttled replicas.", update_mode=CLUSTER_WIDE, internal=True)
FOLLOWER_REPLICATION_THROTTLED_RATE: Final = ConfigDef(
    "follower.replication.throttled.rate", LONG, INT64_MAX, Range(0),
    "Bytes per second that a follower fetches for throttled replicas.", update_mode=CLUSTER_WIDE, internal=True)

# The controllers' quorum
METADATA_LOG_MAX_RECORD_BYTES_BETWEEN_SNAPSHOTS: Final = ConfigDef(
    "metadata.log.max.record.bytes.between.snapshots", LONG, 20_971_520, Range(1),
    "Growth of the metadata log after which a snapshot is written.")
CONTROLLER_QUORUM_ELECTION_TIMEOUT_MS: Final = ConfigDef(
    "controller.quorum.election.timeout.ms", INT, 1000, Range(0),
    "Longest time an election may take before the next one.")
CONTROLLER_QUORUM_FETCH_TIMEOUT_MS: Final = ConfigDef(
    "controller.quorum.fetch.timeout.ms", INT, 2000, Range(0),
    "Time without fetches after which voters elect anew, or a leader resigns.")
CONTROLLER_QUORUM_ELECTION_BACKOFF_MAX_MS: Final = ConfigDef(
    "controller.quorum.election.backoff.max.ms", INT, 1000, Range(0),
    "Longest pause after a lost election.")
CONTROLLER_QUORUM_REQUEST_TIMEOUT_MS: Final = ConfigDef(
    "controller.quorum.request.timeout.ms", INT, 2000, Range(0),
    "How long a voter waits for another voter's response.")
CONTROLLER_QUORUM_RETRY_BACKOFF_MS: Final = ConfigDef(
    "controller.quorum.retry.backoff.ms", INT, 20, Range(0),
    "Pause before a voter repeats a request.")
CONTROLLER_QUORUM_FETCH_SNAPSHOT_MAX_BYTES: Final = ConfigDef(
    "controller.quorum.fetch.snapshot.max.bytes", INT, 1_048_576, Range(1),
    "Maximum bytes of a metadata snapshot fetched at a time.")
CONTROLLER_QUORUM_FETCH_MAX_BYTES: Final = ConfigDef(
    "controller.quorum.fetch.max.bytes", INT, 1_048_576, Range(1),
    "Maximum bytes of the metadata log fetched at a time.")
