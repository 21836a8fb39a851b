"""The offsets topic is compacted: committed offsets are the same after it was cleaned and loaded again."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from harness.patience import PATIENCE_S, wait_until

from moldau.testing import broker

pytestmark = pytest.mark.moldau_only

PROPERTIES = {"log_cleaner_backoff_ms": 100, "offsets_topic_num_partitions": 1}
ROUNDS = 30


def commit(bootstrap: str, group: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    try:
        consumer.commit(offsets=[TopicPartition("t", 0, offset)], asynchronous=False)
    finally:
        consumer.close()


def committed(admin: AdminClient, group: str) -> int:
    requested = ConsumerGroupTopicPartitions(group, [TopicPartition("t", 0)])
    (answer,) = admin.list_consumer_group_offsets([requested])[group].result(PATIENCE_S).topic_partitions
    return int(answer.offset)


def cut_into_segments(admin: AdminClient) -> None:
    """Let almost every commit begin a new segment, and make every old one worth cleaning."""
    wanted = {"segment.ms": "1", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "0"}
    wanted["file.delete.delay.ms"] = "0"
    entries = [ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in wanted.items()]
    resource = ConfigResource(ConfigResource.Type.TOPIC, "__consumer_offsets", incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)


def cleaned_up_to(data_dir: Path) -> int:
    checkpoint = data_dir / "cleaner-offset-checkpoint"
    lines = checkpoint.read_text().splitlines() if checkpoint.exists() else []
    return next((int(line.split()[2]) for line in lines if line.startswith("__consumer_offsets 0 ")), 0)


def log_bytes(data_dir: Path) -> int:
    return sum(path.stat().st_size for path in (data_dir / "__consumer_offsets-0").glob("*.log"))


def test_committed_offsets_are_the_same_after_compaction_and_reload(tmp_path: Path) -> None:
    groups = ["steady", "moving", "deleted"]
    with broker(tmp_path, **PROPERTIES) as running:
        bootstrap = running.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(PATIENCE_S)
        for group in groups:
            commit(bootstrap, group, 7)
        cut_into_segments(admin)
        admin.delete_consumer_groups(["deleted"])["deleted"].result(PATIENCE_S)
        for offset in range(ROUNDS):
            commit(bootstrap, "moving", offset)
        wait_until(lambda: cleaned_up_to(tmp_path) >= ROUNDS, "__consumer_offsets is cleaned")
        before = {group: committed(admin, group) for group in groups}
    assert before == {"steady": 7, "moving": ROUNDS - 1, "deleted": OFFSET_INVALID}
    assert log_bytes(tmp_path) < 2000
    with broker(tmp_path, **PROPERTIES) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap_servers})
        assert {group: committed(admin, group) for group in groups} == before
        listed = admin.list_consumer_groups().result().valid
        assert sorted(each.group_id for each in listed) == ["moving", "steady"]
