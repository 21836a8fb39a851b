"""Share groups go on when nodes die: three nodes in this process, with librdkafka's share consumer.

Members accept, release and reject by a rule while a producer writes. The leader of the partition is killed and comes
back, then the share coordinator, then the group's coordinator. Every record is settled in the end, and what a member
was told is accepted is not delivered again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Self

import pytest
from confluent_kafka import AcknowledgeType, KafkaException
from confluent_kafka.admin import AdminClient
from failover_roles import create_replicated
from failover_senders import ConfluentSender
from harness.patience import wait_until
from share_members import FROM_THE_START, Delivery, ShareMember, unused_group

from moldau.base.errors import KafkaError
from moldau.base.ids import TopicPartition
from moldau.base.topic_names import CONSUMER_OFFSETS_TOPIC, SHARE_GROUP_STATE_TOPIC
from moldau.client.admin.group_values import ShareOffset
from moldau.client.admin.share_groups import ShareGroups
from moldau.client.cluster import Cluster
from moldau.testing import TestCluster, cluster

pytestmark = [pytest.mark.moldau_only, pytest.mark.usefixtures("sockets_are_collected_at_once")]
TOPIC = "jobs"
TOPICS = (TOPIC, SHARE_GROUP_STATE_TOPIC, CONSUMER_OFFSETS_TOPIC)
"""Each has one partition: its leader is the records' leader, the share coordinator, or the group's coordinator."""
MEMBERS = 3
DELIVERY_LIMIT = 4
PROGRESS = 40
"""So many records more must be accepted after each death."""
COMMIT_S = 20.0
REQUEST_TIMEOUT_MS = 10_000


class Journal:
    """What all members were given and told."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.counts: dict[str, int] = {}
        """The highest delivery count of each record."""
        self.asked: set[str] = set()
        """Records that a member accepted or rejected, whatever it was told."""
        self.accepted: set[str] = set()
        """Records of which it was told that this is written."""
        self.faults: list[str] = []
        self.closing = threading.Event()

    def given(self, delivery: Delivery, known: set[str]) -> None:
        """Note a delivery. `known` is what was accepted before the member's last poll: one fetch may be under way."""
        with self.lock:
            self.counts[delivery.value] = max(delivery.count, self.counts.get(delivery.value, 0))
            if delivery.value in known:
                self.faults.append(f"{delivery} was accepted before")
            if delivery.count > DELIVERY_LIMIT:
                self.faults.append(f"{delivery} is delivered too often")

    def accepted_now(self) -> set[str]:
        with self.lock:
            return set(self.accepted)


class Member(ShareMember):
    """Accepts, releases and rejects by a rule, in a thread of its own, and notes what it is told."""

    def __init__(self, bootstrap: str, group: str, journal: Journal) -> None:
        super().__init__(bootstrap, group, [TOPIC], max_poll_records=20)
        self.journal = journal
        self.thread = threading.Thread(target=self._run, name=f"member of {group}")

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def close(self) -> None:
        self.journal.closing.set()
        self.thread.join()
        super().close()

    def _run(self) -> None:
        try:
            before_last: set[str] = set()
            last: set[str] = set()
            while not self.journal.closing.is_set():
                before_last, last = last, self.journal.accepted_now()
                for delivery in self.poll():
                    self.journal.given(delivery, before_last)
                self._settle()
        except BaseException as fault:
            self.journal.faults.append(repr(fault))

    def _settle(self) -> None:
        """Acknowledge what is held. Errors concern records that come again, for this member or another one."""
        kinds = {delivery: kind_of(delivery) for delivery in self.messages}
        with self.journal.lock:
            self.journal.asked |= {each.value for each, kind in kinds.items() if kind is not AcknowledgeType.RELEASE}
        for delivery, message in self.messages.items():
            self.consumer.acknowledge(message, kinds[delivery])
        self.messages.clear()
        if not kinds:
            return
        try:
            has_failed = any(self.consumer.commit_sync(COMMIT_S).values())
        except KafkaException:
            has_failed = True
        if not has_failed:
            with self.journal.lock:
                self.journal.accepted |= {each.value for each, kind in kinds.items() if kind is AcknowledgeType.ACCEPT}


def kind_of(delivery: Delivery) -> AcknowledgeType:
    number = int(delivery.value)
    if number % 7 == 3:
        return AcknowledgeType.REJECT
    if number % 5 == 1 and delivery.count < 3:
        return AcknowledgeType.RELEASE
    return AcknowledgeType.ACCEPT


@pytest.fixture
def three() -> Iterator[TestCluster]:
    with cluster(
        offsets_topic_num_partitions=1,
        share_coordinator_state_topic_num_partitions=1,
        share_coordinator_snapshot_update_records_per_snapshot=50,
        group_share_delivery_count_limit=DELIVERY_LIMIT,
        group_share_record_lock_duration_ms=3_000,
        group_share_min_record_lock_duration_ms=3_000,
    ) as running:
        yield running


def lag_of(groups: ShareGroups, group: str) -> int | None:
    try:
        found = groups.offsets(group).get(TopicPartition(TOPIC, 0))
    except KafkaError:
        return None
    return found.lag if isinstance(found, ShareOffset) else None


def test_records_are_settled_once_while_nodes_die(three: TestCluster) -> None:
    admin = AdminClient({"bootstrap.servers": three.bootstrap_servers, "log_level": 0})
    create_replicated(three, admin, TOPIC, 1)
    group = unused_group(admin, FROM_THE_START)
    journal = Journal()
    with ExitStack() as stack:
        groups = ShareGroups(
            stack.enter_context(closing(Cluster(three.bootstrap_servers, {}))), timeout_ms=REQUEST_TIMEOUT_MS
        )
        sender = stack.enter_context(ConfluentSender(three.bootstrap_servers, TOPIC, 1))
        for _ in range(MEMBERS):
            stack.enter_context(Member(three.bootstrap_servers, group, journal))

        def await_progress() -> None:
            """Wait until records are accepted that are written from now on."""
            first = sender.sent
            wait_until(
                lambda: journal.faults or sum(int(value) >= first for value in journal.accepted_now()) >= PROGRESS,
                "new records are accepted",
            )
            assert not journal.faults

        await_progress()
        for led in TOPICS:
            victim = three.wait_for_leader(led, 0)
            three.kill(victim)
            await_progress()
            three.restart(victim)
            for topic in TOPICS:
                three.wait_for_isr(topic, 0, three.nodes)
        sender.close()
        wait_until(
            lambda: journal.faults or lag_of(groups, group) == 0, "all records are settled", lambda: len(journal.asked)
        )
        journal.closing.set()
    assert not sender.errors
    assert not journal.faults
    assert {int(value) for value in journal.asked} == {number for _, number in sender.acked}
    assert not journal.accepted & {value for value in journal.counts if int(value) % 7 == 3}
