"""Groups of real clients, each member a process, killed and started at random while records are written.

Every record is read at least once, and exactly once if members only join and leave; a killed broker loses no commit.
The kills are random, from a seed (MOLDAU_CHAOS_SEED), and last MOLDAU_CHAOS_SECONDS.
"""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from group_member import FLAVOURS
from harness.patience import PATIENCE_S, wait_until

SEED = int(os.environ.get("MOLDAU_CHAOS_SEED", "1"))
SECONDS = float(os.environ.get("MOLDAU_CHAOS_SECONDS", "30"))
MEMBERS_MAX = 8
PARTITIONS = 8
RECORDS_A_SECOND = 400
TOPIC = "under-fire"
SETTINGS = ("group.consumer.session.timeout.ms=6000", "group.consumer.heartbeat.interval.ms=500")


class Broker:
    def __init__(self, folder: Path, port: int) -> None:
        self.address = f"127.0.0.1:{port}"
        self._folder = folder
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "moldau", "start", "-d", str(self._folder / "data"), "-l", self.address]
        for setting in SETTINGS:
            command += ["-o", setting]
        with (self._folder / "broker.log").open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        wait_until(
            lambda: b"is ready" in (self._folder / "broker.log").read_bytes().split(b"---")[-1], "the broker is ready"
        )
        return process

    def kill_and_start(self) -> None:
        self._process.kill()
        self._process.wait()
        with (self._folder / "broker.log").open("ab") as log:
            log.write(b"---\n")
        self._process = self._start()

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(30)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    running = Broker(tmp_path, port)
    try:
        _prepare(running)
        yield running
    finally:
        running.stop()


def _prepare(running: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": running.address})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(10)


class Feed:
    """Writes records until it is stopped; each acknowledged record must be read."""

    def __init__(self, bootstrap: str) -> None:
        self.written: set[tuple[int, int]] = set()
        self._is_over = threading.Event()
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._is_over.wait(10 / RECORDS_A_SECOND):
            for _ in range(10):
                self._producer.produce(TOPIC, b"%d" % number, partition=number % PARTITIONS, callback=self._delivered)
                number += 1
            self._producer.poll(0)

    def _delivered(self, error: object, message: object) -> None:
        assert error is None, error
        self.written.add((message.partition(), message.offset()))  # type: ignore[attr-defined]

    def __enter__(self) -> Feed:
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()

    def finish(self) -> None:
        self._is_over.set()
        self._thread.join()
        assert self._producer.flush(PATIENCE_S) == 0


class Group:
    def __init__(self, flavour: str, bootstrap: str, folder: Path) -> None:
        self._flavour = flavour
        self._bootstrap = bootstrap
        self._folder = folder
        self._started = 0
        self.members: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        path = self._folder / f"notes-{self._started}"
        self._started += 1
        script = Path(__file__).with_name("group_member.py")
        command = [sys.executable, str(script), self._flavour, self._bootstrap, "g", TOPIC, str(path)]
        with (self._folder / "members.log").open("ab") as log:
            self.members.append(subprocess.Popen(command, stdout=log, stderr=log))

    def kill(self, which: int) -> None:
        member = self.members.pop(which)
        member.kill()
        member.wait()

    def end(self, which: int) -> None:
        member = self.members.pop(which)
        member.terminate()
        assert member.wait(30) == 0, (self._folder / "members.log").read_text()

    def __enter__(self) -> Group:
        return self

    def __exit__(self, *_: object) -> None:
        while self.members:
            self.kill(0)

    def seen(self) -> Counter[tuple[int, int]]:
        """Count how often each record was read, by any member: each whole line is one read."""
        seen: Counter[tuple[int, int]] = Counter()
        for path in self._folder.glob("notes-*"):
            for line in path.read_text().splitlines(keepends=True):
                if line.endswith("\n"):
                    partition, offset = line.split()
                    seen[int(partition), int(offset)] += 1
        return seen


def committed(bootstrap: str) -> dict[int, int]:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("g")], request_timeout=10)
    return {each.partition: each.offset for each in asked["g"].result(15).topic_partitions}


def inject_faults(group: Group, broker: Broker, rng: random.Random) -> tuple[int, int]:
    """Start, stop and kill members and the broker; return how many of each were killed."""
    kills, restarts, end = 0, 0, time.monotonic() + SECONDS
    while time.monotonic() < end:
        time.sleep(rng.uniform(0.3, 1.5))
        choice = rng.random()
        if (choice < 0.45 and len(group.members) < MEMBERS_MAX) or not group.members:
            group.start()
        elif choice < 0.75:
            group.kill(rng.randrange(len(group.members)))
            kills += 1
        elif choice < 0.9:
            group.end(rng.randrange(len(group.members)))
        else:
            before = committed(broker.address)
            broker.kill_and_start()
            after = committed(broker.address)
            assert all(after.get(each, -1) >= offset for each, offset in before.items()), (before, after)
            restarts += 1
    return kills, restarts


def start_and_stop_members(group: Group, rng: random.Random) -> tuple[int, int]:
    starts, stops, end = 0, 0, time.monotonic() + SECONDS
    while time.monotonic() < end:
        time.sleep(rng.uniform(0.3, 1.5))
        if (rng.random() < 0.6 and len(group.members) < MEMBERS_MAX) or len(group.members) == 1:
            group.start()
            starts += 1
        else:
            group.end(rng.randrange(len(group.members)))
            stops += 1
    return starts, stops


def finish(group: Group, feed: Feed) -> Counter[tuple[int, int]]:
    """Let the members read the rest and leave; return how often each record was read."""
    feed.finish()
    while len(group.members) < 2:
        group.start()
    wait_until(lambda: feed.written <= group.seen().keys(), f"all {len(feed.written)} records are read")
    while group.members:
        group.end(0)
    return group.seen()


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_every_record_is_read_although_members_and_the_broker_are_killed(
    flavour: str, broker: Broker, tmp_path: Path
) -> None:
    with Group(flavour, broker.address, tmp_path) as group, Feed(broker.address) as feed:
        kills, restarts = inject_faults(group, broker, random.Random(f"{SEED} {flavour}"))
        seen = finish(group, feed)
    twice = sum(count > 1 for count in seen.values())
    print(
        f"\n{flavour}: {len(feed.written)} records, {kills} members and {restarts} brokers killed, {twice} read twice"
    )
    assert kills, "no member was killed: MOLDAU_CHAOS_SECONDS is too short"
    assert committed(broker.address) == {each: 1 + max(o for p, o in seen if p == each) for each in range(PARTITIONS)}


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_every_record_is_read_once_while_members_only_join_and_leave(
    flavour: str, broker: Broker, tmp_path: Path
) -> None:
    with Group(flavour, broker.address, tmp_path) as group, Feed(broker.address) as feed:
        group.start()
        starts, stops = start_and_stop_members(group, random.Random(f"{SEED} {flavour}"))
        seen = finish(group, feed)
    twice = {record: count for record, count in seen.items() if count > 1}
    print(f"\n{flavour}: {len(feed.written)} records, {starts} members started, {stops} stopped, {len(twice)} twice")
    assert starts, "no member joined: MOLDAU_CHAOS_SECONDS is too short"
    assert stops, "no member left: MOLDAU_CHAOS_SECONDS is too short"
    assert not twice
