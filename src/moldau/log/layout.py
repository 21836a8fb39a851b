"""Names of files and directories. Nearly all are Kafka's, so that Kafka's tools can read them.

<data directory>/
  .lock                              locked by the process that owns the directory
  .moldau_reserve                    takes space that is given back when the disk is full (base/reserve.py)
  .kafka_cleanshutdown               exists only between a clean stop and the next start
  recovery-point-offset-checkpoint   per partition: everything below is synced to disk
  log-start-offset-checkpoint        per partition whose start was moved (DeleteRecords)
  replication-offset-checkpoint      per partition: the high watermark
  cleaner-offset-checkpoint          per compacted partition: everything below was cleaned
  <topic>-<partition>/
    <base offset>.log .index .timeindex .txnindex    a segment; the name is its first offset, 20 digits
    <base offset>.log.cleaned …                       a segment that the cleaner is writing
    <base offset>.log.swap …                          one that it has written, about to replace others
    <base offset>.log.deleted …                       a segment that waits to be removed
    <offset>.snapshot                                the producer state at that offset
    leader-epoch-checkpoint  partition.metadata
  <topic>-<partition>.<32 hex digits>-delete/        a deleted topic's partition, waiting to be removed
"""

from __future__ import annotations

import re
from typing import Final

from moldau.base.ids import TopicPartition
from moldau.base.limits import OFFSET_MAX, PARTITION_MAX

LOG: Final = ".log"
OFFSET_INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TXN_INDEX: Final = ".txnindex"
SNAPSHOT: Final = ".snapshot"
DELETED: Final = ".deleted"
CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"
TEMPORARY: Final = ".tmp"
CORRUPT: Final = ".corrupt"
"""Not Kafka's: bytes that recovery took out of a log. Nothing reads or removes such files but an operator."""

SEGMENT_FILES: Final = (LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX)
INDEX_FILES: Final = (OFFSET_INDEX, TIME_INDEX, TXN_INDEX)

LEADER_EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"

LOCK: Final = ".lock"
FIRST_SNAPSHOT: Final = "00000000000000000000-0000000000.checkpoint"
"""In the directory of the metadata log: the first voters, written when the data directory is formatted."""
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"

_DELETED_DIRECTORY: Final = re.compile(r".+-[0-9]+\.[0-9a-f]{32}-delete")
_PARTITION_DIRECTORY: Final = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<partition>0|[1-9][0-9]{0,9})")


def offset_name(offset: int) -> str:
    return f"{offset:020d}"


def offset_of(name: str, suffix: str) -> int | None:
    """The offset in a file's name, None if it is not `<20 digits><suffix>` or no offset can be so large."""
    stem = name[: -len(suffix)]
    if len(stem) != 20 or not name.endswith(suffix) or not stem.isascii() or not stem.isdigit():
        return None
    offset = int(stem)
    return offset if offset <= OFFSET_MAX else None


def partition_of(directory_name: str) -> TopicPartition | None:
    """The partition whose directory has exactly this name; None if it is no partition's, or a deleted one's."""
    match = _PARTITION_DIRECTORY.fullmatch(directory_name)
    if match is None or int(match["partition"]) > PARTITION_MAX:
        return None
    return TopicPartition(match["topic"], int(match["partition"]))


def is_deleted_directory(directory_name: str) -> bool:
    return _DELETED_DIRECTORY.fullmatch(directory_name) is not None


def deleted_directory_name(partition: TopicPartition, unique: bytes) -> str:
    """Like Kafka, shorten the topic to keep the name within 255 bytes: only the suffix matters."""
    assert len(unique) == 16, "a UUID makes the name unique among deletions"
    suffix = f"-{partition.partition}.{unique.hex()}-delete"
    return partition.topic[: 255 - len(suffix)] + suffix
