"""`moldau log dump` on files written by the code of the broker."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from moldau.cli.log import data_files
from moldau.cli.main import main
from moldau.log.offset_index import OffsetIndex
from moldau.log.time_index import TimeIndex
from moldau.wire.compression import Compression
from moldau.wire.records import NEXT_OFFSET, EndTxnMarker, Record, build_batch, end_txn_marker

BASE_MS = 1_700_000_000_000
SEGMENT = "00000000000000000000"


def dump(*words: object) -> Result:
    return CliRunner().invoke(main, ["log", "dump", *map(str, words)])


def batches() -> list[bytearray]:
    letters = [Record(NEXT_OFFSET, BASE_MS + n, b"k%d" % n, b"v%d" % n, (("h", b"1"),)) for n in range(3)]
    plain = build_batch(letters, base_offset=0, leader_epoch=4)
    packed = build_batch(
        [Record(NEXT_OFFSET, BASE_MS + 9, None, b"\xff")], base_offset=3, compression=Compression.ZSTD, producer_id=7,
        producer_epoch=1, base_sequence=5, is_transactional=True,
    )  # fmt: skip
    marker = build_batch(
        [end_txn_marker(EndTxnMarker(True, 0), BASE_MS + 10)], base_offset=4, producer_id=7, producer_epoch=1,
        is_transactional=True, is_control=True,
    )  # fmt: skip
    return [plain, packed, marker]


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A data directory of one partition; its index is preallocated with zeros, as by Kafka."""
    directory = tmp_path / "orders-0"
    directory.mkdir()
    parts = batches()
    (directory / f"{SEGMENT}.log").write_bytes(b"".join(parts))
    index, times = OffsetIndex(0), TimeIndex(0)
    index.append(3, len(parts[0]))
    times.append(BASE_MS + 9, 3)
    (directory / f"{SEGMENT}.index").write_bytes(index.entries + bytes(800))
    (directory / f"{SEGMENT}.timeindex").write_bytes(times.entries + bytes(1200))
    (directory / "leader-epoch-checkpoint").write_text("0\n1\n4 0\n")
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n1\norders 0 5\n")
    (tmp_path / ".lock").touch()
    (tmp_path / "no-partition").mkdir()
    return tmp_path


def test_batches_as_a_table(data_dir: Path) -> None:
    lines = dump(data_dir / "orders-0" / f"{SEGMENT}.log").stdout.splitlines()
    assert lines[1].split()[:6] == ["BASE", "LAST", "COUNT", "POSITION", "SIZE", "CODEC"]
    assert [line.split()[:3] for line in lines[2:]] == [["0", "2", "3"], ["3", "3", "1"], ["4", "4", "1"]]
    assert "zstd" in lines[3]
    assert "7/1" in lines[3]
    assert "5-5" in lines[3]
    assert "txn control" in lines[4]
    assert all(line.endswith("  ok") for line in lines[2:])


def test_every_known_file_of_a_data_directory(data_dir: Path) -> None:
    result = dump(data_dir, "--format", "json")
    assert result.exit_code == 0
    shown = {Path(entry["file"]).name: entry["entries"] for entry in json.loads(result.stdout)}
    assert shown[f"{SEGMENT}.index"] == [{"offset": 3, "position": len(batches()[0])}]
    assert shown[f"{SEGMENT}.timeindex"] == [{"timestamp": "2023-11-14T22:13:20.009Z", "offset": 3}]
    assert shown["leader-epoch-checkpoint"] == [{"epoch": 4, "start_offset": 0}]
    assert shown["recovery-point-offset-checkpoint"] == [{"topic": "orders", "partition": 0, "offset": 5}]
    assert len(shown) == 5


@pytest.mark.parametrize(("timestamp", "shown"), [(-1, None), (BASE_MS * 1000, str(BASE_MS * 1000))])
def test_timestamps_that_are_not_dates(tmp_path: Path, timestamp: int, shown: str | None) -> None:
    segment = tmp_path / f"{SEGMENT}.log"
    segment.write_bytes(build_batch([Record(NEXT_OFFSET, timestamp, None, b"v")], base_offset=0))
    result = dump(segment, "--format", "json")
    assert result.exit_code == 0
    assert [batch["max_timestamp"] for batch in json.loads(result.stdout)[0]["entries"]] == [shown]
    assert dump(segment, "--records").stdout == f"0\t{timestamp}\t\tv\t\n"


def test_records_by_a_format_and_as_envelopes(data_dir: Path) -> None:
    result = dump(data_dir, "-f", "%t-%p %o %k=%v{hex} %h\\n")
    assert result.stdout.splitlines() == [
        "orders-0 0 k0=7630 h=1",
        "orders-0 1 k1=7631 h=1",
        "orders-0 2 k2=7632 h=1",
        "orders-0 3 =ff ",
    ]
    envelopes = [json.loads(line) for line in dump(data_dir, "--records", "--format", "json").stdout.splitlines()]
    assert [envelope["offset"] for envelope in envelopes] == [0, 1, 2, 3]
    assert envelopes[3]["value_base64"] == "/w=="


