"""kafka-console-share-consumer and kafka-share-consumer-perf-test."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from harness.patience import PATIENCE_MS, PATIENCE_S
from kafka_tools import Tools, program, shell
from share_members import require_share_groups, unused_group

CreateTopic = Callable[..., str]
DATE = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{3}"
FIGURES = r"\d+\.\d{4}, \d+\.\d{4}, \d+\.\d{4}, \d+, \d+"
HEADER = "start.time, end.time, data.consumed.in.MB, MB.sec, nMsg.sec, data.consumed.in.nMsg, fetch.time.ms"
VALUES = ["one", "two", "three"]
RECORDS = 3000


@pytest.fixture(scope="module", autouse=True)
def needs_share_groups(bootstrap: str) -> None:
    require_share_groups(bootstrap)


@pytest.fixture(scope="module")
def filled(bootstrap: str, create_topic: CreateTopic) -> str:
    """A topic with three records in one batch, to which no test writes."""
    name = create_topic()
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1000})
    for number, value in enumerate(VALUES):
        headers: list[tuple[str, str | bytes | None]] = [("n", str(number))]
        producer.produce(name, value, f"k{number}", timestamp=1_700_000_000_000 + number, headers=headers)
    assert producer.flush(PATIENCE_S) == 0
    return name


@pytest.fixture(scope="module")
def many(bootstrap: str, create_topic: CreateTopic) -> str:
    """A topic of two partitions with many records of 100 bytes."""
    name = create_topic(partitions=2)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(RECORDS):
        producer.produce(name, b"v" * 90, b"k" * 10, partition=number % 2)
    assert producer.flush(PATIENCE_S) == 0
    return name


@pytest.mark.parametrize("name", ["console-share-consumer", "share-consumer-perf-test"])
def test_every_tool_has_help(name: str) -> None:
    result = shell(f"bin/kafka-{name}.sh --help")
    assert result.status == 1  # Kafka's do so
    assert "--bootstrap-server" in result.err
    assert "Traceback" not in result.err


class TestConsole:
    def test_records_are_accepted_when_they_are_printed(self, tools: Tools, admin: AdminClient, filled: str) -> None:
        """Those that were not printed are released, and delivered once more."""
        group = unused_group(admin)
        words = ["--topic", filled, "--group", group, "--formatter-property", "print.delivery=true"]
        first = tools("console_share_consumer", *words, "--max-messages", "1")
        assert (first.status, first.lines) == (0, ["Delivery:1\tone"])
        assert first.err.endswith("Processed a total of 1 messages\n")
        assert tools("console_share_consumer", *words, "--max-messages", "2").lines == [
            "Delivery:2\ttwo",
            "Delivery:2\tthree",
        ]

    def test_released_records_come_again_and_rejected_ones_do_not(
        self, tools: Tools, admin: AdminClient, filled: str
    ) -> None:
        group = unused_group(admin)
        words = ["--topic", filled, "--group", group, "--formatter-property", "print.delivery=true"]
        released = tools("console_share_consumer", *words, "--max-messages", "5", "--release").lines
        assert released == [f"Delivery:1\t{value}" for value in VALUES] + ["Delivery:2\tone", "Delivery:2\ttwo"]
        rejected = tools("console_share_consumer", *words, "--max-messages", "2", "--reject").lines
        assert rejected == ["Delivery:3\tone", "Delivery:3\ttwo"]
        left = tools("console_share_consumer", *words, "--max-messages", "1").lines
        assert [line.partition("\t")[2] for line in left] == ["three"]

    def test_all_columns(self, tools: Tools, admin: AdminClient, filled: str) -> None:
        names = ("timestamp", "partition", "offset", "delivery", "epoch", "headers", "key")
        shown = [word for name in names for word in ("--formatter-property", f"print.{name}=true")]
        words = ["--topic", filled, "--group", unused_group(admin), "--max-messages", "1"]
        assert tools("console_share_consumer", *words, *shown).lines == [
            "CreateTime:1700000000000\tPartition:0\tOffset:0\tDelivery:1\tEpoch:NOT_PRESENT\tn:0\tk0\tone"
        ]
        read = tools("console_consumer", "--topic", filled, "--from-beginning", "--max-messages", "1", *shown).lines
        assert read[0].split("\t")[3] == "Delivery:NOT_PRESENT"

    def test_a_record_that_cannot_be_printed(self, tools: Tools, admin: AdminClient, filled: str) -> None:
        group = unused_group(admin)
        words = ["--topic", filled, "--group", group, "--value-deserializer", "LongDeserializer"]
        stopped = tools("console_share_consumer", *words)
        assert stopped.status == 1
        assert "Size of data received by LongDeserializer is not 8" in stopped.err
        rejected = tools("console_share_consumer", *words, "--reject-message-on-error", "--max-messages", "2")
        assert (rejected.status, rejected.out) == (0, "")
        assert rejected.err.count("the record is rejected") == 2
        words = ["--topic", filled, "--group", group, "--max-messages", "1"]
        assert tools("console_share_consumer", *words).lines == ["three"]

    def test_it_ends_when_no_record_came_for_long(
        self, tools: Tools, admin: AdminClient, create_topic: CreateTopic
    ) -> None:
        words = ["--topic", create_topic(), "--group", unused_group(admin), "--timeout-ms", "300"]
        ended = tools("console_share_consumer", *words, "--enable-systest-events")
        assert (ended.status, ended.out) == (0, "shutdown_complete\n")
        assert ended.err.endswith("Processed a total of 0 messages\n")

    def test_it_leaves_the_group_at_a_signal(
        self, bootstrap: str, tools: Tools, admin: AdminClient, filled: str
    ) -> None:
        group = unused_group(admin)
        words = ["--bootstrap-server", bootstrap, "--topic", filled, "--group", group]
        with program("kafka-console-share-consumer.sh", *words) as running:
            assert running.stdout is not None
            assert [running.stdout.readline().rstrip() for _ in VALUES] == VALUES
            running.send_signal(signal.SIGINT)
            _, err = running.communicate(timeout=PATIENCE_S)
        assert running.returncode == 130
        assert err.endswith("Processed a total of 3 messages\n")
        assert group in tools("share_groups", "--list", "--state", "Empty").out

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            ("--group g", "--topic is a required argument"),
            ("--topic t --reject --release", "At most one of --reject and --release may be specified."),
            ("--topic t --group g --command-property group.id=h", "Detected group ids: 'g', 'h'"),
            ("--topic t --command-property auto.offset.reset=earliest", "`auto.offset.reset` is not applicable"),
        ],
    )
    def test_wrong_options(self, tools: Tools, words: str, message: str) -> None:
        refused = tools("console_share_consumer", *words.split())
        assert (refused.status, refused.out) == (1, "")
        assert message in refused.err


class TestPerformance:
    def test_rates_of_the_group_and_of_its_members(self, tools: Tools, admin: AdminClient, many: str) -> None:
        words = ["--topic", many, "--group", unused_group(admin), "--num-records", str(RECORDS)]
        words += ["--threads", "2", "--show-consumer-stats", "--timeout", PATIENCE_MS]
        header, first, second, total = tools("share_consumer_perf", *words).lines
        assert header == HEADER
        counts = []
        for number, line in enumerate((first, second), 1):
            who = f"Share consumer {number} having client id perf-share-consumer-client-{number} consumption metrics- "
            assert re.fullmatch(rf"{who}{DATE}, {DATE}, {FIGURES}", line)
            counts.append(int(line.split(", ")[-2]))
        assert re.fullmatch(rf"{DATE}, {DATE}, {FIGURES}", total)
        columns = total.split(", ")
        assert sum(counts) == int(columns[5]) == RECORDS
        assert columns[2] == f"{RECORDS * 100 / 1024 / 1024:.4f}"

    def test_progress_metrics_and_the_timeout(self, tools: Tools, admin: AdminClient, many: str) -> None:
        words = ["--topic", many, "--group", unused_group(admin), "--messages", "100000", "--hide-header"]
        words += ["--show-detailed-stats", "--reporting-interval", "1", "--timeout", "10000", "--print-metrics"]
        warned, *lines = tools("share_consumer_perf", *words).lines
        assert warned == "Warning: --messages is deprecated. Use --num-records instead."
        at = next(index for index, line in enumerate(lines) if line.startswith("WARNING"))
        assert lines[at].startswith(
            "WARNING: Exiting before consuming the expected number of records: timeout (10000 ms) exceeded."
        )
        assert all(re.fullmatch(rf"{DATE}, {DATE}, {FIGURES} for share consumer 1", line) for line in lines[:at])
        assert lines[at - 1].split(", ")[5] == str(RECORDS)
        assert lines[at + 1].split(", ")[5] == str(RECORDS)
        assert any(re.fullmatch(rf"rxmsgs +: {RECORDS}", line) for line in lines[at + 2 :])

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            ("--num-records 1", 'Missing required argument "[topic]"'),
            ("--topic t", "Exactly one of the following arguments is required: [messages], [num-records]"),
            ("--topic t --num-records 1 --reporting-interval 0", "Reporting interval must be greater than 0."),
            ("--topic t --num-records 1 --threads 0", "--threads must be greater than 0."),
        ],
    )
    def test_wrong_options(self, tools: Tools, words: str, message: str) -> None:
        refused = tools("share_consumer_perf", *words.split())
        assert (refused.status, refused.err.splitlines()[0]) == (1, message)


def test_a_group_without_config_begins_at_the_end(tools: Tools, admin: AdminClient, filled: str) -> None:
    group = unused_group(admin, {})
    words = ["--topic", filled, "--group", group, "--timeout-ms", "3000"]
    assert tools("console_share_consumer", *words).out == ""


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_share_group_has_no_consumers(tools: Tools, admin: AdminClient, filled: str, protocol: str) -> None:
    words = ["--topic", filled, "--group", unused_group(admin)]
    tools("console_share_consumer", *words, "--max-messages", "1")
    refused = tools("console_consumer", *words, "--command-property", f"group.protocol={protocol}")
    assert (refused.status, refused.out) == (1, "")
    assert refused.err.endswith("`kafka-groups.sh --list` shows the types\n")


def test_a_consumer_group_has_no_share_consumers(tools: Tools, admin: AdminClient, filled: str) -> None:
    words = ["--topic", filled, "--group", unused_group(admin, {})]
    tools("console_consumer", *words, "--from-beginning", "--max-messages", "1")
    for tool, limit in (("console_share_consumer", "--max-messages"), ("share_consumer_perf", "--num-records")):
        refused = tools(tool, *words, limit, "1")
        assert refused.status == 1
        assert refused.err.endswith("of another type; `kafka-groups.sh --list` shows the types\n")
