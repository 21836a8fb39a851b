"""kafka-dump-log: the batches, records and index entries of log files, line for line as Kafka prints them.

data_files.py reads the files; this module has Kafka's flags and output. `moldau log dump` shows the same in tables.
"""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Callable, Sequence
from typing import Final

from moldau.base.errors import MalformedData
from moldau.base.limits import INT32_MAX
from moldau.cli.flags import Arguments, Flag, ToolFlags
from moldau.cli.kafka import tool
from moldau.cli.kafka.log_dump.control_records import control_text
from moldau.cli.kafka.log_dump.index_lines import Findings, dump_offset_index, dump_time_index
from moldau.cli.kafka.log_dump.metadata_lines import metadata_texts
from moldau.cli.kafka.log_dump.offsets_lines import offsets_texts
from moldau.cli.kafka.log_dump.transaction_log_lines import transaction_log_texts
from moldau.cli.log import data_files
from moldau.cli.log.data_files import BatchFile, FileBatch
from moldau.log import layout
from moldau.log.producer_snapshot import decode_snapshot
from moldau.wire.batch import DELETE_HORIZON_BIT, BatchHeader, has_valid_crc
from moldau.wire.records import Record, control_type, decode_records, read_end_txn_marker

UNSUPPORTED_DECODERS: Final = ("remote-log-metadata", "share-group-state")
"""Decoders of logs that Moldau does not write yet."""

FLAGS: Final = ToolFlags(
    "This tool helps to parse a log file and dump its contents to the console,"
    " useful for debugging a seemingly corrupt log segment.",
    [
        Flag("files", "REQUIRED: The log and index files to dump, separated by commas.", "file1, file2, ..."),
        Flag("print-data-log", "Print the contents of records too. Any decoder option implies it."),
        Flag("deep-iteration", "Print the records of each batch. --print-data-log implies it."),
        Flag("skip-record-metadata", "Print only key and payload of records, and no control records."),
        Flag("max-bytes", "Read no more than this of each .log file.", "size", "Integer", str(INT32_MAX)),
        Flag("max-message-size", "Accepted for compatibility; has no effect.", "size", "Integer", str(5 << 20)),
        Flag("verify-index-only", "Check index files against their log without printing them."),
        Flag("index-sanity-check", "Make only the check that a broker makes at its start."),
        Flag("key-decoder-class", "How keys are read.", "String", argument_optional=True),
        Flag("value-decoder-class", "How values are read.", "String", argument_optional=True),
        Flag("offsets-decoder", "Read records as those of __consumer_offsets."),
        Flag("transaction-log-decoder", "Read records as those of __transaction_state."),
        Flag("cluster-metadata-decoder", "Read records as those of __cluster_metadata, in its log and its snapshots."),
        *(Flag(f"{name}-decoder", "Not supported yet: Moldau writes no such log.") for name in UNSUPPORTED_DECODERS),
    ],
)

Decoder = Callable[[bytes], str]
Parser = Callable[[Record], tuple[str | None, str | None]]
"""The texts to print of a record's key and of its value, if any."""
RECORD_PARSERS: Final[dict[str, Parser]] = {
    "offsets-decoder": offsets_texts,
    "transaction-log-decoder": transaction_log_texts,
    "cluster-metadata-decoder": metadata_texts,
}
"""The parser of each --…-decoder flag. If several are present, Kafka and this tool use the first in this order."""
FIELD_DECODERS: Final[dict[str, Decoder]] = {
    "StringDecoder": lambda raw: raw.decode(errors="replace"),
    "IntegerDecoder": lambda raw: str(struct.unpack(">i", raw)[0]),
    "LongDecoder": lambda raw: str(struct.unpack(">q", raw)[0]),
    "DefaultDecoder": lambda raw: raw.hex(),
}


def main(argv: Sequence[str] | None = None) -> int:
    return tool.run("kafka-dump-log", FLAGS, _run, argv)


