"""A group of real consumers moves from the classic to the consumer protocol and back, one by one, while it reads."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from clients import confluent_producer
from group_members import Group
from group_readers import FLAVOURS, Reader, await_shares, close_all, until
from harness.patience import PATIENCE_S

CreateTopic = Callable[..., str]
MEMBERS, PARTITIONS = 3, 6
SHARES = [2, 2, 2]
CONSUMER_FLAVOUR = "confluent-consumer"
LONGER_THAN_PATIENCE = {"session.timeout.ms": int(4000 * PATIENCE_S), "max.poll.interval.ms": int(4000 * PATIENCE_S)}
"""Timeouts longer than the test's patience: a group that only continues after a timeout fails the test."""


class Traffic:
    """Writes numbers to all partitions in turn until it is stopped."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.topic = topic
        self.producer = confluent_producer(bootstrap)
        self.readers: list[Reader] = []
        self.written = 0
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.run, name=f"traffic of {topic}")
        self.thread.start()

    def run(self) -> None:
        for number in itertools.count():
            self.producer.produce(self.topic, b"%06d" % number, partition=number % PARTITIONS)
            self.producer.poll(0)
            self.written = number + 1
            if self.stopping.wait(0.01):
                break
        assert self.producer.flush(PATIENCE_S) == 0

    def await_more(self) -> None:
        """Wait until some member reads a new record."""
        before = self.found()
        until(lambda: self.found() > before, "the group continues to read", self.readers)

    def found(self) -> int:
        return sum(len(reader.found) for reader in self.readers)

    def stop(self) -> None:
        self.stopping.set()
        self.thread.join(PATIENCE_S)


@contextmanager
def running_traffic(bootstrap: str, topic: str) -> Iterator[Traffic]:
    traffic = Traffic(bootstrap, topic)
    try:
        yield traffic
    finally:
        traffic.stop()
        close_all(traffic.readers)


def open_member(group: Group, traffic: Traffic, flavour: str, place: int, is_static: bool) -> Reader:
    config: dict[str, Any] = {"group.instance.id": f"i{place}"} if is_static else {}
    if flavour != CONSUMER_FLAVOUR:
        config |= LONGER_THAN_PATIENCE
    reader = FLAVOURS[flavour].open(group.bootstrap, group.id, [traffic.topic], **config)
    traffic.readers.append(reader)
    return reader


def roll(group: Group, traffic: Traffic, members: list[Reader], flavour: str, is_static: bool) -> None:
    """Close one member after the other and open it again in its new flavour, while the others continue to read."""
    for place in range(MEMBERS):
        members[place].close()
        traffic.await_more()
        members[place] = open_member(group, traffic, flavour, place, is_static)
        await_shares(members, SHARES)
        traffic.await_more()


def roll_to_consumer_and_back(bootstrap: str, topic: str, classic: str, is_static: bool) -> None:
    """Replace all classic members by consumer members, one by one, and these by classic ones again."""
    with Group(bootstrap) as group, running_traffic(bootstrap, topic) as traffic:
        group.assign_at_once()
        members = [open_member(group, traffic, classic, place, is_static) for place in range(MEMBERS)]
        await_shares(members, SHARES)
        assert group.listed_type() == "classic"
        roll(group, traffic, members, CONSUMER_FLAVOUR, is_static)
        assert group.listed_type() == "consumer"
        roll(group, traffic, members, classic, is_static)
        assert group.listed_type() == "classic"
        await_all_read(traffic)


def let_a_consumer_member_join_and_leave(bootstrap: str, topic: str, classic: str) -> None:
    """A consumer member joins classic ones, which have to revoke partitions, and leaves again."""
    with Group(bootstrap) as group, running_traffic(bootstrap, topic) as traffic:
        group.assign_at_once()
        members = [open_member(group, traffic, classic, place, False) for place in range(MEMBERS - 1)]
        await_shares(members, [3, 3])
        guest = open_member(group, traffic, CONSUMER_FLAVOUR, MEMBERS, False)
        await_shares([*members, guest], SHARES)
        traffic.await_more()
        assert group.listed_type() == "consumer"
        guest.close()
        await_shares(members, [3, 3])
        traffic.await_more()
        assert group.listed_type() == "classic"
        await_all_read(traffic)


def await_all_read(traffic: Traffic) -> None:
    """Wait until everything written is read."""
    readers = traffic.readers
    traffic.stop()
    numbers = {b"%06d" % number for number in range(traffic.written)}
    until(lambda: {read.value for each in readers for read in each.found} == numbers, "all records are read", readers)


CLASSIC = [
    "confluent-range",
    # With this assignor, librdkafka's leaders put user data into the assignments of members that had one before. Apache
    # Kafka does not convert such a group: it cannot know that the members do without these data.
    pytest.param("confluent-cooperative", marks=pytest.mark.moldau_only),
]


@pytest.mark.parametrize("is_static", [False, True], ids=["dynamic", "static"])
@pytest.mark.parametrize("classic", CLASSIC)
def test_a_group_rolls_to_the_consumer_protocol_and_back(
    bootstrap: str, create_topic: CreateTopic, classic: str, is_static: bool
) -> None:
    roll_to_consumer_and_back(bootstrap, create_topic(partitions=PARTITIONS), classic, is_static)


@pytest.mark.parametrize("classic", CLASSIC)
def test_a_consumer_member_joins_and_leaves_a_classic_group(
    bootstrap: str, create_topic: CreateTopic, classic: str
) -> None:
    let_a_consumer_member_join_and_leave(bootstrap, create_topic(partitions=PARTITIONS), classic)
