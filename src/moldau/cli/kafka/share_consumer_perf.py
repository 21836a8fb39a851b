"""kafka-share-consumer-perf-test: reads records as members of a share group, as fast as possible, and prints rates.

Each member is a thread with a share consumer, which accepts what it got with its next poll. Output is comma-separated
lines, as in kafka-consumer-perf-test.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from datetime import datetime
from threading import Event
from typing import TYPE_CHECKING, Any, Final

from moldau.cli.flags import Arguments, Flag, ToolFlags, UsageError, key_values
from moldau.cli.kafka.connection import clients, properties
from moldau.cli.kafka.java.dates import java_date
from moldau.cli.kafka.tool import run

if TYPE_CHECKING:
    from moldau.client.confluent_share import ShareConsumer

MEGABYTE: Final = 1024 * 1024
POLL_SECONDS: Final = 0.1
COLUMNS: Final = "start.time, end.time, data.consumed.in.MB, MB.sec, nMsg.sec, data.consumed.in.nMsg, fetch.time.ms"
OF_FLAGS: Final = frozenset({"group.id", "fetch.max.bytes", "receive.buffer.bytes", "check.crcs"})
"""Properties that flags set. As in Kafka, the flags and their defaults override the user's properties."""

FLAGS = ToolFlags(
    "This tool is used to verify the share consumer performance.",
    (
        Flag("bootstrap-server", "REQUIRED: Brokers to connect to, HOST:PORT.", "server to connect to"),
        Flag("topic", "REQUIRED: The topic to read.", "topic"),
        Flag("num-records", "REQUIRED: How many records to read.", "count", "Long"),
        Flag("messages", "(DEPRECATED: use --num-records) How many records to read.", "count", "Long"),
        Flag("group", "The share group to be members of.", "gid", default="perf-share-consumer"),
        Flag("threads", "How many members share the records.", "count", "Integer", "1"),
        Flag("fetch-size", "Maximum bytes to fetch at once.", "size", "Integer", "1048576"),
        Flag("socket-buffer-size", "The size of the socket's receive buffer.", "size", "Integer", "2097152"),
        Flag(
            "timeout", "End when no record came for this long.", "milliseconds", "Long", "10000", argument_optional=True
        ),
        Flag("show-detailed-stats", "Print the progress of every reporting interval."),
        Flag("show-consumer-stats", "Print a line for each member at the end."),
        Flag("reporting-interval", "How often progress is printed, in ms.", "interval_ms", "Long", "5000"),
        Flag(
            "date-format",
            "How times are written, in the letters of SimpleDateFormat.",
            "date format",
            default="yyyy-MM-dd HH:mm:ss:SSS",
        ),
        Flag("hide-header", "Leave out the line of column names."),
        Flag("print-metrics", "Print the clients' statistics at the end."),
        Flag("command-property", "A property of the consumer, key=value. Repeatable.", "prop1=val1"),
        Flag("command-config", "A file of consumer properties.", "config file"),
        Flag("consumer.config", "A file of consumer properties.", "config file", replaced_by="command-config"),
    ),
    warning="Warning: --{old} is deprecated. Use --{new} instead.",
    conflict_message='Option "[{old}]" can\'t be used with option "[{new}]"',
)


def main(argv: Sequence[str] | None = None) -> int:
    return run("kafka-share-consumer-perf-test", FLAGS, _main, argv)


def _main(arguments: Arguments) -> int:
    arguments.require("topic", "bootstrap-server")
    arguments.require_exactly_one("messages", "num-records")
    if arguments.has("messages"):
        print("Warning: --messages is deprecated. Use --num-records instead.")
    records = arguments.integer("messages" if arguments.has("messages") else "num-records") or 0
    timeout_ms = arguments.integer("timeout") or 0
    report = _report(arguments)
    with _members(arguments) as members:
        if not arguments.has("hide-header"):
            print(COLUMNS, flush=True)
        report.begin()
        consume(members, records, timeout_ms / 1000, report)
        report.end()
        if arguments.has("show-consumer-stats"):
            report.print_members(members)
        if sum(member.records for member in members) < records:
            print(
                "WARNING: Exiting before consuming the expected number of records:"
                f" timeout ({timeout_ms} ms) exceeded. You can use the --timeout option to increase the timeout."
            )
        for member in members:
            member.consumer.commit_sync()
        report.print_group(members)
        if arguments.has("print-metrics"):
            for member in members:
                member.stats.print_table(member.serve_callbacks)
    return 0


class Member:
    """A share consumer, and what it has read."""

    def __init__(self, number: int, client_id: str) -> None:
        from moldau.cli.kafka.performance.client_stats import ClientStats

        self.number = number
        self.client_id = client_id
        self.stats = ClientStats()
        self.records = self.bytes = 0
        self.consumer: ShareConsumer

    def poll(self) -> bool:
        """Read what there is, and return whether it was a record. What the last poll returned is accepted."""
        with clients.client_errors():
            polled = self.consumer.poll(POLL_SECONDS)
        records = [record for record in polled if not _is_error(record)]
        self.records += len(records)
        self.bytes += sum(map(len, records)) + sum(len(key) for record in records if (key := record.key()) is not None)
        return bool(records)

    def serve_callbacks(self, seconds: float) -> None:
        """Wait, and let librdkafka call back, without reading more."""
        self.consumer.commit_async()
        time.sleep(seconds)


