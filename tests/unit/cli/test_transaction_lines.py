"""kafka-transactions and `moldau transaction` without a broker: flags, tables, messages, and which transactions hang.

The tables and lines are those that Apache Kafka's own tool printed for the same state of a cluster.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.cli.kafka import transactions
from moldau.cli.kafka.log_dump.transaction_log_lines import transaction_log_formatter, transaction_log_texts
from moldau.cli.kafka.tool import ToolFailed
from moldau.cli.kafka.transaction import failures as transaction_failures
from moldau.cli.kafka.transaction.tables import described_table, hanging_table, listed_table, producers_table
from moldau.cli.main import main
from moldau.cli.transaction.commands import _partitions
from moldau.cli.transaction.end import _searchable
from moldau.client.admin.transaction_values import (
    ActiveProducer,
    DescribedTransaction,
    ListedTransaction,
    OpenTransaction,
    hanging,
    open_for_long,
    state_name,
)
from moldau.client.admin.transactions import BrokerRefused
from moldau.client.cluster import Cluster, Topic
from moldau.coordinator.machine import CoordinatorRecord
from moldau.coordinator.transaction.serde import encode_record
from moldau.wire.log_records.transactions import PartitionsSchema, TransactionLogKey, TransactionLogValue
from moldau.wire.records import Record

NOW_MS = 1_794_775_501_402
NOWHERE = ("--bootstrap-server", "127.0.0.1:1")
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def described(*partitions: TopicPartition, start_ms: int | None = 1_794_775_456_811) -> DescribedTransaction:
    return DescribedTransaction("he-open", 1, 7, 0, "Ongoing", 600_000, start_ms, partitions)


def producer(producer_id: int, start: int | None = 0, last_ms: int = NOW_MS - 60_000) -> ActiveProducer:
    return ActiveProducer(producer_id, 0, -1, 1, last_ms, start)


class TestFlags:
    @pytest.mark.parametrize(
        ("words", "message"),
        [
            ("", "too few arguments"),
            ("--bootstrap-server x:1", "too few arguments"),
            ("list", "argument --bootstrap-server is required"),
            ("--bootstrap-server x:1 describe", "argument --transactional-id is required"),
            ("--bootstrap-server x:1 abort --partition 0", "argument --topic is required"),
            ("--bootstrap-server x:1 list --foo", "unrecognized arguments: '--foo'"),
            ("--bootstrap-server x:1 list extra more", "unrecognized arguments: 'extra'"),
            ("--bootstrap-server x:1 list --duration-filter", "argument --duration-filter: expected one argument"),
            (
                "--bootstrap-server x:1 list --duration-filter 1_0",
                "argument --duration-filter: could not convert '1_0' to Long (For input string: \"1_0\")",
            ),
            (
                "--bootstrap-server x:1 describe-producers --topic a --partition 2147483648",
                "argument --partition: could not convert '2147483648' to Integer (For input string: \"2147483648\")",
            ),
            (
                "--bootstrap-server x:1 abort --topic a --partition 0 --producer-epoch 32768",
                "argument --producer-epoch: could not convert '32768' to Short"
                ' (Value out of range. Value:"32768" Radix:10)',
            ),
        ],
    )
    def test_arguments_refused_by_the_parser(
        self, capsys: pytest.CaptureFixture[str], words: str, message: str
    ) -> None:
        assert transactions.main(words.split()) == 1
        captured = capsys.readouterr()
        assert captured.err.startswith("usage: kafka-transactions.sh ")
        assert captured.err.splitlines()[-1] == f"kafka-transactions.sh: error: {message}"
        assert captured.out == ""

    def test_the_error_for_an_unknown_command_lists_all_commands(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert transactions.main([*NOWHERE, "foo"]) == 1
        assert (
            capsys.readouterr()
            .err.splitlines()[-1]
            .startswith("kafka-transactions.sh: error: invalid choice: 'foo' (choose from ")
        )

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (
                "abort --topic a --partition 0",
                "The transaction to abort must be identified either with --start-offset (for brokers on 3.0 or above)"
                " or with --producer-id, --producer-epoch, and --coordinator-epoch (for older brokers)",
            ),
            ("abort --topic a --partition 0 --producer-id 1", "Missing required argument --producer-epoch"),
            (
                "abort --topic a --partition 0 --producer-id 1 --producer-epoch 0",
                "Missing required argument --coordinator-epoch",
            ),
            (
                "find-hanging",
                "The `find-hanging` command requires either --topic or --broker-id to limit the scope of the search",
            ),
            ("find-hanging --broker-id 1 --partition 0", "The --partition argument requires --topic to be provided"),
            (
                "list --command-config nowhere.properties",
                "Failed to load admin client properties: nowhere.properties. Enable debug logging for additional"
                " detail.",
            ),
        ],
    )
    def test_arguments_refused_before_connecting(
        self, capsys: pytest.CaptureFixture[str], words: str, message: str
    ) -> None:
        assert transactions.main([*NOWHERE, *words.split()]) == 1
        assert tuple(capsys.readouterr()) == ("", f"{message}\n")

    def test_help_ends_with_1_and_the_version_with_0(self, capsys: pytest.CaptureFixture[str]) -> None:
        for words in (["--help"], ["abort", "--help"]):
            assert transactions.main(words) == 1
            captured = capsys.readouterr()
            assert captured.out.startswith("usage: kafka-transactions.sh ")
            assert captured.err == ""
        assert transactions.main(["-v"]) == 0
        assert capsys.readouterr().out.startswith("4.3.1 ")


class TestTables:
    def test_a_listing_is_sorted_by_broker(self) -> None:
        listed = [
            ListedTransaction("b", 17, 5, "Ongoing"),
            ListedTransaction("he-empty", 2, 3, "Empty"),
            ListedTransaction("a", 17, 4, "CompleteAbort"),
        ]
        assert listed_table(listed).splitlines() == [
            "TransactionalId\tCoordinator\tProducerId\tTransactionState\t",
            "he-empty       \t2          \t3         \tEmpty           \t",
            "b              \t17         \t5         \tOngoing         \t",
            "a              \t17         \t4         \tCompleteAbort   \t",
        ]

    def test_an_open_transaction_and_one_that_never_began(self) -> None:
        began = described(TopicPartition("he-topic", 1), TopicPartition("he-topic", 0))
        assert described_table(began, NOW_MS).splitlines()[1] == (
            "1            \the-open        \t7         \t0            \tOngoing         \t600000              "
            "\t1794775456811                \t44591                \the-topic-0,he-topic-1\t"
        )
        assert described_table(described(start_ms=None), NOW_MS).splitlines()[1].split("\t")[6:] == [
            "None                         ",
            "None                 ",
            "               ",
            "",
        ]

    def test_producers(self) -> None:
        producers = [
            ActiveProducer(0, 0, -1, 1, 1_794_775_456_699, 0),
            ActiveProducer(2, 0, 0, 0, 1_794_775_457_030, None),
        ]
        assert producers_table(producers).splitlines() == [
            "ProducerId\tProducerEpoch\tLatestCoordinatorEpoch\tLastSequence\tLastTimestamp"
            "\tCurrentTransactionStartOffset\t",
            "0         \t0            \t-1                    \t1           \t1794775456699"
            "\t0                            \t",
            "2         \t0            \t0                     \t0           \t1794775457030"
            "\tNone                         \t",
        ]

    def test_hanging_transactions_are_sorted_by_producer(self) -> None:
        found = [OpenTransaction(T0, producer(33)), OpenTransaction(T1, producer(2)), OpenTransaction(T1, producer(33))]
        rows = hanging_table(found, NOW_MS).splitlines()
        assert rows[0] == (
            "Topic\tPartition\tProducerId\tProducerEpoch\tCoordinatorEpoch\tStartOffset\tLastTimestamp\tDuration(min)\t"
        )
        assert [row.split("\t")[1].strip() + ":" + row.split("\t")[2].strip() for row in rows[1:]] == [
            "1:2",
            "0:33",
            "1:33",
        ]
        assert rows[1].split("\t")[7] == "1            "


class TestHanging:
    def test_only_transactions_that_are_open_and_idle_for_long_may_hang(self) -> None:
        producers = {
            T0: [producer(1, last_ms=NOW_MS - 1001), producer(2, last_ms=NOW_MS - 1000), producer(3, start=None)],
            T1: [],
        }
        assert open_for_long(producers, NOW_MS, 1000) == [OpenTransaction(T0, producer(1, last_ms=NOW_MS - 1001))]

    def test_a_transaction_that_its_coordinator_knows_does_not_hang(self) -> None:
        found = [OpenTransaction(T0, producer(7)), OpenTransaction(T1, producer(7))]
        assert hanging(found, {7: "he-open"}, {"he-open": described(T0)}) == [found[1]]

    def test_a_transaction_that_its_coordinator_forgot_hangs(self) -> None:
        found = [OpenTransaction(T0, producer(7))]
        assert hanging(found, {}, {"he-open": described(T0)}) == found
        assert hanging(found, {7: "he-open"}, {"he-open": None}) == found


@pytest.mark.parametrize(
    ("why", "message"),
    [
        (
            transaction_failures.why_not_listed(BrokerRefused(3, ErrorCode.INVALID_REGULAR_EXPRESSION)),
            "ListTransactions request sent to broker 3 failed with an unexpected exception",
        ),
        (
            transaction_failures.why_not_described(KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND), "x"),
            "DescribeTransactions request for transactionalId `x` failed because the ID could not be found",
        ),
        (
            transaction_failures.why_not_described(KafkaError(ErrorCode.INVALID_REQUEST), ""),
            "DescribeTransactions request for transactionalId `` failed due to unexpected error",
        ),
        (
            transaction_failures.why_no_producers(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER), T0, 2),
            "Failed to describe active producers for partition t-0 on brokerId 2",
        ),
        (
            transaction_failures.why_no_producers(KafkaError(ErrorCode.REQUEST_TIMED_OUT), T0, 9),
            "Timed out waiting for a node assignment. Call: describeProducers(api=DESCRIBE_PRODUCERS)",
        ),
        (
            transaction_failures.why_not_aborted(KafkaError(ErrorCode.TRANSACTION_COORDINATOR_FENCED), "SPEC", 4),
            "WriteTxnMarkers request with SPEC failed since the provided coordinator epoch 4 has been fenced by the"
            " active coordinator",
        ),
        (
            transaction_failures.why_not_terminated(KafkaError(ErrorCode.INVALID_REQUEST), "x"),
            "InitProducerId request for transactionalId `x` failed due to unexpected error",
        ),
    ],
)
def test_error_messages_are_those_of_kafkas_clients(why: str, message: str) -> None:
    assert why == message


class TestTheTransactionLog:
    KEY = TransactionLogKey('the "id"')
    ONGOING = TransactionLogValue(
        producer_id=89,
        previous_producer_id=89,
        producer_epoch=1,
        transaction_timeout_ms=60_000,
        transaction_status=1,
        transaction_partitions=[PartitionsSchema("__consumer_offsets", [0, 3])],
        transaction_last_update_timestamp_ms=12,
        transaction_start_timestamp_ms=11,
        client_transaction_version=2,
    )
    EMPTY = TransactionLogValue(5, transaction_partitions=None, transaction_start_timestamp_ms=-1)
    KEY_JSON = '{"transactionalId":"the \\"id\\""}'
    DATA = (
        '{"producerId":89,"previousProducerId":89,"producerEpoch":1,"transactionTimeoutMs":60000,"transactionStatus":1,'
        '"transactionPartitions":[{"topic":"__consumer_offsets","partitionIds":[0,3]}],'
        '"transactionLastUpdateTimestampMs":12,"transactionStartTimestampMs":11,"clientTransactionVersion":2}'
    )
    EMPTY_DATA = (
        '{"producerId":5,"producerEpoch":0,"transactionTimeoutMs":0,"transactionStatus":0,"transactionPartitions":null,'
        '"transactionLastUpdateTimestampMs":0,"transactionStartTimestampMs":-1}'
    )

    def record(self, value: TransactionLogValue | None, transaction_version: int = 2) -> Record:
        return Record(7, 0, *encode_record(CoordinatorRecord(self.KEY, value), transaction_version))

    def test_records_are_printed_as_by_dump_log(self) -> None:
        key = f'{{"type":"0","data":{self.KEY_JSON}}}'
        assert transaction_log_texts(self.record(self.ONGOING)) == (key, f'{{"version":"1","data":{self.DATA}}}')
        assert transaction_log_texts(self.record(self.EMPTY, 0)) == (
            key,
            f'{{"version":"0","data":{self.EMPTY_DATA}}}',
        )
        assert transaction_log_texts(self.record(None)) == (key, "<DELETE>")

    def test_records_are_printed_as_by_the_formatter_of_the_console_consumer(self) -> None:
        unknown = Fetched(b"\0\x09rest", None)
        keyless = Fetched(None, b"v")
        text = transaction_log_formatter().lines(
            [Fetched.of(self.record(self.ONGOING)), unknown, keyless, Fetched.of(self.record(None))]
        )
        key = f'"key":{{"type":0,"data":{self.KEY_JSON}}}'
        assert text.decode() == f'{{{key},"value":{{"version":1,"data":{self.DATA}}}}}{{{key},"value":null}}'

    def test_an_undecodable_record_is_reported_with_its_offset(self) -> None:
        broken = Fetched(self.record(None).key, b"\0\x63")
        with pytest.raises(ToolFailed, match="Could not read record at offset 7 due to: "):
            transaction_log_formatter().lines([broken])


class Fetched:
    """A record with the methods of librdkafka's messages."""

    def __init__(self, key: bytes | None, value: bytes | None) -> None:
        self._key, self._value = key, value

    @classmethod
    def of(cls, record: Record) -> Fetched:
        return cls(record.key, record.value)

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def offset(self) -> int:
        return 7


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("abort", "name one: ID, or --at TOPIC:PARTITION and --start OFFSET"),
        ("abort checkout --at orders:0 --start 1", "name one"),
        ("abort --at orders:0", "name one"),
        ("list --longer-than soon", "'soon' is not a duration"),
        ("list --state Sleeping", "Invalid value for '--state'"),
        ("hanging --longer-than 5", "write 15m, 1h30m or 500ms"),
    ],
)
def test_wrong_usage_is_reported_without_connecting(words: str, message: str) -> None:
    result: Any = CliRunner(env={"MOLDAU_BOOTSTRAP": "127.0.0.1:1"}).invoke(main, ["transaction", *words.split()])
    assert result.exit_code == 1
    assert message in result.stderr
    assert "See `moldau transaction" in result.stderr


