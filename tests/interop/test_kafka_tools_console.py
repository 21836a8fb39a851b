"""kafka-console-producer and kafka-console-consumer: records round-trip, in Kafka's formats."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Callable

import pytest
from harness.patience import PATIENCE_MS, PATIENCE_S
from kafka_tools import BIN, Outcome, Tools, environment, program, shell

CreateTopic = Callable[..., str]
ALL = ("--from-beginning", "--timeout-ms", PATIENCE_MS, "--max-messages")


def formatter_properties(*props: str) -> list[str]:
    return [word for prop in props for word in ("--formatter-property", prop)]


def reader_properties(*props: str) -> list[str]:
    return [word for prop in props for word in ("--reader-property", prop)]


def test_lines_round_trip(tools: Tools, create_topic: CreateTopic) -> None:
    name = create_topic()
    assert tools("console_producer", "--topic", name, stdin="one\n\nthree\r\nvier ü") == (0, "", "")
    read = tools("console_consumer", "--topic", name, *ALL, "4")
    assert read == (0, "one\n\nthree\nvier ü\n", "Processed a total of 4 messages\n")


def test_keys_headers_and_nulls(tools: Tools, create_topic: CreateTopic) -> None:
    name = create_topic()
    props = reader_properties("parse.key=true", "parse.headers=true", "null.marker=NULL", "key.separator=:")
    lines = "h1=1;h2=NULL|k:v\nNULL|NULL:NULL\n"
    props += reader_properties("headers.delimiter=|", "headers.separator=;", "headers.key.separator==")
    assert tools("console_producer", "--topic", name, *props, stdin=lines) == (0, "", "")
    shown = formatter_properties("print.key=true", "print.headers=true", "print.partition=true", "print.offset=true")
    shown += formatter_properties("null.literal=-", "key.separator= ")
    read = tools("console_consumer", "--topic", name, *shown, *ALL, "2")
    assert read.lines == ["Partition:0 Offset:0 h1:1,h2:- k v", "Partition:0 Offset:1 NO_HEADERS - -"]
    stamped = tools("console_consumer", "--topic", name, *formatter_properties("print.timestamp=true"), *ALL, "1")
    assert re.fullmatch(r"CreateTime:\d{13}\tv\n", stamped.out)


def test_the_producer_stops_at_an_invalid_line_and_sends_those_before(tools: Tools, create_topic: CreateTopic) -> None:
    name = create_topic()
    wrong = tools(
        "console_producer", "--topic", name, *reader_properties("parse.key=true"), stdin="k\tv\nnokey\nk\tw\n"
    )
    assert wrong == (1, "", "No key separator found on line number 2: 'nokey'\n")
    assert tools("console_consumer", "--topic", name, *ALL, "1").lines == ["v"]
    assert tools("get_offsets", "--topic", name).lines == [f"{name}:0:1"]


@pytest.mark.parametrize("codec", [[], ["none"], ["gzip"], ["snappy"], ["lz4"], ["zstd"]])
def test_compression(tools: Tools, create_topic: CreateTopic, codec: list[str]) -> None:
    name = create_topic()
    words = ["--topic", name, "--compression-codec", *codec, "--sync"]
    assert tools("console_producer", *words, stdin="a\nb\n") == (0, "", "")
    assert tools("console_consumer", "--topic", name, *ALL, "2").lines == ["a", "b"]


def test_keys_go_to_the_same_partitions_as_in_java(tools: Tools, create_topic: CreateTopic) -> None:
    """Java's partitions for these keys in a topic of three, by murmur2, which is not librdkafka's default."""
    name = create_topic(partitions=3)
    lines = "".join(f"{key}\tv\n" for key in "abcdef")
    tools("console_producer", "--topic", name, *reader_properties("parse.key=true"), stdin=lines)
    shown = formatter_properties("print.key=true", "print.partition=true", "print.value=false")
    read = tools("console_consumer", "--topic", name, *shown, *ALL, "6")
    assert sorted(read.lines) == sorted(f"Partition:{murmur2(key.encode()) % 3}\t{key}" for key in "abcdef")


def murmur2(data: bytes) -> int:
    """Java's hash of a key, its sign bit cleared: written independently of the client."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = (0x9747B28C ^ len(data)) & mask
    for at in range(0, len(data) - 3, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & mask
        h = (h * m & mask) ^ ((k ^ k >> 24) * m & mask)
    rest = data[len(data) & ~3 :]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return (h ^ h >> 15) & 0x7FFFFFFF


def test_one_partition_from_an_offset(tools: Tools, create_topic: CreateTopic) -> None:
    name = create_topic()
    tools("console_producer", "--topic", name, stdin="a\nb\nc\n")
    one = ("--topic", name, "--partition", "0")
    assert tools("console_consumer", *one, "--offset", "1", "--max-messages", "2").lines == ["b", "c"]
    assert tools("console_consumer", *one, "--offset", "earliest", "--max-messages", "1").lines == ["a"]
    nothing = tools("console_consumer", *one, "--timeout-ms", "300")
    assert nothing == (0, "", "Processed a total of 0 messages\n")
    wrong = tools("console_consumer", "--topic", name, "--partition", "7", "--offset", "earliest")
    assert wrong == (1, "", f"Topic {name} has no partition 7; it has 1, counted from 0\n")


def test_where_to_begin_by_auto_offset_reset(tools: Tools, create_topic: CreateTopic) -> None:
    name = create_topic()
    tools("console_producer", "--topic", name, stdin="a\nb\n")

    def read(reset: str, *words: str) -> Outcome:
        return tools("console_consumer", "--topic", name, "--command-property", f"auto.offset.reset={reset}", *words)

    assert read("earliest", "--max-messages", "2").lines == ["a", "b"]
    assert read("earliest", "--partition", "0", "--timeout-ms", "300").lines == []  # from the end, as with Kafka
    assert read("latest", "--partition", "0", "--offset", "1", "--max-messages", "1").lines == ["b"]
    refused = read("none", "--group", f"{name}-readers", "--timeout-ms", PATIENCE_MS)
    assert (refused.status, refused.lines) == (1, [])
    assert "no previously committed offset available" in refused.err


def test_topics_by_pattern(tools: Tools, topic: Callable[[], str], create_topic: CreateTopic) -> None:
    prefix = topic()
    for letter in "ab":
        tools("console_producer", "--topic", create_topic(name=f"{prefix}.{letter}"), stdin=f"{letter}\n")
    read = tools("console_consumer", "--include", rf"{prefix}\..", *ALL, "2")
    assert sorted(read.lines) == ["a", "b"]


def test_later_topics_and_partitions_are_read(bootstrap: str, tools: Tools, create_topic: CreateTopic) -> None:
    name = create_topic()
    words = ("--include", f"{name}.*", *ALL, "10", "--bootstrap-server", bootstrap)
    reading = program("kafka-console-consumer.sh", *words)
    assert reading.stdout is not None
    tools("console_producer", "--topic", name, stdin="first\n")
    assert reading.stdout.readline() == "first\n"
    create_topic(name=f"{name}-later")
    tools("console_producer", "--topic", f"{name}-later", stdin="of a later topic\n")
    assert reading.stdout.readline() == "of a later topic\n"
    assert tools("topics", "--alter", "--topic", name, "--partitions", "2").status == 0
    keyed = "".join(f"{key}\tv\n" for key in "abcdefgh")
    tools("console_producer", "--topic", name, *reader_properties("parse.key=true"), stdin=keyed)
    assert {murmur2(key.encode()) % 2 for key in "abcdefgh"} == {0, 1}, "the new partition gets records"
    assert reading.communicate(timeout=PATIENCE_S) == ("v\n" * 8, "Processed a total of 10 messages\n")


def test_signals_end_the_consumer_cleanly(bootstrap: str, create_topic: CreateTopic) -> None:
    name = create_topic()
    shell(f"bin/kafka-console-producer.sh --topic {name} --bootstrap-server {bootstrap}", stdin="a\n")
    for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        words = ("--topic", name, "--from-beginning", "--bootstrap-server", bootstrap)
        reading = program("kafka-console-consumer.sh", *words)
        assert reading.stdout is not None
        assert reading.stdout.readline() == "a\n"
        reading.send_signal(number)
        assert reading.communicate(timeout=PATIENCE_S) == ("", "Processed a total of 1 messages\n")
        assert reading.returncode == status


def test_a_closed_pipe_ends_the_consumer_silently(bootstrap: str, tools: Tools, create_topic: CreateTopic) -> None:
    name = create_topic()
    tools("console_producer", "--topic", name, stdin="".join(f"{number}\n" for number in range(20_000)))
    line = f"bin/kafka-console-consumer.sh --topic {name} --from-beginning --bootstrap-server {bootstrap} | head -2"
    ended = shell(f"set -o pipefail; {line}")
    assert ended == (0, "0\n1\n", "")


def test_many_lines_through_a_pipe(bootstrap: str, tools: Tools, create_topic: CreateTopic) -> None:
    """More than the 100,000 that librdkafka queues."""
    name = create_topic(partitions=3)
    producing = shell(f"seq 120000 | bin/kafka-console-producer.sh --topic {name} --bootstrap-server {bootstrap}")
    assert producing == (0, "", "")
    read = tools("console_consumer", "--topic", name, *ALL, "120000")
    assert read.err == "Processed a total of 120000 messages\n"
    assert sorted(map(int, read.lines)) == list(range(1, 120_001))


def test_a_prompt_is_shown_on_a_terminal(bootstrap: str, create_topic: CreateTopic) -> None:
    import os
    import pty

    person, terminal = pty.openpty()
    words = [str(BIN / "kafka-console-producer.sh"), "--topic", create_topic(), "--bootstrap-server", bootstrap]
    process = subprocess.Popen(words, stdin=terminal, stdout=terminal, stderr=terminal, env=environment())
    os.close(terminal)
    assert os.read(person, 1) == b">"
    os.write(person, b"hello\n\x04")
    assert process.wait(PATIENCE_S) == 0
    assert os.read(person, 100).replace(b"\r\n", b"\n").startswith(b"hello\n>")
    os.close(person)


def test_deprecated_options_are_accepted_with_a_warning(
    bootstrap: str, tools: Tools, create_topic: CreateTopic
) -> None:
    name = create_topic()
    warned = "is deprecated and will be removed in a future version. Use"
    old = ("--property", "parse.key=true", "--producer-property", "acks=1")
    produced = tools("console_producer", "--topic", name, *old, stdin="k\tv\n")
    assert sorted(produced.lines) == [
        f"Warning: --producer-property {warned} --command-property instead.",
        f"Warning: --property {warned} --reader-property instead.",
    ]
    consumed = tools("console_consumer", "--topic", name, "--property", "print.key=true", *ALL, "1")
    assert consumed.lines == [f"Option --property {warned} --formatter-property instead.", "k\tv"]
    ancient = tools("console_producer", "--topic", name, "--broker-list", bootstrap, stdin="x\n", address=False)
    assert ancient == (0, "", "Option --broker-list is deprecated. Use --bootstrap-server instead.\n")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", "Exactly one of the following arguments is required: [topic], [include]"),
        ("--topic t --include u", "Exactly one of the following arguments is required: [topic], [include]"),
        ("--topic t --offset 3", "The partition is required when offset is specified."),
        ("--topic t --partition 0 --group g", "Options group and partition cannot be specified together."),
        (
            "--topic t --partition 0 --offset -5",
            "The provided offset value '-5' is incorrect."
            " Valid values are 'earliest', 'latest', or a non-negative long.",
        ),
        (
            "--topic t --partition 0 --offset 9223372036854775808",
            "The provided offset value '9223372036854775808' is incorrect."
            " Valid values are 'earliest', 'latest', or a non-negative long.",
        ),
        (
            "--topic t --command-property auto.offset.reset=by_duration:PT1H",
            "Invalid value by_duration:PT1H for configuration auto.offset.reset:"
            " The value must be either 'earliest', 'latest' or 'none' here",
        ),
        (
            "--topic t --from-beginning --command-property auto.offset.reset=latest",
            "Can't simultaneously specify --from-beginning and 'auto.offset.reset=latest', please remove one option",
        ),
        (
            "--topic t --isolation-level foo",
            "Invalid value foo for configuration isolation.level:"
            " String must be one of: read_committed, read_uncommitted",
        ),
        (
            "--topic t --property a=b --formatter-property a=b",
            "Options --property and --formatter-property cannot be specified together.",
        ),
    ],
)
def test_consumer_usage_errors(tools: Tools, words: str, expected: str) -> None:
    status, out, err = tools("console_consumer", *words.split())
    assert (status, out, err.splitlines()[0]) == (1, "", expected)


