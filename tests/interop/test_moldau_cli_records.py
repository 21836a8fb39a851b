"""`moldau produce` and `moldau consume` against a running broker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from harness.patience import PATIENCE_S

from moldau.cli.main import main

Run = Callable[..., Result]
CreateTopic = Callable[..., str]


@pytest.fixture
def run(bootstrap: str) -> Run:
    def invoke(*words: str, stdin: str | bytes | None = None, status: int = 0) -> Result:
        result = CliRunner(env={"MOLDAU_BOOTSTRAP": bootstrap}).invoke(main, list(words), input=stdin)
        assert result.exit_code == status, result.stderr
        return result

    return invoke


@contextmanager
def moldau_process(bootstrap: str, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    environment = os.environ | {"MOLDAU_BOOTSTRAP": bootstrap}
    command = [sys.executable, "-m", "moldau", *words]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def error_lines(stderr: bytes) -> list[bytes]:
    """Return the lines of stderr without the notice that the broker does not answer yet: a busy machine causes it."""
    return [line for line in stderr.splitlines() if b"does not answer yet; waiting up to" not in line]


def stderr_lines(result: Result) -> list[str]:
    return [line.decode() for line in error_lines(result.stderr_bytes or b"")]


def test_lines_are_produced_and_consumed(run: Run, create_topic: CreateTopic) -> None:
    name = create_topic()
    assert stderr_lines(run("produce", name, stdin="a\n\nc")) == [f"3 records to {name}: partition 0 offsets 0-2"]
    assert run("consume", name, "-e").stdout == "a\n\nc\n"
    assert stderr_lines(run("produce", name, stdin="")) == [f"0 records to {name}"]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_keys_headers_nulls_and_codecs(run: Run, create_topic: CreateTopic, codec: str) -> None:
    name = create_topic()
    run("produce", name, "-K", "\\t", "-H", "h=1", "-H", "i=2", "-Z", "-z", codec, stdin="k\tv\ntomb\t\n")
    lines = run("consume", name, "-e", "-f", "%o %k %v %V %h\\n").stdout.splitlines()
    assert lines == ["0 k v 1 h=1,i=2", "1 tomb  -1 h=1,i=2"]


def test_envelopes_survive_the_round_trip(run: Run, create_topic: CreateTopic) -> None:
    source, copy = create_topic(), create_topic()
    given = [
        {"key": "a", "value": {"n": 1}, "headers": {"x": "y"}, "timestamp": 1_700_000_000_000},
        {"value_base64": "/wA=", "headers": [{"key": "d", "value": "1"}, {"key": "d", "value": None}]},
        {"key": "gone", "value": None},
    ]
    run("produce", source, "--json", stdin="\n".join(map(json.dumps, given)))
    printed = run("consume", source, "-e", "--json").stdout
    run("produce", copy, "--json", stdin=printed)
    again = run("consume", copy, "-e", "--json").stdout
    assert again.replace(copy, source) == printed
    assert json.loads(printed.splitlines()[0])["value"] == '{"n":1}'


def test_files_are_read_in_order(run: Run, create_topic: CreateTopic, tmp_path: Path) -> None:
    name = create_topic()
    for letter in "ab":
        (tmp_path / letter).write_text(f"{letter}1\n{letter}2")
    run("produce", name, str(tmp_path / "a"), str(tmp_path / "b"), "--acks", "1")
    assert run("consume", name, "-e").stdout.split() == ["a1", "a2", "b1", "b2"]


def test_partitions_are_selected(run: Run, create_topic: CreateTopic) -> None:
    name = create_topic(partitions=3)
    for partition in "012":
        run("produce", name, "-p", partition, stdin=f"in {partition}")
    assert sorted(run("consume", name, "-e").stdout.splitlines()) == ["in 0", "in 1", "in 2"]
    assert run("consume", name, "-e", "-p", "1", "-f", "%p:%v").stdout == "1:in 1"
    refused = [f"moldau: {name} has no partition 3; it has 0 to 2"]
    assert stderr_lines(run("consume", name, "-p", "3", status=1)) == refused
    assert stderr_lines(run("produce", name, "-p", "3", stdin="x", status=1)) == refused


def test_keys_go_to_the_same_partitions_as_in_java(run: Run, create_topic: CreateTopic) -> None:
    """kafka-python's port of murmur2 places the same keys."""
    from kafka.partitioner.default import murmur2

    name = create_topic(partitions=7)
    keys = ["foo", "bar", "orders-17", "ü"]
    run("produce", name, "-K", "=", stdin="\n".join(f"{key}=x" for key in keys))
    placed = dict(line.split() for line in run("consume", name, "-e", "-f", "%k %p\\n").stdout.splitlines())
    assert placed == {key: str((murmur2(key.encode()) & 0x7FFFFFFF) % 7) for key in keys}


