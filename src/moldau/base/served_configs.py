"""Broker keys of Kafka's that Moldau acts on: type, default, the values they take, and one line on each.

Defaults are Kafka's but for seven that Kafka leaves to server.properties or to /tmp, so that nothing need be set:
node.id, process.roles, controller.listener.names, listeners (this machine only: an open port is asked for, not given),
log.dir, offsets.topic.replication.factor and group.initial.rebalance.delay.ms; and for the two socket buffers
(docs/decisions/003-raw-sockets.md). The keys without effect stand in `accepted_configs`; nothing but rows lives here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from moldau.base.config_def import INT_MAX, LONG_MAX, ConfigDef, ConfigType, OneOf, Range, UpdateMode

BOOLEAN: Final = ConfigType.BOOLEAN
STRING: Final = ConfigType.STRING
INT: Final = ConfigType.INT
LONG: Final = ConfigType.LONG
LIST: Final = ConfigType.LIST
PER_BROKER: Final = UpdateMode.PER_BROKER
CLUSTER_WIDE: Final = UpdateMode.CLUSTER_WIDE

_ROWS: Final[tuple[ConfigDef, ...]] = (
    # This node and where it listens
    ConfigDef("node.id", INT, 1, Range(0)),
    ConfigDef("broker.id", INT, -1),
    ConfigDef("process.roles", LIST, ("broker", "controller"), OneOf(("broker", "controller"))),
    ConfigDef("broker.rack", STRING, None),
    ConfigDef("listeners", LIST, ("PLAINTEXT://localhost:9092",), update_mode=PER_BROKER),
    ConfigDef("advertised.listeners", LIST, None),
    ConfigDef(
        "listener.security.protocol.map",
        STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        update_mode=PER_BROKER,
    ),
    ConfigDef("inter.broker.listener.name", STRING, None),
    ConfigDef(
        "security.inter.broker.protocol", STRING, "PLAINTEXT", OneOf(("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"))
    ),
    ConfigDef("controller.listener.names", LIST, ("CONTROLLER",)),
    ConfigDef("controller.quorum.voters", LIST, ()),
    ConfigDef("controller.quorum.bootstrap.servers", LIST, ()),
    # Sockets, connections and fetches
    ConfigDef("socket.send.buffer.bytes", INT, 524_288),
    ConfigDef("socket.receive.buffer.bytes", INT, -1),
    ConfigDef("socket.request.max.bytes", INT, 104_857_600, Range(1)),
    ConfigDef("max.connections", INT, INT_MAX, Range(0), update_mode=CLUSTER_WIDE),
    ConfigDef("max.connections.per.ip", INT, INT_MAX, Range(0), update_mode=CLUSTER_WIDE),
    ConfigDef("connections.max.idle.ms", LONG, 600_000),
    ConfigDef("fetch.max.bytes", INT, 57_671_680, Range(1024)),
    ConfigDef("max.incremental.fetch.session.cache.slots", INT, 1000, Range(0)),
    # Topics
    ConfigDef("num.partitions", INT, 1, Range(1)),
    ConfigDef("default.replication.factor", INT, 1),
    ConfigDef("auto.create.topics.enable", BOOLEAN, True),
    ConfigDef("delete.topic.enable", BOOLEAN, True),
    # The log
    ConfigDef("log.dir", LIST, ("./moldau-data",)),
    ConfigDef("log.dirs", LIST, None),
    ConfigDef("log.segment.bytes", INT, 1_073_741_824, Range(1_048_576), update_mode=CLUSTER_WIDE),
    ConfigDef("log.roll.ms", LONG, None, update_mode=CLUSTER_WIDE),
    ConfigDef("log.roll.hours", INT, 168, Range(1)),
    ConfigDef("log.roll.jitter.ms", LONG, None, update_mode=CLUSTER_WIDE),
    ConfigDef("log.roll.jitter.hours", INT, 0, Range(0)),
    ConfigDef("log.retention.ms", LONG, None, update_mode=CLUSTER_WIDE),
    ConfigDef("log.retention.minutes", INT, None),
    ConfigDef("log.retention.hours", INT, 168),
    ConfigDef("log.retention.bytes", LONG, -1, update_mode=CLUSTER_WIDE),
    ConfigDef("log.retention.check.interval.ms", LONG, 300_000, Range(1)),
    ConfigDef("log.cleanup.policy", LIST, ("delete",), OneOf(("compact", "delete")), update_mode=CLUSTER_WIDE),
    ConfigDef("log.index.size.max.bytes", INT, 10_485_760, Range(4), update_mode=CLUSTER_WIDE),
    ConfigDef("log.index.interval.bytes", INT, 4096, Range(0), update_mode=CLUSTER_WIDE),
    ConfigDef("log.flush.interval.messages", LONG, LONG_MAX, Range(1), update_mode=CLUSTER_WIDE),
    ConfigDef("log.flush.interval.ms", LONG, None, update_mode=CLUSTER_WIDE),
    ConfigDef("log.flush.scheduler.interval.ms", LONG, LONG_MAX),
    ConfigDef("log.segment.delete.delay.ms", LONG, 60_000, Range(0), update_mode=CLUSTER_WIDE),
    ConfigDef(
        "log.message.timestamp.type",
        STRING,
        "CreateTime",
        OneOf(("CreateTime", "LogAppendTime")),
        update_mode=CLUSTER_WIDE,
    ),
    ConfigDef("log.message.timestamp.before.max.ms", LONG, LONG_MAX, Range(0), update_mode=CLUSTER_WIDE),
    ConfigDef("log.message.timestamp.after.max.ms", LONG, 3_600_000, Range(0), update_mode=CLUSTER_WIDE),
    # Replicas and producers
    ConfigDef("message.max.bytes", INT, 1_048_588, Range(0), update_mode=CLUSTER_WIDE),
    ConfigDef("min.insync.replicas", INT, 1, Range(1), update_mode=CLUSTER_WIDE),
    ConfigDef(
        "compression.type",
        STRING,
        "producer",
        OneOf(("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")),
        update_mode=CLUSTER_WIDE,
    ),
    ConfigDef("compression.gzip.level", INT, -1, Range(1, 9, besides=-1), update_mode=CLUSTER_WIDE),
    ConfigDef("compression.lz4.level", INT, 9, Range(1, 17), update_mode=CLUSTER_WIDE),
    ConfigDef("compression.zstd.level", INT, 3, Range(-131_072, 22), update_mode=CLUSTER_WIDE),
    ConfigDef("replica.high.watermark.checkpoint.interval.ms", LONG, 5000),
    ConfigDef("producer.id.expiration.ms", INT, 86_400_000, Range(1), update_mode=CLUSTER_WIDE),
    ConfigDef("producer.id.expiration.check.interval.ms", INT, 600_000, Range(1), internal=True),
    # Replication
    ConfigDef("controlled.shutdown.enable", BOOLEAN, True),
    ConfigDef("broker.heartbeat.interval.ms", INT, 2000),
    ConfigDef("broker.session.timeout.ms", INT, 9000),
    ConfigDef("replica.lag.time.max.ms", LONG, 30_000),
    ConfigDef("replica.socket.timeout.ms", INT, 30_000),
    ConfigDef("replica.fetch.max.bytes", INT, 1_048_576, Range(0)),
    ConfigDef("replica.fetch.wait.max.ms", INT, 500),
    ConfigDef("replica.fetch.backoff.ms", INT, 1000, Range(0)),
    ConfigDef("replica.fetch.min.bytes", INT, 1),
    ConfigDef("replica.fetch.response.max.bytes", INT, 10_485_760, Range(0)),
    ConfigDef("auto.leader.rebalance.enable", BOOLEAN, True),
    ConfigDef("leader.imbalance.check.interval.seconds", LONG, 300, Range(1)),
    ConfigDef("unclean.leader.election.enable", BOOLEAN, False, update_mode=CLUSTER_WIDE),
    ConfigDef("replica.selector.class", STRING, None),
    ConfigDef("leader.replication.throttled.rate", LONG, LONG_MAX, Range(0), update_mode=CLUSTER_WIDE, internal=True),
    ConfigDef("follower.replication.throttled.rate", LONG, LONG_MAX, Range(0), update_mode=CLUSTER_WIDE, internal=True),
    # The controllers' quorum
    ConfigDef("metadata.log.max.record.bytes.between.snapshots", LONG, 20_971_520, Range(1)),
    ConfigDef("controller.quorum.election.timeout.ms", INT, 1000, Range(0)),
    ConfigDef("controller.quorum.fetch.timeout.ms", INT, 2000, Range(0)),
    ConfigDef("controller.quorum.election.backoff.max.ms", INT, 1000, Range(0)),
    ConfigDef("controller.quorum.request.timeout.ms", INT, 2000, Range(0)),
    ConfigDef("controller.quorum.retry.backoff.ms", INT, 20, Range(0)),
    ConfigDef("controller.quorum.fetch.snapshot.max.bytes", INT, 1_048_576, Range(1)),
    ConfigDef("controller.quorum.fetch.max.bytes", INT, 1_048_576, Range(1)),
    # Groups and their offsets
    ConfigDef("offsets.topic.replication.factor", ConfigType.SHORT, 1, Range(1)),
    ConfigDef("offsets.topic.num.partitions", INT, 50, Range(1)),
    ConfigDef("offsets.topic.segment.bytes", INT, 104_857_600, Range(1)),
    ConfigDef("offset.metadata.max.bytes", INT, 4096),
    ConfigDef("offsets.retention.minutes", INT, 10_080, Range(1)),
    ConfigDef("offsets.retention.check.interval.ms", LONG, 600_000, Range(1)),
    ConfigDef("group.min.session.timeout.ms", INT, 6000),
    ConfigDef("group.max.session.timeout.ms", INT, 1_800_000),
    ConfigDef("group.initial.rebalance.delay.ms", INT, 0),
    ConfigDef("group.max.size", INT, INT_MAX, Range(1)),
    ConfigDef("group.consumer.session.timeout.ms", INT, 45_000, Range(1)),
    ConfigDef("group.consumer.heartbeat.interval.ms", INT, 5000, Range(1)),
    ConfigDef("group.consumer.max.size", INT, INT_MAX, Range(1)),
    ConfigDef("group.consumer.assignors", LIST, ("uniform", "range")),
    ConfigDef(
        "group.consumer.migration.policy",
        STRING,
        "bidirectional",
        OneOf(("DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL"), ignore_case=True),
    ),
)

_DOCUMENTATION: Final[Mapping[str, str]] = {
    # This node and where it listens
    "node.id": "This node's number in the cluster; broker.id is its older name.",
    "broker.id": "Older name of node.id; -1 leaves it to node.id.",
    "process.roles": "What this process does: broker, controller or both.",
    "broker.rack": "Where this broker stands; replicas are spread over racks, and clients may read from their own.",
    "listeners": "Addresses to listen on, NAME://host:port; an empty host means every interface.",
    "advertised.listeners": "Addresses told to clients, where they differ from those listened on.",
    "listener.security.protocol.map": "Which security protocol each listener name speaks.",
    "inter.broker.listener.name": "The listener by which brokers reach each other.",
    "security.inter.broker.protocol": "The protocol brokers speak to each other when no listener is named for it.",
    "controller.listener.names": "The listeners that carry controller traffic and no client's.",
    "controller.quorum.voters": "The controllers that vote, id@host:port each.",
    "controller.quorum.bootstrap.servers": "Addresses at which the controllers can be found.",
    # Sockets, connections and fetches
    "socket.send.buffer.bytes": "Send buffer of a client's socket; -1 leaves it to the system.",
    "socket.receive.buffer.bytes": "Receive buffer of a client's socket; -1 leaves it to the system.",
    "socket.request.max.bytes": "Largest request read; a larger one closes its connection.",
    "max.connections": "Connections a listener holds at once; further ones are refused.",
    "max.connections.per.ip": "Connections one address may hold at once.",
    "connections.max.idle.ms": "A connection silent for this long is closed.",
    "fetch.max.bytes": "Most bytes one fetch answers, whatever the client asks for.",
    "max.incremental.fetch.session.cache.slots": "Incremental fetch sessions remembered at once.",
    # Topics
    "num.partitions": "Partitions of a topic created without saying how many.",
    "default.replication.factor": "Replicas of a topic created without saying how many.",
    "auto.create.topics.enable": "Create a topic when a client first asks for it.",
    "delete.topic.enable": "Whether topics may be deleted.",
    # The log
    "log.dir": "Where data is kept, when log.dirs is not set.",
    "log.dirs": "The directories data is spread over.",
    "log.segment.bytes": "Size at which a segment is closed and the next begun.",
    "log.roll.ms": "Age at which a segment is closed; before log.roll.hours.",
    "log.roll.hours": "Age in hours at which a segment is closed.",
    "log.roll.jitter.ms": "Most taken off log.roll.ms at random, so that segments do not all close at once.",
    "log.roll.jitter.hours": "Most hours taken off log.roll.hours at random.",
    "log.retention.ms": "Age at which records may go; before minutes and hours; -1 keeps them.",
    "log.retention.minutes": "Age in minutes at which records may go; before hours.",
    "log.retention.hours": "Age in hours at which records may go; -1 keeps them.",
    "log.retention.bytes": "Size of a partition above which its oldest segments go; -1 sets no bound.",
    "log.retention.check.interval.ms": "How often segments are looked over for deletion.",
    "log.cleanup.policy": "What becomes of old segments: delete them, or keep them; nothing is compacted yet.",
    "log.index.size.max.bytes": "Largest size of an offset or time index.",
    "log.index.interval.bytes": "Bytes of records between two index entries.",
    "log.flush.interval.messages": "Records after which a partition is forced to disk.",
    "log.flush.interval.ms": "Longest time records wait before they are forced to disk.",
    "log.flush.scheduler.interval.ms": "How often partitions are looked over for a flush that is due.",
    "log.segment.delete.delay.ms": "How long a deleted segment's file stays on disk.",
    "log.message.timestamp.type": "Whether a record carries its producer's time or the broker's.",
    "log.message.timestamp.before.max.ms": "How far behind the broker's clock a record's time may lie.",
    "log.message.timestamp.after.max.ms": "How far ahead of the broker's clock a record's time may lie.",
    # Replication
    "controlled.shutdown.enable": "Whether a broker that stops hands over what it leads first.",
    "broker.heartbeat.interval.ms": "How often a broker tells the controller that it is there.",
    "broker.session.timeout.ms": "Silence after which the controller takes a broker for dead.",
    "replica.lag.time.max.ms": "How long a follower may be behind its leader and still count as in sync.",
    "replica.socket.timeout.ms": "How long a follower waits for its leader's answer.",
    "replica.fetch.max.bytes": "Most bytes a follower asks for from one partition at a time.",
    "replica.fetch.wait.max.ms": "How long a leader may hold a follower's fetch when there is nothing new.",
    "replica.fetch.backoff.ms": "How long a follower lets a partition rest that could not be fetched.",
    "replica.fetch.min.bytes": "Least bytes a follower's fetch waits for.",
    "replica.fetch.response.max.bytes": "Most bytes a follower asks for in one answer.",
    "auto.leader.rebalance.enable": "Whether leadership goes back to preferred replicas by itself.",
    "leader.imbalance.check.interval.seconds": "How often the controller looks whether it should.",
    "unclean.leader.election.enable": "Whether a replica that is behind may lead when no other is left.",
    "replica.selector.class": "Which replica consumers read from: RackAwareReplicaSelector for the nearest.",
    "leader.replication.throttled.rate": "Bytes a second a leader sends to throttled replicas.",
    "follower.replication.throttled.rate": "Bytes a second a follower fetches for throttled replicas.",
    # The controllers' quorum
    "metadata.log.max.record.bytes.between.snapshots": "Growth of the metadata log after which a snapshot is taken.",
    "controller.quorum.election.timeout.ms": "Longest time an election may take before the next one.",
    "controller.quorum.fetch.timeout.ms": "Silence after which voters and their leader give each other up.",
    "controller.quorum.election.backoff.max.ms": "Longest pause after an election that was lost.",
    "controller.quorum.request.timeout.ms": "How long a voter waits for another's answer.",
    "controller.quorum.retry.backoff.ms": "Pause before a voter asks again.",
    "controller.quorum.fetch.snapshot.max.bytes": "Most bytes of a metadata snapshot fetched at a time.",
    "controller.quorum.fetch.max.bytes": "Most bytes of the metadata log fetched at a time.",
    # Groups and their offsets
    "offsets.topic.replication.factor": "Replicas of the topic that groups and their offsets are kept in.",
    "offsets.topic.num.partitions": "Partitions of that topic; fixed once it exists.",
    "offsets.topic.segment.bytes": "Segment size of that topic: small ones load and clean faster.",
    "offset.metadata.max.bytes": "Longest note that may be committed with an offset.",
    "offsets.retention.minutes": "How long offsets are kept after the last member has left their group.",
    "offsets.retention.check.interval.ms": "How often offsets are looked over for expiry.",
    "group.min.session.timeout.ms": "Shortest session a classic member may ask for.",
    "group.max.session.timeout.ms": "Longest session a classic member may ask for.",
    "group.initial.rebalance.delay.ms": "How long an empty group waits for more members before it shares out.",
    "group.max.size": "Most members of a classic group.",
    "group.consumer.session.timeout.ms": "Silence after which a member of a consumer group is expelled.",
    "group.consumer.heartbeat.interval.ms": "How often members of consumer groups are told to be heard of.",
    "group.consumer.max.size": "Most members of a consumer group.",
    "group.consumer.assignors": "How partitions may be shared out by the server; the first is the default.",
    "group.consumer.migration.policy": "Which way a group with members may change its protocol.",
    # Replicas and producers
    "message.max.bytes": "Largest batch of records accepted.",
    "min.insync.replicas": "Replicas that must have a write before acks=all is answered.",
    "compression.type": "How batches are stored: as the producer sent them, or in this codec.",
    "compression.gzip.level": "How hard gzip tries, where the broker compresses; -1 is gzip's own default.",
    "compression.lz4.level": "How hard lz4 tries, where the broker compresses.",
    "compression.zstd.level": "How hard zstd tries, where the broker compresses.",
    "replica.high.watermark.checkpoint.interval.ms": "How often high watermarks are written down.",
    "producer.id.expiration.ms": "Idle time after which a producer's sequence numbers are forgotten.",
    "producer.id.expiration.check.interval.ms": "How often idle producers are looked for.",
}

SERVED: Final[tuple[ConfigDef, ...]] = tuple(replace(row, documentation=_DOCUMENTATION[row.name]) for row in _ROWS)