def _is_error(record: Any) -> bool:
    """Return whether an error was delivered in place of a record; raise it if the client may not read."""
    error = record.error()
    if error is None:
        return False
    if (refused := clients.refused_rights(error.name(), record.topic(), None)) is not None:
        raise refused
    return True


@contextmanager
def _members(arguments: Arguments) -> Iterator[list[Member]]:
    """Yield the members of the group, which subscribe to the topic; at the end they leave."""
    java_config = properties.load(arguments.single_value("command-config"))
    java_config.update(key_values(arguments.values_of("command-property")))
    client_id = java_config.get("client.id", "perf-share-consumer-client")
    user_config = {name: java_config[name] for name in java_config if name not in (*OF_FLAGS, "client.id")}
    tool_config = {
        "group.id": arguments.single_value("group"),
        "fetch.max.bytes": arguments.integer("fetch-size"),
        "socket.receive.buffer.bytes": arguments.integer("socket-buffer-size"),
        "check.crcs": False,
    }
    threads = arguments.integer("threads") or 0
    if threads < 1:
        raise UsageError("--threads must be greater than 0.")
    members: list[Member] = []
    try:
        for number in range(1, threads + 1):
            member = Member(number, client_id if threads == 1 else f"{client_id}-{number}")
            config = {**tool_config, "client.id": member.client_id}
            config |= member.stats.config if arguments.has("print-metrics") else {}
            servers = arguments.single_value("bootstrap-server") or ""
            member.consumer = clients.share_consumer(servers, user_config, config)
            members.append(member)
            member.consumer.subscribe([arguments.single_value("topic") or ""])
        yield members
    finally:
        for member in members:
            member.consumer.close()


def consume(members: Sequence[Member], records: int, timeout_seconds: float, report: Report) -> None:
    """Let each member read in a thread of its own, until they have so many records or none comes for so long."""
    stopped = Event()

    def read(member: Member) -> None:
        window = Window(member)
        last_record_time = time.monotonic()
        while sum(each.records for each in members) < records and not stopped.is_set():
            now = time.monotonic()
            if now - last_record_time > timeout_seconds:
                return
            if member.poll():
                last_record_time = time.monotonic()
                report.print_progress(window)

    with ThreadPoolExecutor(len(members)) as threads:
        try:
            readers = [threads.submit(read, member) for member in members]
            wait(readers, return_when=FIRST_EXCEPTION)
        finally:
            stopped.set()
    for reader in readers:
        reader.result()


class Window:
    """The time since a member's last line of progress."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self.begin()

    def begin(self) -> None:
        self.start, self.start_date = time.perf_counter(), datetime.now().astimezone()
        self.records, self.bytes = self.member.records, self.member.bytes


def _report(arguments: Arguments) -> Report:
    interval_ms = arguments.integer("reporting-interval") or 0
    if interval_ms <= 0:
        raise UsageError("Reporting interval must be greater than 0.")
    date_format = arguments.single_value("date-format") or ""
    try:
        java_date(datetime.now().astimezone(), date_format)
    except ValueError as error:
        raise UsageError(f"--date-format {date_format}: {error}") from error
    return Report(date_format, interval_ms / 1000, arguments.has("show-detailed-stats"))


class Report:
    """The lines, and the times in them."""

    def __init__(self, date_format: str, interval_seconds: float, detailed: bool) -> None:
        self._date_format = date_format
        self._interval = interval_seconds
        self._detailed = detailed

    def begin(self) -> None:
        self._start, self._start_date = time.perf_counter(), datetime.now().astimezone()

    def end(self) -> None:
        self._seconds, self._end_date = time.perf_counter() - self._start, datetime.now().astimezone()

    def print_progress(self, window: Window) -> None:
        """Print what a member has read since its last line, if that is long enough ago."""
        seconds = time.perf_counter() - window.start
        if not self._detailed or seconds < self._interval:
            return
        member, end_date = window.member, datetime.now().astimezone()
        figures = _figures(
            member.bytes, member.records, seconds, member.bytes - window.bytes, member.records - window.records
        )
        line = f"{self._dates(window.start_date, end_date)}, {figures} for share consumer {member.number}\n"
        print(line, end="", flush=True)  # the end with it: other members print too
        window.begin()

    def print_members(self, members: Sequence[Member]) -> None:
        for member in members:
            figures = _figures(member.bytes, member.records, self._seconds, member.bytes, member.records)
            who = f"Share consumer {member.number} having client id {member.client_id}"
            print(f"{who} consumption metrics- {self._dates(self._start_date, self._end_date)}, {figures}")

    def print_group(self, members: Sequence[Member]) -> None:
        size, records = sum(member.bytes for member in members), sum(member.records for member in members)
        dates = self._dates(self._start_date, self._end_date)
        print(f"{dates}, {_figures(size, records, self._seconds, size, records)}", flush=True)

    def _dates(self, start: datetime, end: datetime) -> str:
        return f"{java_date(start, self._date_format)}, {java_date(end, self._date_format)}"


def _figures(total_bytes: int, total_records: int, seconds: float, read_bytes: int, read_records: int) -> str:
    """Return the five columns after the dates: the totals, and the rates of what was read in these seconds."""
    elapsed = max(seconds, 1e-9)
    return (
        f"{total_bytes / MEGABYTE:.4f}, {read_bytes / MEGABYTE / elapsed:.4f}, {read_records / elapsed:.4f},"
        f" {total_records}, {int(seconds * 1000)}"
    )


if __name__ == "__main__":
    sys.exit(main())
