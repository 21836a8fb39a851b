"""Numbers in the arguments of Kafka's tools: they accept what Java accepts. Python's `int` accepts more."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from moldau.cli.kafka import client_metrics, features, log_dirs, metadata_quorum, producer_perf, storage, topics
from moldau.cli.kafka.connection import controller_file
from moldau.cli.kafka.java.numbers import parse_integer
from moldau.cli.kafka.storage_format.feature_levels import parse_level
from moldau.cli.kafka.storage_format.scram_users import scram_record
from moldau.cli.kafka.tool import ToolFailed


@pytest.mark.parametrize(
    ("text", "bits", "number"),
    [
        ("0", 32, 0), ("+7", 32, 7), ("-7", 32, -7), ("0" * 50 + "1", 32, 1),
        ("2147483647", 32, 2**31 - 1), ("-2147483648", 32, -(2**31)), ("9223372036854775807", 64, 2**63 - 1),
        ("-32768", 16, -32768),
    ],
)  # fmt: skip
def test_integers_that_java_accepts(text: str, bits: int, number: int) -> None:
    assert parse_integer(text, bits) == number


@pytest.mark.parametrize(
    ("text", "bits"),
    [
        ("", 32),
        ("1_0", 32),
        ("\u0663", 32),
        (" 1", 32),
        ("1\n", 32),
        ("+-1", 32),
        ("2147483648", 32),
        ("9" * 5000, 64),
        ("1_0", 16),
    ],
)
def test_integers_that_java_refuses(text: str, bits: int) -> None:
    with pytest.raises(ValueError) as refused:
        parse_integer(text, bits)
    assert str(refused.value) == f'For input string: "{text}"'


def test_a_number_that_is_no_short() -> None:
    with pytest.raises(ValueError, match=r'^Value out of range\. Value:"32768" Radix:10$'):
        parse_integer("32768", 16)


@pytest.mark.parametrize(
    ("parse", "message"),
    [
        (lambda: topics.parse_assignment("1:1_0"), 'For input string: "1_0"; write broker ids as in 1:2,2:3'),
        (lambda: log_dirs._ids("1,1_0"), 'For input string: "1_0"; write broker ids as in 0,1,2'),
        (lambda: controller_file.controller_id({"node.id": "1_0"}), 'For input string: "1_0"'),
        (
            lambda: parse_level("kraft.version=1_0"),
            "Can't parse feature=level string kraft.version=1_0: unable to parse 1_0 as a short.",
        ),
        (
            lambda: scram_record("SCRAM-SHA-256=[name=a,password=p,iterations=8_192]"),
            "Failed to parse iterations count",
        ),
    ],
)
def test_underscores_are_refused(parse: Callable[[], object], message: str) -> None:
    with pytest.raises(ToolFailed) as refused:
        parse()
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("tool", "words", "message"),
    [
        (
            producer_perf.main,
            "--topic t --num-records 1_0 --record-size 1 --throughput 1 --bootstrap-server x:1",
            "argument --num-records: could not convert '1_0' to Long (For input string: \"1_0\")",
        ),
        (
            producer_perf.main,
            "--topic t --num-records 1 --record-size 1 --throughput 1_0 --bootstrap-server x:1",
            "argument --throughput: could not convert '1_0' to Double (For input string: \"1_0\")",
        ),
        (
            features.main,
            "--bootstrap-server x:1 describe --node-id 1_0",
            "argument --node-id: could not convert '1_0' to Integer (For input string: \"1_0\")",
        ),
        (
            metadata_quorum.main,
            "--bootstrap-server x:1 remove-controller --controller-id 1_0 --controller-directory-id x",
            "could not convert '1_0' to Integer (For input string: \"1_0\")",
        ),
        (
            storage.main,
            "feature-dependencies --feature kraft.version=--1",
            "Invalid version format: --1 for feature kraft.version",
        ),
        (
            client_metrics.main,
            "--bootstrap-server x:1 --alter --name a --interval +-5",
            "Invalid interval value. Enter an integer, or leave empty to reset.",
        ),
    ],
)
def test_tools_refuse_what_is_no_number(
    tool: Callable[[list[str]], int],
    words: str,
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert tool(words.split()) == 1
    assert message in capsys.readouterr().err
