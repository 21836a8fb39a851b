"""What a leader checks before it appends a batch: the rules for clients, and the few for the broker's own writers.

The checks read the header and the CRC. Records are decoded only where a rule is about single records, and to tell the
client which ones were rejected (KIP-467). Nothing here touches the log; only `check_batch` changes bytes, those
of the batch's header.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from moldau.base.errors import ErrorCode, KafkaError, MalformedData
from moldau.base.limits import INT64_MAX, OPENED_RECORDS_MAX, RECORD_ERRORS_OF_BATCH_MAX
from moldau.log.config import LOG_APPEND_TIME, LogConfig
from moldau.wire.batch import (
    ATTRIBUTES_LOW_BYTE_POSITION,
    BATCH_HEADER,
    BATCH_HEADER_BYTES,
    CODEC_MASK,
    CONTROL_BIT,
    CRC_POSITION,
    CRC_START,
    LENGTH_PREFIX,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    MAGIC_POSITION,
    NO_TIMESTAMP,
    BatchHeader,
    stamp_create_time,
)
from moldau.wire.compression import Compression, DecompressedTooLarge
from moldau.wire.crc import crc32c
from moldau.wire.records import Record, build_batch, decode_records

CODEC_MAX: Final = max(Compression)

INT64_MIN: Final = -(1 << 63)

LENGTH_PREFIX_BYTES: Final = LENGTH_PREFIX.size
LEGACY_BATCH_BYTES_MIN: Final = LENGTH_PREFIX_BYTES + 14
"""The smallest message of magic 0 with its offset and length: a smaller size cannot be a batch."""


class Origin(Enum):
    """Who appends."""

    CLIENT = auto()
    """A producer: checked as if hostile; the log assigns offsets."""
    OPENED = auto()
    """A producer whose batch was decoded, and each record checked, by `opening.open_batch`; the log assigns offsets."""
    COORDINATOR = auto()
    """A group or transaction coordinator of this cluster: may write markers; the log assigns offsets."""
    RAFT = auto()
    """The metadata quorum's leader: may write control records, and batches of any size; the log assigns offsets."""
    REPLICATION = auto()
    """A leader's bytes on a follower: offsets and epochs stay as they are. Not checked here."""


