"""`moldau log dump`: show the files of a data directory, without a broker, or while one is running on it.

Each kind of file becomes a table; `--verify` makes one table of all files, and sets the exit status. data_files.py
reads the files.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeVar

import click

from moldau.base.errors import MalformedData
from moldau.base.ids import TopicPartition
from moldau.cli.connect import CommandFailed
from moldau.cli.log import data_files
from moldau.cli.log.data_files import BatchFile, FileBatch
from moldau.cli.output import Table, format_option, progress_bar, show
from moldau.cli.records import format_language
from moldau.log import layout
from moldau.log.checkpoints import decode_entries
from moldau.log.producer_snapshot import decode_snapshot
from moldau.wire.batch import BatchHeader, has_valid_crc
from moldau.wire.records import Header, Record, decode_records

BATCH_COLUMNS: Final = (
    "BASE", "LAST", "COUNT", "POSITION", "SIZE", "CODEC", "EPOCH", "PRODUCER", "SEQUENCE", "KIND", "MAX TIMESTAMP",
    "CRC",
)  # fmt: skip
RECORD_FORMAT: Final = "%o\\t%d{iso}\\t%k\\t%v\\t%h\\n"
T = TypeVar("T")
Progress = Callable[[int], None]


@click.group()
def log() -> None:
    """Read the files of a data directory, without a broker."""


@log.command(short_help="Show what is in files of a data directory.")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(exists=True))
@click.option("--records", is_flag=True, help="Print the records inside the batches, not the batches.")
@click.option("-f", "--record-format", metavar="FORMAT", help="How to print a record, as in `moldau consume -f`.")
@click.option("--verify", is_flag=True, help="Only check: CRCs, ends of files, indexes. Status 1 if anything is wrong.")
@format_option
def dump(paths: tuple[str, ...], records: bool, record_format: str | None, verify: bool, output_format: str) -> None:
    """Show what is in files of a data directory: segments, indexes, snapshots, checkpoints.

    A PATH is a file, the directory of a partition, or a whole data directory. A broker may be running on it. With
    --records --format json each record is an envelope on a line, which `moldau produce --json` takes.

    \b
    moldau log dump data/orders-0
    moldau log dump data/orders-0/00000000000000000000.log --records
    moldau log dump data --verify
    """
    files = _files_of(paths)
    batch_bytes = sum(_size(file) for file in files if data_files.holds_batches(file))
    with progress_bar("reading", batch_bytes) as progress:
        if verify:
            rows = list(_of_each(files, lambda file: _verified(file, progress)))
        elif records or record_format is not None:
            _print_records(files, output_format, record_format, progress)
            return
        else:
            tables = list(_of_each(files, lambda file: _table(file, progress)))
    if verify:
        _show_verified(rows, output_format)
    else:
        show(output_format, *tables, data=[{"file": table.title, "entries": table.records()} for table in tables])


def _files_of(paths: tuple[str, ...]) -> list[str]:
    files = [file for path in paths for file in data_files.find_files(path)]
    other_files = [file for file in files if not data_files.is_known(file)]
    if other_files:
        raise CommandFailed(f"{other_files[0]} is not a file of a broker; name a segment, an index or a directory")
    if not files:
        raise CommandFailed(f"nothing in {', '.join(paths)} is a file that a broker writes; name its data directory")
    return files


def _size(file: str) -> int:
    """Return the size in bytes, 0 for a file that a running broker deleted meanwhile."""
    try:
        return os.path.getsize(file)
    except FileNotFoundError:
        return 0


def _of_each(files: Iterable[str], read: Callable[[str], T]) -> Iterator[T]:
    """Yield what is read of each file. A running broker may delete some meanwhile: they are left out, with a note."""
    for file in files:
        try:
            yield read(file)
        except FileNotFoundError:
            click.echo(f"moldau: {file}: it was deleted meanwhile", err=True)


def _table(path: str, progress: Progress) -> Table:
    try:
        return _table_of(path, progress)
    except (MalformedData, ValueError) as error:
        raise CommandFailed(f"{path}: {error}; `moldau log dump --verify` looks at all files") from error


def _table_of(path: str, progress: Progress) -> Table:
    name = os.path.basename(path)
    if data_files.holds_batches(path):
        return _batch_table(path, progress)
    if name.endswith(layout.OFFSET_INDEX):
        index = data_files.read_offset_index(path)
        return _listed(path, ("OFFSET", "POSITION"), (index.entry(number) for number in range(len(index))))
    if name.endswith(layout.TIME_INDEX):
        times = data_files.read_time_index(path)
        rows = ((_time(times.entry(number).timestamp), times.entry(number).offset) for number in range(len(times)))
        return _listed(path, ("TIMESTAMP", "OFFSET"), rows)
    if name.endswith(layout.TXN_INDEX):
        columns = ("PRODUCER", "FIRST", "LAST", "LAST STABLE")
        return _listed(path, columns, (entry[1:] for entry in data_files.read_txn_index(path)))
    if name.endswith(layout.SNAPSHOT):
        return _producer_table(path)
    return _text_table(path, name)


def _listed(path: str, columns: tuple[str, ...], rows: Iterable[Iterable[Any]]) -> Table:
    return Table(columns, [tuple(row) for row in rows], path, empty="empty")


def _batch_table(path: str, progress: Progress) -> Table:
    file = BatchFile(path)
    table = _listed(path, BATCH_COLUMNS, (_batch_row(batch) for batch in _with_progress(file, progress)))
    rest = file.trailing()
    if rest is not None:
        click.echo(f"moldau: {path}: {rest}", err=True)
    return table


def _batch_row(batch: FileBatch) -> tuple[Any, ...]:
    position, header, window = batch
    kind = [word for word, is_set in (("txn", header.is_transactional), ("control", header.is_control)) if is_set]
    producer = f"{header.producer_id}/{header.producer_epoch}" if header.producer_id >= 0 else None
    sequence = f"{header.base_sequence}-{header.last_sequence}" if header.base_sequence >= 0 else None
    return (
        header.base_offset, header.last_offset, header.record_count, position, header.size_in_bytes,
        header.compression.name.lower(), header.leader_epoch, producer, sequence, " ".join(kind) or "data",
        _time(header.max_timestamp), "ok" if has_valid_crc(window) else "BAD",
    )  # fmt: skip


def _with_progress(file: BatchFile, progress: Progress) -> Iterator[FileBatch]:
    for batch in file.batches():
        yield batch
        progress(batch.header.size_in_bytes)


def _time(timestamp: int) -> str | None:
    return None if timestamp < 0 else format_language.iso_time(timestamp)


def _producer_table(path: str) -> Table:
    with open(path, "rb") as file:
        producers = decode_snapshot(file.read())
    columns = ("PRODUCER", "EPOCH", "LAST SEQUENCE", "LAST OFFSET", "COORDINATOR EPOCH", "OPEN TXN FROM", "TIMESTAMP")
    rows = []
    for producer in producers:
        last = producer.batches[-1] if producer.batches else None
        sequence, offset = (last.last_sequence, last.last_offset) if last else (None, None)
        open_from = producer.transaction_start if producer.transaction_start >= 0 else None
        stamp = _time(producer.last_timestamp)
        producer_key = (producer.producer_id, producer.epoch)
        rows.append((*producer_key, sequence, offset, producer.coordinator_epoch, open_from, stamp))
    return _listed(path, columns, rows)


def _text_table(path: str, name: str) -> Table:
    with open(path, "rb") as file:
        content = file.read()
    if name in data_files.PROPERTIES:
        lines = [line for line in content.decode().splitlines() if line and not line.startswith("#")]
        separator = ":" if name == layout.PARTITION_METADATA else "="
        pairs = (line.partition(separator) for line in lines)
        return _listed(path, ("KEY", "VALUE"), ((key.strip(), value.strip()) for key, _, value in pairs))
    if name == layout.LEADER_EPOCH_CHECKPOINT:
        epochs = decode_entries(content, fields=2)
        return _listed(path, ("EPOCH", "START OFFSET"), (map(int, entry) for entry in epochs))
    entries = decode_entries(content, fields=3)
    rows = ((topic, int(partition), int(offset)) for topic, partition, offset in entries)
    return _listed(path, ("TOPIC", "PARTITION", "OFFSET"), rows)


# --- records ----------------------------------------------------------------------------------------------------


class StoredRecord:
    """A record of a file, with the methods that the format language calls."""

    __slots__ = ("_batch", "_partition", "_record")

    def __init__(self, partition: TopicPartition, batch: BatchHeader, record: Record) -> None:
        self._partition = partition
        self._batch = batch
        self._record = record

    def topic(self) -> str:
        return self._partition.topic

    def partition(self) -> int:
        return self._partition.partition

    def offset(self) -> int:
        return self._record.offset

    def leader_epoch(self) -> int:
        return self._batch.leader_epoch

    def timestamp(self) -> tuple[int, int]:
        return (2 if self._batch.is_log_append_time else 1), self._record.timestamp

    def key(self) -> bytes | None:
        return self._record.key

    def value(self) -> bytes | None:
        return self._record.value

    def headers(self) -> tuple[Header, ...]:
        return self._record.headers


def _print_records(files: list[str], output_format: str, record_format: str | None, progress: Progress) -> None:
    """Print the records one by one, never all in memory. Control records are internal and left out."""
    render: format_language.Formatter = format_language.json_envelope
    if output_format == "table" or record_format is not None:
        try:
            render = format_language.compile_format(RECORD_FORMAT if record_format is None else record_format)
        except format_language.BadFormat as error:
            raise click.BadParameter(str(error), click.get_current_context(), param_hint="-f") from error
    elif output_format == "yaml":
        raise click.UsageError("records are printed by -f or as --format json", click.get_current_context())
    out = sys.stdout.buffer
    for number, record in enumerate(_records(filter(data_files.holds_batches, files), progress), 1):
        out.write(render(record, number))
    out.flush()


def _records(files: Iterable[str], progress: Progress) -> Iterator[StoredRecord]:
    for file in _of_each(files, BatchFile):
        path = file.path
        directory = os.path.basename(os.path.dirname(os.path.abspath(path)))
        partition = layout.partition_of(directory) or TopicPartition(directory, 0)
        for batch in _with_progress(file, progress):
            if batch.header.is_control:
                continue
            try:
                opened = decode_records(batch.window, batch.header)
            except MalformedData as error:
                raise CommandFailed(f"{path}: the batch at {batch.position} does not open: {error}") from error
            for record in opened:
                yield StoredRecord(partition, batch.header, record)


# --- verify -----------------------------------------------------------------------------------------------------


def _show_verified(rows: list[tuple[str, int | None, int | None, str | None]], output_format: str) -> None:
    show(output_format, Table(("FILE", "BATCHES", "RECORDS", "PROBLEM"), rows))
    damaged = sum(problem is not None for *_, problem in rows)
    if damaged:
        raise CommandFailed(f"{damaged} of {len(rows)} files are damaged; the table says how")


def _verified(path: str, progress: Progress) -> tuple[str, int | None, int | None, str | None]:
    if data_files.holds_batches(path):
        return (path, *_verify_batches(BatchFile(path), progress))
    try:
        if path.endswith(layout.OFFSET_INDEX):
            return path, None, None, _index_problem(path)
        _table_of(path, progress)
    except (MalformedData, ValueError) as error:
        return path, None, None, str(error)
    return path, None, None, None


def _verify_batches(file: BatchFile, progress: Progress) -> tuple[int, int, str | None]:
    """Return the numbers of batches and of records, and the first problem, or None if the file has no problem."""
    batches = records = 0
    problem: str | None = None
    last_offset = -1
    for batch in _with_progress(file, progress):
        batches += 1
        records += batch.header.record_count
        if problem is None and not has_valid_crc(batch.window):
            offsets = f"offsets {batch.header.base_offset}-{batch.header.last_offset}"
            problem = f"bad CRC of the batch at {batch.position}, {offsets}"
        if problem is None and batch.header.base_offset <= last_offset:
            problem = f"offset {batch.header.base_offset} at {batch.position} comes after {last_offset}"
        last_offset = batch.header.last_offset
    return batches, records, problem or file.trailing()


def _index_problem(path: str) -> str | None:
    """Describe the first entry that does not point at a batch ending with the entry's offset. Return None if all do."""
    log_path = data_files.sibling(path, layout.LOG)
    index = data_files.read_offset_index(path)
    if not os.path.exists(log_path):
        os.stat(path)  # raises FileNotFoundError if a broker has deleted both
        return f"its segment {os.path.basename(log_path)} is missing"
    segment = BatchFile(log_path)
    for number in range(len(index)):
        offset, position = index.entry(number)
        if (offset, position) == (index.base_offset, 0):
            continue  # A preallocated index file without entries contains zeros, which look like this entry.
        batch = segment.batch_at(position)
        if batch is None or batch.header.last_offset != offset:
            return f"entry {number} sends offset {offset} to {position}, where no batch ends with it"
    return None
