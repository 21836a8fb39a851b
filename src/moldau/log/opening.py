"""Clients' batches whose records must be read before they are appended: a compacted topic needs keys, a topic may ask
for another codec, and a header may have timestamps out of range.

This takes about two microseconds for each record, and some milliseconds for a hundred kilobytes that are compressed:
too long for the event loop, if they are many. `open_batch` uses no log, so Produce calls it in a thread if `takes_long`
says so. The log appends what it returns with `Origin.OPENED`.
"""

from __future__ import annotations

from typing import Final

from moldau.log.config import LOG_APPEND_TIME, LogConfig
from moldau.log.validate import (
    LENGTH_PREFIX_BYTES,
    Origin,
    check_batch,
    check_records,
    decoded_records,
    recompress,
)
from moldau.wire.batch import BATCH_HEADER, CODEC_MASK, CONTROL_BIT, LOG_APPEND_TIME_BIT

RECORDS_AT_ONCE: Final = 500
"""More records are opened in a thread: these take a millisecond."""
BYTES_AT_ONCE: Final = 16 << 10
"""Larger batches are opened in a thread."""
COMPRESSED_BYTES_AT_ONCE: Final = 1 << 10
"""Larger compressed batches are opened in a thread. A hostile one grows to 30,000 times its size: to 30 MB, which takes
ten milliseconds."""


def takes_long(batch: memoryview, config: LogConfig, now_ms: int) -> bool:
    """Return whether `append` would have to read the records of this client's batch, and that would take long."""
    fields = BATCH_HEADER.unpack_from(batch)
    attributes, base_timestamp, max_timestamp, record_count = fields[5], fields[7], fields[8], fields[12]
    codec = attributes & CODEC_MASK
    if record_count <= RECORDS_AT_ONCE and len(batch) <= (COMPRESSED_BYTES_AT_ONCE if codec else BYTES_AT_ONCE):
        return False
    if config.is_compacted or config.target_compression not in (None, codec):
        return True
    return config.message_timestamp_type != LOG_APPEND_TIME and bool(
        attributes & LOG_APPEND_TIME_BIT
        or max_timestamp > now_ms + config.message_timestamp_after_max_ms
        or base_timestamp < now_ms - config.message_timestamp_before_max_ms
    )


def open_batch(batch: memoryview, config: LogConfig, now_ms: int) -> memoryview:
    """Check a client's batch and its records, and return it with the codec that the topic asks for. Raise Kafka's error
    if it may not be appended. The header may be corrected in place."""
    fields = check_batch(batch, config, now_ms, Origin.CLIENT)
    return with_checked_records(batch[: LENGTH_PREFIX_BYTES + fields[1]], fields[5], config, now_ms, Origin.CLIENT)


def with_checked_records(
    batch: memoryview, attributes: int, config: LogConfig, now_ms: int, origin: Origin
) -> memoryview:
    """Return the batch with the codec that the topic asks for. Where this reads the records, it checks each of them, as
    Kafka does."""
    target = config.target_compression
    if target == attributes & CODEC_MASK or attributes & CONTROL_BIT:
        target = None
    if target is None and not (origin is Origin.CLIENT and config.is_compacted):
        return batch
    records = decoded_records(batch, config)
    if origin is Origin.CLIENT:
        check_records(records, config, now_ms)
    return batch if target is None else memoryview(recompress(batch, records, target, config))
