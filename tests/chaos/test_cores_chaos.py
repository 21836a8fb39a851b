"""Three machines with two nodes each (`moldau start --cores 2 --machines …`): machines and nodes are killed and paused,
and every acknowledged record is stored once. Seed and length are those of test_cluster_chaos."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from chaos_faults import Nemesis
from chaos_load import Load
from chaos_machines import machines
from chaos_nodes import KAFKA_LIBS
from test_cluster_chaos import PARTITIONS, SECONDS, SEED, TOPIC, await_writes, finish_and_check

pytestmark = pytest.mark.skipif(KAFKA_LIBS is not None, reason="Apache Kafka has no --cores")


def test_no_record_is_lost_while_one_machine_or_node_at_a_time_fails(tmp_path: Path) -> None:
    with machines(tmp_path) as running:
        running.create_topic(TOPIC, PARTITIONS, min_insync=2)
        nemesis = Nemesis(running, random.Random(f"{SEED} cores"))
        with Load(running.bootstrap, TOPIC, PARTITIONS) as load:
            await_writes(running, load, "before the first fault")
            end = time.monotonic() + SECONDS
            while time.monotonic() < end:
                kind = nemesis.rng.choice(["kill", "kill one node", "pause"])
                machine = nemesis.rng.choice(running.brokers)
                nemesis.begin(kind, machine)
                await_writes(running, load, f"while machine {machine.id} has the fault: {kind}")
                nemesis.end_all()
                running.await_brokers()
                running.await_in_sync(TOPIC, 60)
            finish_and_check(running, load, nemesis.describe())
