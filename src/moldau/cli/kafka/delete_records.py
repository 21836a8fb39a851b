"""kafka-delete-records: deletes the records of partitions before the offsets in a file.

The file: {"partitions": [{"topic": "t", "partition": 0, "offset": 5}], "version": 1}. An offset of -1 stands for the
high watermark: it deletes all current records.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.cli.flags import Arguments, Flag, ToolFlags
from moldau.cli.kafka import json_input
from moldau.cli.kafka.connection import properties
from moldau.cli.kafka.connection.leaders import Leaders, ask_broker, ask_leaders, leaders_at
from moldau.cli.kafka.java.exceptions import exception_text
from moldau.cli.kafka.reassignment.plan import duplicates
from moldau.cli.kafka.tool import ToolFailed, run

TIMEOUT_MS: Final = 9_000
"""How long a leader waits for its followers. A connection waits a little longer, so that the error response arrives."""
VERSION: Final = 1

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
    find = partial(leaders_at, arguments.single_value("bootstrap-server") or "", java_config)
    metadata = find()
    print("Executing records delete operation")
    results = _delete(metadata, offsets, java_config, find)
    print("Records delete operation completed:")
    for partition in offsets:
        print(f"partition: {partition}\t{results[partition]}")
    return 0


def read_offsets(path: str) -> dict[TopicPartition, int]:
    try:
        with open(path, encoding="utf-8") as file:
            return parse_offsets(json.load(file))
    except OSError as error:
        raise ToolFailed(f"Unable to read file {path}: {error.strerror}") from error
    except ValueError as error:
        raise ToolFailed("The input string is not a valid JSON") from error


def parse_offsets(content: Any) -> dict[TopicPartition, int]:
    fields = json_input.as_object(content)
    version = json_input.integer(fields.get("version", VERSION))
    if version != VERSION:
        raise ToolFailed(f"Not supported version field value {version}")
    if "partitions" not in fields:
        raise ToolFailed("Missing partitions field")
    rows = [_row(json_input.as_object(row)) for row in json_input.as_array(fields["partitions"])]
    if repeated := duplicates(partition for partition, _ in rows):
        listed = ",".join(map(str, repeated))
        raise ToolFailed(f"Offset json file contains duplicate topic partitions: {listed}")
    return dict(rows)


def _row(fields: dict[str, Any]) -> tuple[TopicPartition, int]:
    topic = json_input.text(json_input.field(fields, "topic"))
    partition = json_input.integer(json_input.field(fields, "partition"))
    return TopicPartition(topic, partition), json_input.long(json_input.field(fields, "offset"))


def _delete(
    metadata: Leaders,
    offsets: Mapping[TopicPartition, int],
    java_config: Mapping[str, str],
    find: Callable[[], Leaders],
) -> dict[TopicPartition, str]:
    """Return for each partition `low_watermark: N` or `error: REASON`."""
    from moldau.client.requests.partitions import delete_records

    def ask(address: tuple[str, int], topics: dict[str, list[int]]) -> dict[TopicPartition, int | KafkaError]:
        before = {each: offsets[each] for each in (TopicPartition(name, i) for name in topics for i in topics[name])}
        return delete_records(partial(ask_broker, address, java_config), before, TIMEOUT_MS)

    absent = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    results = {
        partition: error_cell(KafkaError(ErrorCode.LEADER_NOT_AVAILABLE if partition in metadata.leaders else absent))
        for partition in offsets
    }
    for partition, answer in ask_leaders(metadata, offsets, ask, find).items():
        results[partition] = f"low_watermark: {answer}" if isinstance(answer, int) else error_cell(answer)
    return results


def error_cell(error: KafkaError | ToolFailed) -> str:
    return f"error: {exception_text(error) if isinstance(error, KafkaError) else error}"


if __name__ == "__main__":
    sys.exit(main())
