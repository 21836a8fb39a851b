"""`moldau produce`: send each line of stdin or of files as a record.

The loop is the hot path of the command: per line one parse, one call into librdkafka, and two comparisons in the
delivery report. input.py parses the lines.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

import click

from moldau.cli.completion import complete_topics
from moldau.cli.connect import Broker, CommandFailed, broker_options, failure, key_values_callback
from moldau.cli.output import progress_bar
from moldau.cli.partition_offsets import partitions_of
from moldau.cli.records.input import BadRecord, Headers, LineParser, envelope_parser, line_parser
from moldau.cli.view.views import source_of

REFUSALS: Final = ("TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED")
"""Errors for who may not write. The second comes if the user may write to no topic at all: then it may not have the
producer id that each producer asks for first."""
POLL_EVERY_LINES: Final = 1000
READ_BUFFER_BYTES: Final = 1 << 20
PARTITIONER: Final = "murmur2_random"
"""The Java client's partitioner: a key goes to the same partition as with every other Kafka client."""
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")


@dataclass(slots=True)
class DeliveredRecords:
    """The records delivered to one partition. The offsets are -1 with acks=0: then the broker sends no response."""

    count: int
    first_offset: int
    last_offset: int


class Deliveries:
    """The delivery reports of the records that were sent: how many, and which offsets in which partition."""

    def __init__(self) -> None:
        self.by_partition: dict[int, DeliveredRecords] = {}
        self.failed = 0
        self.first_error: Any = None

    def report(self, error: Any, message: Any) -> None:
        """The delivery callback of each record."""
        if error is not None:
            self.failed += 1
            self.first_error = self.first_error or error
            return
        offset: int = message.offset()
        delivered = self.by_partition.get(message.partition())
        if delivered is None:
            self.by_partition[message.partition()] = DeliveredRecords(1, offset, offset)
            return
        delivered.count += 1
        if offset > delivered.last_offset:
            delivered.last_offset = offset
        elif offset < delivered.first_offset:
            delivered.first_offset = offset

    def summary(self, topic: str) -> str:
        """Return `3 records to orders: partition 0 offsets 7-8, partition 1 offset 4`."""
        count = sum(delivered.count for delivered in self.by_partition.values())
        text = f"{count} record{'s' if count != 1 else ''} to {topic}"
        ranges = []
        for partition, delivered in sorted(self.by_partition.items()):
            first, last = delivered.first_offset, delivered.last_offset
            if first >= 0:
                ranges.append(f"partition {partition} offset{f' {first}' if first == last else f's {first}-{last}'}")
        return f"{text}: {', '.join(ranges)}" if ranges else text


def send_lines(
    producer: Any, topic: str, lines: Iterable[bytes], parse: LineParser, partition: int, eager: bool
) -> Deliveries:
    """Send every line. Stop at the first line that is not a record, or when the delivery of a record has failed. The
    lines before an error are sent in any case.

    `partition` is -1 if the producer chooses it by the key. An envelope's own partition counts only then. With `eager`,
    look for failures after every line, not only after many.
    """
    from moldau.client.confluent import KafkaException

    deliveries = Deliveries()
    produce, report, poll = producer.produce, deliveries.report, producer.poll
    poll_every = 1 if eager else POLL_EVERY_LINES
    try:
        for number, line in enumerate(lines, 1):
            try:
                value, key, headers, record_partition, timestamp = parse(line)
            except BadRecord as error:
                _serve(producer.flush, deliveries)
                raise CommandFailed(f"line {number}: {error} ({deliveries.summary(topic)} before it)") from error
            target = partition if record_partition is None or partition >= 0 else record_partition
            extra: dict[str, Any] = {"timestamp": timestamp} if timestamp is not None else {}
            if headers:
                extra["headers"] = headers
            while True:
                try:
                    produce(topic, value, key, target, on_delivery=report, **extra)
                    break
                except BufferError:
                    poll(0.1)
            if number % poll_every == 0:
                _serve(lambda: poll(0), deliveries)
                if deliveries.first_error is not None:
                    break
    except KafkaException as error:  # of `produce`: the record is too long, or its partition does not exist
        deliveries.report(error.args[0], None)
    except OSError:  # of the input
        _serve(producer.flush, deliveries)
        raise
    _serve(producer.flush, deliveries)
    return deliveries


def _serve(call: Callable[[], object], deliveries: Deliveries) -> None:
    """Let the producer report deliveries. A fatal error of librdkafka is raised out of it, sometimes wrapped."""
    from moldau.client.confluent import KafkaException

    try:
        call()
    except (KafkaException, SystemError) as raised:
        error = raised.__cause__ if isinstance(raised, SystemError) else raised
        if not isinstance(error, KafkaException):
            raise
        deliveries.first_error = error.args[0]


def lines_of(stream: BinaryIO) -> Iterator[bytes]:
    """Yield lines without their newline. If the last line has no newline, yield it too unless it is empty."""
    for line in stream:
        yield line[:-1] if line.endswith(b"\n") else line


def lines_of_files(paths: Iterable[str], progress: Callable[[int], None]) -> Iterator[bytes]:
    """Yield the lines of all files, without newlines, and call `progress` with the bytes read since its last call."""
    unreported_bytes = 0
    for path in paths:
        with open(path, "rb", buffering=READ_BUFFER_BYTES) as stream:
            for line in stream:
                unreported_bytes += len(line)
                if unreported_bytes >= READ_BUFFER_BYTES:
                    progress(unreported_bytes)
                    unreported_bytes = 0
                yield line[:-1] if line.endswith(b"\n") else line
    progress(unreported_bytes)


