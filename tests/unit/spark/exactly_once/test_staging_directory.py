"""The directory in which the tasks of one exactly-once sink stage records, and which the driver removes."""

from __future__ import annotations

from pathlib import Path

import pytest

from moldau.spark.exactly_once.staging import Staged
from moldau.spark.options import write_options
from moldau.spark.sink import StagedRows, drop_staged


@pytest.mark.parametrize("query_id", ["counts", "x/../..", "../..", "/etc", "a b%"])
def test_only_files_of_the_sink_are_removed_whatever_its_query_id_is(tmp_path: Path, query_id: str) -> None:
    staging = tmp_path / "staging"
    other_file = staging / "other" / "one.staged"
    other_file.parent.mkdir(parents=True)
    other_file.touch()
    options = write_options(
        {
            "kafka.bootstrap.servers": "localhost:9092",
            "stagingLocation": str(staging),
            "queryId": query_id,
            "batchId": "1",
        },
    )
    assert options.exactly_once is not None
    sink_id = f"{options.exactly_once.transactional_id_prefix}-{query_id}"
    (staging / "moldau-spark-x").mkdir()
    drop_staged(options, [StagedRows(sink_id, Staged(0, (), b""))])
    assert other_file.exists()
