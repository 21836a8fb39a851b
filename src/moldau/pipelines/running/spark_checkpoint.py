"""Reads the checkpoint of a Spark query, and plans the batch that Spark forgets in a restart.

    offsets/<batch>     a line "v1", a line of JSON with the batch's watermark, then a line per source: where the batch
                        ends. Written before the batch runs.
    commits/<batch>     a line "v1", a line of JSON with the watermark of the next batch. Written when it is done.
    state/<n>/_metadata/metadata    a line "v1", a line of JSON that names the stateful operator

A batch moves the watermark, and the next batch writes the windows that are over by then. If there is no new data, Spark
runs that next batch without data. But it does so only within one run: if the query is stopped between these two
batches, the windows are written when the next record comes, which may be never. `plan_owed_batch` writes the plan of
the missing batch as Spark would have, and Spark runs it like any batch that was planned and not finished. Files in
another format are left alone. This module does not use Spark.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from moldau.base.ids import TopicPartition
from moldau.platforms.replaced_files import replace_file
from moldau.spark.offsets import offsets_or_empty

FORMAT: Final = "v1"
WATERMARK: Final = "batchWatermarkMs"
NEXT_WATERMARK: Final = "nextBatchWatermarkMs"
END_OF_TIME_MS: Final = 253_402_300_799_000
"""The last second of the year 9999, the end of Spark's timestamps."""
WRITE_NOTHING: Final = ("dedupe", "dedupeWithinWatermark")
"""Operators that write nothing when the watermark moves: they only drop state."""


@dataclass(frozen=True, slots=True)
class SparkCheckpoint:
    path: Path

    def plan_owed_batch(self) -> bool:
        """Plan a batch without data that must follow the last one, unless Spark has; return whether it was planned."""
        done = self._last_done()
        if done is None or not self._writes_with_watermark():
            return False
        plan, after = self._plan(done), self._next_watermark(done)
        if plan is None or after is None or after <= plan.watermark_ms:
            return False
        self._write(done + 1, plan.at_watermark(after))
        return True

    def plan_last_batch(self) -> bool:
        """Plan a batch without data at END_OF_TIME_MS, which closes every window; return False if none is needed.

        For test cases: after their last record no other comes that would close the windows.
        """
        done = self._last_done()
        plan = None if done is None else self._plan(done)
        if done is None or plan is None or not self._writes_with_watermark():
            return False
        self._write(done + 1, plan.at_watermark(END_OF_TIME_MS))
        return True

    def position(self) -> dict[TopicPartition, int]:
        """Return the offsets up to which records are processed and committed; empty if there is no commit."""
        done = self._last_committed()
        plan = None if done is None else self._plan(done)
        position: dict[TopicPartition, int] = {}
        for line in plan.sources if plan else ():
            for partition, offset in offsets_or_empty(line).items():
                # two sources may read the same partition: below the lower offset both are done
                position[partition] = min(offset, position.get(partition, offset))
        return position

    # --- reading ----------------------------------------------------------------------------------------------------

    def _last_done(self) -> int | None:
        """Return the last batch if it is committed; None otherwise, as Spark will then run it anyway."""
        planned, committed = _last(self.path / "offsets"), self._last_committed()
        return committed if planned == committed else None

    def _last_committed(self) -> int | None:
        return _last(self.path / "commits")

    def _plan(self, batch: int) -> _Plan | None:
        lines = _lines(self.path / "offsets" / str(batch))
        if lines is None or len(lines) < 2 or (metadata := _object(lines[0])) is None:
            return None
        return _Plan(metadata, tuple(lines[1:])) if isinstance(metadata.get(WATERMARK), int) else None

    def _next_watermark(self, batch: int) -> int | None:
        lines = _lines(self.path / "commits" / str(batch))
        commit = _object(lines[0]) if lines else None
        return None if commit is None else commit.get(NEXT_WATERMARK)

    def _writes_with_watermark(self) -> bool:
        return any(name not in WRITE_NOTHING for name in self._operators())

    def _operators(self) -> Iterator[str]:
        for file in self.path.glob("state/*/_metadata/metadata"):
            metadata = _object((_lines(file) or [""])[0])
            yield "" if metadata is None else str((metadata.get("operatorInfo") or {}).get("operatorName", ""))

    # --- writing ----------------------------------------------------------------------------------------------------

    def _write(self, batch: int, plan: _Plan) -> None:
        """Write the file as Spark does, and sync it. Remove the checksum of an older file of that name."""
        target = self.path / "offsets" / str(batch)
        with suppress(FileNotFoundError):
            target.with_name(f".{batch}.crc").unlink()
        replace_file(target, "\n".join([FORMAT, json.dumps(plan.metadata), *plan.sources]))


@dataclass(frozen=True, slots=True)
class _Plan:
    metadata: Mapping[str, Any]
    sources: tuple[str, ...]
    """The offsets of each source, as text."""

    @property
    def watermark_ms(self) -> int:
        return int(self.metadata[WATERMARK])

    def at_watermark(self, watermark_ms: int) -> _Plan:
        return _Plan({**self.metadata, WATERMARK: watermark_ms}, self.sources)


def _last(folder: Path) -> int | None:
    if not folder.is_dir():
        return None
    return max((int(file.name) for file in folder.iterdir() if file.name.isdigit()), default=None)


def _lines(file: Path) -> list[str] | None:
    """Return the lines after the format; None for another format, or if there is no file."""
    try:
        first, *rest = file.read_text(encoding="utf-8").split("\n")
    except (FileNotFoundError, UnicodeDecodeError):
        return None
    return rest if first == FORMAT and rest else None


def _object(line: str) -> dict[str, Any] | None:
    try:
        content = json.loads(line)
    except ValueError:
        return None
    return content if isinstance(content, dict) else None
