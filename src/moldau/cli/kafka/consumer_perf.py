"""kafka-consumer-perf-test: reads records as fast as possible and prints rates, as comma-separated lines.

Without --group every partition is read directly and no group coordinator is needed. The rebalance column is the time
until the first record.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import closing
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from moldau.cli.flags import Arguments, Flag, ToolFlags, UsageError, key_values
from moldau.cli.kafka.connection import clients, properties
from moldau.cli.kafka.java.dates import java_date
from moldau.cli.kafka.tool import run

if TYPE_CHECKING:
    from moldau.client.cluster import Cluster
    from moldau.client.confluent import Consumer

MEGABYTE: Final = 1024 * 1024
MAX_RECORDS_PER_POLL: Final = 2000
POLL_SECONDS: Final = 0.1
COLUMNS: Final = (
    "data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec,"
    " rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
)
TOOL_CONFIG: Final = {
    "client.id": "perf-consumer-client",
    "check.crcs": False,
    "queued.min.messages": 1_000_000,
    "fetch.wait.max.ms": 100,
    "fetch.queue.backoff.ms": 5,
    "allow.auto.create.topics": True,
}
OF_FLAGS: Final = frozenset({"group.id", "auto.offset.reset", "max.partition.fetch.bytes", "receive.buffer.bytes"})
"""Properties that flags set. As in Kafka, the flags and their defaults override the user's properties."""

FLAGS = ToolFlags(
    "This tool is used to verify the consumer performance.",
    (
        Flag(
            "bootstrap-server",
            "REQUIRED: Brokers to connect to, HOST:PORT.",
            "server to connect to",
            former_names=("broker-list",),
        ),
        Flag("topic", "The topic to read.", "topic"),
        Flag("include", "Read all topics that match.", "Java regex (String)"),
        Flag("num-records", "REQUIRED: How many records to read.", "count", "Long"),
        Flag("messages", "(DEPRECATED: use --num-records) How many records to read.", "count", "Long"),
        Flag("group", "Read as a member of this consumer group.", "gid"),
        Flag("fetch-size", "Maximum bytes to fetch from a partition at once.", "size", "Integer", "1048576"),
        Flag("from-latest", "Begin with the next new record, not with the oldest."),
        Flag("socket-buffer-size", "The size of the socket's receive buffer.", "size", "Integer", "2097152"),
        Flag(
            "timeout", "End when no record came for this long.", "milliseconds", "Long", "10000", argument_optional=True
        ),
        Flag("show-detailed-stats", "Print the progress of every reporting interval."),
        Flag("reporting-interval", "How often progress is printed, in ms.", "interval_ms", "Long", "5000"),
        Flag(
            "date-format",
            "How times are written, in the letters of SimpleDateFormat.",
            "date format",
            default="yyyy-MM-dd HH:mm:ss:SSS",
        ),
        Flag("hide-header", "Leave out the line of column names."),
        Flag("print-metrics", "Print the client's statistics at the end."),
        Flag("command-property", "A property of the consumer, key=value. Repeatable.", "prop1=val1"),
        Flag("command-config", "A file of consumer properties.", "config file"),
        Flag("consumer.config", "A file of consumer properties.", "config file", replaced_by="command-config"),
    ),
)


def main(argv: Sequence[str] | None = None) -> int:
    return run("kafka-consumer-perf-test", FLAGS, _main, argv)


def _main(arguments: Arguments) -> int:
    from moldau.cli.kafka.performance.client_stats import ClientStats

    arguments.require_exactly_one("messages", "num-records")
    if arguments.has("messages"):
        print("Warning: --messages is deprecated. Use --num-records instead.")
    arguments.require("bootstrap-server")
    arguments.require_exactly_one("topic", "include")
    records = arguments.integer("messages" if arguments.has("messages") else "num-records") or 0
    interval_ms = arguments.integer("reporting-interval") or 0
    if interval_ms <= 0:
        raise UsageError("Reporting interval must be greater than 0.")
    date_format = arguments.single_value("date-format") or ""
    try:
        java_date(datetime.now().astimezone(), date_format)
    except ValueError as error:
        raise UsageError(f"--date-format {date_format}: {error}") from error
    clients.require_librdkafka()
    report = Report(date_format, interval_ms / 1000, arguments.has("show-detailed-stats"))
    stats = ClientStats()
    consumer, cluster, subscription = _consumer(arguments, stats.config if arguments.has("print-metrics") else {})
    timeout_ms = arguments.integer("timeout") or 0
    if not arguments.has("hide-header"):
        print(report.header(), flush=True)
    with closing(cluster):
        is_complete = consume(consumer, subscription, report, records, timeout_ms / 1000)
    if not is_complete:
        print(
            "WARNING: Exiting before consuming the expected number of records:"
            f" timeout ({timeout_ms} ms) exceeded. You can use the --timeout option to increase the timeout."
        )
    report.finish()
    if arguments.has("print-metrics"):
        stats.print_table(consumer.poll)
    consumer.close()
    return 0


