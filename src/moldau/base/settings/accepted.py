"""Broker keys of Apache Kafka 4.3 that Moldau does not implement: type, default and update mode.

They are accepted so that a `server.properties` written for Kafka starts a node, and tools find every key that they
expect. Their values are checked, DescribeConfigs shows them, and a warning at the start names each one whose value is
not the default. When a key gets an effect, move its row to another table. The rows
with a constant are those that other modules name: to refuse them, for example.
"""

from __future__ import annotations

from typing import Final

from moldau.base.config_def import (
    BOOLEAN,
    CLASS,
    CLUSTER_WIDE,
    DOUBLE,
    INT,
    LIST,
    LONG,
    PASSWORD,
    PER_BROKER,
    SHORT,
    STRING,
    ConfigDef,
    ListenerForms,
    NonEmpty,
    OneOf,
    Range,
)
from moldau.base.limits import INT32_MAX, INT64_MAX

REPLICA_ALTER_LOG_DIRS_IO_MAX_BYTES_PER_SECOND: Final = ConfigDef(
    "replica.alter.log.dirs.io.max.bytes.per.second",
    LONG,
    INT64_MAX,
    Range(0),
    update_mode=CLUSTER_WIDE,
    internal=True,
)
METADATA_LOG_DIR: Final = ConfigDef("metadata.log.dir", STRING, None)
SSL_PROVIDER: Final = ConfigDef("ssl.provider", STRING, None, update_mode=PER_BROKER)
SSL_ENGINE_FACTORY_CLASS: Final = ConfigDef("ssl.engine.factory.class", CLASS, None, update_mode=PER_BROKER)
SASL_SERVER_CALLBACK_HANDLER_CLASS: Final = ConfigDef(
    "sasl.server.callback.handler.class", CLASS, None, listener_forms=ListenerForms.OAUTHBEARER
)
SASL_LOGIN_CALLBACK_HANDLER_CLASS: Final = ConfigDef(
    "sasl.login.callback.handler.class", CLASS, None, listener_forms=ListenerForms.OAUTHBEARER
)
SASL_OAUTHBEARER_ASSERTION_FILE: Final = ConfigDef("sasl.oauthbearer.assertion.file", STRING, None)
SASL_OAUTHBEARER_ASSERTION_CLAIM_ISS: Final = ConfigDef("sasl.oauthbearer.assertion.claim.iss", STRING, None)
LOG_PREALLOCATE: Final = ConfigDef("log.preallocate", BOOLEAN, False, update_mode=CLUSTER_WIDE)
LOG_LOCAL_RETENTION_MS: Final = ConfigDef("log.local.retention.ms", LONG, -2, Range(-2), update_mode=CLUSTER_WIDE)
LOG_LOCAL_RETENTION_BYTES: Final = ConfigDef("log.local.retention.bytes", LONG, -2, Range(-2), update_mode=CLUSTER_WIDE)

