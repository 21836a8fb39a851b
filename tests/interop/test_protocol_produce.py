"""Produce, byte by byte: sequences, duplicates, epochs, acks, and invalid batches.

Numbers in brackets are Kafka's error codes; every expectation here was checked against Apache Kafka.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from uuid import uuid4

import pytest
from batches import CONTROL, TRANSACTIONAL, batch, compress, headers_of, now_ms, record
from kio.schema.errors import ErrorCode
from protocol_requests import end_offset, fetch, list_offset, new_producer, produce, produce_request, topic_id
from wire_client import Wire, message

CreateTopic = Callable[..., str]
SEQUENCE_MAX = 2**31 - 1
HOUR_MS = 3_600_000


@pytest.fixture
def name(create_topic: CreateTopic) -> str:
    return create_topic()


def test_offsets_count_records(wire: Wire, name: str) -> None:
    assert produce(wire, name, batch([b"a", b"b", b"c"])).base_offset == 0
    answer = produce(wire, name, batch([b"d"]))
    assert (answer.error_code, answer.base_offset, answer.log_start_offset) == (0, 3, 0)
    assert answer.log_append_time is None
    assert end_offset(wire, name) == 4


def test_the_broker_changes_only_offset_and_leader_epoch_of_a_batch(wire: Wire, name: str) -> None:
    produce(wire, name, batch([b"first"]))
    sent = batch([b"a", b"b"], "gzip", partition_leader_epoch=55)
    assert produce(wire, name, sent).base_offset == 1
    stored = bytes(fetch(wire, name, 1).records)
    (header,) = headers_of(stored)
    assert (header.base_offset, header.partition_leader_epoch) == (1, 0)
    assert stored[8:12] == sent[8:12]
    assert stored[16:] == sent[16:]


# ---- sequences


def test_an_exact_duplicate_gets_the_original_offset(wire: Wire, name: str) -> None:
    pid, epoch = new_producer(wire)
    for sequence in range(3):
        assert produce(wire, name, batch([b"v"], pid=pid, epoch=epoch, seq=sequence)).base_offset == sequence
    again = produce(wire, name, batch([b"v"], pid=pid, epoch=epoch, seq=1))
    assert (again.error_code, again.base_offset) == (0, 1)
    assert end_offset(wire, name) == 3


def test_only_the_last_five_batches_are_recognised_as_duplicates(wire: Wire, name: str) -> None:
    pid, epoch = new_producer(wire)
    for sequence in range(6):
        produce(wire, name, batch([b"v"], pid=pid, epoch=epoch, seq=sequence))
    for sequence in range(1, 6):
        assert produce(wire, name, batch([b"v"], pid=pid, epoch=epoch, seq=sequence)).base_offset == sequence
    forgotten = produce(wire, name, batch([b"v"], pid=pid, epoch=epoch, seq=0))
    assert forgotten.error_code == ErrorCode.out_of_order_sequence_number
    assert forgotten.base_offset == -1
    assert end_offset(wire, name) == 6


def test_a_sequence_gap_is_refused(wire: Wire, name: str) -> None:
    pid, epoch = new_producer(wire)
    produce(wire, name, batch([b"a", b"b"], pid=pid, epoch=epoch, seq=0))
    assert produce(wire, name, batch([b"c"], pid=pid, epoch=epoch, seq=3)).error_code == 45
    assert produce(wire, name, batch([b"c"], pid=pid, epoch=epoch, seq=2)).base_offset == 2


def test_overlapping_sequences_are_refused(wire: Wire, name: str) -> None:
    pid, epoch = new_producer(wire)
    produce(wire, name, batch([b"a", b"b", b"c"], pid=pid, epoch=epoch, seq=0))
    assert produce(wire, name, batch([b"c"], pid=pid, epoch=epoch, seq=2)).error_code == 45
    assert produce(wire, name, batch([b"a", b"b"], pid=pid, epoch=epoch, seq=0)).error_code == 45
    assert end_offset(wire, name) == 3


def test_an_unknown_producer_may_start_at_any_sequence(wire: Wire, name: str) -> None:
    pid, epoch = new_producer(wire)
    assert produce(wire, name, batch([b"v"], pid=pid, epoch=epoch, seq=41)).error_code == 0
    assert produce(wire, name, batch([b"v"], pid=pid, epoch=epoch, seq=42)).error_code == 0


def test_sequences_are_kept_per_partition(wire: Wire, create_topic: CreateTopic) -> None:
    two = create_topic(partitions=2)
    pid, epoch = new_producer(wire)
    for partition in (0, 1, 0, 1):
        sequence = end_offset(wire, two, partition)
        answer = produce(wire, two, batch([b"v"], pid=pid, epoch=epoch, seq=sequence), partition=partition)
        assert (answer.error_code, answer.base_offset) == (0, sequence)


def test_sequences_wrap_to_zero(wire: Wire, name: str) -> None:
    pid, epoch = new_producer(wire)
    assert produce(wire, name, batch([b"v"], pid=pid, epoch=epoch, seq=SEQUENCE_MAX)).error_code == 0
    assert produce(wire, name, batch([b"v"], pid=pid, epoch=epoch, seq=0)).base_offset == 1
    assert produce(wire, name, batch([b"v"], pid=pid, epoch=epoch, seq=1)).base_offset == 2


def test_sequences_may_wrap_inside_a_batch(wire: Wire, name: str) -> None:
    """Records SEQUENCE_MAX-1, SEQUENCE_MAX, 0, 1: the next batch starts at 2, and the duplicate is recognised."""
    pid, epoch = new_producer(wire)
    wrapping = batch([b"v"] * 4, pid=pid, epoch=epoch, seq=SEQUENCE_MAX - 1)
    assert produce(wire, name, wrapping).base_offset == 0
    assert produce(wire, name, wrapping).base_offset == 0
    assert produce(wire, name, batch([b"v"], pid=pid, epoch=epoch, seq=2)).base_offset == 4


def test_five_requests_in_flight_are_written_in_order(wire: Wire, name: str) -> None:
    pid, epoch = new_producer(wire)
    for sequence in range(5):
        wire.post(produce_request(name, batch([b"%d" % sequence], pid=pid, epoch=epoch, seq=sequence)))
    answers = [wire.collect().responses[0].partition_responses[0] for _ in range(5)]
    assert [(answer.error_code, answer.base_offset) for answer in answers] == [(0, n) for n in range(5)]


def test_a_failed_batch_fails_later_batches_in_flight(wire: Wire, name: str) -> None:
    pid, epoch = new_producer(wire)
    batches = [batch([b"v"], pid=pid, epoch=epoch, seq=sequence) for sequence in range(4)]
    batches[1] = batch([b"v"], pid=pid, epoch=epoch, seq=1, crc=1)
    for each in batches:
        wire.post(produce_request(name, each))
    codes = [wire.collect().responses[0].partition_responses[0].error_code for _ in range(4)]
    assert codes == [0, 2, 45, 45]
    assert end_offset(wire, name) == 1


def test_a_duplicate_on_another_connection_is_recognised(wire: Wire, bootstrap: str, name: str) -> None:
    pid, epoch = new_producer(wire)
    first = batch([b"v"], pid=pid, epoch=epoch, seq=0)
    produce(wire, name, first)
    with Wire(bootstrap) as other:
        assert produce(other, name, first).base_offset == 0
    assert end_offset(wire, name) == 1


# ---- epochs


def test_an_older_epoch_is_fenced(wire: Wire, name: str) -> None:
    pid, _ = new_producer(wire)
    assert produce(wire, name, batch([b"v"], pid=pid, epoch=3, seq=0)).error_code == 0
    assert produce(wire, name, batch([b"v"], pid=pid, epoch=2, seq=1)).error_code == ErrorCode.invalid_producer_epoch
    assert end_offset(wire, name) == 1


def test_a_new_epoch_starts_at_sequence_zero(wire: Wire, name: str) -> None:
    pid, _ = new_producer(wire)
    produce(wire, name, batch([b"v"], pid=pid, epoch=0, seq=0))
    assert produce(wire, name, batch([b"v"], pid=pid, epoch=1, seq=1)).error_code == 45
    assert produce(wire, name, batch([b"v"], pid=pid, epoch=1, seq=0)).base_offset == 1
    assert produce(wire, name, batch([b"v"], pid=pid, epoch=0, seq=1)).error_code == 47


def test_producer_ids_are_unique(wire: Wire) -> None:
    producers = [new_producer(wire) for _ in range(5)]
    assert len({pid for pid, _ in producers}) == 5
    assert {epoch for _, epoch in producers} == {0}


# ---- acks


def test_acks_zero_gets_no_response(wire: Wire, name: str) -> None:
    """The next response on the connection belongs to the next request, which also sees the record."""
    wire.post(produce_request(name, batch([b"silent"]), acks=0), expect_answer=False)
    wire.post(produce_request(name, batch([b"heard"]), acks=1))
    assert wire.collect().responses[0].partition_responses[0].base_offset == 1


def test_acks_zero_with_an_error_closes_the_connection(wire: Wire, name: str, bootstrap: str) -> None:
    """There is no other way to report wrong metadata or a wrong batch to the client."""
    wire.post(produce_request(name, batch([b"v"], crc=1), acks=0), expect_answer=False)
    assert wire.answer_or_close() is None
    with Wire(bootstrap) as other:
        assert end_offset(other, name) == 0


def test_acks_zero_to_an_unknown_topic_closes_the_connection(wire: Wire, topic: Callable[[], str]) -> None:
    wire.post(produce_request(topic(), batch([b"v"]), acks=0), expect_answer=False)
    assert wire.answer_or_close() is None


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_invalid_acks_are_refused(wire: Wire, name: str, acks: int) -> None:
    answer = produce(wire, name, batch([b"v"]), acks=acks)
    assert answer.error_code == ErrorCode.invalid_required_acks
    assert end_offset(wire, name) == 0


def test_min_insync_replicas_is_capped_at_the_number_of_replicas(wire: Wire, create_topic: CreateTopic) -> None:
    """The bound is the smaller of min.insync.replicas and the number of replicas: one replica is enough here."""
    name = create_topic(config={"min.insync.replicas": "2"})
    assert produce(wire, name, batch([b"v"])).error_code == 0


# ---- batch rules


# None: Apache fails internally (-1), and any error is allowed.
BAD_BATCHES: dict[str, tuple[Callable[[], bytes], int | None]] = {
    "wrong checksum": (lambda: batch([b"v"], crc=12345), 2),
    "no bytes": (lambda: b"", 87),
    "cut short": (lambda: batch([b"v"] * 5)[:-1], 87),
    "cut in the header": (lambda: batch([b"v"])[:30], 87),
    "length under a record's minimum": (lambda: batch([b"v"], length=10), 2),
    "length negative": (lambda: batch([b"v"], length=-1), 2),
    "two batches": (lambda: batch([b"a"]) + batch([b"b"]), 87),
    "magic 3": (lambda: batch([b"v"], magic=3), 2),
    "magic 1": (lambda: batch([b"v"], magic=1), 87),
    "magic 0": (lambda: batch([b"v"], magic=0), 87),
    "base offset not zero": (lambda: batch([b"v"], base_offset=7), 87),
    "no records": (lambda: batch([]), 87),
    "count too large": (lambda: batch([b"v"], records_count=2), 87),
    "count too small": (lambda: batch([b"v", b"w"], records_count=1), 87),
    "count negative": (lambda: batch([b"v"], records_count=-1), 87),
    "last offset delta wrong": (lambda: batch([b"v"], last_offset_delta=5), 87),
    "control batch": (lambda: batch([b"v"], attributes=CONTROL), 87),
    "transactional without an id": (lambda: batch([b"v"], attributes=TRANSACTIONAL, pid=1, epoch=0, seq=0), 53),
    "producer without sequence": (lambda: batch([b"v"], pid=1, epoch=0, seq=-1), 87),
    "far future": (lambda: batch([b"v"], timestamps=[now_ms() + 2 * HOUR_MS]), 32),
    "unknown codec": (lambda: batch([b"v"], attributes=6), None),
}


@pytest.mark.parametrize("case", BAD_BATCHES)
def test_invalid_batches_are_refused(wire: Wire, name: str, case: str) -> None:
    make, code = BAD_BATCHES[case]
    answer = produce(wire, name, make())
    assert answer.error_code != 0 if code is None else answer.error_code == code
    assert answer.base_offset == -1
    assert end_offset(wire, name) == 0
    assert produce(wire, name, batch([b"fine"])).base_offset == 0


# Header and checksum are valid: only a broker that opens the batch sees the error. Apache answers 87 for a wrong record
# and -1 for a batch that does not decompress (its decompressor's exception escapes). Moldau does not open batches and
# returns them byte for byte: docs/decisions/004-batches-are-not-opened.md.
CRC_POSITION = 17
BAD_INSIDE = {
    "record longer than the batch": lambda: batch([b"v"], body=b"\xfe\x0f" + bytes(5)),
    "record of negative length": lambda: batch([b"v"], body=b"\x01" + bytes(5)),
    "key longer than the record": lambda: batch([b"v"], body=b"\x0c\x00\x00\x00\x7e\x01\x00"),
    "invalid gzip": lambda: batch([b"v"], body=b"not gzip at all", attributes=1),
    "invalid lz4": lambda: batch([b"v"], body=b"not lz4 at all", attributes=3),
    "invalid zstd": lambda: batch([b"v"], body=b"not zstd at all", attributes=4),
    "invalid snappy": lambda: batch([b"v"], body=b"\xff not snappy at all", attributes=2),
    "gzip cut short": lambda: batch([b"v"] * 9, body=compress("gzip", record(0, b"v"))[:-12], attributes=1),
}


@pytest.mark.parametrize("case", BAD_INSIDE)
def test_invalid_records_inside_a_batch(wire: Wire, name: str, case: str) -> None:
    made = BAD_INSIDE[case]()
    answer = produce(wire, name, made)
    if "MOLDAU_TEST_BOOTSTRAP" in os.environ:
        assert answer.error_code in (-1, 87)
        assert end_offset(wire, name) == 0
    else:
        assert answer.error_code == 0
        assert bytes(fetch(wire, name, 0).records)[CRC_POSITION:] == made[CRC_POSITION:]
    fine = produce(wire, name, batch([b"fine"]))
    assert (fine.error_code, fine.base_offset) == (0, end_offset(wire, name) - 1)


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_offset_deltas_with_a_gap(wire: Wire, name: str, codec: str) -> None:
    """Apache accepts it uncompressed and fails (-1) on it compressed; refusing is allowed. Offsets have no gap."""
    answer = produce(wire, name, batch([b"v"] * 2, codec, body=record(0, b"v") + record(2, b"v")))
    assert answer.error_code in (0, -1, 87)
    assert end_offset(wire, name) == (2 if answer.error_code == 0 else 0)


def test_bytes_after_a_batch_are_not_stored(wire: Wire, name: str) -> None:
    """Apache drops trailing bytes too short for a batch and keeps the batch; refusing both is allowed."""
    whole = batch([b"v"])
    answer = produce(wire, name, whole + b"tail!")
    assert answer.error_code in (0, 87)
    assert len(bytes(fetch(wire, name, 0).records)) == (len(whole) if answer.error_code == 0 else 0)


@pytest.mark.moldau_only  # Apache never answers this one, and its connection stays open
def test_null_records_are_refused(wire: Wire, name: str) -> None:
    assert produce(wire, name, None).error_code == ErrorCode.invalid_record


def test_a_batch_over_max_message_bytes_is_refused(wire: Wire, create_topic: CreateTopic) -> None:
    """The limit is on the batch as sent, header included and compressed."""
    name = create_topic(config={"max.message.bytes": "500"})
    exact = batch([b"x" * 431])
    for padding in range(431, 300, -1):
        exact = batch([b"x" * padding])
        if len(exact) <= 500:
            break
    assert len(exact) == 500
    assert produce(wire, name, exact).error_code == 0
    assert produce(wire, name, batch([b"x" * (padding + 1)])).error_code == ErrorCode.message_too_large
    assert produce(wire, name, batch([b"x" * 5000], "gzip")).error_code == 0
    assert end_offset(wire, name) == 2


def test_a_keyless_record_on_a_compacted_topic_is_refused(wire: Wire, create_topic: CreateTopic) -> None:
    name = create_topic(config={"cleanup.policy": "compact"})
    answer = produce(wire, name, batch([b"a", b"b", b"c"], keys=[b"k", None, None]))
    assert answer.error_code == ErrorCode.invalid_record
    assert [error.batch_index for error in answer.record_errors] == [1, 2]
    assert produce(wire, name, batch([b"a"], keys=[b"k"])).base_offset == 0


def test_a_far_future_timestamp_is_refused_with_its_record_index(wire: Wire, name: str) -> None:
    now = now_ms()
    answer = produce(wire, name, batch([b"a", b"b"], timestamps=[now, now + 2 * HOUR_MS]))
    assert answer.error_code == ErrorCode.invalid_timestamp
    assert [error.batch_index for error in answer.record_errors] == [1]


def test_a_very_old_timestamp_is_accepted(wire: Wire, name: str) -> None:
    assert produce(wire, name, batch([b"v"], timestamps=[1])).error_code == 0


def test_log_append_time_rewrites_the_batch(wire: Wire, create_topic: CreateTopic) -> None:
    name = create_topic(config={"message.timestamp.type": "LogAppendTime"})
    before = now_ms()
    answer = produce(wire, name, batch([b"a", b"b"], "gzip", timestamps=[1000, 2000]))
    (header,) = headers_of(fetch(wire, name, 0).records)
    assert header.attributes == 1 | 8
    assert before <= header.max_timestamp <= now_ms()
    assert int(answer.log_append_time.timestamp() * 1000 + 0.5) == header.max_timestamp
    assert header.base_timestamp == 1000
    assert list_offset(wire, name, -3).offset in (0, 1)


@pytest.mark.parametrize(("version", "code"), [(3, 76), (6, 76), (7, 0)])
def test_zstd_needs_produce_7(wire: Wire, name: str, version: int, code: int) -> None:
    assert produce(wire, name, batch([b"v"], "zstd"), version=version).error_code == code


@pytest.mark.parametrize("version", range(3, 13))
def test_every_version_of_produce(wire: Wire, name: str, version: int) -> None:
    assert produce(wire, name, batch([b"v"]), version=version).error_code == 0


def test_a_produce_by_topic_id(wire: Wire, name: str) -> None:
    assert produce(wire, topic_id(wire, name), batch([b"v"]), version=13).base_offset == 0
    assert produce(wire, uuid4(), batch([b"v"]), version=13).error_code == ErrorCode.unknown_topic_id
    assert produce(wire, None, batch([b"v"]), version=13).error_code == ErrorCode.unknown_topic_id


def test_an_unknown_topic_or_partition_is_refused(wire: Wire, name: str, topic: Callable[[], str]) -> None:
    assert produce(wire, topic(), batch([b"v"])).error_code == ErrorCode.unknown_topic_or_partition
    assert produce(wire, name, batch([b"v"]), partition=1).error_code == ErrorCode.unknown_topic_or_partition
    assert produce(wire, name, batch([b"v"]), partition=-1).error_code == ErrorCode.unknown_topic_or_partition


def test_partitions_succeed_or_fail_independently(wire: Wire, create_topic: CreateTopic) -> None:
    name = create_topic(partitions=2)
    partitions = [{"index": 0, "records": batch([b"v"])}, {"index": 1, "records": batch([b"v"], crc=1)}]
    partitions.append({"index": 9, "records": batch([b"v"])})
    data = [{"name": name, "partition_data": partitions}]
    answer = wire.ask(message("produce", 9, acks=-1, timeout=1000, topic_data=data))
    codes = {p.index: p.error_code for t in answer.responses for p in t.partition_responses}
    assert codes == {0: 0, 1: 2, 9: 3}


def test_the_last_batch_of_a_duplicate_partition_is_written(wire: Wire, name: str) -> None:
    """The last one is written, and there is one response."""
    data = [{"name": name, "partition_data": [{"index": 0, "records": batch([v])} for v in (b"first", b"second")]}]
    answer = wire.ask(message("produce", 9, acks=-1, timeout=1000, topic_data=data))
    (partition,) = answer.responses[0].partition_responses
    assert (partition.error_code, partition.base_offset) == (0, 0)
    assert b"second" in bytes(fetch(wire, name, 0).records)
    assert end_offset(wire, name) == 1


def test_a_produce_without_topics_is_answered(wire: Wire) -> None:
    assert wire.ask(message("produce", 9, acks=-1, timeout=1000, topic_data=[])).responses == ()
