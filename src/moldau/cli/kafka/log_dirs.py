"""kafka-log-dirs: prints the log directories of brokers, with their partitions and sizes, as one line of JSON.

Two lines for people come before it; scripts read the last line. Nothing is changed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from moldau.base.errors import ErrorCode
from moldau.cli.flags import Arguments, Flag, ToolFlags
from moldau.cli.kafka.connection import clients, properties
from moldau.cli.kafka.connection.leaders import find_leaders
from moldau.cli.kafka.java.exceptions import exception_class
from moldau.cli.kafka.java.numbers import parse_integer
from moldau.cli.kafka.tool import ToolFailed, run

if TYPE_CHECKING:
    from moldau.wire.messages.describe_log_dirs import DescribeLogDirsResult

FLAGS = ToolFlags(
    "This tool helps to query log directory usage on the specified brokers.",
    (
        Flag(
            "bootstrap-server",
            "REQUIRED: A broker of the cluster, HOST:PORT.",
            "The server(s) to use for bootstrapping",
        ),
        Flag("command-config", "A properties file with settings of the client.", "Admin client property file"),
        Flag("describe", "REQUIRED: Show the log directories."),
        Flag("topic-list", "Topics to show, as topic1,topic2. Default: all.", "Topic list"),
        Flag("broker-list", "Brokers to ask, as 0,1,2. Default: all.", "Broker list"),
    ),
)


def main(argv: Sequence[str] | None = None) -> int:
    return run("kafka-log-dirs", FLAGS, _main, argv)


def _main(arguments: Arguments) -> int:
    arguments.require("bootstrap-server", "describe")
    java_config = properties.load(arguments.single_value("command-config"))
    topics = {name for name in (arguments.single_value("topic-list") or "").split(",") if name}
    requested = _ids(arguments.single_value("broker-list") or "")
    with clients.channel(arguments.single_value("bootstrap-server") or "", java_config) as channel:
        brokers = find_leaders(channel).brokers
    unknown = requested - brokers.keys()
    if unknown:
        raise ToolFailed(
            f"ERROR: The given brokers do not exist from --broker-list: {_listed(unknown)}."
            f" Current existent brokers: {_listed(brokers)}"
        )
    selected = sorted(requested or brokers)
    print("Querying brokers for log directories information")
    log_dirs = {broker: _log_dirs(*brokers[broker], java_config) for broker in selected}
    print(f"Received log directory information from brokers {_listed(selected)}")
    print(json.dumps(document(log_dirs, topics), separators=(",", ":"), ensure_ascii=False))
    return 0


def _ids(text: str) -> set[int]:
    try:
        return {parse_integer(part) for part in text.split(",") if part}
    except ValueError as error:
        raise ToolFailed(f"{error}; write broker ids as in 0,1,2") from None


def _listed(ids: Any) -> str:
    return ",".join(map(str, sorted(ids)))


def _log_dirs(host: str, port: int, java_config: Mapping[str, str]) -> Sequence[DescribeLogDirsResult]:
    from moldau.client.requests.partitions import describe_log_dirs

    with clients.channel_to(host, port, java_config) as channel:
        # Like Kafka's tool, request every topic and select here: a broker may not have all that are named.
        response = describe_log_dirs(channel.ask)
    clients.raise_for_error(response.error_code, None)
    return response.results


def document(log_dirs: Mapping[int, Sequence[DescribeLogDirsResult]], topics: set[str]) -> dict[str, Any]:
    """Return the JSON of Kafka's tool, with its order of keys."""
    return {
        "brokers": [
            {"broker": broker, "logDirs": [_log_dir(result, topics) for result in results]}
            for broker, results in log_dirs.items()
        ],
        "version": 1,
    }


def _log_dir(result: DescribeLogDirsResult, topics: set[str]) -> dict[str, Any]:
    partitions = [
        {
            "partition": f"{topic.name}-{partition.partition_index}",
            "size": partition.partition_size,
            "offsetLag": partition.offset_lag,
            "isFuture": partition.is_future_key,
        }
        for topic in sorted(result.topics, key=lambda topic: topic.name)
        if not topics or topic.name in topics
        for partition in sorted(topic.partitions, key=lambda partition: partition.partition_index)
    ]
    error = exception_class(ErrorCode(result.error_code)) if result.error_code else None
    return {"partitions": partitions, "error": error, "logDir": result.log_dir}


if __name__ == "__main__":
    sys.exit(main())
