"""A Spark checkpoint: its position, and when Moldau plans a batch that Spark owes and would not run by itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from moldau.base.ids import TopicPartition
from moldau.pipelines.running.spark_checkpoint import END_OF_TIME_MS, SparkCheckpoint
from moldau.platforms import replaced_files

OFFSETS = '{"t": {"0": 100, "1": 7}}'


def checkpoint(
    folder: Path, planned: dict[int, int], committed: dict[int, int], operator: str | None = "stateStoreSave"
) -> SparkCheckpoint:
    """Write a checkpoint: `planned` watermarks by batch, and `committed` watermarks of the next batch by batch."""
    for kind in ("offsets", "commits"):
        (folder / kind).mkdir(parents=True, exist_ok=True)
    for batch, watermark in planned.items():
        plan = json.dumps({"batchWatermarkMs": watermark, "batchTimestampMs": 5, "conf": {"a": "b"}})
        (folder / "offsets" / str(batch)).write_text(f"v1\n{plan}\n{OFFSETS}\n-")
        (folder / "offsets" / f".{batch}.crc").write_bytes(b"crc")
    for batch, watermark in committed.items():
        (folder / "commits" / str(batch)).write_text(f'v1\n{{"nextBatchWatermarkMs":{watermark}}}')
    if operator:
        metadata = folder / "state" / "0" / "_metadata" / "metadata"
        metadata.parent.mkdir(parents=True)
        metadata.write_text(f'v1\n{{"operatorInfo":{{"operatorId":0,"operatorName":"{operator}"}}}}')
    return SparkCheckpoint(folder)


def test_an_owed_batch_is_planned_as_spark_would(tmp_path: Path) -> None:
    spark_checkpoint = checkpoint(tmp_path, {0: 0, 1: 10}, {0: 10, 1: 20})
    (tmp_path / "offsets" / ".2.crc").write_bytes(b"of an older file")
    assert spark_checkpoint.plan_owed_batch()
    version, plan, *sources = (tmp_path / "offsets" / "2").read_text().split("\n")
    assert version == "v1"
    assert json.loads(plan) == {"batchWatermarkMs": 20, "batchTimestampMs": 5, "conf": {"a": "b"}}
    assert sources == [OFFSETS, "-"]
    assert sorted(file.name for file in (tmp_path / "offsets").iterdir()) == [".0.crc", ".1.crc", "0", "1", "2"]
    assert not spark_checkpoint.plan_owed_batch(), "it is planned now, and Spark will run it"


@pytest.mark.parametrize(
    ("planned", "committed", "operator"),
    [
        pytest.param({0: 10}, {0: 10}, "stateStoreSave", id="the watermark did not move"),
        pytest.param({0: 0, 1: 10}, {0: 10}, "stateStoreSave", id="a batch is running"),
        pytest.param({0: 0}, {}, "stateStoreSave", id="no batch is committed"),
        pytest.param({}, {}, None, id="no batch is planned"),
        pytest.param({0: 0}, {0: 10}, None, id="no state"),
        pytest.param({0: 0}, {0: 10}, "dedupeWithinWatermark", id="state that gives no rows when it is dropped"),
    ],
)
def test_no_batch_is_owed(
    planned: dict[int, int], committed: dict[int, int], operator: str | None, tmp_path: Path
) -> None:
    assert not checkpoint(tmp_path, planned, committed, operator).plan_owed_batch()
    assert {int(file.name) for file in (tmp_path / "offsets").iterdir() if file.name.isdigit()} == set(planned)


@pytest.mark.parametrize("text", ["v2\n{}\n{}", "", "v1", "v1\nno JSON\n{}", "v1\n[]\n{}", 'v1\n{"conf":{}}\n{}'])
def test_files_in_another_format_are_ignored(text: str, tmp_path: Path) -> None:
    spark_checkpoint = checkpoint(tmp_path, {0: 0}, {0: 10})
    (tmp_path / "offsets" / "0").write_text(text)
    assert not spark_checkpoint.plan_owed_batch()
    assert not spark_checkpoint.plan_last_batch()
    assert spark_checkpoint.position() == {}


def test_a_planned_batch_survives_a_power_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark does not start with an empty plan: the bytes are synced before the file gets its name."""
    names_at_sync: list[list[str]] = []
    monkeypatch.setattr(
        replaced_files,
        "sync_file",
        lambda fd: names_at_sync.append([each.name for each in (tmp_path / "offsets").iterdir()]),
    )
    assert checkpoint(tmp_path, {0: 0}, {0: 10}).plan_owed_batch()
    (names,) = names_at_sync
    assert "1" not in names
    assert sorted(each.name for each in (tmp_path / "offsets").iterdir()) == [".0.crc", "0", "1"]


def test_the_last_batch_closes_all_windows(tmp_path: Path) -> None:
    assert checkpoint(tmp_path, {3: 10}, {3: 10}).plan_last_batch()
    plan = json.loads((tmp_path / "offsets" / "4").read_text().split("\n")[1])
    assert plan["batchWatermarkMs"] == END_OF_TIME_MS


def test_the_position_is_that_of_the_last_committed_batch(tmp_path: Path) -> None:
    spark_checkpoint = checkpoint(tmp_path, {0: 0, 1: 0}, {0: 0})
    (tmp_path / "offsets" / "1").write_text('v1\n{"batchWatermarkMs":0}\n{"t": {"0": 999}}')
    assert spark_checkpoint.position() == {TopicPartition("t", 0): 100, TopicPartition("t", 1): 7}
    assert SparkCheckpoint(tmp_path / "nowhere").position() == {}