class RecordsRejected(KafkaError):
    """The batch is rejected because of some of its records: `record_errors` has (index in the batch, reason) for the
    first of them."""

    def __init__(self, code: ErrorCode, message: str, record_errors: list[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


class BatchExpandsTooMuch(KafkaError):
    """The records would take too much memory or time: it may be a decompression bomb."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, message)


# 0 base offset, 1 batch length, 2 leader epoch, 3 magic, 4 CRC, 5 attributes, 6 last offset delta, 7 base timestamp,
# 8 max timestamp, 9 producer id, 10 producer epoch, 11 base sequence, 12 record count
HeaderFields = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]
"""BatchHeader's fields as struct unpacks them: a NamedTuple would cost half a microsecond on every append."""


def check_batch(batch: memoryview, config: LogConfig, now_ms: int, origin: Origin) -> HeaderFields:
    """Raise Kafka's error if the batch may not be appended; return its header fields.

    `batch` may have a few bytes too many (see `one_batch`): the caller cuts it at the returned length. If the
    timestamps in a client's header are wrong, this writes the right ones into `batch`, as Kafka does.
    """
    size = len(batch)
    if size < BATCH_HEADER_BYTES:
        one_batch(batch)  # always raises: a batch is not shorter than its header
    fields: HeaderFields = BATCH_HEADER.unpack_from(batch)
    (base_offset, batch_length, _, magic, crc, attributes, last_offset_delta,
     base_timestamp, max_timestamp, producer_id, _, base_sequence, record_count) = fields  # fmt: skip
    if magic != MAGIC or LENGTH_PREFIX_BYTES + batch_length != size:
        return check_batch(one_batch(batch), config, now_ms, origin)
    if size > config.max_message_bytes and origin is not Origin.RAFT and not _is_marker(attributes, origin):
        raise too_large(size, config)
    if crc32c(batch[CRC_START:]) != crc:
        raise _corrupt("The record batch does not match its CRC.")
    if attributes & CODEC_MASK > CODEC_MAX:
        raise _invalid(f"The record batch names compression codec {attributes & CODEC_MASK}, which does not exist.")
    if last_offset_delta + 1 != record_count or record_count < 1:
        raise _invalid(f"The record batch counts {record_count} records, its last offset delta is {last_offset_delta}.")
    if origin is Origin.CLIENT:
        if base_offset or attributes & CONTROL_BIT or (producer_id >= 0 and base_sequence < 0):
            raise _rejection(BatchHeader._make(fields))
        if (
            attributes & LOG_APPEND_TIME_BIT
            or max_timestamp > now_ms + config.message_timestamp_after_max_ms
            or base_timestamp < now_ms - config.message_timestamp_before_max_ms
        ):
            return _check_timestamps(batch, fields, config, now_ms)
    return fields


def _is_marker(attributes: int, origin: Origin) -> bool:
    """Markers are exempt from max.message.bytes: a transaction whose marker is rejected would stay open forever."""
    return origin is Origin.COORDINATOR and bool(attributes & CONTROL_BIT)


def one_batch(records: memoryview) -> memoryview:
    """Return the one batch of magic 2 that a produce request must hold.

    Trailing bytes are ignored if they are too few for the head of another batch; anything else is rejected.
    """
    size = _batch_bytes(records)
    if len(records) - size >= CRC_POSITION:
        _batch_bytes(records[size:])  # like Kafka, first complain of the second batch if its head is wrong
        raise _invalid("More than one record batch was sent: there must be exactly one.")
    return records[:size]


def _batch_bytes(records: memoryview) -> int:
    """Return the size of the first batch. The checks of its head are Kafka's, in Kafka's order."""
    sent = len(records)
    if sent < CRC_POSITION:
        raise _invalid("The records hold no batch: there must be exactly one.")
    size: int = LENGTH_PREFIX_BYTES + LENGTH_PREFIX.unpack_from(records)[1]
    magic = records[MAGIC_POSITION]
    if size < LEGACY_BATCH_BYTES_MIN or magic > MAGIC:
        raise _corrupt(f"The record batch claims {size} bytes and magic {magic}.")
    if size > sent:
        raise _invalid(f"The record batch claims {size} bytes, {sent} were sent: there must be one whole batch.")
    if magic != MAGIC:
        raise _invalid(f"The record batch has magic {magic}, only magic 2 is accepted.")
    if size < BATCH_HEADER_BYTES:
        raise _corrupt(f"The record batch claims {size} bytes, fewer than its header has.")
    return size


def check_records(records: list[Record], config: LogConfig, now_ms: int) -> None:
    """Raise Kafka's error if a client may not write one of these records. `check_batch` has seen only their header."""
    if config.message_timestamp_type != LOG_APPEND_TIME:
        _check_create_times(records, config, now_ms)
    if config.is_compacted:
        _check_keys(records)


def _check_keys(records: list[Record]) -> None:
    """Reject records without a key: a compacted topic keeps the last record of each key."""
    keyless = [index for index, record in enumerate(records) if record.key is None]
    if keyless:
        why = "A compacted topic cannot accept a record without a key."
        errors = [(index, why) for index in keyless[:RECORD_ERRORS_OF_BATCH_MAX]]
        raise RecordsRejected(ErrorCode.INVALID_RECORD, f"{len(keyless)} records of the batch have no key.", errors)


def recompress(batch: memoryview, records: list[Record], target: Compression, config: LogConfig) -> bytearray:
    """Return the batch with its records in the codec that the topic asks for."""
    header = BatchHeader._make(BATCH_HEADER.unpack_from(batch))
    if any(record.offset != offset for offset, record in enumerate(records, header.base_offset)):
        raise _invalid("The offsets of the records in the batch are not consecutive.")
    # The new batch stores timestamps relative to its first record, not to the base timestamp that the client chose.
    first_timestamp = records[0].timestamp
    if any(not INT64_MIN <= record.timestamp - first_timestamp <= INT64_MAX for record in records):
        raise _invalid("Two timestamps in the batch differ by more than 64 bits can hold.")
    recompressed = build_batch(
        records,
        base_offset=header.base_offset,
        compression=target,
        compression_level=config.compression_level(target),
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        is_transactional=header.is_transactional,
    )
    if len(recompressed) > config.max_message_bytes:
        raise too_large(len(recompressed), config)
    return recompressed


def decoded_records(batch: memoryview, config: LogConfig) -> list[Record]:
    """Return the records of a batch. Raise BatchExpandsTooMuch before they use much memory or time."""
    header = BatchHeader._make(BATCH_HEADER.unpack_from(batch))
    if header.record_count > OPENED_RECORDS_MAX:
        count = f"{header.record_count} records, at most {OPENED_RECORDS_MAX} are read"
        raise BatchExpandsTooMuch(f"The batch has {count}.")
    try:
        records = decode_records(batch, header, config.moldau_max_decompressed_bytes)
    except DecompressedTooLarge as error:
        raise BatchExpandsTooMuch(f"The records cannot be read: {error}.") from error
    except MalformedData as error:
        raise _invalid(f"The records cannot be read: {error}.") from error
    if any(not INT64_MIN <= record.timestamp <= INT64_MAX for record in records):
        raise _invalid("A timestamp in the batch has more than 64 bits.")
    return records


def too_large(size: int, config: LogConfig) -> KafkaError:
    return KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"The record batch has {size} bytes, max.message.bytes allows {config.max_message_bytes}.",
    )


def _check_timestamps(batch: memoryview, fields: HeaderFields, config: LogConfig, now_ms: int) -> HeaderFields:
    """Called if the header's timestamps are out of range: reject the records whose timestamps are.

    If there are none, correct the header, as Kafka does.
    """
    if config.message_timestamp_type == LOG_APPEND_TIME:
        if batch[ATTRIBUTES_LOW_BYTE_POSITION] & LOG_APPEND_TIME_BIT:
            why = "A producer may not set the timestamp type to LogAppendTime."
            record_count = fields[12]
            first = range(min(record_count, RECORD_ERRORS_OF_BATCH_MAX))
            raise _timestamps_rejected(record_count, [(index, why) for index in first])
        return fields  # the producer's timestamps do not matter: the log overwrites them
    records = decoded_records(batch, config)
    _check_create_times(records, config, now_ms)
    stamp_create_time(batch, max(record.timestamp for record in records))
    corrected: HeaderFields = BATCH_HEADER.unpack_from(batch)
    return corrected


def _check_create_times(records: list[Record], config: LogConfig, now_ms: int) -> None:
    earliest = now_ms - config.message_timestamp_before_max_ms
    latest = now_ms + config.message_timestamp_after_max_ms
    wrong = [
        index
        for index, record in enumerate(records)
        if record.timestamp != NO_TIMESTAMP and not earliest <= record.timestamp <= latest
    ]
    if wrong:
        errors = [
            (index, f"Timestamp {records[index].timestamp} is not within [{earliest}, {latest}].")
            for index in wrong[:RECORD_ERRORS_OF_BATCH_MAX]
        ]
        raise _timestamps_rejected(len(wrong), errors)


def _timestamps_rejected(count: int, errors: list[tuple[int, str]]) -> RecordsRejected:
    return RecordsRejected(ErrorCode.INVALID_TIMESTAMP, f"The timestamps of {count} records are not accepted.", errors)


def _rejection(header: BatchHeader) -> KafkaError:
    if header.is_control:
        return _invalid("Clients may not write control records.")
    if header.base_offset:
        return _invalid(f"The base offset of the record batch must be 0, it is {header.base_offset}.")
    return _invalid(f"Producer {header.producer_id} sent the invalid sequence {header.base_sequence}.")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, message)


def _corrupt(message: str) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, message)