def test_records_that_cannot_be_delivered_are_reported(tools: Tools) -> None:
    status, out, err = tools("console_producer", "--topic", "bad topic", stdin="x\n")
    assert (status, out) == (1, "")
    assert err.startswith(
        "ERROR Error when sending message to topic bad topic with key: null, value: 1 bytes with error: "
    )


def test_an_unknown_property_is_ignored_with_a_warning(tools: Tools, create_topic: CreateTopic) -> None:
    produced = tools("console_producer", "--topic", create_topic(), "--command-property", "foo.bar=1", stdin="x\n")
    assert produced == (0, "", "WARNING: the client property foo.bar has no meaning here and is ignored.\n")


def test_numbers_are_deserialized(tools: Tools, create_topic: CreateTopic, bootstrap: str) -> None:
    from confluent_kafka import Producer

    name = create_topic()
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(name, (1).to_bytes(8, "big"))
    producer.produce(name, b"three")
    producer.produce(name, (2).to_bytes(8, "big"))
    producer.flush()
    longs = ("--value-deserializer", "org.apache.kafka.common.serialization.LongDeserializer")
    read = tools("console_consumer", "--topic", name, *longs, *ALL, "3", "--skip-message-on-error")
    assert (read.status, read.lines) == (0, ["1", "2"])
    stopped = tools("console_consumer", "--topic", name, *longs, *ALL, "3")
    assert (stopped.status, stopped.lines) == (1, ["1"])
    assert stopped.err.splitlines()[-1] == "Size of data received by LongDeserializer is not 8"