def test_verify_accepts_undamaged_files(data_dir: Path) -> None:
    result = dump(data_dir, "--verify", "--format", "json")
    assert result.exit_code == 0, result.stderr
    rows = json.loads(result.stdout)
    assert [row["problem"] for row in rows] == [None] * 5
    assert [(row["batches"], row["records"]) for row in rows if row["file"].endswith(".log")] == [(3, 5)]


def damage_payload(directory: Path) -> None:
    path = directory / f"{SEGMENT}.log"
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)


def tear_tail(directory: Path) -> None:
    path = directory / f"{SEGMENT}.log"
    path.write_bytes(path.read_bytes()[:-1])


def misdirect_index(directory: Path) -> None:
    index = OffsetIndex(0)
    index.append(2, len(batches()[0]))
    (directory / f"{SEGMENT}.index").write_bytes(index.entries)


def repeat_offsets(directory: Path) -> None:
    path = directory / f"{SEGMENT}.log"
    path.write_bytes(path.read_bytes() + batches()[0])


def cut_checkpoint(directory: Path) -> None:
    (directory / "leader-epoch-checkpoint").write_text("0\n2\n4 0\n")


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (damage_payload, "bad CRC of the batch at 0, offsets 0-2"),
        (tear_tail, "77 bytes at "),
        (misdirect_index, "entry 0 sends offset 2 to "),
        (repeat_offsets, "comes after 4"),
        (cut_checkpoint, "checkpoint: lines are missing or incomplete"),
    ],
)
def test_verify_finds_damage(data_dir: Path, damage: object, problem: str) -> None:
    assert callable(damage)
    damage(data_dir / "orders-0")
    result = dump(data_dir, "--verify")
    assert result.exit_code == 1
    assert problem in result.stdout
    assert result.stderr == "moldau: 1 of 5 files are damaged; the table says how\n"


def test_a_bad_crc_is_shown_in_the_table(data_dir: Path) -> None:
    damage_payload(data_dir / "orders-0")
    lines = dump(data_dir / "orders-0" / f"{SEGMENT}.log").stdout.splitlines()
    assert [line.split()[-1] for line in lines[2:]] == ["BAD", "ok", "ok"]


def test_an_empty_segment(tmp_path: Path) -> None:
    (tmp_path / f"{SEGMENT}.log").touch()
    assert dump(tmp_path).stdout.splitlines()[1:] == ["empty"]
    assert dump(tmp_path, "--verify").exit_code == 0


def test_files_of_other_programs_are_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    assert "is not a file of a broker" in dump(tmp_path / "notes.txt").stderr
    assert "nothing in" in dump(tmp_path).stderr


@pytest.mark.parametrize("words", [("--verify",), ("--records",), ()])
def test_files_that_a_running_broker_deletes_meanwhile_are_left_out(
    data_dir: Path, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    later = data_dir / "orders-0" / "00000000000000000005.log"
    later.write_bytes(build_batch([Record(NEXT_OFFSET, BASE_MS, None, b"kept")], base_offset=5))
    find_files = data_files.find_files

    def delete_after_listing(path: str) -> list[str]:
        files = find_files(path)
        for suffix in ("index", "log", "timeindex"):
            (data_dir / "orders-0" / f"{SEGMENT}.{suffix}").unlink(missing_ok=True)
        return files

    monkeypatch.setattr(data_files, "find_files", delete_after_listing)
    result = dump(data_dir, *words)
    assert result.exit_code == 0, result.stderr
    assert result.stderr.count(f"{SEGMENT}.log: it was deleted meanwhile") == 1
    assert "kept" in result.stdout if words == ("--records",) else later.name in result.stdout


def test_a_file_with_a_wrong_name_or_number_is_reported_in_one_line(tmp_path: Path) -> None:
    index, checkpoint = tmp_path / "mine.index", tmp_path / "recovery-point-offset-checkpoint"
    index.write_bytes(bytes(8))
    checkpoint.write_text("0\n1\norders zero 5\n")
    for path in (index, checkpoint):
        result = dump(path)
        assert result.exit_code == 1
        assert result.stderr.startswith(f"moldau: {path}: ")
        assert "stack trace" not in result.stderr


def test_a_partition_that_a_running_broker_deletes_during_the_listing_is_left_out(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = data_dir / "payments-0"
    gone.mkdir()
    listdir = os.listdir

    def delete_before_listing(path: str) -> list[str]:
        if path == str(gone):
            gone.rmdir()
        return listdir(path)

    monkeypatch.setattr(data_files.os, "listdir", delete_before_listing)
    result = dump(data_dir)
    assert result.exit_code == 0, result.stderr
    assert not gone.exists()
