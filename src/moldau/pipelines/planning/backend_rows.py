"""What a backend's sink sends: the columns of its rows, and how a task of Spark gives them to the backend.

Tasks send, so rows never pass through the driver. What a task yields are the dead letters, as rows for a topic: the
existing writer of topics writes them.

    id        null, or the value of the sink's `key`          topic, partition, offset, timestamp   of the record, if
    row       the whole row as JSON, for dead letters                                               the view has them
    value:…   the parts, or the columns for the user's class  header:…
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark import TaskContext
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from moldau.backends.delivery import Delivery
from moldau.backends.interface import Backend, Row
from moldau.backends.policy import Outage, Traffic
from moldau.backends.progress_files import Delivered, Tally, batch_name, digest_of, note_tally, note_waiting, tally_of
from moldau.backends.sending import BackendGivenUp, Dead, Sending, one_line
from moldau.client.secret_properties import masked
from moldau.pipelines.planning.record_values import HEADERS_TYPE, row_value

if TYPE_CHECKING:
    import pyarrow as pa

VALUE: Final = "value:"
HEADER: Final = "header:"
ORIGIN: Final = ("topic", "partition", "offset", "timestamp")
DEAD_LETTER_SCHEMA: Final = f"key binary, value binary, headers {HEADERS_TYPE}"
DEAD_LETTERS_AT_ONCE: Final = 500
TALLY_EVERY_S: Final = 1.0
_FREE_AT_S: Final[dict[tuple[Path, int], float]] = {}
"""By directory of the query and sink, and task, of this process: when the rate of a sink allows its next row."""


@dataclass(slots=True)
class SentRow(Row):
    digest: bytes = b""
    """The same if the batch is repeated with its rows in the same order, and another one for every other row."""
    origin: Sequence[str | None] = ()
    """The whole row as JSON, and topic, partition, offset and timestamp of its record."""


class BackendRefusedRow(Exception):
    """A row was refused, and the sink says `dead_letter: fail`."""


def columns_of(
    frame: DataFrame, key: Column | None, parts: Mapping[str, Column], headers: Mapping[str, Column]
) -> list[Column]:
    """Return the columns that `deliver` takes, of the rows of a view."""
    present = {column.lower(): column for column in frame.columns}
    origin = {name: F.col(present[f"_{name}"]) for name in ORIGIN if f"_{name}" in present}
    if "timestamp" in origin:
        origin["timestamp"] = F.date_format(origin["timestamp"], "yyyy-MM-dd'T'HH:mm:ss.SSSXXX")
    return [
        (F.lit(None) if key is None else key).cast("string").alias("id"),
        row_value(frame, "json", {}, None).alias("row"),
        *(origin.get(name, F.lit(None)).cast("string").alias(name) for name in ORIGIN),
        *(column.alias(VALUE + name) for name, column in parts.items()),
        *(column.cast("string").alias(HEADER + name) for name, column in headers.items()),
    ]


@dataclass(frozen=True, slots=True)
class Batch:
    """The micro-batch that is sent, and where its progress is noted."""

    query_id: str
    batch_id: int
    state: Path

    @property
    def name(self) -> str:
        return batch_name(self.query_id, self.batch_id)


@dataclass(frozen=True, slots=True)
class Delivering:
    """Sends the rows of one task; pickled into Spark's tasks."""

    sink: str
    pipeline: str
    make: Callable[[], Backend] = field(repr=False)
    delivery: Delivery
    drops: bool
    """Rows that are not delivered are only left out."""
    fails: bool
    """A row that is not delivered fails the query."""
    secrets: frozenset[str] = field(repr=False)
    """What no reason may show, even if the backend repeats it."""

    def deliver(self, batch: Batch, record_batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Send all rows; yield dead letters."""
        context = TaskContext.get()
        task = 0 if context is None else context.partitionId()
        delivered = Delivered(batch.state, batch.name, task)
        source = _Rows(batch, task, delivered.before())
        waiting, tally = _Waiting(batch.state, task, self.secrets), _Tally(batch.state, task, self.secrets)

        def note_delivered(rows: Sequence[Row]) -> None:
            delivered.add(row.digest for row in rows if isinstance(row, SentRow))
            tally.add(Tally(delivered=len(rows)))

        def note_outage(outage: Outage | None) -> None:
            waiting.note(outage)
            tally.note()

        traffic = Traffic(self.delivery.limits(), random.random, free_at_s=_FREE_AT_S.get((batch.state, task), 0.0))
        sending = Sending(
            self.make,
            self.delivery,
            traffic,
            on_delivered=note_delivered,
            on_outage=note_outage,
            on_retries=lambda rows, error: tally.add(Tally(retries=rows), one_line(error)),
        )
        letters: list[dict[str, Any]] = []
        try:
            for dead in sending.send(source.rows(record_batches)):
                tally.add(Tally(dead_letters=1), dead.reason)
                letters += self._letters(dead)
                if len(letters) >= DEAD_LETTERS_AT_ONCE:
                    yield _record_batch(letters)
                    letters = []
            yield _record_batch(letters)
        except BackendGivenUp as error:
            raise BackendGivenUp(masked(str(error), self.secrets)) from None
        finally:
            _FREE_AT_S[batch.state, task] = traffic.free_at_s
            delivered.close()
            waiting.note(None)
            tally.note()

    def _letters(self, dead: Dead) -> list[dict[str, Any]]:
        assert isinstance(dead.row, SentRow), "only such rows are sent"
        reason = masked(dead.reason, self.secrets)
        if self.fails:
            raise BackendRefusedRow(f"sink {self.sink} of pipeline {self.pipeline}, row {dead.row.key}: {reason}")
        if self.drops:
            return []
        headers = {
            "moldau.error": reason,
            **{f"moldau.{name}": value for name, value in zip(ORIGIN, dead.row.origin[1:], strict=True)},
            "moldau.sink": self.sink,
            "moldau.pipeline": self.pipeline,
        }
        pairs = [{"key": name, "value": value.encode()} for name, value in headers.items() if value is not None]
        return [{"key": dead.row.key.encode(), "value": (dead.row.origin[0] or "").encode(), "headers": pairs}]


class _Rows:
    """The rows of a task, without those that an earlier attempt has delivered."""

    def __init__(self, batch: Batch, task: int, before: frozenset[bytes]) -> None:
        self._batch, self._task, self._before = batch, str(task), before

    def rows(self, record_batches: Iterable[pa.RecordBatch]) -> Iterator[SentRow]:
        number = 0
        for record_batch in record_batches:
            names = record_batch.schema.names
            columns = dict(zip(names, (column.to_pylist() for column in record_batch.columns), strict=True))
            values = {name.removeprefix(VALUE): columns[name] for name in names if name.startswith(VALUE)}
            headers = {name.removeprefix(HEADER): columns[name] for name in names if name.startswith(HEADER)}
            for index in range(record_batch.num_rows):
                digest = self._digest(number, columns, index)
                number += 1
                if digest in self._before:
                    continue
                yield SentRow(
                    columns["id"][index] or digest.hex(),
                    {name: column[index] for name, column in values.items()},
                    {name: column[index] for name, column in headers.items() if column[index] is not None} or None,
                    digest=digest,
                    origin=[columns["row"][index], *(columns[name][index] for name in ORIGIN)],
                )

    def _digest(self, number: int, columns: Mapping[str, list[Any]], index: int) -> bytes:
        batch = (self._batch.query_id, str(self._batch.batch_id), self._task, str(number))
        content = (str(column[index]) for name, column in columns.items() if name not in ORIGIN)
        return digest_of(*batch, *content)


class _Waiting:
    """Notes in a file that the task waits."""

    def __init__(self, state: Path, task: int, secrets: frozenset[str]) -> None:
        self._state, self._task, self._secrets, self._is_noted = state, task, secrets, False

    def note(self, outage: Outage | None) -> None:
        if outage is not None:
            since = datetime.fromtimestamp(time.time() - (time.monotonic() - outage.since_s), UTC)
            note_waiting(self._state, self._task, (since, masked(outage.reason, self._secrets)))
            self._is_noted = True
        elif self._is_noted:
            note_waiting(self._state, self._task, None)
            self._is_noted = False


class _Tally:
    """Notes in a file what becomes of rows, about once a second."""

    def __init__(self, state: Path, task: int, secrets: frozenset[str]) -> None:
        self._state, self._task, self._secrets = state, task, secrets
        self._sum, self._noted_s, self._lock = tally_of(state, task), time.monotonic(), threading.Lock()

    def add(self, more: Tally, error: str | None = None) -> None:
        if error is not None:
            at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
            more = replace(more, last_error=masked(error, self._secrets), last_error_at=at)
        with self._lock:
            self._sum = self._sum.plus(more)
            is_due = time.monotonic() - self._noted_s >= TALLY_EVERY_S
        if is_due:
            self.note()

    def note(self) -> None:
        with self._lock:
            self._noted_s = time.monotonic()
            note_tally(self._state, self._task, self._sum)


def _record_batch(letters: list[dict[str, Any]]) -> pa.RecordBatch:
    import pyarrow as pa

    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    schema = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("headers", headers)])
    return pa.RecordBatch.from_pylist(letters, schema=schema)
