"""Every replica cleans its own log, and the next leader has the same table."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from compacted_topics import EAGER, Writer, read_all, table
from confluent_kafka.admin import AdminClient, NewTopic
from harness.patience import PATIENCE_S, wait_until

from moldau.testing import cluster

pytestmark = pytest.mark.moldau_only

TOPIC = "table"


def test_followers_clean_their_own_logs_and_can_become_leader(tmp_path: Path) -> None:
    with cluster(nodes=3, data_dir=tmp_path, log_cleaner_backoff_ms=100) as nodes:
        admin = AdminClient({"bootstrap.servers": nodes.bootstrap_servers})
        config = EAGER | {"min.insync.replicas": "2"}
        admin.create_topics([NewTopic(TOPIC, 1, 3, config=config)])[TOPIC].result(PATIENCE_S)
        nodes.wait_for_isr(TOPIC, 0, [1, 2, 3])
        writer = Writer(nodes.bootstrap_servers, TOPIC, acks="all")
        for version in range(8):
            writer.write({f"key {number}": f"{version}".ljust(500) for number in range(20)})
        writer.write({"last": "one"})
        replicas = list(tmp_path.glob(f"*/{TOPIC}-0"))
        assert len(replicas) == 3
        for replica in replicas:
            wait_until(lambda where=replica: size_of(where) < 15_000, f"{replica} is clean")  # type: ignore[misc]
        before = table(read_all(nodes.bootstrap_servers, TOPIC))
        assert before == {f"key {number}": "7".ljust(500) for number in range(20)} | {"last": "one"}
        leader = nodes.leader_of(TOPIC, 0)
        assert leader is not None
        nodes.kill(leader)
        nodes.wait_for(lambda: nodes.leader_of(TOPIC, 0) not in (leader, None), what="another replica is the leader")
        writer.write({"after": "it"})
        assert table(read_all(nodes.bootstrap_servers, TOPIC)) == before | {"after": "it"}
        nodes.restart(leader)
        nodes.wait_for_isr(TOPIC, 0, [1, 2, 3])


def size_of(directory: Path) -> float:
    """Return the size of all segments; infinity if the cleaner replaced one meanwhile: look again."""
    try:
        return sum(path.stat().st_size for path in directory.glob("*.log"))
    except FileNotFoundError:
        return math.inf
