"""kafka-producer-perf-test and kafka-consumer-perf-test: the printed lines, which scripts parse."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from kafka_tools import Tools

CreateTopic = Callable[..., str]
TOTAL = (
    r"{count} {what}, \d+\.\d{{6}} records/sec \(\d+\.\d\d MB/sec\), \d+\.\d\d ms avg latency,"
    r" \d+\.\d\d ms max latency, \d+ ms 50th, \d+ ms 95th, \d+ ms 99th, \d+ ms 99\.9th\."
)
WINDOW = (
    r"\d+ records sent, \d+\.\d records/sec \(\d+\.\d\d MB/sec\),"
    r" \d+\.\d ms avg latency, \d+\.\d ms max latency\."
)
DATE = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{3}"
FIGURES = r"\d+\.\d{4}, \d+\.\d{4}, \d+, \d+\.\d{4}, \d+, \d+, \d+\.\d{4}, \d+\.\d{4}"
COLUMNS = (
    "data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, fetch.time.ms,"
    " fetch.MB.sec, fetch.nMsg.sec"
)


def total(count: int, what: str = "records sent") -> str:
    return TOTAL.format(count=count, what=what)


def test_produced_records_are_consumed(tools: Tools, create_topic: CreateTopic) -> None:
    name = create_topic(partitions=2)
    words = ("--topic", name, "--num-records", "30000", "--record-size", "100", "--throughput", "-1")
    produced = tools("producer_perf", *words)
    assert (produced.status, produced.err) == (0, "")
    assert re.fullmatch(total(30_000), produced.lines[-1])
    assert sum(int(line.rsplit(":", 1)[1]) for line in tools("get_offsets", "--topic", name).lines) == 30_000

    consumed = tools("consumer_perf", "--topic", name, "--num-records", "30000")
    header, line = consumed.lines
    assert header == f"start.time, end.time, {COLUMNS}"
    assert re.fullmatch(f"{DATE}, {DATE}, {FIGURES}", line)
    cells = line.split(", ")
    assert cells[4] == "30000"
    assert float(cells[2]) == pytest.approx(30_000 * 100 / 2**20, abs=0.001)


def test_a_limited_run_with_warm_up_prints_progress(tools: Tools, create_topic: CreateTopic) -> None:
    words = "--num-records 2000 --payload-monotonic --throughput 2000 --reporting-interval 200 --warmup-records 200"
    produced = tools("producer_perf", "--topic", create_topic(), *words.split()).lines
    assert produced[0] == "Warmup first 200 records. Steady state results will print after the complete test summary."
    assert "In steady state." in produced
    assert any(re.fullmatch(WINDOW, line) for line in produced)
    assert re.fullmatch(total(2000), produced[-2])
    assert re.fullmatch(total(1800, "steady state records sent"), produced[-1])
    rate = float(produced[-2].split(", ")[1].split()[0])
    assert 0 < rate < 2100


def test_payloads_of_a_file_and_deprecated_options(tools: Tools, create_topic: CreateTopic, tmp_path: Path) -> None:
    name = create_topic()
    file = tmp_path / "lines"
    file.write_text("one\ntwo\n")
    words = ["--topic", name, "--num-records", "50", "--payload-file", str(file), "--throughput", "-1"]
    props = ["--producer-props", f"bootstrap.servers={tools.bootstrap}", "acks=1"]
    produced = tools("producer_perf", *words, *props, address=False)
    assert produced.lines[:3] == [
        "Option --producer-props has been deprecated and will be removed in a future version."
        " Use --command-property instead.",
        f"Reading payloads from: {file}",
        "Number of records read: 2",
    ]
    read = tools("console_consumer", "--topic", name, "--from-beginning", "--max-messages", "50")
    assert set(read.lines) == {"one", "two"}


def test_detailed_stats_and_timeout(tools: Tools, create_topic: CreateTopic) -> None:
    name = create_topic()
    tools("producer_perf", "--topic", name, *["--num-records", "5000", "--record-size", "10", "--throughput", "-1"])
    words = ("--topic", name, "--num-records", "6000", "--show-detailed-stats", "--reporting-interval", "1")
    for timeout in (500, 4000, 32000):  # on a slow machine the group takes longer to form
        detailed = tools("consumer_perf", *words, "--timeout", str(timeout)).lines
        if len(detailed) > 2 and detailed[-2].split(", ")[4] == "5000":
            break
    assert detailed[0] == f"time, threadId, {COLUMNS}"
    assert detailed[-1].startswith(
        f"WARNING: Exiting before consuming the expected number of records: timeout ({timeout} ms) exceeded."
    )
    assert all(re.fullmatch(f"{DATE}, 0, {FIGURES}", line) for line in detailed[1:-1])
    assert detailed[-2].split(", ")[4] == "5000"
    hidden = tools("consumer_perf", "--topic", name, "--messages", "10", "--hide-header", "--date-format", "HH:mm")
    assert hidden.lines[0] == "Warning: --messages is deprecated. Use --num-records instead."
    assert re.fullmatch(rf"\d\d:\d\d, \d\d:\d\d, {FIGURES}", hidden.lines[1])


def test_print_metrics(tools: Tools, create_topic: CreateTopic) -> None:
    words = ["--num-records", "10", "--record-size", "10", "--throughput", "-1", "--print-metrics"]
    lines = tools("producer_perf", "--topic", create_topic(), *words).lines
    assert re.fullmatch(r"Metric Name +Value", lines[2])
    assert any(re.fullmatch(r"txmsgs +: 10", line) for line in lines)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--num-records 1 --throughput -1", "one of the arguments --record-size --payload-file --payload-monotonic is"),
        ("--num-records 0 --throughput -1 --record-size 1", "--num-records should be greater than zero."),
        ("--num-records x --throughput -1 --record-size 1", "argument --num-records: could not convert 'x' to Long"),
        ("--throughput -1 --record-size 1", "argument --num-records is required"),
        (
            "--num-records 1 --throughput -1 --record-size 1 --payload-monotonic",
            "argument --payload-monotonic: not allowed with argument --record-size",
        ),
    ],
)
def test_producer_usage_errors(tools: Tools, words: str, expected: str) -> None:
    status, out, err = tools("producer_perf", "--topic", "t", *words.split())
    assert (status, out) == (1, "")
    assert err.startswith(f"kafka-producer-perf-test: error: {expected}")


def test_consumer_usage_errors(tools: Tools) -> None:
    one = tools("consumer_perf", "--topic", "t").err.splitlines()[0]
    assert one == "Exactly one of the following arguments is required: [messages], [num-records]"
