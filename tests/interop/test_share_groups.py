"""Share groups (KIP-932) with librdkafka's share consumer: who gets which record, how often, and what comes again.

All tests hold against Apache Kafka too (MOLDAU_TEST_BOOTSTRAP). That something is not delivered is seen from a record
after it that is.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient
from harness.patience import PATIENCE_S, wait_until
from share_members import FROM_THE_START, Delivery, JavaMember, Member, ShareMember, require_share_groups, unused_group
from transactional_copier import needs_java

CreateTopic = Callable[..., str]
Produce = Callable[..., None]
END = "end"
SHORTEST_LOCK = {"share.record.lock.duration.ms": "15000"}
"""A broker does not accept a shorter one by default."""
FEW_DELIVERIES = {"share.delivery.count.limit": "2"}
HOUR_MS = 3_600_000


@pytest.fixture(scope="module", autouse=True)
def needs_share_groups(bootstrap: str) -> None:
    require_share_groups(bootstrap)


@pytest.fixture(scope="module")
def produce(bootstrap: str) -> Produce:
    """Return a function that writes values in one batch, which a member gets with one poll, or each in one of its own,
    which several members may share."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1000})

    def write(topic: str, values: Iterable[str], *, partition: int = 0, apart: bool = False) -> None:
        for value in values:
            producer.produce(topic, value, partition=partition)
            if apart:
                assert producer.flush(PATIENCE_S) == 0
        assert producer.flush(PATIENCE_S) == 0

    return write


def values(deliveries: Iterable[Delivery]) -> list[str]:
    return [delivery.value for delivery in deliveries]


def numbers(count: int) -> list[str]:
    return [str(number) for number in range(count)]


def until_end(member: Member) -> list[Delivery]:
    """Return all deliveries up to that of the last record, and accept them."""
    received = member.receive(lambda found: END in values(found))
    member.accept()
    return received


class TestDelivery:
    def test_each_record_goes_to_one_member(
        self, bootstrap: str, admin: AdminClient, create_topic: CreateTopic, produce: Produce
    ) -> None:
        """More members than partitions: each gets records while the others hold theirs."""
        topic, group = create_topic(), unused_group(admin)
        produce(topic, numbers(60), apart=True)
        with ExitStack() as stack:
            members = [
                stack.enter_context(ShareMember(bootstrap, group, [topic], max_poll_records=10)) for _ in range(3)
            ]
            held = [member.receive() for member in members]
            rest = [delivery for member in members for delivery in drained(member)]
        received = [delivery for each in [*held, rest] for delivery in each]
        assert all(held)
        assert sorted(values(received), key=int) == numbers(60)
        assert {delivery.count for delivery in received} == {1}

    def test_members_of_different_groups_get_the_same_records(
        self, bootstrap: str, admin: AdminClient, create_topic: CreateTopic, produce: Produce
    ) -> None:
        topic = create_topic()
        produce(topic, [*numbers(5), END])
        with (
            ShareMember(bootstrap, unused_group(admin), [topic]) as first,
            ShareMember(bootstrap, unused_group(admin), [topic]) as second,
        ):
            held = first.receive(lambda found: END in values(found))
            assert values(until_end(second)) == [*numbers(5), END]
            first.release(held)
            again = first.receive(lambda found: END in values(found))
        assert [(each.value, each.count) for each in again] == [(value, 2) for value in [*numbers(5), END]]

    def test_records_of_several_partitions_and_topics(
        self, bootstrap: str, admin: AdminClient, create_topic: CreateTopic, produce: Produce
    ) -> None:
        first, second = create_topic(partitions=3), create_topic()
        for partition in range(3):
            produce(first, numbers(4), partition=partition)
        produce(second, ["other"])
        with ShareMember(bootstrap, unused_group(admin), [first, second]) as member:
            received = member.take(13)
        assert Counter(values(received)) == Counter(numbers(4) * 3 + ["other"])
        assert {(each.partition, each.offset) for each in received if each.value == "3"} == {(0, 3), (1, 3), (2, 3)}

    @pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
    def test_a_record_has_its_key_headers_and_timestamp(
        self, bootstrap: str, admin: AdminClient, create_topic: CreateTopic, codec: str
    ) -> None:
        topic = create_topic(config={"retention.ms": "-1"})
        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 100})
        for number in range(5):
            headers: list[tuple[str, str | bytes | None]] = [("n", str(number)), ("none", None)]
            producer.produce(topic, "v" * 1000, f"k{number}", timestamp=1_700_000_000_000 + number, headers=headers)
        assert producer.flush(PATIENCE_S) == 0
        with ShareMember(bootstrap, unused_group(admin), [topic]) as member:
            member.receive(lambda found: len(found) == 5)
            message = member.messages[max(member.held)]
            assert (message.key(), message.value(), message.timestamp()) == (b"k4", b"v" * 1000, (1, 1_700_000_000_004))
            assert message.headers() == [("n", b"4"), ("none", None)]


