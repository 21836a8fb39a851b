"""The parts of Kafka's tools that need no broker: input lines, printed records, arguments, figures."""

from __future__ import annotations

import random
import re
import struct
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from moldau.base.errors import ErrorCode, KafkaError, UnusableProperty
from moldau.base.ids import TopicPartition
from moldau.cli.flags import Arguments
from moldau.cli.kafka import configs, delete_records, get_offsets, log_dirs, producer_perf, topic_lines, topics
from moldau.cli.kafka.config_quotas import salted_credential
from moldau.cli.kafka.connection import clients, properties
from moldau.cli.kafka.console.line_reader import LineReader, Record
from moldau.cli.kafka.console.record_lines import Formatter
from moldau.cli.kafka.java.dates import java_date
from moldau.cli.kafka.performance.latencies import FOLD_RECORDS, Latencies
from moldau.cli.kafka.tool import ToolFailed
from moldau.cli.kafka.topic_lines import PartitionLine, TopicLines, format_uuid, parse_uuid
from moldau.client.properties import for_librdkafka
from moldau.wire.messages.describe_configs import DescribeConfigsResourceResult
from moldau.wire.messages.describe_log_dirs import DescribeLogDirsResult


def read(line: bytes, **props: str) -> Record:
    named = {name.replace("_", "."): value for name, value in props.items()}
    return LineReader.from_properties(named).record(line, 7)


class FakeRecord:
    """The accessors of confluent_kafka.Message that a formatter calls."""

    def __init__(self, value: bytes | None, key: bytes | None = None, headers: Any = None, kind: int = 1) -> None:
        self._value, self._key, self._headers, self._kind = value, key, headers, kind

    def value(self) -> bytes | None:
        return self._value

    def key(self) -> bytes | None:
        return self._key

    def headers(self) -> Any:
        return self._headers

    def timestamp(self) -> tuple[int, int]:
        return self._kind, 1700000000123

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return 42


class TestLineReader:
    def test_a_line_is_a_value(self) -> None:
        assert list(LineReader().records([b"a\n", b"\n", b"c\r\n", b"d"])) == [
            Record(None, value, None) for value in (b"a", b"", b"c", b"d")
        ]

    def test_key_headers_and_null_marker(self) -> None:
        assert read(b"k\tv", parse_key="true") == Record(b"k", b"v", None)
        line = b"h1:v1,h2:N\tN\tv"
        both = {"parse_key": "true", "parse_headers": "true", "null_marker": "N"}
        assert read(line, **both) == Record(None, b"v", [("h1", b"v1"), ("h2", None)])
        assert read(b"N\tk\tN", **both) == Record(b"k", None, None)

    def test_a_missing_separator_is_reported_with_its_line(self) -> None:
        with pytest.raises(ToolFailed, match="No key separator found on line number 7: 'x'"):
            read(b"x", parse_key="true")
        with pytest.raises(ToolFailed, match="No header key separator found in pair 'h' on line number 7"):
            read(b"h\tx", parse_headers="true")

    def test_errors_can_be_ignored(self) -> None:
        assert read(b"x", parse_key="true", ignore_error="true") == Record(None, b"x", None)

    def test_separators_must_differ(self) -> None:
        with pytest.raises(ToolFailed, match=r"headers\.separator: not a regular expression"):
            read(b"x", headers_separator="(")
        with pytest.raises(ToolFailed, match=re.escape("headers.separator and headers.key.separator may not be equal")):
            read(b"x", headers_separator=":")
        with pytest.raises(ToolFailed, match=re.escape("null.marker and key.separator may not be equal")):
            read(b"x", null_marker="\t")