def _consumer(arguments: Arguments, more_config: dict[str, Any]) -> tuple[Consumer, Cluster, Any]:
    """Return a consumer, a cluster to list topics, and the subscription to refresh; None if librdkafka finds new
    partitions by itself."""
    from moldau.cli.kafka.console.group_member import subscribe
    from moldau.cli.kafka.console.standalone_consumer import StandaloneConsumer, first_offset
    from moldau.cli.kafka.topics import include_list

    servers = arguments.single_value("bootstrap-server") or ""
    java_config = properties.load(arguments.single_value("command-config"))
    java_config.update(key_values(arguments.values_of("command-property")))
    group = arguments.single_value("group") or java_config.get("group.id")
    start = "latest" if arguments.has("from-latest") else "earliest"
    if group is not None:
        clients.require_groups(servers, java_config)
    tool_config = {
        **TOOL_CONFIG,
        "group.id": group or "perf-consumer",
        "enable.auto.commit": group is not None,
        "auto.offset.reset": start,
        "fetch.message.max.bytes": arguments.integer("fetch-size"),
        "socket.receive.buffer.bytes": arguments.integer("socket-buffer-size"),
        **more_config,
    }
    user_config = {name: value for name, value in java_config.items() if name not in OF_FLAGS}
    consumer = clients.consumer(servers, user_config, tool_config)
    cluster = clients.cluster(servers, java_config)
    topic = arguments.single_value("topic")
    if group is None:
        topics = include_list(arguments.single_value("include")) if topic is None else topic
        return consumer, cluster, StandaloneConsumer(consumer, cluster, topics, first_offset(start))
    return consumer, cluster, subscribe(consumer, cluster, topic, arguments.single_value("include"))


def consume(consumer: Consumer, subscription: Any, report: Report, records: int, timeout_seconds: float) -> bool:
    """Read this many records. Return False if no record came for `timeout_seconds`."""
    from moldau.cli.kafka.console.standalone_consumer import StandaloneConsumer

    is_member = not isinstance(subscription, StandaloneConsumer)
    report.begin()
    last_record_time = time.monotonic()
    while report.records < records:
        now = time.monotonic()
        if now - last_record_time > timeout_seconds:
            return False
        if subscription is not None:
            subscription.refresh(now)
        messages = consumer.consume(min(MAX_RECORDS_PER_POLL, records - report.records), POLL_SECONDS)
        received = [record for record in messages if not _is_error(record, is_member)]
        if received:
            last_record_time = time.monotonic()
            keys = [key for record in received if (key := record.key()) is not None]
            report.add(len(received), sum(map(len, received)) + sum(map(len, keys)))
    return True


def _is_error(record: Any, is_member: bool) -> bool:
    """Return whether an error was delivered in place of a record; raise it if the client may not read. Without a group,
    a missing right on the group does not matter."""
    error = record.error()
    if error is None:
        return False
    refused = clients.refused_rights(error.name(), record.topic(), None)
    if refused is not None and (is_member or error.name() != "GROUP_AUTHORIZATION_FAILED"):
        raise refused
    return True


class Report:
    """The counters, and the lines printed from them."""

    def __init__(self, date_format: str, interval_seconds: float, detailed: bool) -> None:
        self._date_format = date_format
        self._interval = interval_seconds
        self._detailed = detailed
        self.records = 0
        self._bytes = 0
        self._window_records = self._window_bytes = 0
        self._first_record_at: float | None = None

    def header(self) -> str:
        return f"{'time, threadId' if self._detailed else 'start.time, end.time'}, {COLUMNS}"

    def begin(self) -> None:
        self._started = datetime.now().astimezone()
        self._start = self._window_start = time.perf_counter()

    def add(self, records: int, size: int) -> None:
        now = time.perf_counter()
        if self._first_record_at is None:
            # Until now, partitions were found or assigned, and the first fetch was connected.
            self._first_record_at = now
        self.records += records
        self._bytes += size
        if self._detailed and now - self._window_start >= self._interval:
            self._print_window(now)

    def _print_window(self, now: float) -> None:
        until_first_record = max(0.0, (self._first_record_at or now) - self._window_start)
        figures = _figures(
            (self._bytes - self._window_bytes) / MEGABYTE,
            self.records - self._window_records,
            now - self._window_start,
            min(until_first_record, now - self._window_start),
            totals=(self._bytes / MEGABYTE, self.records),
        )
        print(f"{java_date(datetime.now().astimezone(), self._date_format)}, 0, {figures}", flush=True)
        self._window_start, self._window_bytes, self._window_records = now, self._bytes, self.records

    def finish(self) -> None:
        if self._detailed:
            return
        end = time.perf_counter()
        dates = [java_date(date, self._date_format) for date in (self._started, datetime.now().astimezone())]
        until_first_record = (self._first_record_at or end) - self._start
        megabytes = self._bytes / MEGABYTE
        figures = _figures(
            megabytes, self.records, end - self._start, until_first_record, totals=(megabytes, self.records)
        )
        print(f"{', '.join(dates)}, {figures}")


def _figures(
    megabytes: float, records: int, seconds: float, until_first_record: float, totals: tuple[float, int]
) -> str:
    """Return the eight columns: the totals, and rates from `megabytes` and `records`."""
    elapsed = max(seconds, 1e-9)
    fetching = max(seconds - until_first_record, 0.001)
    return (
        f"{totals[0]:.4f}, {megabytes / elapsed:.4f}, {totals[1]}, {records / elapsed:.4f},"
        f" {int(until_first_record * 1000)}, {int(fetching * 1000)}, {megabytes / fetching:.4f},"
        f" {records / fetching:.4f}"
    )


if __name__ == "__main__":
    sys.exit(main())
