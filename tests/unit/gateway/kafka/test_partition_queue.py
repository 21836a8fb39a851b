"""One partition's queue before a log with Kafka's rules: what becomes of records, whatever a leader answers."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from harness.idempotent_log import INVALID, SEQUENCES, IdempotentLog

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import ProducerIdAndEpoch, TopicPartition
from moldau.gateway.kafka.chunks import BATCH_BYTES, BATCH_RECORDS, Call, chunks_by_partition, chunks_of_values
from moldau.gateway.kafka.partition_queue import Next, PartitionQueue
from moldau.gateway.ports import NewRecord, Place
from moldau.wire.batch import read_header

TIMED_OUT = ErrorCode.REQUEST_TIMED_OUT
PATIENCE_S = 30.0


class Writer:
    """A queue, its log, and an owner who does what the queue says."""

    def __init__(self) -> None:
        self.log = IdempotentLog()
        self.queue = PartitionQueue(TopicPartition("a", 2))
        self.now = 0.0
        self.producer_ids = 0
        self.batches = 0

    def put(self, *values: bytes) -> Call:
        call = Call(len(values), self.now + PATIENCE_S, lambda: None)
        self.queue.waiting.extend(chunks_of_values(call, values))
        return call

    def send(self, before: ErrorCode | None = None, after: ErrorCode | None = None) -> Next:
        """Send one batch. The log does not see it if the answer is known `before`; with one `after`, it has it."""
        queue = self.queue
        if queue.producer is None:
            self.producer_ids += 1
            queue.producer = ProducerIdAndEpoch(self.producer_ids, 0)
        batch = bytes(queue.prepare(1_700_000_000_000).data)
        self.batches += 1
        if before is not None:
            return queue.on_answer(before, -1, None, self.now)
        try:
            offset = self.log.append(batch)
        except KafkaError as refused:
            return queue.on_answer(refused.code, -1, refused.message, self.now)
        if after is not None:
            return queue.on_answer(after, -1, None, self.now)
        return queue.on_answer(ErrorCode.NONE, offset, None, self.now)

    def drain(self) -> None:
        while self.queue.batch or self.queue.waiting:
            assert self.send() is Next.GO_ON
            assert self.batches < 1_000

    @property
    def values(self) -> list[bytes | None]:
        return [record.value for record in self.log.records]


@pytest.fixture
def writer() -> Writer:
    return Writer()


def codes(call: Call) -> Sequence[ErrorCode | Place | None]:
    return [each.code if isinstance(each, KafkaError) else each for each in call.outcomes]


def places(*offsets: int) -> list[Place]:
    return [Place(2, offset) for offset in offsets]


def test_what_waits_shares_a_batch_and_every_record_has_its_place(writer: Writer) -> None:
    first, second = writer.put(b"1", b"2"), writer.put(b"3")
    assert writer.send() is Next.GO_ON
    assert writer.put(b"4").outcomes == [None]
    assert writer.send() is Next.GO_ON
    assert writer.values == [b"1", b"2", b"3", b"4"]
    assert (first.outcomes, second.outcomes) == (places(0, 1), places(2))
    assert writer.batches == 2


def test_whole_records_and_values_share_a_batch(writer: Writer) -> None:
    record = NewRecord(None, b"key", (("name", b"value"), ("none", None)), 5)
    call = Call(1, PATIENCE_S, lambda: None)
    writer.put(b"1")
    writer.queue.waiting.extend(chunks_by_partition(call, [record], 1, 0)[0])
    writer.put(b"3")
    writer.drain()
    assert writer.batches == 1
    assert [(each.timestamp, each.key, each.value, each.headers) for each in writer.log.records] == [
        (1_700_000_000_000, None, b"1", ()),
        (5, b"key", None, record.headers),
        (1_700_000_000_000, None, b"3", ()),
    ]
    assert call.outcomes == places(1)


@pytest.mark.parametrize(("count", "size"), [(3, BATCH_BYTES // 2), (2, BATCH_BYTES), (BATCH_RECORDS + 1, 0)])
def test_more_than_a_batch_takes_several(writer: Writer, count: int, size: int) -> None:
    calls = [writer.put(bytes(size)) for _ in range(count)]
    writer.drain()
    assert writer.batches == (2 if size < BATCH_BYTES // 2 else count)
    assert [call.outcomes for call in calls] == [places(offset) for offset in range(count)]


@pytest.mark.parametrize(
    "lost",
    [
        TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,  # so a leader answers which ceased to be one while it waited for followers
        ErrorCode.KAFKA_STORAGE_ERROR,
    ],
)
def test_a_batch_whose_answer_was_lost_is_there_once(writer: Writer, lost: ErrorCode) -> None:
    call = writer.put(b"1", b"2")
    assert writer.send(after=lost) is Next.AGAIN
    assert writer.send(after=lost) is Next.AGAIN
    later = writer.put(b"3")
    assert writer.send() is Next.GO_ON
    writer.drain()
    assert writer.values == [b"1", b"2", b"3"]
    assert (call.outcomes, later.outcomes) == (places(0, 1), places(2))


def test_the_pauses_grow_and_are_short_again_after_an_answer(writer: Writer) -> None:
    writer.put(b"1")
    pauses = []
    for _ in range(7):
        assert writer.send(ErrorCode.NOT_ENOUGH_REPLICAS) is Next.AGAIN
        pauses.append(writer.queue.backoff_s)
    assert pauses == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    writer.drain()
    writer.put(b"2")
    writer.send(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert writer.queue.backoff_s == 0.05


@pytest.mark.parametrize("lost", [TIMED_OUT, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_who_gives_up_says_that_the_records_may_be_there_and_goes_on_with_another_producer(
    writer: Writer, lost: ErrorCode
) -> None:
    writer.put(b"0")
    writer.drain()
    call = writer.put(b"1")
    assert writer.send(after=lost) is Next.AGAIN
    writer.now = PATIENCE_S
    assert writer.send(ErrorCode.LEADER_NOT_AVAILABLE) is Next.GO_ON
    assert codes(call) == [TIMED_OUT]
    assert "may have been appended" in str(call.outcomes[0])
    later = writer.put(b"2")
    writer.drain()
    assert writer.producer_ids == 2
    assert (writer.values, later.outcomes) == ([b"0", b"1", b"2"], places(2))


def test_who_gives_up_before_anything_was_taken_says_so_and_keeps_its_producer(writer: Writer) -> None:
    call = writer.put(b"1")
    writer.send(ErrorCode.NOT_ENOUGH_REPLICAS)
    writer.now = PATIENCE_S
    assert writer.send(ErrorCode.NOT_ENOUGH_REPLICAS) is Next.GO_ON
    assert str(call.outcomes[0]).endswith("not appended: NOT_ENOUGH_REPLICAS")
    assert writer.put(b"2").outcomes == [None]
    writer.drain()
    assert (writer.values, writer.producer_ids) == ([b"2"], 1)


def test_a_batch_that_is_surely_not_there_is_sent_as_another_producer(writer: Writer) -> None:
    writer.put(b"1")
    writer.drain()
    writer.log.forget_producers()
    call = writer.put(b"2")
    assert writer.send() is Next.AGAIN
    assert call.outcomes == [None]
    writer.drain()
    assert (writer.values, call.outcomes, writer.producer_ids) == ([b"1", b"2"], places(1), 2)


def test_a_fenced_producer_becomes_another_one(writer: Writer) -> None:
    writer.put(b"1")
    writer.drain()
    writer.log.fence(1)
    call = writer.put(b"2")
    assert writer.send() is Next.AGAIN
    writer.drain()
    assert (call.outcomes, writer.producer_ids) == (places(1), 2)


@pytest.mark.parametrize("lost", [ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER])
def test_a_batch_that_may_be_there_is_not_sent_as_another_producer(writer: Writer, lost: ErrorCode) -> None:
    writer.put(b"0")
    writer.drain()
    call = writer.put(b"1")
    writer.send(after=TIMED_OUT)
    assert writer.send(lost) is Next.GO_ON
    assert "may have been appended" in str(call.outcomes[0])
    writer.put(b"2")
    writer.drain()
    assert writer.values == [b"0", b"1", b"2"]


def test_a_leader_that_knows_no_producer_ever_is_not_asked_without_a_pause_and_not_for_ever(writer: Writer) -> None:
    call = writer.put(b"1")
    attempts = 0
    while call.outcomes == [None]:
        assert writer.send(ErrorCode.UNKNOWN_PRODUCER_ID) is Next.AGAIN
        writer.now += writer.queue.backoff_s
        attempts += 1
        assert attempts < 50
    assert codes(call) == [ErrorCode.UNKNOWN_PRODUCER_ID]
    assert not writer.queue.waiting


def test_a_batch_that_is_too_large_is_halved_until_it_fits(writer: Writer) -> None:
    writer.log.batch_bytes_max = 400
    calls = [writer.put(*(b"%d" % number + bytes(40) for number in range(count))) for count in (1, 20, 3)]
    small = writer.put(b"small")
    writer.drain()
    expected = [[place] for place in places(*range(25))]
    assert [[place] for call in (*calls, small) for place in call.outcomes] == expected
    assert len(writer.values) == 25
    assert writer.producer_ids == 1


def test_only_the_record_that_is_too_large_is_refused(writer: Writer) -> None:
    writer.log.batch_bytes_max = 400
    call = writer.put(b"1", b"2", bytes(500), b"4")
    after = writer.put(b"5")
    writer.drain()
    assert codes(call) == [*places(0, 1), ErrorCode.MESSAGE_TOO_LARGE, *places(2)]
    assert after.outcomes == places(3)


def test_a_batch_that_may_be_there_is_not_halved(writer: Writer) -> None:
    """The limit of the topic was lowered between two attempts: brokers look at it before they look for repetitions."""
    call = writer.put(b"1", b"2")
    writer.send(after=TIMED_OUT)
    writer.log.batch_bytes_max = 1
    writer.send()
    assert codes(call) == [TIMED_OUT] * 2
    assert "may have been appended" in str(call.outcomes[0])
    writer.log.batch_bytes_max = 1_000
    writer.put(b"3")
    writer.drain()
    assert writer.values == [b"1", b"2", b"3"]


def test_a_record_that_is_wrong_is_no_fault_of_other_calls(writer: Writer) -> None:
    calls = [writer.put(value) for value in (b"1", INVALID, b"3")]
    writer.drain()
    assert [codes(call) for call in calls] == [places(0), [ErrorCode.INVALID_RECORD], places(1)]


def test_calls_with_a_wrong_record_that_may_be_there_are_not_sent_one_by_one(writer: Writer) -> None:
    calls = [writer.put(value) for value in (b"1", b"2")]
    writer.send(after=TIMED_OUT)
    writer.send(ErrorCode.INVALID_RECORD)
    assert [codes(call) for call in calls] == [[TIMED_OUT]] * 2
    writer.drain()
    assert writer.values == [b"1", b"2"]


@pytest.mark.parametrize("code", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.POLICY_VIOLATION])
def test_what_is_refused_uses_no_number_of_the_sequence(writer: Writer, code: ErrorCode) -> None:
    writer.put(b"1")
    writer.drain()
    call = writer.put(b"2")
    assert writer.send(code) is Next.GO_ON
    assert codes(call) == [code]
    writer.put(b"3")
    writer.drain()
    assert (writer.values, writer.producer_ids) == ([b"1", b"3"], 1)


def test_a_repetition_that_the_leader_does_not_find_any_more_has_no_offset(writer: Writer) -> None:
    call = writer.put(b"1", b"2")
    writer.send(after=TIMED_OUT)
    assert writer.send(ErrorCode.DUPLICATE_SEQUENCE_NUMBER) is Next.GO_ON
    assert call.outcomes == places(-1, -1)
    writer.put(b"3")
    writer.drain()
    assert writer.values == [b"1", b"2", b"3"]


def test_sequences_begin_again_behind_the_highest(writer: Writer) -> None:
    writer.put(b"0")
    writer.drain()
    writer.queue.sequence = SEQUENCES - 2
    writer.log.producers[1].batches[-1] = writer.log.producers[1].batches[-1]._replace(last_sequence=SEQUENCES - 3)
    writer.put(b"1", b"2", b"3")
    writer.send(after=TIMED_OUT)
    writer.drain()
    writer.put(b"4")
    data = writer.queue.prepare(0).data
    assert read_header(data).base_sequence == 1
    writer.drain()
    assert writer.values == [b"0", b"1", b"2", b"3", b"4"]
    assert writer.producer_ids == 1


def test_what_waited_too_long_behind_others_is_not_sent(writer: Writer) -> None:
    first = writer.put(b"1")
    writer.send(after=TIMED_OUT)
    behind = writer.put(b"2")
    writer.now = PATIENCE_S - 1
    fresh = writer.put(b"3")
    writer.now = PATIENCE_S
    writer.send()
    assert first.outcomes == places(0)
    assert codes(behind) == [ErrorCode.REQUEST_TIMED_OUT]
    assert "not appended" in str(behind.outcomes[0])
    writer.drain()
    assert fresh.outcomes == places(1)
    assert writer.values == [b"1", b"3"]


def test_without_a_leader_it_waits_and_says_at_last_why_it_could_not_send(writer: Writer) -> None:
    call = writer.put(b"1")
    no_leader = KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "a-2 has no leader")
    while call.outcomes == [None]:
        assert writer.queue.on_obstacle(no_leader, writer.now) is Next.AGAIN
        writer.now += writer.queue.backoff_s
    assert writer.now >= PATIENCE_S
    assert codes(call) == [ErrorCode.LEADER_NOT_AVAILABLE]
    assert "not appended: a-2 has no leader" in str(call.outcomes[0])


def test_whoever_stops_says_of_the_batch_under_way_that_it_may_be_there(writer: Writer) -> None:
    sent = writer.put(b"1")
    writer.queue.producer = ProducerIdAndEpoch(1, 0)
    writer.queue.prepare(0)
    waits = writer.put(b"2")
    writer.queue.fail(KafkaError(ErrorCode.NETWORK_EXCEPTION, "the gateway stops"))
    assert "may have been appended: the gateway stops" in str(sent.outcomes[0])
    assert "may have been" not in str(waits.outcomes[0])


def test_whoever_fails_after_a_refusal_says_that_the_batch_is_not_there(writer: Writer) -> None:
    call = writer.put(b"1")
    writer.send(ErrorCode.NOT_ENOUGH_REPLICAS)
    writer.queue.fail(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no topic a"))
    assert str(call.outcomes[0]).endswith("not appended: there is no topic a")
