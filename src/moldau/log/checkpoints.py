"""Small text files that are replaced whole or not at all: temporary file, fsync, rename, fsync of the directory.

Kafka's checkpoint format, for offsets of partitions and for leader epochs alike:

    0                     version
    2                     number of lines that follow
    orders 0 1234         fields of one entry, separated by one space

A checkpoint that does not parse is MalformedData; every reader can do without it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from moldau.base.errors import MalformedData
from moldau.base.ids import TopicPartition, Uuid, uuid_from_text, uuid_text
from moldau.log import layout
from moldau.log.files import Files, write_all

VERSION = "0"


def replace_file(files: Files, directory: str, name: str, content: bytes) -> None:
    """Replace a file atomically: after a crash it has either the old or the new content."""
    path = f"{directory}/{name}"
    temporary = path + layout.TEMPORARY
    file = files.open(temporary, create=True)
    file.truncate(0)
    write_all(file, content, 0)
    file.sync()
    files.rename(temporary, path)
    files.sync_directory(directory)


def encode_entries(entries: Iterable[tuple[object, ...]]) -> bytes:
    lines = [" ".join(map(str, entry)) for entry in entries]
    return "\n".join([VERSION, str(len(lines)), *lines, ""]).encode()


def decode_entries(content: bytes, fields: int) -> list[list[str]]:
    try:
        lines = content.decode().splitlines()
    except UnicodeDecodeError as error:
        raise MalformedData("checkpoint: not UTF-8 text") from error
    if len(lines) < 2 or lines[0] != VERSION or not lines[1].isdigit():
        raise MalformedData("checkpoint: no version or number of entries")
    entries = [line.split(" ") for line in lines[2:]]
    if len(entries) != int(lines[1]) or any(len(entry) != fields for entry in entries):
        raise MalformedData("checkpoint: lines are missing or incomplete")
    return entries


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    return encode_entries((topic, partition, offset) for (topic, partition), offset in sorted(offsets.items()))


def decode_offsets(content: bytes) -> dict[TopicPartition, int]:
    try:
        return {
            TopicPartition(topic, int(partition)): int(offset)
            for topic, partition, offset in decode_entries(content, fields=3)
        }
    except ValueError as error:
        raise MalformedData("checkpoint: a partition or offset is not a number") from error


def read_offsets(files: Files, path: str) -> dict[TopicPartition, int] | None:
    """Return None if the file is missing. Raise MalformedData if it is damaged."""
    content = files.read(path)
    return None if content is None else decode_offsets(content)


# --- partition.metadata: `version: 0` and `topic_id: <base64>`, one to a line -----------------------------------


def encode_partition_metadata(topic_id: Uuid) -> bytes:
    return f"version: 0\ntopic_id: {uuid_text(topic_id)}".encode()


def decode_partition_metadata(content: bytes) -> Uuid:
    try:
        pairs = dict(line.split(": ", 1) for line in content.decode().splitlines() if line)
        return uuid_from_text(pairs["topic_id"])
    except (ValueError, KeyError) as error:
        raise MalformedData("partition.metadata: no topic id") from error


def encode_clean_shutdown(broker_epoch: int) -> bytes:
    """The clean-shutdown marker. It holds the broker epoch, so that the controller can tell whether anything was lost
    between two registrations (KIP-966)."""
    return json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode()


def decode_clean_shutdown(content: bytes) -> int:
    """The broker epoch in it, -1 without one: for the logs it only matters that the marker exists."""
    try:
        return int(json.loads(content)["brokerEpoch"])
    except (ValueError, KeyError, TypeError):
        return -1