class TestAcknowledgement:
    def test_what_is_accepted_or_rejected_does_not_come_again(
        self, bootstrap: str, admin: AdminClient, create_topic: CreateTopic, produce: Produce
    ) -> None:
        topic, group = create_topic(), unused_group(admin)
        produce(topic, ["accepted", "rejected", "released", "accepted too"])
        with ShareMember(bootstrap, group, [topic]) as member:
            received = {each.value: each for each in member.receive(lambda found: len(found) == 4)}
            member.reject([received["rejected"]])
            member.release([received["released"]])
            member.accept()
        produce(topic, [END])
        with ShareMember(bootstrap, group, [topic]) as member:
            again = until_end(member)
        assert [(each.value, each.count) for each in again] == [("released", 2), (END, 1)]

    def test_one_batch_is_acknowledged_record_by_record(
        self, bootstrap: str, admin: AdminClient, create_topic: CreateTopic, produce: Produce
    ) -> None:
        topic, group = create_topic(), unused_group(admin)
        produce(topic, numbers(20))
        with ShareMember(bootstrap, group, [topic]) as member:
            received = member.receive(lambda found: len(found) == 20)
            member.release(received[1::2])
            member.accept()
            again = member.receive(lambda found: len(found) == 10)
            assert [(each.value, each.count) for each in again] == [(value, 2) for value in numbers(20)[1::2]]
            member.reject(again[:9])
            member.release()
            (last,) = member.receive()
            assert (last.value, last.count) == ("19", 3)

    def test_a_record_that_is_released_too_often_is_given_up(
        self, bootstrap: str, admin: AdminClient, create_topic: CreateTopic, produce: Produce
    ) -> None:
        topic, group = create_topic(), unused_group(admin, FROM_THE_START | FEW_DELIVERIES)
        produce(topic, ["poisonous"])
        with ShareMember(bootstrap, group, [topic]) as member:
            for count in (1, 2):
                assert [(each.value, each.count) for each in member.receive()] == [("poisonous", count)]
                member.release()
            produce(topic, [END])
            assert values(until_end(member)) == [END]

    def test_the_next_poll_accepts_without_explicit_acknowledgement(
        self, bootstrap: str, admin: AdminClient, create_topic: CreateTopic, produce: Produce
    ) -> None:
        topic, group = create_topic(), unused_group(admin)
        produce(topic, numbers(3))
        implicit = {"share_acknowledgement_mode": "implicit"}
        with ShareMember(bootstrap, group, [topic], **implicit) as member:
            received: list[Delivery] = []

            def has_all() -> bool:
                received.extend(member.poll())
                return len(received) == 3

            wait_until(has_all, "all are received")
            assert not any(member.consumer.commit_sync(PATIENCE_S).values())
        produce(topic, [END])
        with ShareMember(bootstrap, group, [topic]) as member:
            assert values(until_end(member)) == [END]


