"""The loop of the console consumers: polls records, prints them with the formatter that the flags choose, counts them.

Where records come from, and what is to be done with a printed one, is a `RecordSource`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from typing import IO, Any, Final, Protocol

from moldau.cli.flags import Arguments, key_values
from moldau.cli.kafka.connection import clients, properties
from moldau.cli.kafka.console.record_lines import Formatter
from moldau.cli.kafka.tool import ToolFailed, discard_stdout, print_to_stderr
from moldau.cli.stop_signals import StopSignals

POLL_SECONDS: Final = 0.2
"""How long one poll waits, which is the longest time until Ctrl-C is noticed."""
MAX_RECORDS_PER_POLL: Final = 1000
ENDING: Final = frozenset({"_AUTO_OFFSET_RESET", "_FATAL", "INCONSISTENT_GROUP_PROTOCOL"})
"""Errors that end the tool, as they end Kafka's: there is nowhere to begin (auto.offset.reset=none), the consumer
protocol has refused the member, the group is of another type."""
FORMATTERS: Final = (
    "DefaultMessageFormatter",
    "LoggingMessageFormatter",
    "NoOpMessageFormatter",
    "TransactionLogMessageFormatter",
    "OffsetsMessageFormatter",
    "GroupMetadataMessageFormatter",
)
"""The last part of each class name; the last three print the topics __transaction_state and __consumer_offsets."""


class RecordSource(Protocol):
    skipping: str
    """What is done with a record that cannot be printed if that is no error: "skipped"."""

    def poll(self, wait_seconds: float, count: int) -> list[Any]:
        """Return so many records or fewer. Among them may be errors in the place of records."""

    def on_printed(self, records: Sequence[Any]) -> None: ...

    def on_unprintable(self, record: Any, skipped: bool) -> None: ...

    def close(self) -> None: ...


class RecordFormatter(Protocol):
    """Turns records into the bytes to print, line ends included."""

    def lines(self, records: Iterable[Any]) -> bytes: ...


def chosen_formatter(arguments: Arguments) -> RecordFormatter | None:
    """Return the formatter named by the flags, or None if records are only counted and not printed."""
    # Scripts name the class with its package: org.apache.kafka.tools.consumer.DefaultMessageFormatter.
    name = (arguments.single_value("formatter") or FORMATTERS[0]).rpartition(".")[2]
    if name not in FORMATTERS:
        raise ToolFailed(f"--formatter {name} is unknown; use one of {', '.join(FORMATTERS)}")
    match name:
        case "NoOpMessageFormatter":
            return None
        case "TransactionLogMessageFormatter":
            from moldau.cli.kafka.log_dump.transaction_log_lines import transaction_log_formatter

            return transaction_log_formatter()
        case "OffsetsMessageFormatter" | "GroupMetadataMessageFormatter":
            from moldau.cli.kafka.log_dump.offsets_lines import group_metadata_formatter, offsets_formatter

            return offsets_formatter() if name.startswith("Offsets") else group_metadata_formatter()
    props = {
        **properties.load(arguments.single_value("formatter-config")),
        **key_values(arguments.values_of("formatter-property")),
    }
    for flag in ("key-deserializer", "value-deserializer"):
        if arguments.has(flag):
            props[flag.replace("-", ".")] = arguments.single_value(flag) or ""
    return Formatter(props)


class PrintLoop:
    """Polls records, prints and counts them, until the limit, the timeout or a signal.

    `limit` is the highest number of records and `timeout_ms` the longest time without one; None or -1 means no end.
    `joined_group` is None if partitions are assigned.
    """

    def __init__(
        self,
        records: RecordSource,
        formatter: RecordFormatter | None,
        limit: int | None,
        timeout_ms: int | None,
        skip_errors: bool,
        joined_group: str | None = None,
    ) -> None:
        self._records = records
        self._formatter = formatter
        self._limit = limit
        self._timeout = None if timeout_ms is None or timeout_ms < 0 else timeout_ms / 1000
        self._skip_errors = skip_errors
        self._joined_group = joined_group
        self._reported: set[str] = set()
        self.count = 0

    def run(self, stop: StopSignals) -> None:
        out = sys.stdout.buffer
        last_record_time = time.monotonic()
        while not stop.exit_status and (self._limit is None or self._limit < 0 or self.count < self._limit):
            now = time.monotonic()
            if self._timeout is not None and now - last_record_time >= self._timeout:
                return
            wait_seconds = POLL_SECONDS
            if self._timeout is not None:
                wait_seconds = min(wait_seconds, self._timeout - (now - last_record_time))
            records = self._poll(wait_seconds)
            if records:
                self._print(out, records)
                last_record_time = time.monotonic()

    def close(self) -> None:
        self._records.close()

    def _poll(self, wait_seconds: float) -> list[Any]:
        """Return the records that have arrived, at most up to the limit."""
        count = MAX_RECORDS_PER_POLL
        if self._limit is not None and self._limit >= 0:
            count = min(count, self._limit - self.count)
        records = self._records.poll(max(0.0, wait_seconds), count)
        return [record for record in records if not self._report_error(record)]

    def _report_error(self, record: Any) -> bool:
        """Return whether librdkafka delivered an error in place of a record, and print it unless it was printed before.

        Raise ClientError if the error is fatal or one of ENDING, ToolFailed if the client may not read: it would wait
        for ever.
        """
        error = record.error()
        if error is None:
            return False
        line = clients.describe_error(error)
        if error.fatal() or error.name() in ENDING:
            raise clients.ClientError(error)
        if error.name() == "GROUP_AUTHORIZATION_FAILED" and self._joined_group is None:
            return True  # who assigns partitions needs no group
        if (refused := clients.refused_rights(error.name(), record.topic(), self._joined_group)) is not None:
            raise refused
        if line not in self._reported:
            self._reported.add(line)
            print_to_stderr(f"WARN {line}")
        return True

    def _print(self, out: IO[bytes], records: list[Any]) -> None:
        try:
            lines = b"" if self._formatter is None else self._formatter.lines(records)
        except ToolFailed:
            # One of the records cannot be printed, and it is not known which.
            self._print_one_by_one(out, records)
            return
        # Count before writing: if the write fails, the tool still prints the number of records it has read.
        self.count += len(records)
        out.write(lines)
        out.flush()
        self._records.on_printed(records)

    def _print_one_by_one(self, out: IO[bytes], records: list[Any]) -> None:
        """Print up to the record that cannot be printed; then raise its error, or skip it with a warning and go on."""
        assert self._formatter is not None
        for record in records:
            self.count += 1
            try:
                out.write(self._formatter.lines([record]))
            except ToolFailed as error:
                self._records.on_unprintable(record, self._skip_errors)
                if not self._skip_errors:
                    raise
                print_to_stderr(f"WARN {error}; the record is {self._records.skipping}")
            else:
                self._records.on_printed([record])
            out.flush()


def run_to_end(print_loop: PrintLoop, *, prints_events: bool = False) -> int:
    """Run the loop to its end, print how many records were read, and return the exit status."""
    # Also around the close: a signal must not interrupt the commit and the leave, and a second one ends the process.
    with StopSignals() as stop:
        try:
            print_loop.run(stop)
        except BrokenPipeError:
            # `| head` closed the pipe. Kafka ends with status 0 then.
            print_loop.close()
            discard_stdout()
            return 0
        except BaseException:
            _finish(print_loop, prints_events)
            raise
        _finish(print_loop, prints_events)
        return stop.exit_status


def _finish(print_loop: PrintLoop, prints_events: bool) -> None:
    if prints_events:
        print("shutdown_complete")
    print_loop.close()
    print_to_stderr(f"Processed a total of {print_loop.count} messages")