def test_a_state_newer_than_this_tool_is_unknown() -> None:
    assert state_name("Ongoing") == "Ongoing"
    assert state_name("Dreaming") == "Unknown"


def test_describe_lists_partitions_without_a_leader() -> None:
    """The missing leader may be why the transaction does not end."""
    asked: list[TopicPartition] = []

    def producers(partitions: Iterable[TopicPartition]) -> Any:
        asked.extend(partitions)
        return {each: [producer(7, start=12)] for each in asked}

    topics = {"t": Topic("t", b"", {0: 1, 1: -1})}
    cluster, transactions_of = SimpleNamespace(topics=lambda: topics), SimpleNamespace(producers=producers)
    connection: Any = SimpleNamespace(cluster=cluster, transactions=transactions_of)
    gone = TopicPartition("gone", 0)
    assert _partitions(connection, described(T0, T1, gone)).rows == [(*gone, None), (*T0, 12), (*T1, None)]
    assert asked == [T0]


def test_partitions_without_a_leader_are_not_searched(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = Cluster("localhost:1", {})
    cluster._addresses = {1: ("host", 1)}
    cluster._topics = {"t": Topic("t", b"", {0: 1, 1: -1})}
    connection: Any = SimpleNamespace(cluster=cluster)
    assert _searchable(connection, [T0, T1]) == [T0]
    assert capsys.readouterr().err == "moldau: t partition 1 cannot be searched now\n"
    assert _searchable(connection, [T0]) == [T0]
    assert capsys.readouterr().err == ""
