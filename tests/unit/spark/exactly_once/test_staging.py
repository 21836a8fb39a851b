"""Batches staged by tasks and read by the driver, in memory or in a file. Damaged and missing files are refused."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pytest

from moldau.base.ids import ProducerIdAndEpoch, TopicPartition
from moldau.spark.exactly_once.committing import stamp_record_batches
from moldau.spark.exactly_once.staging import Stage, Staged, StagingFault, read_record_batches, sweep
from moldau.spark.records.encode import EncodeColumns, ProducerStamp, encode
from moldau.spark.sending import RecordBatch
from moldau.wire.batch import has_valid_crc, read_header

ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)


def batch(where: TopicPartition, rows: int, size: int = 10) -> RecordBatch:
    values = pa.array([b"x" * size] * rows, pa.binary())
    return RecordBatch(
        where, encode(EncodeColumns(None, values, 7, None), ProducerStamp(0, 0, 0, is_transactional=True))
    )


def staged(directory: Path, inline_bytes_max: int) -> Staged:
    stage = Stage(str(directory), inline_bytes_max)
    stage.add([batch(ONE, 3), batch(TWO, 2)], 5)
    stage.add([batch(ONE, 4)], 4)
    return stage.done()


@pytest.mark.parametrize("inline_bytes_max", [0, 200, 10_000])
def test_staged_batches_are_read_back_in_order_from_memory_or_file(tmp_path: Path, inline_bytes_max: int) -> None:
    found: Staged = pickle.loads(pickle.dumps(staged(tmp_path / "sink", inline_bytes_max)))
    assert (found.file is None) == (inline_bytes_max == 10_000)
    assert found.rows == 9
    assert [(one.partition, read_header(one.data).record_count) for one in read_record_batches(found)] == [
        (ONE, 3),
        (TWO, 2),
        (ONE, 4),
    ]
    assert found.size == sum(len(one.data) for one in read_record_batches(found))


def test_batches_of_all_tasks_get_one_producer_id_and_consecutive_sequences(tmp_path: Path) -> None:
    tasks = [staged(tmp_path / "sink", 10_000), staged(tmp_path / "sink", 0)]
    found = [(one.partition, read_header(one.data)) for one in stamp_record_batches(ProducerIdAndEpoch(77, 5), tasks)]
    assert [(where.partition, header.base_sequence) for where, header in found] == [
        (0, 0), (1, 0), (0, 3), (0, 7), (1, 2), (0, 10),
    ]  # fmt: skip
    assert {(header.producer_id, header.producer_epoch, header.is_transactional) for _, header in found} == {
        (77, 5, True)
    }
    assert all(has_valid_crc(memoryview(one.data)) for one in stamp_record_batches(ProducerIdAndEpoch(77, 5), tasks))


def test_a_missing_staging_file_names_the_option_staging_location(tmp_path: Path) -> None:
    found = staged(tmp_path / "sink", 0)
    sweep(str(tmp_path / "sink"))
    with pytest.raises(StagingFault, match="must share stagingLocation"):
        list(read_record_batches(found))


def test_a_short_or_damaged_staging_file_is_refused(tmp_path: Path) -> None:
    found = staged(tmp_path / "sink", 0)
    assert found.file is not None
    whole = Path(found.file).read_bytes()
    Path(found.file).write_bytes(whole[:-1])
    with pytest.raises(StagingFault, match="shorter than"):
        list(read_record_batches(found))
    Path(found.file).write_bytes(whole[:-1] + b"!")
    with pytest.raises(StagingFault, match="damaged"):
        list(read_record_batches(found))


def test_a_task_that_fails_leaves_no_file(tmp_path: Path) -> None:
    stage = Stage(str(tmp_path), 0)
    stage.add([batch(ONE, 3)], 3)
    assert list(tmp_path.iterdir())
    stage.abandon()
    assert not list(tmp_path.iterdir())


def test_an_unwritable_staging_directory_is_named_in_the_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    stage = Stage(str(tmp_path / "file" / "sink"), 0)
    with pytest.raises(StagingFault, match=str(tmp_path / "file")):
        stage.add([batch(ONE, 3)], 3)
