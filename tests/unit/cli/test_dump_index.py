"""kafka-dump-log of indexes: a missing file is reported with its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from moldau.cli.kafka import dump_log

SEGMENT = "00000000000000000000"


@pytest.mark.parametrize(
    ("files", "dumped", "missing"),
    [
        ([], ".index", ".index"),
        ([".index"], ".index", ".log"),
        ([".timeindex"], ".timeindex", ".index"),
        ([".timeindex", ".index"], ".timeindex", ".log"),
    ],
)
def test_the_missing_file_is_reported(
    files: list[str], dumped: str, missing: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for suffix in files:
        (tmp_path / f"{SEGMENT}{suffix}").write_bytes(bytes(24))
    assert dump_log.main(["--files", str(tmp_path / f"{SEGMENT}{dumped}")]) == 1
    assert f"{tmp_path}/{SEGMENT}{missing}: No such file or directory; --files names files" in capsys.readouterr().err
