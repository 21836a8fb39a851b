"""kafka-delete-records: deletes the records of partitions before the offsets in a file.

The file: {"partitions": [{"topic": "t", "partition": 0, "offset": 5}], "version": 1}. An offset of -1 stands for the
high watermark: it deletes all current records.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from moldau.base.errors import ErrorCode
from moldau.cli.flags import Arguments, Flag, ToolFlags
from moldau.cli.kafka.connection import clients, properties
from moldau.cli.kafka.connection.leaders import Cluster, Partition, by_leader, cluster
from moldau.cli.kafka.tool import ToolFailed, run
from moldau.wire.apis import ApiKey

TIMEOUT_MS: Final = 15_000
FIELDS: Final = {"topic": str, "partition": int, "offset": int}
MESSAGES: Final = {
    ErrorCode.OFFSET_OUT_OF_RANGE: "The requested offset is not within the range of offsets maintained by the server.",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "This server does not host this topic-partition.",
    ErrorCode.POLICY_VIOLATION: "Request parameters do not satisfy the configured policy.",
    ErrorCode.LEADER_NOT_AVAILABLE: "There is no leader for this topic-partition as we are in the middle of"
    " a leadership election.",
}
"""Kafka's messages of errors whose responses contain none."""

FLAGS = ToolFlags(
    "This tool helps to delete records of the given partitions down to the specified offset.",
    (
        Flag("bootstrap-server", "REQUIRED: A broker of the cluster, HOST:PORT.", "server(s) to use for bootstrapping"),
        Flag(
            "offset-json-file",
            'REQUIRED: A file such as {"partitions": [{"topic": "foo", "partition": 1, "offset": 1}], "version":1}.'
            " Records below the offset are deleted.",
            "Offset json file path",
        ),
        Flag("command-config", "A properties file with settings of the client.", "command config property file path"),
    ),
)


def main(argv: Sequence[str] | None = None) -> int:
    return run("kafka-delete-records", FLAGS, _main, argv)


def _main(arguments: Arguments) -> int:
    arguments.require("bootstrap-server", "offset-json-file")
    offsets = read_offsets(arguments.single_value("offset-json-file") or "")
    java_config = properties.load(arguments.single_value("command-config"))
    with clients.channel(arguments.single_value("bootstrap-server") or "", java_config) as channel:
        metadata = cluster(channel)
    print("Executing records delete operation")
    results = _delete(metadata, offsets, java_config)
    print("Records delete operation completed:")
    for partition in offsets:
        print(f"partition: {partition}\t{results[partition]}")
    return 0


def read_offsets(path: str) -> dict[Partition, int]:
    try:
        with open(path, encoding="utf-8") as file:
            return parse_offsets(json.load(file))
    except OSError as error:
        raise ToolFailed(f"Unable to read file {path}: {error.strerror}") from error
    except ValueError as error:
        raise ToolFailed("The input string is not a valid JSON") from error


def parse_offsets(content: Any) -> dict[Partition, int]:
    version = content.get("version", 1) if isinstance(content, dict) else 1
    if version != 1:
        raise ToolFailed(f"Not supported version field value {version}")
    if not isinstance(content, dict) or "partitions" not in content:
        raise ToolFailed("Missing partitions field")
    offsets: dict[Partition, int] = {}
    duplicates = []
    for row in content["partitions"]:
        for name, kind in FIELDS.items():
            if not isinstance(row, dict) or name not in row:
                raise ToolFailed(f"No such field exists: `{name}`")
            if not isinstance(row[name], kind):
                raise ToolFailed(f"The field `{name}` is not a {'text' if kind is str else 'number'}: {row[name]}")
        partition = Partition(row["topic"], row["partition"])
        if partition in offsets:
            duplicates.append(str(partition))
        offsets[partition] = row["offset"]
    if duplicates:
        raise ToolFailed(f"Offset json file contains duplicate topic partitions: {','.join(duplicates)}")
    return offsets


def _delete(
    metadata: Cluster, offsets: Mapping[Partition, int], java_config: Mapping[str, str]
) -> dict[Partition, str]:
    """Return for each partition `low_watermark: N` or `error: REASON`."""
    from moldau.wire.messages.delete_records import (
        DeleteRecordsPartition,
        DeleteRecordsRequest,
        DeleteRecordsResponse,
        DeleteRecordsTopic,
    )

    absent = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    results = {
        partition: error_cell(ErrorCode.LEADER_NOT_AVAILABLE if partition in metadata.leaders else absent)
        for partition in offsets
    }
    for channel, topics in by_leader(metadata, offsets, java_config):
        request_topics = [
            DeleteRecordsTopic(
                name=name,
                partitions=[
                    DeleteRecordsPartition(partition_index=index, offset=offsets[Partition(name, index)])
                    for index in indexes
                ],
            )
            for name, indexes in topics.items()
        ]
        request = DeleteRecordsRequest(topics=request_topics, timeout_ms=TIMEOUT_MS)
        for topic in channel.ask(ApiKey.DELETE_RECORDS, request, DeleteRecordsResponse).topics:
            for result in topic.partitions:
                done = f"low_watermark: {result.low_watermark}"
                cell = error_cell(ErrorCode(result.error_code)) if result.error_code else done
                results[Partition(topic.name, result.partition_index)] = cell
    return results


def error_cell(code: ErrorCode) -> str:
    """Return an error as Java prints it: the exception's class, then its message."""
    name = "".join(word.capitalize() for word in code.name.split("_")).removesuffix("Exception")
    return f"error: org.apache.kafka.common.errors.{name}Exception: {MESSAGES.get(code, code.name)}"


if __name__ == "__main__":
    sys.exit(main())