class TestFormatter:
    def test_values_alone(self) -> None:
        records = [FakeRecord(b"a"), FakeRecord(None), FakeRecord(b"")]
        assert Formatter({}).lines(records) == b"a\nnull\n\n"

    def test_all_columns_in_kafkas_order(self) -> None:
        names = ("timestamp", "partition", "offset", "epoch", "headers", "key")
        props = {f"print.{name}": "true" for name in names} | {"key.separator": "|", "null.literal": "-"}
        record = FakeRecord(b"v", None, [("h", b"1"), ("i", None)])
        expected = b"CreateTime:1700000000123|Partition:3|Offset:42|Epoch:NOT_PRESENT|h:1,i:-|-|v\n"
        assert Formatter(props).lines([record]) == expected

    def test_no_headers_and_no_timestamp(self) -> None:
        props = {"print.headers": "true", "print.timestamp": "true", "print.value": "false"}
        assert Formatter(props).lines([FakeRecord(b"v", kind=0)]) == b"NO_TIMESTAMP\tNO_HEADERS\n"
        assert Formatter({"print.timestamp": "true"}).lines([FakeRecord(b"v", kind=2)]).startswith(b"LogAppendTime:")

    def test_nothing_printed_has_no_line_end(self) -> None:
        assert Formatter({"print.value": "false"}).lines([FakeRecord(b"v")]) == b""

    def test_deserializers(self) -> None:
        props = {"value.deserializer": "org.apache.kafka.common.serialization.LongDeserializer"}
        assert Formatter(props).lines([FakeRecord(b"\0" * 7 + b"\x05")]) == b"5\n"
        with pytest.raises(ToolFailed, match="Size of data received by LongDeserializer is not 8"):
            Formatter(props).lines([FakeRecord(b"five")])

    @pytest.mark.parametrize(
        ("layout", "name", "printed"), [(">f", "FloatDeserializer", b"0.1\n"), (">d", "DoubleDeserializer", b"0.1\n")]
    )
    def test_floats_are_printed_as_by_java(self, layout: str, name: str, printed: bytes) -> None:
        record = FakeRecord(struct.pack(layout, 0.1))
        assert Formatter({"value.deserializer": name}).lines([record]) == printed

    @pytest.mark.parametrize("data", [b"five", b"\xff" * 36, b"", bytes(16)])
    def test_invalid_uuids_are_refused(self, data: bytes) -> None:
        formatter = Formatter({"value.deserializer": "UUIDDeserializer"})
        with pytest.raises(ToolFailed, match="Error parsing data into UUID"):
            formatter.lines([FakeRecord(data)])
        text = b"0c9b0e9a-3b1e-4a52-8f5f-0f2d5a3f7c11"
        assert formatter.lines([FakeRecord(text)]) == text + b"\n"


class TestProperties:
    @pytest.mark.parametrize("value", ["abc", "", "1_000", "9" * 5000])
    def test_an_invalid_buffer_memory_is_refused(self, value: str) -> None:
        with pytest.raises(UnusableProperty, match=r"buffer\.memory: expected a number of bytes"):
            for_librdkafka({"buffer.memory": value})

    def test_java_properties_are_translated_for_librdkafka(self) -> None:
        jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p\\"w";'
        java_config = {
            "key.serializer": "x",
            "acks": "all",
            "buffer.memory": "33554432",
            "max.request.size": "5",
            "sasl.jaas.config": jaas,
            "ssl.endpoint.identification.algorithm": "",
            "ssl.truststore.location": "ca.pem",
            "ssl.truststore.type": "PEM",
        }
        assert for_librdkafka(java_config) == {
            "acks": "all",
            "queue.buffering.max.kbytes": "32768",
            "message.max.bytes": "5",
            "sasl.username": "u",
            "sasl.password": 'p"w',
            "ssl.endpoint.identification.algorithm": "none",
            "ssl.ca.location": "ca.pem",
        }

    def test_a_jks_store_is_refused_with_a_reason(self) -> None:
        with pytest.raises(UnusableProperty, match=r"ssl\.truststore\.type=PEM"):
            for_librdkafka({"ssl.truststore.location": "trust.jks"})

    def test_a_missing_file_is_reported(self) -> None:
        with pytest.raises(ToolFailed, match="/no/such: No such file or directory"):
            properties.load("/no/such")

    @pytest.mark.parametrize("raw", ["a=ü".encode("utf-8-sig"), "a=ü".encode(), "a=ü".encode("latin-1")])
    def test_files_are_utf_8_with_or_without_bom_or_else_latin_1(self, tmp_path: Path, raw: bytes) -> None:
        file = tmp_path / "client.properties"
        file.write_bytes(raw)
        assert properties.load(str(file)) == {"a": "ü"}

    def test_a_malformed_file_is_reported_with_its_line(self, tmp_path: Path) -> None:
        file = tmp_path / "client.properties"
        file.write_text("a=1\npath=C:\\users\n")
        with pytest.raises(ToolFailed, match=r"line 2: .*; correct this line: a backslash is written as two"):
            properties.load(str(file))


