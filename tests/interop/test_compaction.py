"""Compacted topics as clients see them. The same tests pass against Apache Kafka, whose cleaner runs less often."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
from batches import batch, now_ms
from compacted_topics import EAGER, Read, Writer, read_all, table
from harness.depth import sample
from harness.patience import wait_until
from protocol_requests import end_offset, list_offset, produce
from wire_client import Wire, message

CreateTopic = Callable[..., str]
INVALID_RECORD = 87
MAX_TIMESTAMP = -3


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """A broker whose cleaner runs often, or the one of MOLDAU_TEST_BOOTSTRAP."""
    if external := os.environ.get("MOLDAU_TEST_BOOTSTRAP"):
        yield external
        return
    from moldau.testing import broker

    with broker(log_cleaner_backoff_ms=100) as running:
        yield running.bootstrap_servers


@pytest.mark.parametrize("codec", sample(["none", "gzip", "snappy", "lz4", "zstd"], 2))
def test_the_last_value_of_each_key_stays_at_its_offset(bootstrap: str, create_topic: CreateTopic, codec: str) -> None:
    name = create_topic(config=EAGER)
    writer = Writer(bootstrap, name, compression_type=codec)
    written: list[Read] = []
    for version in range(6):
        records = {f"key {number}": f"value {number} of {version}" for number in range(version, 20, version + 1)}
        writer.write(records)
        written += [Read(len(written) + place, *record) for place, record in enumerate(records.items())]
    before_last = written[: -len(records)]
    expected = sorted({record.key: record for record in before_last}.values()) + written[-len(records) :]
    # The active segment is not cleaned: its keys may also be in the cleaned part.
    wait_until(lambda: len(read_all(bootstrap, name)) == len(expected), f"{len(expected)} records left", every_s=0.1)
    assert read_all(bootstrap, name) == expected
    assert table(expected) == table(written)


def test_tombstones_outlive_the_deleted_records_and_are_then_removed(bootstrap: str, create_topic: CreateTopic) -> None:
    name = create_topic(config=EAGER | {"delete.retention.ms": "1"})
    writer = Writer(bootstrap, name)
    writer.write({"a": "1", "b": "1"})
    writer.write({"a": None})
    writer.write({"c": "1"})
    wait_until(
        lambda: ("a", "1") not in [each[1:] for each in read_all(bootstrap, name)],
        "the old value is removed",
        every_s=0.1,
    )
    number = 0

    def is_removed() -> bool:
        # Each round needs dirty records; the tombstone is removed in a round after its retention.
        nonlocal number
        number += 1
        writer.write({f"more {number}": "1"})
        return "a" not in table(read_all(bootstrap, name))

    wait_until(is_removed, "the tombstone is removed", every_s=0.1)
    assert table(read_all(bootstrap, name))["b"] == "1"


def test_max_timestamp_finds_nothing_after_its_record_was_compacted(
    bootstrap: str, create_topic: CreateTopic, wire: Wire
) -> None:
    """Its batch is kept without records, because it is the last of its producer; older records are not searched."""
    name = create_topic(config=EAGER | {"segment.bytes": str(1 << 20)})
    youngest_ms = now_ms()
    Writer(bootstrap, name, youngest_ms, enable_idempotence=True).write({"a": "old"})
    shown = list_offset(wire, name, MAX_TIMESTAMP)
    assert (shown.error_code, shown.offset, shown.timestamp) == (0, 0, youngest_ms)
    filling = {f"filling {number}": "x" * 400_000 for number in range(4)}
    other = Writer(bootstrap, name, youngest_ms - 1_000_000)
    for record in ({"a": "new"}, *({key: value} for key, value in filling.items())):
        other.write(record)
    wait_until(lambda: read_all(bootstrap, name)[0].offset == 1, "the old value is removed", every_s=0.1)
    shown = list_offset(wire, name, MAX_TIMESTAMP)
    assert (shown.error_code, shown.offset, shown.timestamp) == (0, -1, -1)
    assert list_offset(wire, name, youngest_ms).offset == -1
    assert list_offset(wire, name, youngest_ms - 1_000_000).offset == 1


def test_a_record_without_a_key_is_refused_and_not_appended(
    bootstrap: str, create_topic: CreateTopic, wire: Wire
) -> None:
    name = create_topic(config={"cleanup.policy": "compact"})
    answer = produce(wire, name, batch([b"no key"]), version=8)
    assert answer.error_code == INVALID_RECORD
    assert [each.batch_index for each in answer.record_errors] == [0]
    assert end_offset(wire, name) == 0
    both = create_topic(config={"cleanup.policy": "compact,delete"})
    assert produce(wire, both, batch([b"no key"])).error_code == INVALID_RECORD


def test_the_cleaners_settings_are_described(bootstrap: str, wire: Wire) -> None:
    requested = [{"resource_type": 4, "resource_name": "1", "configuration_keys": None}]
    flags = {"include_synonyms": True, "include_documentation": True}
    (result,) = wire.ask(message("describe_configs", 4, resources=requested, **flags)).results
    shown = {each.name: each for each in result.configs if each.name.startswith("log.cleaner.")}
    defaults = {
        "log.cleaner.enable": "true",
        "log.cleaner.threads": "1",
        "log.cleaner.io.max.bytes.per.second": "1.7976931348623157E308",
        "log.cleaner.dedupe.buffer.size": "134217728",
        "log.cleaner.io.buffer.size": "524288",
        "log.cleaner.io.buffer.load.factor": "0.9",
        "log.cleaner.min.cleanable.ratio": "0.5",
        "log.cleaner.min.compaction.lag.ms": "0",
        "log.cleaner.max.compaction.lag.ms": "9223372036854775807",
        "log.cleaner.delete.retention.ms": "86400000",
    }
    assert {name: shown[name].value for name in defaults} == defaults
    assert sorted(shown) == sorted([*defaults, "log.cleaner.backoff.ms"])
    assert [name for name, each in shown.items() if each.read_only] == ["log.cleaner.enable"]