class TestLocks:
    def test_records_held_for_too_long_go_to_another_member(
        self, bootstrap: str, admin: AdminClient, create_topic: CreateTopic, produce: Produce
    ) -> None:
        topic, group = create_topic(), unused_group(admin, FROM_THE_START | SHORTEST_LOCK)
        produce(topic, numbers(2))
        with ShareMember(bootstrap, group, [topic]) as slow, ShareMember(bootstrap, group, [topic]) as quick:
            held = slow.receive(lambda found: len(found) == 2)
            again = quick.receive(lambda found: len(found) == 2)
            assert [(each.value, each.count) for each in again] == [("0", 2), ("1", 2)]
            assert slow.refused("ACCEPT", held) == ["INVALID_RECORD_STATE"]
            quick.accept()
            produce(topic, [END])
            assert values(until_end(quick)) == [END]

    def test_a_member_that_leaves_releases_what_it_holds(
        self, bootstrap: str, admin: AdminClient, create_topic: CreateTopic, produce: Produce
    ) -> None:
        topic, group = create_topic(), unused_group(admin)
        produce(topic, numbers(3))
        with ShareMember(bootstrap, group, [topic]) as leaving:
            held = leaving.receive(lambda found: len(found) == 3)
            leaving.accept(held[:1])
        produce(topic, [END])
        with ShareMember(bootstrap, group, [topic]) as member:
            assert values(until_end(member)) == ["1", "2", END]

    def test_a_member_that_vanishes_loses_what_it_holds(
        self, bootstrap: str, admin: AdminClient, create_topic: CreateTopic, produce: Produce
    ) -> None:
        topic, group = create_topic(), unused_group(admin, FROM_THE_START | SHORTEST_LOCK)
        produce(topic, numbers(3))
        with holding_process(bootstrap, group, topic, 3) as process:
            produce(topic, [END])
            with ShareMember(bootstrap, group, [topic]) as member:
                assert values(until_end(member)) == [END]
                process.send_signal(signal.SIGKILL)
                again = member.take(3)
        assert [(each.value, each.count) for each in again] == [("0", 2), ("1", 2), ("2", 2)]


@needs_java
class TestJava:
    """Java's share consumer and librdkafka's in one group. Neither is idle for long: it may have fetched ahead."""

    def test_both_clients_share_the_records(
        self, bootstrap: str, admin: AdminClient, create_topic: CreateTopic, produce: Produce
    ) -> None:
        topic, group = create_topic(), unused_group(admin)
        produce(topic, ["accepted", "rejected", "released"])
        with JavaMember(bootstrap, group, topic) as java:
            received = {each.value: each for each in java.receive(lambda found: len(found) == 3)}
            assert {each.count for each in received.values()} == {1}
            java.accept([received["accepted"]])
            java.reject([received["rejected"]])
            java.release()
        with ShareMember(bootstrap, group, [topic]) as other:
            (again,) = other.receive()
            other.release()
        produce(topic, [END])
        with JavaMember(bootstrap, group, topic) as java:
            last = until_end(java)
        assert (again.value, values(last)) == ("released", ["released", END])
        # Both clients fetch ahead: a delivery that the application has not seen is counted too.
        assert 1 < again.count < last[0].count

    def test_a_renewed_lock_outlives_others(
        self, bootstrap: str, admin: AdminClient, create_topic: CreateTopic, produce: Produce
    ) -> None:
        """Another group shows how long a lock lasts that is not renewed."""
        topic, configs = create_topic(), FROM_THE_START | SHORTEST_LOCK
        group, control = unused_group(admin, configs), unused_group(admin, configs)
        produce(topic, ["kept"])
        with (
            JavaMember(bootstrap, group, topic) as java,
            ShareMember(bootstrap, group, [topic]) as other,
            ShareMember(bootstrap, control, [topic]) as slow,
            ShareMember(bootstrap, control, [topic]) as quick,
        ):
            (kept,) = java.receive()
            held: list[Delivery] = []

            def lock_is_over() -> bool:
                java.acknowledge("RENEW", [kept])
                assert java.poll() == [kept]
                assert other.poll() == []
                if not held:
                    held.extend(slow.poll())
                    return False
                return bool(quick.poll())

            wait_until(lock_is_over, "a lock that is not renewed is over")
            java.accept()
            quick.accept()
            produce(topic, [END])
            assert values(until_end(other)) == [END]