class TestArguments:
    def test_addresses(self) -> None:
        assert clients.addresses("a:1, [::1]:2,PLAINTEXT://b:3") == [("a", 1), ("::1", 2), ("b", 3)]
        assert clients.addresses("a:65535") == [("a", 65535)]
        for wrong in ("localhost", "a:b", "", "a:0", "a:65536", "a:99999", "broker..local:1", f"{'x' * 64}.local:1"):
            with pytest.raises(ToolFailed, match="HOST:PORT"):
                clients.addresses(wrong)

    def test_an_error_code_of_a_newer_broker_is_reported(self) -> None:
        with pytest.raises(clients.ResponseError, match="UNKNOWN_ERROR_CODE_150"):
            clients.raise_for_error(150, None)
        with pytest.raises(clients.ResponseError, match="because of the moon"):
            clients.raise_for_error(150, "because of the moon")

    def test_replica_assignment(self) -> None:
        assert topics.parse_assignment("1:2,2:3") == topics.parse_assignment("1: 2, 2:3,,") == [[1, 2], [2, 3]]
        for text in (",1", "1,,2"):  # otherwise the brokers after the gap would get another partition
            with pytest.raises(ToolFailed, match='For input string: ""'):
                topics.parse_assignment(text)
        with pytest.raises(ToolFailed, match="Partition replica lists may not contain duplicate entries: 1"):
            topics.parse_assignment("1:1")
        with pytest.raises(ToolFailed, match="Partition 1 has different replication factor"):
            topics.parse_assignment("1:2,3")

    def test_include_list_reads_a_comma_as_or(self) -> None:
        pattern = topics.include_list("a.*, b")
        assert [name for name in ("a1", "b", "bb", "c") if pattern.fullmatch(name)] == ["a1", "b"]
        with pytest.raises(ToolFailed, match="invalid regex"):
            topics.include_list("*")

    def test_added_configs_may_hold_lists_in_brackets(self) -> None:
        assert configs.parse_added("a=1,b=[x,y],c=") == {"a": "1", "b": "x,y", "c": ""}
        assert configs.parse_added("S=[iterations=8192,password=p]") == {"S": "iterations=8192,password=p"}
        with pytest.raises(ToolFailed, match='in the format "key=val"'):
            configs.parse_added("a")

    @pytest.mark.parametrize(
        ("rule", "matched"),
        [("t:1", {1}), ("t:0-2", {0, 1}), ("t:2-", {2, 3}), ("t:-2", {0, 1}), ("t", {0, 1, 2, 3}), (":3", {3})],
    )
    def test_partition_rules(self, rule: str, matched: set[int]) -> None:
        matches = get_offsets.parse_rule(rule)
        assert {index for index in range(4) if matches(TopicPartition("t", index))} == matched
        assert rule.startswith(":") or not matches(TopicPartition("other", 1))

    def test_partitions_are_numbers_as_java_parses_them(self, capsys: pytest.CaptureFixture[str]) -> None:
        for listed in ("a", "0,1_0", "0, 1"):
            assert get_offsets.main(["--bootstrap-server", "localhost:1", "--partitions", listed]) == 1
            assert capsys.readouterr().err == (
                "Error occurred: --partitions expects a comma separated list of numeric partition ids, but received:"
                f" {listed}\n"
            )

    def test_times(self) -> None:
        assert [get_offsets.parse_time(text) for text in ("latest", "-2", "1700000000000")] == [-1, -2, 1700000000000]
        with pytest.raises(ToolFailed, match="Malformed time argument soon"):
            get_offsets.parse_time("soon")
        for text in ("99999999999999999999", "1_000", " 5"):
            with pytest.raises(ToolFailed, match=f"Malformed time argument {text}"):
                get_offsets.parse_time(text)

    def test_offsets_to_delete(self) -> None:
        row = {"topic": "t", "partition": 0, "offset": 5}
        assert delete_records.parse_offsets({"partitions": [row], "version": 1}) == {TopicPartition("t", 0): 5}
        with pytest.raises(ToolFailed, match="duplicate topic partitions: t-0"):
            delete_records.parse_offsets({"partitions": [row, row]})
        with pytest.raises(ToolFailed, match="No such field exists: `offset`"):
            delete_records.parse_offsets({"partitions": [{"topic": "t", "partition": 0}]})

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ([], "Expected JSON object, received []"),
            ({"partitions": [], "version": "x"}, 'Expected `Integer` value, received "x"'),
            ({"partitions": [], "version": 2}, "Not supported version field value 2"),
            ({}, "Missing partitions field"),
            ({"partitions": 5}, "Expected JSON array, received 5"),
            ({"partitions": [{"topic": 1, "partition": 0, "offset": 0}]}, "Expected `String` value, received 1"),
            # In Python, true is 1: the records of partition 1 would be deleted.
            (
                {"partitions": [{"topic": "t", "partition": True, "offset": 0}]},
                "Expected `Integer` value, received true",
            ),
            (
                {"partitions": [{"topic": "t", "partition": 0, "offset": 2**63}]},
                "Expected `Long` value, received 9223372036854775808",
            ),
        ],
    )
    def test_a_wrong_file_of_offsets_is_refused_in_kafkas_words(self, content: Any, message: str) -> None:
        with pytest.raises(ToolFailed) as failed:
            delete_records.parse_offsets(content)
        assert str(failed.value) == message

    def test_errors_are_named_as_java_names_them(self) -> None:
        cell = delete_records.error_cell(KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE))
        assert cell.startswith("error: org.apache.kafka.common.errors.OffsetOutOfRangeException: ")
        assert delete_records.error_cell(KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)) == (
            "error: org.apache.kafka.common.errors.TopicAuthorizationException: Topic authorization failed."
        )
        for code in set(ErrorCode) - {ErrorCode.NONE}:
            assert delete_records.error_cell(KafkaError(code)).endswith((".", "?")), code

    def test_configs_of_a_topic_are_sorted(self, capsys: pytest.CaptureFixture[str]) -> None:
        names = ("segment.bytes", "retention.ms", "cleanup.policy", "compression.type")
        config = [DescribeConfigsResourceResult(name=name, value="x", config_source=1) for name in names]
        config.append(DescribeConfigsResourceResult(name="min.insync.replicas", value="2", config_source=4))
        config += [DescribeConfigsResourceResult(name=f"default.{n}", value="x", config_source=5) for n in range(30)]
        topic_lines._print(Arguments({}), TopicLines("t", bytes(16), []), config, set())
        assert capsys.readouterr().out.rpartition("\t")[2] == (
            "Configs: cleanup.policy=x,compression.type=x,min.insync.replicas=2,retention.ms=x,segment.bytes=x\n"
        )

    def test_uuids(self) -> None:
        text = "yWGiSOR_Q1St363YCm0rHw"
        assert format_uuid(parse_uuid(text)) == text
        with pytest.raises(ToolFailed, match="`AAAA` decoded as 3 bytes"):
            parse_uuid("AAAA")

    def test_a_scram_password_is_sent_only_as_a_hash(self) -> None:
        made = salted_credential("alice", "SCRAM-SHA-256", "iterations=8192,password=secret")
        assert (made.mechanism, made.iterations, len(made.salt), len(made.salted_password)) == (1, 8192, 16, 32)
        with pytest.raises(ToolFailed, match="less than the minimum 4096"):
            salted_credential("alice", "SCRAM-SHA-512", "iterations=10,password=secret")