@pytest.mark.parametrize(
    ("offset", "letters"),
    [
        (":end", "abcdefghij"), ("3:end", "defghij"), ("3:6", "def"), ("-2:end", "ij"), ("+8:end", "ij"), (":2", "ab"),
        ("end:end", ""), ("@-1h:end", "abcdefghij"), ("@:-1h", ""), ("@2001-09-09:2001-09-10", ""), ("99:end", ""),
    ],
)  # fmt: skip
def test_offset_ranges(run: Run, create_topic: CreateTopic, offset: str, letters: str) -> None:
    name = create_topic()
    run("produce", name, stdin="\n".join("abcdefghij"))
    assert run("consume", name, "-o", offset, "-f", "%v").stdout == letters


def test_time_ranges_use_record_timestamps(run: Run, create_topic: CreateTopic) -> None:
    name = create_topic()
    stamped = [json.dumps({"value": str(n), "timestamp": 1_700_000_000_000 + n * 60_000}) for n in range(5)]
    run("produce", name, "--json", stdin="\n".join(stamped))
    assert run("consume", name, "-o", "@1700000060000:2m", "-f", "%v").stdout == "12"
    assert run("consume", name, "-o", "@1700000180000:end", "-f", "%v").stdout == "34"


def test_regex_and_number(run: Run, topic: Callable[[], str], create_topic: CreateTopic) -> None:
    stem = topic()
    for suffix in ("x", "y", "zz"):
        name = create_topic(name=f"{stem}.{suffix}")
        run("produce", name, stdin=suffix)
    assert sorted(run("consume", "-r", rf"{stem}\..", "-e").stdout.split()) == ["x", "y"]
    assert len(run("consume", "-r", rf"{stem}\..*", "-n", "2").stdout.split()) == 2
    assert "no topic matches" in run("consume", "-r", f"{stem}-nothing", status=1).stderr


def test_a_group_continues_where_it_stopped(run: Run, create_topic: CreateTopic) -> None:
    name = create_topic()
    run("produce", name, stdin="a\nb")
    reading = ("consume", name, "-g", f"{name}-readers", "-e")
    assert run(*reading).stdout == "a\nb\n"
    run("produce", name, stdin="c")
    assert run(*reading).stdout == "c\n"


def test_an_invalid_line_is_reported_with_its_number(run: Run, create_topic: CreateTopic) -> None:
    name = create_topic()
    result = run("produce", name, "-K", ":", stdin="a:1\nb", status=1)
    written = f"1 record to {name}: partition 0 offset 0"
    assert stderr_lines(result) == [f"moldau: line 2: no key separator ':' in it ({written} before it)"]


def test_many_lines(run: Run, create_topic: CreateTopic) -> None:
    name = create_topic(partitions=2)
    count = 50_000
    run("produce", name, "-z", "lz4", stdin="\n".join(map(str, range(count))))
    printed = run("consume", name, "-e").stdout.split()
    assert sorted(map(int, printed)) == list(range(count))


def test_a_closed_pipe_ends_the_consumer(bootstrap: str, run: Run, create_topic: CreateTopic) -> None:
    name = create_topic()
    run("produce", name, stdin="\n".join(["x" * 100] * 20_000))
    with moldau_process(bootstrap, "consume", name) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"x" * 100 + b"\n"
        process.stdout.close()
        assert process.wait(PATIENCE_S) == 141
        assert error_lines(process.stderr.read()) == []


def test_ctrl_c_ends_a_waiting_consumer_silently(bootstrap: str, run: Run, create_topic: CreateTopic) -> None:
    name = create_topic()
    run("produce", name, stdin="first")
    with moldau_process(bootstrap, "consume", name) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"first\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out, error_lines(err)) == (130, b"", [])