def _run(arguments: Arguments) -> int:
    arguments.require("files")
    for name in UNSUPPORTED_DECODERS:
        if arguments.has(f"{name}-decoder"):
            raise tool.ToolFailed(
                f"--{name}-decoder is not supported yet: Moldau writes no such log;"
                " --print-data-log prints records undecoded"
            )
    records = RecordPrinter(arguments)
    findings = Findings()
    bytes_max = arguments.integer("max-bytes") or 0
    for path in (arguments.single_value("files") or "").split(","):
        print(f"Dumping {path}")
        try:
            _dump(path, arguments, records, findings, bytes_max)
        except OSError as error:
            # An index is compared with other files of its segment: one of them may be missing.
            missing = error.filename or path
            raise tool.ToolFailed(f"{missing}: {error.strerror}; --files names files of a data directory") from error
        except (MalformedData, ValueError, struct.error) as error:
            raise tool.ToolFailed(f"{path}: {error}") from error
    for line in findings.lines():
        tool.print_to_stderr(line)
    return 0


def _dump(path: str, arguments: Arguments, records: RecordPrinter, findings: Findings, bytes_max: int) -> None:
    sanity_only, prints_entries = arguments.has("index-sanity-check"), not arguments.has("verify-index-only")
    if data_files.holds_batches(path):
        _dump_batches(path, records, findings, bytes_max)
    elif path.endswith(layout.OFFSET_INDEX):
        dump_offset_index(path, sanity_only, prints_entries, findings)
    elif path.endswith(layout.TIME_INDEX):
        dump_time_index(path, sanity_only, prints_entries, findings)
    elif path.endswith(layout.SNAPSHOT):
        _dump_producers(path)
    elif path.endswith(layout.TXN_INDEX):
        for version, producer_id, first_offset, last_offset, last_stable_offset in data_files.read_txn_index(path):
            print(
                f"version: {version} producerId: {producer_id} firstOffset: {first_offset}"
                f" lastOffset: {last_offset} lastStableOffset: {last_stable_offset}"
            )
    else:
        tool.print_to_stderr(f"Ignoring unknown file {path}")


def _dump_batches(path: str, records: RecordPrinter, findings: Findings, bytes_max: int) -> None:
    print(_headline(path))
    file = BatchFile(path, bytes_max)
    last_offset = -1
    for batch in file.batches():
        print(batch_line(batch))
        if records.is_enabled:
            for record in decode_records(batch.window, batch.header):
                if last_offset not in (-1, record.offset - 1):
                    findings.not_consecutive(path, last_offset, record.offset)
                last_offset = record.offset
                records.print(record, batch.header)
    trailing = file.size - file.valid_bytes
    # With --max-bytes the file may be cut inside a batch: then the bytes after it are not invalid.
    if trailing and bytes_max == INT32_MAX:
        print(f"Found {trailing} invalid bytes at the end of {os.path.basename(path)}")


def _headline(path: str) -> str:
    name = os.path.basename(path)
    if name == "bootstrap.checkpoint":
        return "KRaft bootstrap snapshot"
    if name.endswith(data_files.METADATA_SNAPSHOT):
        offset, _, epoch = name.removesuffix(data_files.METADATA_SNAPSHOT).partition("-")
        return f"Snapshot end offset: {int(offset)}, epoch: {int(epoch)}"
    return f"Log starting offset: {data_files.base_offset_of(path)}"


def batch_line(batch: FileBatch) -> str:
    position, header, window = batch
    horizon = f"[{header.base_timestamp}]" if header.attributes & DELETE_HORIZON_BIT else ".empty"
    return (
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.record_count}"
        f" baseSequence: {header.base_sequence} lastSequence: {header.last_sequence}"
        f" producerId: {header.producer_id} producerEpoch: {header.producer_epoch}"
        f" partitionLeaderEpoch: {header.leader_epoch} isTransactional: {_java_boolean(header.is_transactional)}"
        f" isControl: {_java_boolean(header.is_control)} deleteHorizonMs: OptionalLong{horizon}"
        f" position: {position} {_timestamp_type(header)}: {header.max_timestamp}"
        f" size: {header.size_in_bytes} magic: {header.magic} compresscodec: {header.compression.name.lower()}"
        f" crc: {header.crc} isvalid: {_java_boolean(has_valid_crc(window))}"
    )