ACCEPTED: Final[tuple[ConfigDef, ...]] = (
    # Threads, queues and requests
    ConfigDef("num.io.threads", INT, 8, Range(1), update_mode=CLUSTER_WIDE),
    ConfigDef("num.replica.alter.log.dirs.threads", INT, None),
    ConfigDef("background.threads", INT, 10, Range(1), update_mode=CLUSTER_WIDE),
    ConfigDef("request.timeout.ms", INT, 30_000),
    ConfigDef("socket.connection.setup.timeout.ms", LONG, 10_000),
    ConfigDef("socket.connection.setup.timeout.max.ms", LONG, 30_000),
    ConfigDef("early.start.listeners", LIST, None),
    ConfigDef("max.request.partition.size.limit", INT, 2000, Range(1)),
    ConfigDef("unstable.api.versions.enable", BOOLEAN, False, internal=True),
    ConfigDef("unstable.feature.versions.enable", BOOLEAN, False, internal=True),
    ConfigDef("server.max.startup.time.ms", LONG, INT64_MAX, Range(0), internal=True),
    ConfigDef("queued.max.requests", INT, 500, Range(1)),
    ConfigDef("num.network.threads", INT, 3, Range(1), update_mode=CLUSTER_WIDE),
    ConfigDef("socket.listen.backlog.size", INT, 50, Range(1)),
    ConfigDef("fetch.purgatory.purge.interval.requests", INT, 1000),
    ConfigDef("producer.purgatory.purge.interval.requests", INT, 1000),
    ConfigDef("delete.records.purgatory.purge.interval.requests", INT, 1),
    # Replication
    ConfigDef("initial.broker.registration.timeout.ms", INT, 60_000),
    ConfigDef("replica.socket.receive.buffer.bytes", INT, 65_536),
    ConfigDef("num.replica.fetchers", INT, 1, Range(1), update_mode=CLUSTER_WIDE),
    ConfigDef("unclean.leader.election.interval.ms", LONG, 300_000, Range(1), internal=True),
    ConfigDef("follower.fetch.last.tiered.offset.enable", BOOLEAN, False, update_mode=CLUSTER_WIDE),
    REPLICA_ALTER_LOG_DIRS_IO_MAX_BYTES_PER_SECOND,
    # The controllers and their quorum
    ConfigDef("controller.performance.sample.period.ms", LONG, 60_000, Range(100), internal=True),
    ConfigDef("controller.performance.always.log.threshold.ms", LONG, 2000, Range(0), internal=True),
    ConfigDef("metadata.log.max.snapshot.interval.ms", LONG, 3_600_000, Range(0)),
    METADATA_LOG_DIR,
    ConfigDef("metadata.log.segment.bytes", INT, 1_073_741_824, Range(8_388_608)),
    ConfigDef("metadata.log.segment.ms", LONG, 604_800_000),
    ConfigDef("metadata.max.retention.bytes", LONG, 104_857_600),
    ConfigDef("metadata.max.retention.ms", LONG, 604_800_000),
    ConfigDef("metadata.max.idle.interval.ms", INT, 500, Range(0)),
    ConfigDef("internal.metadata.log.segment.bytes", INT, None, internal=True),
    ConfigDef("internal.metadata.max.batch.size.in.bytes", INT, 8_388_608, internal=True),
    ConfigDef("internal.metadata.delete.delay.millis", LONG, 60_000, internal=True),
    ConfigDef("controller.socket.timeout.ms", INT, 30_000),
    ConfigDef("controller.quorum.append.linger.ms", INT, 25, Range(0)),
    ConfigDef("controller.quorum.auto.join.enable", BOOLEAN, False),
    # Group coordinator
    ConfigDef("group.coordinator.threads", INT, 4, Range(1)),
    ConfigDef("group.coordinator.background.threads", INT, 2, Range(1)),
    ConfigDef("group.coordinator.append.linger.ms", INT, -1, Range(-1)),
    ConfigDef("offsets.commit.timeout.ms", INT, 5000, Range(1)),
    ConfigDef("offsets.load.buffer.size", INT, 5_242_880, Range(1)),
    ConfigDef("offsets.topic.compression.codec", INT, 0),
    ConfigDef("group.coordinator.cached.buffer.max.bytes", INT, 1_048_588, Range(524_288), update_mode=CLUSTER_WIDE),
    ConfigDef("group.consumer.regex.refresh.interval.ms", INT, 600_000, Range(10_000), internal=True),
    # Streams groups and share groups
    ConfigDef("group.streams.session.timeout.ms", INT, 45_000, Range(1)),
    ConfigDef("group.streams.min.session.timeout.ms", INT, 45_000, Range(1)),
    ConfigDef("group.streams.max.session.timeout.ms", INT, 60_000, Range(1)),
    ConfigDef("group.streams.heartbeat.interval.ms", INT, 5000, Range(1)),
    ConfigDef("group.streams.min.heartbeat.interval.ms", INT, 5000, Range(1)),
    ConfigDef("group.streams.max.heartbeat.interval.ms", INT, 15_000, Range(1)),
    ConfigDef("group.streams.max.size", INT, INT32_MAX, Range(1)),
    ConfigDef("group.streams.num.standby.replicas", INT, 0, Range(0)),
    ConfigDef("group.streams.max.standby.replicas", INT, 2, Range(0)),
    ConfigDef("group.streams.initial.rebalance.delay.ms", INT, 3000, Range(0)),
    ConfigDef("group.streams.assignment.interval.ms", INT, 1000, Range(0), update_mode=CLUSTER_WIDE),
    ConfigDef("group.streams.min.assignment.interval.ms", INT, 0, Range(0)),
    ConfigDef("group.streams.max.assignment.interval.ms", INT, 15_000, Range(0)),
    ConfigDef("share.fetch.purgatory.purge.interval.requests", INT, 1000),
    ConfigDef(
        "group.share.persister.class.name",
        STRING,
        "org.apache.kafka.server.share.persister.DefaultStatePersister",
        internal=True,
    ),
    ConfigDef("share.coordinator.threads", INT, 1, Range(1)),
    ConfigDef("share.coordinator.load.buffer.size", INT, 5_242_880, Range(1)),
    ConfigDef("share.coordinator.state.topic.compression.codec", INT, 0),
    ConfigDef("share.coordinator.append.linger.ms", INT, -1, Range(-1)),
    ConfigDef("share.coordinator.write.timeout.ms", INT, 5000, Range(1)),
    ConfigDef("share.coordinator.cached.buffer.max.bytes", INT, 1_048_588, Range(524_288), update_mode=CLUSTER_WIDE),
    # Transactions
    ConfigDef("transaction.state.log.load.buffer.size", INT, 5_242_880, Range(1)),
    ConfigDef("transaction.abort.timed.out.transaction.cleanup.interval.ms", INT, 10_000, Range(1)),
    ConfigDef("transaction.two.phase.commit.enable", BOOLEAN, False),
    # The log
    ConfigDef("log.flush.offset.checkpoint.interval.ms", INT, 60_000, Range(0)),
    ConfigDef("log.flush.start.offset.checkpoint.interval.ms", INT, 60_000, Range(0)),
    ConfigDef("log.cleaner.io.buffer.load.factor", DOUBLE, 0.9, update_mode=CLUSTER_WIDE),
    ConfigDef("cordoned.log.dirs", LIST, (), update_mode=PER_BROKER),
    LOG_PREALLOCATE,
    ConfigDef("num.recovery.threads.per.data.dir", INT, 2, Range(1), update_mode=CLUSTER_WIDE),
    ConfigDef("log.dir.failure.timeout.ms", LONG, 30_000, Range(1)),
    ConfigDef("log.initial.task.delay.ms", LONG, 30_000, Range(0), internal=True),
    # Tiered storage
    ConfigDef("remote.log.storage.system.enable", BOOLEAN, False),
    ConfigDef("remote.log.storage.manager.impl.prefix", STRING, "rsm.config.", NonEmpty()),
    ConfigDef("remote.log.metadata.manager.impl.prefix", STRING, "rlmm.config.", NonEmpty()),
    ConfigDef("remote.log.storage.manager.class.name", STRING, None, NonEmpty()),
    ConfigDef("remote.log.storage.manager.class.path", STRING, None),
    ConfigDef(
        "remote.log.metadata.manager.class.name",
        STRING,
        "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
        NonEmpty(),
    ),
    ConfigDef("remote.log.metadata.manager.class.path", STRING, None),
    ConfigDef("remote.log.metadata.manager.listener.name", STRING, None, NonEmpty()),
    ConfigDef("remote.log.metadata.custom.metadata.max.bytes", INT, 128, Range(0)),
    ConfigDef("remote.log.index.file.cache.total.size.bytes", LONG, 1_073_741_824, Range(1), update_mode=CLUSTER_WIDE),
    ConfigDef("remote.log.index.file.cache.ttl.ms", LONG, 900_000, Range(-1), internal=True),
    ConfigDef("remote.log.manager.thread.pool.size", INT, 2, Range(1)),
    ConfigDef("remote.log.manager.copier.thread.pool.size", INT, 10, Range(1), update_mode=CLUSTER_WIDE),
    ConfigDef("remote.log.manager.expiration.thread.pool.size", INT, 10, Range(1), update_mode=CLUSTER_WIDE),
    ConfigDef("remote.log.manager.follower.thread.pool.size", INT, 2, Range(1), update_mode=CLUSTER_WIDE),
    ConfigDef("remote.log.manager.task.interval.ms", LONG, 30_000, Range(1)),
    ConfigDef("remote.log.manager.task.retry.backoff.ms", LONG, 500, Range(1), internal=True),
    ConfigDef("remote.log.manager.task.retry.backoff.max.ms", LONG, 30_000, Range(1), internal=True),
    ConfigDef("remote.log.manager.task.retry.jitter", DOUBLE, 0.2, Range(0, 0.5), internal=True),
    ConfigDef("remote.log.reader.threads", INT, 10, Range(1), update_mode=CLUSTER_WIDE),
    ConfigDef("remote.log.reader.max.pending.tasks", INT, 100, Range(1)),
    LOG_LOCAL_RETENTION_MS,
    LOG_LOCAL_RETENTION_BYTES,
    ConfigDef("remote.log.manager.copy.max.bytes.per.second", LONG, INT64_MAX, Range(1), update_mode=CLUSTER_WIDE),
    ConfigDef("remote.log.manager.copy.quota.window.num", INT, 11, Range(1)),
    ConfigDef("remote.log.manager.copy.quota.window.size.seconds", INT, 1, Range(1)),
    ConfigDef("remote.log.manager.fetch.max.bytes.per.second", LONG, INT64_MAX, Range(1), update_mode=CLUSTER_WIDE),
    ConfigDef("remote.log.manager.fetch.quota.window.num", INT, 11, Range(1)),
    ConfigDef("remote.log.manager.fetch.quota.window.size.seconds", INT, 1, Range(1)),
    ConfigDef("remote.fetch.max.wait.ms", INT, 500, Range(1), update_mode=CLUSTER_WIDE),
    ConfigDef("remote.list.offsets.request.timeout.ms", LONG, 30_000, Range(1), update_mode=CLUSTER_WIDE),
    # Quotas and metrics
    ConfigDef("metrics.num.samples", INT, 2, Range(1)),
    ConfigDef("metrics.sample.window.ms", LONG, 30_000, Range(1)),
    ConfigDef("metric.reporters", LIST, ("org.apache.kafka.common.metrics.JmxReporter",), update_mode=CLUSTER_WIDE),
    ConfigDef("metrics.recording.level", STRING, "INFO"),
    ConfigDef("kafka.metrics.reporters", LIST, ()),
    ConfigDef("kafka.metrics.polling.interval.secs", INT, 10, Range(1)),
    ConfigDef("replication.quota.window.num", INT, 11, Range(1)),
    ConfigDef("alter.log.dirs.replication.quota.window.num", INT, 11, Range(1)),
    ConfigDef("replication.quota.window.size.seconds", INT, 1, Range(1)),
    ConfigDef("alter.log.dirs.replication.quota.window.size.seconds", INT, 1, Range(1)),
    ConfigDef("client.quota.callback.class", CLASS, None),
    # Security. Most of these keys only cause the warning: they protect nothing. Those that would weaken a listener if
    # they were ignored are refused when it uses TLS or OAUTHBEARER (`security.tls.settings`, `oauthbearer.settings`).
    ConfigDef("security.providers", STRING, None),
    ConfigDef(
        "principal.builder.class",
        CLASS,
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
        update_mode=PER_BROKER,
    ),
    SSL_PROVIDER,
    ConfigDef("ssl.keymanager.algorithm", STRING, "SunX509", update_mode=PER_BROKER),
    ConfigDef("ssl.trustmanager.algorithm", STRING, "PKIX", update_mode=PER_BROKER),
    ConfigDef("ssl.secure.random.implementation", STRING, None, update_mode=PER_BROKER),
    SSL_ENGINE_FACTORY_CLASS,
    SASL_SERVER_CALLBACK_HANDLER_CLASS,
    ConfigDef("sasl.kerberos.principal.to.local.rules", LIST, ("DEFAULT",), update_mode=PER_BROKER),
    ConfigDef("sasl.client.callback.handler.class", CLASS, None),
    ConfigDef("sasl.login.class", CLASS, None),
    SASL_LOGIN_CALLBACK_HANDLER_CLASS,
    ConfigDef("sasl.kerberos.service.name", STRING, None, update_mode=PER_BROKER),
    ConfigDef("sasl.kerberos.kinit.cmd", STRING, "/usr/bin/kinit", update_mode=PER_BROKER),
    ConfigDef("sasl.kerberos.ticket.renew.window.factor", DOUBLE, 0.8, update_mode=PER_BROKER),
    ConfigDef("sasl.kerberos.ticket.renew.jitter", DOUBLE, 0.05, update_mode=PER_BROKER),
    ConfigDef("sasl.kerberos.min.time.before.relogin", LONG, 60_000, update_mode=PER_BROKER),
    ConfigDef("sasl.login.refresh.window.factor", DOUBLE, 0.8, update_mode=PER_BROKER),
    ConfigDef("sasl.login.refresh.window.jitter", DOUBLE, 0.05, update_mode=PER_BROKER),
    ConfigDef("sasl.login.refresh.min.period.seconds", SHORT, 60, update_mode=PER_BROKER),
    ConfigDef("sasl.login.refresh.buffer.seconds", SHORT, 300, update_mode=PER_BROKER),
    ConfigDef("sasl.oauthbearer.assertion.algorithm", STRING, "RS256", OneOf(("ES256", "RS256"), ignore_case=True)),
    ConfigDef("sasl.oauthbearer.assertion.claim.aud", STRING, None),
    ConfigDef("sasl.oauthbearer.assertion.claim.exp.seconds", INT, 300, Range(0, 86_400)),
    SASL_OAUTHBEARER_ASSERTION_CLAIM_ISS,
    ConfigDef("sasl.oauthbearer.assertion.claim.jti.include", BOOLEAN, False),
    ConfigDef("sasl.oauthbearer.assertion.claim.nbf.seconds", INT, 60, Range(0, 3600)),
    ConfigDef("sasl.oauthbearer.assertion.claim.sub", STRING, None),
    SASL_OAUTHBEARER_ASSERTION_FILE,
    ConfigDef("sasl.oauthbearer.assertion.private.key.file", STRING, None),
    ConfigDef("sasl.oauthbearer.assertion.private.key.passphrase", PASSWORD, None),
    ConfigDef("sasl.oauthbearer.assertion.template.file", STRING, None),
    # Plug-ins
    ConfigDef("config.providers", LIST, (), update_mode=CLUSTER_WIDE),
    ConfigDef("create.topic.policy.class.name", CLASS, None),
    ConfigDef("alter.config.policy.class.name", CLASS, None),
)
