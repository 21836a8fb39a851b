"""The tables of all broker and topic keys: one row for each, with key, type, default, valid values, documentation, and
how it can be changed. A row's constant is its key in capitals. ruff does not format the tables: it would give a row
eight lines.

`fields` fills dataclasses of settings from rows: a field names its row. Nothing else repeats a key, its default or its
documentation; the listing of DescribeConfigs, docs/configuration.md and config/server.properties come from the rows.

Defaults are Kafka's, except for eleven keys that Kafka requires in server.properties or sets to /tmp, so that nothing
has to be set: node.id, process.roles, controller.listener.names, listeners (this machine only: a port is opened to
others only on request), log.dir, offsets.topic.replication.factor, transaction.state.log.replication.factor and
min.isr, share.coordinator.state.topic.replication.factor and min.isr, and group.initial.rebalance.delay.ms; and except
for the two socket buffers (docs/decisions/003-raw-sockets.md).

`accepted` has Kafka's keys without effect in Moldau, `own` those that only Moldau has, `topics` the keys of topics; all
other modules have broker keys of Kafka that have an effect.
"""