def _java_boolean(value: bool) -> str:
    return "true" if value else "false"


def _timestamp_type(header: BatchHeader) -> str:
    return "LogAppendTime" if header.is_log_append_time else "CreateTime"


class RecordPrinter:
    """Prints records with the parts that the flags enable."""

    def __init__(self, arguments: Arguments) -> None:
        decoders = ("key-decoder-class", "value-decoder-class", *RECORD_PARSERS)
        self._contents = arguments.has("print-data-log") or any(map(arguments.has, decoders))
        self._metadata = not arguments.has("skip-record-metadata")
        self._parse = _parser(arguments)
        self.is_enabled = self._contents or arguments.has("deep-iteration")

    def print(self, record: Record, batch: BatchHeader) -> None:
        """Print one line. It is empty if the flags leave out all parts of the record."""
        parts = [_record_metadata(record, batch)] if self._metadata else []
        if batch.is_control:
            parts += [_control_text(record)] if self._metadata else []
        elif self._contents:
            key, payload = self._parse(record)
            parts += [f"key: {key}"] if key is not None else []
            parts += [f"payload: {payload}"] if payload is not None else []
        print(f"| {' '.join(parts)}" if parts else "")


def _parser(arguments: Arguments) -> Parser:
    for name, parse in RECORD_PARSERS.items():
        if arguments.has(name):
            return parse
    key, value = (_decoder(arguments.single_value(name)) for name in ("key-decoder-class", "value-decoder-class"))
    return lambda record: (
        None if record.key is None else key(record.key),
        None if record.value is None else value(record.value),
    )


def _decoder(class_name: str | None) -> Decoder:
    """Return the decoder by the last part of the class name: its package differs between releases."""
    name = (class_name or "StringDecoder").rpartition(".")[2]
    if name not in FIELD_DECODERS:
        raise tool.ToolFailed(f"There is no decoder {class_name}; use one of {', '.join(FIELD_DECODERS)}")
    return FIELD_DECODERS[name]


def _record_metadata(record: Record, batch: BatchHeader) -> str:
    sequence = -1
    if batch.base_sequence >= 0:
        # Sequence numbers start again at 0 after the largest int32.
        sequence = (batch.base_sequence + record.offset - batch.base_offset) & INT32_MAX
    return (
        f"offset: {record.offset} {_timestamp_type(batch)}: {record.timestamp} keySize: {_size(record.key)}"
        f" valueSize: {_size(record.value)} sequence: {sequence}"
        f" headerKeys: [{','.join(name for name, _ in record.headers)}]"
    )


def _size(raw: bytes | None) -> int:
    return -1 if raw is None else len(raw)


def _control_text(record: Record) -> str:
    marker = read_end_txn_marker(record)
    if marker is not None:
        kind = "COMMIT" if marker.committed else "ABORT"
        return f"endTxnMarker: {kind} coordinatorEpoch: {marker.coordinator_epoch}"
    control = control_type(record)
    text = control_text(control, record)
    if text is not None:
        return text
    number = int(control)
    return f"controlType: {getattr(control, 'name', 'UNKNOWN')}({number})"


def _dump_producers(path: str) -> None:
    with open(path, "rb") as file:
        producers = decode_snapshot(file.read())
    for producer in producers:
        line = (
            f"producerId: {producer.producer_id} producerEpoch: {producer.epoch}"
            f" coordinatorEpoch: {producer.coordinator_epoch}"
            f" currentTxnFirstOffset: {_optional(producer.transaction_start)}"
            f" lastTimestamp: {producer.last_timestamp}"
        )
        if producer.batches:
            batch = producer.batches[-1]
            line += (
                f" firstSequence: {batch.first_sequence} lastSequence: {batch.last_sequence}"
                f" lastOffset: {batch.last_offset}"
                f" offsetDelta: {batch.last_offset - batch.first_offset} timestamp: {batch.timestamp}"
            )
        print(line)


def _optional(offset: int) -> str:
    return f"OptionalLong[{offset}]" if offset >= 0 else "OptionalLong.empty"


if __name__ == "__main__":
    sys.exit(main())