class TestStart:
    def test_a_new_group_begins_at_the_end_by_default(
        self, bootstrap: str, admin: AdminClient, create_topic: CreateTopic, produce: Produce
    ) -> None:
        topic = create_topic()
        produce(topic, ["old"])
        with ShareMember(bootstrap, unused_group(admin, {}), [topic]) as member:

            def gets_new_records() -> list[Delivery]:
                produce(topic, ["new"])
                return member.poll()

            first = wait_until(gets_new_records, "the group begins")
            member.accept()
            produce(topic, [END])
            assert set(values([*first, *until_end(member)])) == {"new", END}

    def test_a_new_group_may_begin_some_time_ago(
        self, bootstrap: str, admin: AdminClient, create_topic: CreateTopic, produce: Produce
    ) -> None:
        topic = create_topic(config={"retention.ms": "-1"})
        group = unused_group(admin, {"share.auto.offset.reset": "by_duration:PT1H"})
        now_ms = time.time_ns() // 1_000_000
        producer = Producer({"bootstrap.servers": bootstrap})
        for age_hours, value in ((5, "oldest"), (2, "old"), (0, "young")):
            producer.produce(topic, value, partition=0, timestamp=now_ms - age_hours * HOUR_MS)
            assert producer.flush(PATIENCE_S) == 0
        produce(topic, [END])
        with ShareMember(bootstrap, group, [topic]) as member:
            assert values(until_end(member)) == ["young", END]

    def test_deleted_records_are_not_delivered(
        self, bootstrap: str, admin: AdminClient, create_topic: CreateTopic, produce: Produce
    ) -> None:
        topic, group = create_topic(), unused_group(admin)
        produce(topic, numbers(6), apart=True)
        with ShareMember(bootstrap, group, [topic], max_poll_records=1) as member:
            assert values(member.receive())[0] == "0"
            member.accept()
            deleted = admin.delete_records([ConfluentPartition(topic, 0, 4)])
            assert {each.result(PATIENCE_S).low_watermark for each in deleted.values()} == {4}
            produce(topic, [END])
            received = values(until_end(member))
        assert received[-3:] == ["4", "5", END]

    def test_the_group_goes_on_where_it_was_without_members(
        self, bootstrap: str, admin: AdminClient, create_topic: CreateTopic, produce: Produce
    ) -> None:
        topic, group = create_topic(), unused_group(admin)
        for part in (["a", "b", END], ["c", END], ["d", "e", END]):
            produce(topic, part)
            with ShareMember(bootstrap, group, [topic]) as member:
                assert values(until_end(member)) == part


class TestTransactions:
    @pytest.mark.parametrize(
        ("level", "delivered"),
        [("read_committed", ["committed", END]), ("read_uncommitted", ["aborted", "committed", END])],
    )
    def test_the_isolation_level_is_that_of_the_group(
        self, bootstrap: str, admin: AdminClient, create_topic: CreateTopic, level: str, delivered: list[str]
    ) -> None:
        topic, group = create_topic(), unused_group(admin, FROM_THE_START | {"share.isolation.level": level})
        producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"tx-{topic}"})
        producer.init_transactions(PATIENCE_S)
        for value in ("aborted", "committed", END):
            producer.begin_transaction()
            producer.produce(topic, value)
            assert producer.flush(PATIENCE_S) == 0
            if value == "aborted":
                producer.abort_transaction(PATIENCE_S)
            else:
                producer.commit_transaction(PATIENCE_S)
        with ShareMember(bootstrap, group, [topic]) as member:
            assert values(until_end(member)) == delivered

    def test_an_open_transaction_holds_up_a_group_that_reads_committed(
        self, bootstrap: str, admin: AdminClient, create_topic: CreateTopic, produce: Produce
    ) -> None:
        topic = create_topic()
        group = unused_group(admin, FROM_THE_START | {"share.isolation.level": "read_committed"})
        producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"tx-{topic}"})
        producer.init_transactions(PATIENCE_S)
        produce(topic, ["before"])
        producer.begin_transaction()
        producer.produce(topic, "inside")
        assert producer.flush(PATIENCE_S) == 0
        produce(topic, [END])
        with (
            ShareMember(bootstrap, group, [topic]) as member,
            ShareMember(bootstrap, unused_group(admin), [topic]) as other,
        ):
            assert values(until_end(other)) == ["before", "inside", END]
            assert values(member.take(1)) == ["before"]
            producer.commit_transaction(PATIENCE_S)
            assert values(until_end(member)) == ["inside", END]