class TestPartitionLine:
    def test_a_partition_without_a_leader(self) -> None:
        line = PartitionLine(0, -1, [1, 2], [2], [], None, None)
        expected = "\tTopic: t\tPartition: 0\tLeader: none\tReplicas: 1,2\tIsr: 2\tElr: \tLastKnownElr: N/A"
        assert line.draw("t") == expected


class CountingProducer:
    """Acknowledges every record at once."""

    def __init__(self) -> None:
        self.records = 0

    def produce(self, topic: str, value: bytes, on_delivery: Any) -> None:
        self.records += 1
        on_delivery(None, SimpleNamespace(latency=lambda: 0.001))

    def poll(self, seconds: float) -> None: ...

    def flush(self) -> None: ...


class TestPerfFigures:
    def test_latency_lines(self) -> None:
        run = Latencies(now=0.0)
        run.fresh += [0.001] * 99 + [0.0505]
        assert run.window_line(1.0, 1024 * 1024) == (
            "100 records sent, 100.0 records/sec (100.00 MB/sec), 1.5 ms avg latency, 50.5 ms max latency."
        )
        assert run.window_line(2.0, 100) is None
        run.fresh += [0.001] * 900
        assert run.total_line(2.0, 1024) == (
            "1000 records sent, 500.000000 records/sec (0.49 MB/sec), 1.05 ms avg latency, 50.50 ms max latency,"
            " 1 ms 50th, 1 ms 95th, 1 ms 99th, 50 ms 99.9th."
        )

    def test_windows_of_the_steady_state_have_kafkas_title(self) -> None:
        steady = Latencies(now=0.0, steady=True)
        steady.fresh += [0.001]
        assert (steady.window_line(1.0, 1) or "").startswith("1 records sent, ")
        assert steady.total_line(1.0, 1).startswith("1 steady state records sent, ")

    def test_latencies_of_a_long_run_are_folded(self) -> None:
        run = Latencies(now=0.0)
        run.fresh += [0.001] * (FOLD_RECORDS - 1)
        run.fold()
        assert len(run.fresh) == FOLD_RECORDS - 1, "few latencies are not folded"
        run.fresh.append(0.001)
        run.fold()
        assert not run.fresh
        assert run.total_line(1.0, 1).startswith(f"{FOLD_RECORDS} records sent, ")

    @pytest.mark.parametrize(("warmup", "sent"), [("-5", 20), ("0", 20), ("15", 20)])
    def test_the_warm_up_is_part_of_the_records(
        self, warmup: str, sent: int, capsys: pytest.CaptureFixture[str]
    ) -> None:
        words = ["--topic", "t", "--num-records", "20", "--record-size", "1", "--throughput", "-1"]
        arguments = producer_perf.FLAGS.parse([*words, "--warmup-records", warmup])
        producer: Any = CountingProducer()
        producer_perf.Run(producer_perf._plan(arguments, {}), producer, producer_perf.Failures()).send_all()
        assert producer.records == sent
        assert ("steady state" in capsys.readouterr().out) == (warmup == "15")

    def test_random_records_are_letters_of_the_requested_size(self) -> None:
        records = producer_perf.random_records(10, random.Random(0))
        assert len(set(records)) == producer_perf.POOL_RECORDS_MAX
        assert all(re.fullmatch(rb"[A-Z]{10}", record) for record in records)

    def test_java_dates(self) -> None:
        when = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
        assert java_date(when, "yyyy-MM-dd HH:mm:ss:SSS") == "2026-01-02 03:04:05:678"
        assert java_date(when, "HH'h'mm ''") == "03h04 '"
        assert java_date(when, "h 'o''clock' a") == "3 o'clock AM"
        assert java_date(when, "y yy yyy yyyyy") == "2026 26 2026 02026"
        assert java_date(when, "E EEE EEEE") == "Fri Fri Friday"
        assert java_date(when, "M MM MMM MMMM d H m s") == "1 01 Jan January 2 3 4 5"
        assert java_date(when.replace(microsecond=7_999), "S SSS SSSS") == "7 007 0007"
        assert java_date(when.replace(hour=0), "H k K h z Z") == "0 24 0 12 UTC +0000"
        with pytest.raises(ValueError, match="Illegal pattern character 'b'"):
            java_date(when, "yyyy bb")
        with pytest.raises(ValueError, match="Unterminated quote"):
            java_date(when, "yyyy '")


def test_the_error_of_a_log_directory_is_the_class_of_its_exception() -> None:
    results = [DescribeLogDirsResult(code, "/data") for code in (0, ErrorCode.KAFKA_STORAGE_ERROR)]
    (broker,) = log_dirs.document({1: results}, set())["brokers"]
    errors = [directory["error"] for directory in broker["logDirs"]]
    assert errors == [None, "org.apache.kafka.common.errors.KafkaStorageException"]