@click.command()
@click.argument("topic", shell_complete=complete_topics)
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False))
@click.option("-k", "--key", help="The key of every record.")
@click.option("-K", "--key-separator", metavar="TEXT", help="Each line is KEY TEXT VALUE; \\t is a tab.")
@click.option(
    "-H", "--header", multiple=True, metavar="K=V", callback=key_values_callback, help="A header. Repeatable."
)
@click.option("-p", "--partition", type=click.IntRange(min=0), help="The partition. Default: chosen by the key.")
@click.option("-z", "--compression", type=click.Choice(CODECS), default="none", show_default=True, help="The codec.")
@click.option(
    "--acks", type=click.Choice(["0", "1", "all"]), default="all", show_default=True, help="Who must have it."
)
@click.option("-Z", "--null", "empty_is_null", is_flag=True, help="An empty value is a null: a tombstone.")
@click.option("--json", "envelopes", is_flag=True, help="Each line is a JSON envelope, as `consume --json` prints.")
@broker_options
def produce(
    broker: Broker,
    topic: str,
    files: tuple[str, ...],
    key: str | None,
    key_separator: str | None,
    header: dict[str, str],
    partition: int | None,
    compression: str,
    acks: str,
    empty_is_null: bool,
    envelopes: bool,
) -> None:
    """Write each line of FILES, or of stdin, to TOPIC as a record.

    \b
    echo hello | moldau produce orders
    moldau produce orders -K : -z zstd < key-value-lines.txt
    moldau consume orders --json -o :end | moldau produce copy --json
    echo '{"key": "a", "value": {"n": 1}, "headers": {"source": "me"}}' | moldau produce orders --json
    """
    if envelopes and (key is not None or key_separator is not None or empty_is_null):
        raise click.UsageError("with --json the key and the null are in the envelope: leave -k, -K and -Z out")
    headers: Headers = [(_header_name(name), _bytes(value)) for name, value in header.items()]
    separator = _separator(key_separator)
    parse = (
        envelope_parser(headers)
        if envelopes
        else line_parser(_bytes(key) if key is not None else None, separator, empty_is_null, headers)
    )
    _check_target(broker, topic, partition)
    producer = broker.producer(_producer_config(compression, acks))
    target = -1 if partition is None else partition
    if files:
        deliveries = _send_files(producer, topic, files, parse, target)
    else:
        deliveries = _send_stdin(producer, topic, parse, target)
    click.echo(deliveries.summary(topic), err=True)
    if deliveries.first_error is not None and deliveries.first_error.name() in REFUSALS:
        raise CommandFailed(
            f"this user may not write to {topic}; `moldau acl allow USER --role producer --topic {topic}`, by an"
            " administrator, allows it"
        )
    if deliveries.first_error is not None and (source := _source_of(broker, topic, deliveries.first_error)):
        raise CommandFailed(f"{topic} is a view of {source} and cannot be written; produce to {source}")
    if deliveries.first_error is not None:
        were = "record was" if deliveries.failed == 1 else "records were"
        raise failure(deliveries.first_error, f"{deliveries.failed} {were} not written to {topic}")


def _source_of(broker: Broker, topic: str, error: Any) -> str | None:
    """Return what the topic is a view of, if that may be why the broker refused the records."""
    return source_of(broker, topic) if error.name() == "POLICY_VIOLATION" else None


def _separator(text: str | None) -> bytes | None:
    if text == "":
        raise click.UsageError("-K needs at least one character", click.get_current_context())
    if text is None or "\\" not in text:
        return None if text is None else _bytes(text)
    try:
        return _bytes(text).decode("unicode_escape").encode("latin-1")  # each byte of UTF-8 becomes itself again
    except UnicodeError as error:
        message = f"-K {text}: a backslash begins an escape such as \\t, \\x1f or \\\\"
        raise click.UsageError(message, click.get_current_context()) from error


def _bytes(argument: str) -> bytes:
    """Return the bytes of a command line's argument, which need not be UTF-8."""
    return argument.encode("utf-8", "surrogateescape")


def _header_name(name: str) -> str:
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise click.UsageError(f"-H {name!a}: a header's name is UTF-8", click.get_current_context()) from error
    return name


def _check_target(broker: Broker, topic: str, partition: int | None) -> None:
    """Fail if the partition does not exist. If the topic does not, leave it to the broker, which may create it."""
    metadata = broker.metadata()
    if topic in metadata.topics and partition is not None:
        partitions_of(metadata.topics[topic], [partition])


def _producer_config(compression: str, acks: str) -> dict[str, Any]:
    return {
        "compression.type": compression,
        "acks": acks,
        "enable.idempotence": acks == "all",
        "partitioner": PARTITIONER,
        "linger.ms": 20,
        "queue.buffering.max.messages": 500_000,
        "queue.buffering.max.kbytes": 256 << 10,
        "message.timeout.ms": 30_000,
    }


def _send_stdin(producer: Any, topic: str, parse: LineParser, partition: int) -> Deliveries:
    """Send a file in bulk; from a terminal or a pipe send each line at once, and report its failure at once."""
    eager = not stat.S_ISREG(os.fstat(sys.stdin.fileno()).st_mode) if _has_descriptor() else False
    return send_lines(producer, topic, lines_of(sys.stdin.buffer), parse, partition, eager)


def _has_descriptor() -> bool:
    try:
        sys.stdin.fileno()
    except (OSError, ValueError):
        return False
    return True


def _send_files(producer: Any, topic: str, files: tuple[str, ...], parse: LineParser, partition: int) -> Deliveries:
    with progress_bar(topic, sum(os.path.getsize(path) for path in files)) as progress:
        return send_lines(producer, topic, lines_of_files(files, progress), parse, partition, eager=False)