def test_every_record_is_settled_once_whatever_its_members_do(
    bootstrap: str, admin: AdminClient, create_topic: CreateTopic
) -> None:
    """Members accept, release and reject at random, and some leave while they hold records. Each record is accepted or
    rejected once, after deliveries that are counted one by one, unless it was given up."""
    limit, records = 10, 600
    topic = create_topic(partitions=2)
    group = unused_group(admin, FROM_THE_START | {"share.delivery.count.limit": str(limit)})
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1})
    for number in range(records):
        producer.produce(topic, str(number), partition=number % 2)
    assert producer.flush(PATIENCE_S) == 0
    history = History(records, limit)
    threads = [threading.Thread(target=work, args=(bootstrap, group, topic, history, seed)) for seed in range(4)]
    for thread in threads:
        thread.start()
    wait_until(lambda: history.is_complete or history.faults, "all records are settled", history.progress, 0.1)
    history.closing.set()
    for thread in threads:
        thread.join()
    assert history.faults == []
    assert set(history.settled.values()) == {1}
    for counts in history.counts.values():
        assert sorted(counts) == list(range(1, len(counts) + 1))


class History:
    """What happened to each record, of all members."""

    def __init__(self, records: int, limit: int) -> None:
        self.records, self.limit = records, limit
        self.lock = threading.Lock()
        self.counts: dict[str, list[int]] = {}
        self.settled: Counter[str] = Counter()
        self.faults: list[str] = []
        self.closing = threading.Event()

    @property
    def is_complete(self) -> bool:
        with self.lock:
            given_up = sum(self.limit in counts for value, counts in self.counts.items() if value not in self.settled)
            return len(self.settled) + given_up == self.records

    def progress(self) -> int:
        with self.lock:
            return sum(map(len, self.counts.values()))


def work(bootstrap: str, group: str, topic: str, history: History, seed: int) -> None:
    chance = random.Random(seed)
    try:
        while not history.closing.is_set():
            with ShareMember(bootstrap, group, [topic], max_poll_records=20) as member:
                for _ in range(chance.randrange(5, 30)):
                    handle(member, member.poll(0.1), history, chance)
                    if history.closing.is_set():
                        break
                held = member.poll(0.1)
                with history.lock:
                    for delivery in held:
                        history.counts.setdefault(delivery.value, []).append(delivery.count)
    except BaseException as fault:
        history.faults.append(repr(fault))


def handle(member: ShareMember, deliveries: list[Delivery], history: History, chance: random.Random) -> None:
    """Acknowledge each, and note it when the broker has confirmed it."""
    chosen = {each: chance.choice(("ACCEPT", "RELEASE", "REJECT")) for each in deliveries}
    with history.lock:
        for delivery in deliveries:
            history.counts.setdefault(delivery.value, []).append(delivery.count)
    for how in ("ACCEPT", "RELEASE", "REJECT"):
        member.acknowledge(how, [each for each in deliveries if chosen[each] == how])
    with history.lock:
        history.settled.update(each.value for each in deliveries if chosen[each] != "RELEASE")


def drained(member: Member) -> list[Delivery]:
    """Accept what the member holds and what it still gets, until a poll returns nothing."""
    received: list[Delivery] = []
    member.accept()
    while found := member.poll():
        received += found
        member.accept()
    return received


@contextmanager
def holding_process(bootstrap: str, group: str, topic: str, count: int) -> Iterator[subprocess.Popen[str]]:
    """Yield a process with a member that holds so many records and does nothing more."""
    words = [sys.executable, str(Path(__file__).with_name("share_members.py")), bootstrap, group, topic, str(count)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "holding\n"
            yield process
        finally:
            process.kill()
