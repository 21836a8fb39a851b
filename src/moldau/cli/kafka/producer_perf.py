"""kafka-producer-perf-test: writes records as fast as possible, or at a limited rate; prints rates and latencies.

The loop makes one call per record; delivery reports carry the latency, so no clock is read per record.
"""

from __future__ import annotations

import random
import string
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, cycle, islice
from typing import TYPE_CHECKING, Any, Final

from moldau.cli.flags import JAVA_BITS, Arguments, Flag, ToolFlags, UsageError, key_values
from moldau.cli.kafka.connection import clients, properties
from moldau.cli.kafka.console_producer import Failures
from moldau.cli.kafka.java.numbers import parse_integer
from moldau.cli.kafka.performance.latencies import Latencies
from moldau.cli.kafka.tool import ToolFailed, run

if TYPE_CHECKING:
    from moldau.client.confluent import Producer

POOL_BYTES: Final = 8 << 20
POOL_RECORDS_MAX: Final = 1024
"""Random payloads are generated beforehand and reused in turn, so that generating them is not measured."""
POLL_EVERY: Final = 512
FULL_QUEUE_SECONDS: Final = 0.05
TRANSACTION_MS: Final = 3000

# Not idempotent by default: librdkafka takes half a second to get a producer id, which would distort a short run.
TOOL_CONFIG: Final = {
    "client.id": "perf-producer-client",
    "partitioner": "murmur2_random",
    "queue.buffering.max.kbytes": 32768,  # Java's buffer.memory: latency is mostly the time spent in this queue
    "linger.ms": 5,
    "topic.metadata.propagation.max.ms": 10_000,
}
TOOL: Final = "kafka-producer-perf-test"

FLAGS = ToolFlags(
    "This tool is used to verify the producer performance.",
    (
        Flag("bootstrap-server", "Brokers to connect to, HOST:PORT.", "BOOTSTRAP-SERVER"),
        Flag("topic", "REQUIRED: The topic to write to.", "TOPIC"),
        Flag("num-records", "REQUIRED: How many records to write.", "NUM-RECORDS", "Long"),
        Flag("record-size", "Records of this many random letters.", "RECORD-SIZE", "Integer"),
        Flag("payload-file", "Records taken at random from the lines of a file.", "PAYLOAD-FILE"),
        Flag("payload-monotonic", "Records that count from 0."),
        Flag("payload-delimiter", "The separator of records in --payload-file.", "PAYLOAD-DELIMITER", default="\\n"),
        Flag("throughput", "REQUIRED: At most about this many records a second; -1: no limit.", "THROUGHPUT", "Double"),
        Flag(
            "command-property",
            "Properties of the producer, key=value.",
            "PROP-NAME=PROP-VALUE",
            takes_several_words=True,
        ),
        Flag(
            "producer-props",
            "Properties of the producer.",
            "K=V",
            replaced_by="command-property",
            takes_several_words=True,
        ),
        Flag("command-config", "A file of producer properties.", "CONFIG-FILE"),
        Flag("producer.config", "A file of producer properties.", "CONFIG-FILE", replaced_by="command-config"),
        Flag("print-metrics", "Print the client's statistics at the end."),
        Flag("transactional-id", "Write in transactions, under this id.", "TRANSACTIONAL-ID"),
        Flag("transaction-duration-ms", "How long each transaction lasts.", "TRANSACTION-DURATION", "Long"),
        Flag("warmup-records", "Leave this many first records out of a second summary.", "WARMUP-RECORDS", "Long", "0"),
        Flag("reporting-interval", "How often progress is printed, in ms.", "INTERVAL-MS", "Long", "5000"),
    ),
    warning="Option --{old} has been deprecated and will be removed in a future version. Use --{new} instead.",
    conflict_message=f"{TOOL}: error: --{{new}} and --{{old}} cannot be specified together.",
)


def main(argv: Sequence[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    if not words:
        print(FLAGS.help())
        return 0
    return run(TOOL, FLAGS, _main, words, help_to_stdout=True)


@dataclass(frozen=True, slots=True)
class Plan:
    topic: str
    records: int
    per_second: float
    warmup: int
    interval_seconds: float
    transaction_seconds: float | None
    payloads: Iterator[bytes]


def _main(arguments: Arguments) -> int:
    from moldau.cli.kafka.performance.client_stats import ClientStats
    from moldau.client.confluent import KafkaException

    _check(arguments)
    clients.require_librdkafka()
    java_config = _java_config(arguments)
    servers = java_config.pop("bootstrap.servers", "")
    plan = _plan(arguments, java_config)
    stats = ClientStats()
    failures = Failures()
    tool_config = {**TOOL_CONFIG, **(stats.config if arguments.has("print-metrics") else {})}
    if plan.transaction_seconds is not None:
        java_config.setdefault("transactional.id", f"performance-producer-{uuid.uuid4()}")
    producer = clients.producer(servers, java_config, tool_config)
    try:
        Run(plan, producer, failures).send_all()
    except KafkaException as error:
        raise clients.ClientError(error.args[0]) from error
    if arguments.has("print-metrics"):
        stats.print_table(producer.poll)
    return failures.report_total(0)


def _check(arguments: Arguments) -> None:
    for name in ("topic", "num-records", "throughput"):
        if not arguments.has(name):
            raise _error(f"argument --{name} is required")
    kinds = ("record-size", "payload-file", "payload-monotonic")
    selected = [name for name in kinds if arguments.has(name)]
    if not selected:
        raise _error(f"one of the arguments {' '.join(f'--{name}' for name in kinds)} is required")
    if len(selected) > 1:
        raise _error(f"argument --{selected[1]}: not allowed with argument --{selected[0]}")
    for name in ("num-records", "record-size", "transaction-duration-ms", "reporting-interval"):
        if arguments.has(name) and _number(arguments, name) <= 0:
            raise _error(f"--{name} should be greater than zero.")
    if _number(arguments, "warmup-records") >= _number(arguments, "num-records"):
        raise _error("The value for --warmup-records must be strictly fewer than the number of records in the test.")
    if not any(map(arguments.has, ("bootstrap-server", "command-property", "command-config"))):
        raise _error(
            "At least one of --bootstrap-server, --command-property, --producer-props, --producer.config"
            " or --command-config must be specified."
        )


def _error(message: str) -> UsageError:
    return UsageError(f"{TOOL}: error: {message}")


def _number(arguments: Arguments, name: str) -> int:
    text = arguments.single_value(name) or "0"
    try:
        return parse_integer(text, JAVA_BITS[FLAGS.java_type(name)])
    except ValueError as error:
        message = f"could not convert '{text}' to {FLAGS.java_type(name)} ({error})"
        raise _error(f"argument --{name}: {message}") from None


def _throughput(arguments: Arguments) -> float:
    text = arguments.single_value("throughput") or "-1"
    try:
        if "_" in text:  # float() ignores it, Java refuses it
            raise ValueError
        return float(text)
    except ValueError:
        message = f"could not convert '{text}' to Double (For input string: \"{text}\")"
        raise _error(f"argument --throughput: {message}") from None


def _java_config(arguments: Arguments) -> dict[str, str]:
    java_config = properties.load(arguments.single_value("command-config"))
    java_config.update(key_values(arguments.values_of("command-property")))
    if arguments.has("bootstrap-server"):
        java_config["bootstrap.servers"] = arguments.single_value("bootstrap-server") or ""
    if arguments.has("transactional-id"):
        java_config["transactional.id"] = arguments.single_value("transactional-id") or ""
    return java_config


def _plan(arguments: Arguments, java_config: dict[str, str]) -> Plan:
    in_transactions = arguments.has("transaction-duration-ms") or "transactional.id" in java_config
    duration_ms = _number(arguments, "transaction-duration-ms") or TRANSACTION_MS
    return Plan(
        topic=arguments.single_value("topic") or "",
        records=_number(arguments, "num-records"),
        per_second=_throughput(arguments),
        warmup=max(_number(arguments, "warmup-records"), 0),
        interval_seconds=_number(arguments, "reporting-interval") / 1000,
        transaction_seconds=duration_ms / 1000 if in_transactions else None,
        payloads=_payloads(arguments),
    )


def _payloads(arguments: Arguments) -> Iterator[bytes]:
    """Return an endless iterator of payloads."""
    if arguments.has("payload-monotonic"):
        return (b"%d" % number for number in count())
    rng = random.Random(0)
    if arguments.has("record-size"):
        return cycle(random_records(_number(arguments, "record-size"), rng))
    lines = _file_records(
        arguments.single_value("payload-file") or "", arguments.single_value("payload-delimiter") or "\n"
    )
    return iter(lambda: rng.choice(lines), None)


def random_records(size: int, rng: random.Random) -> list[bytes]:
    """Return random capital letters, which Kafka's tool sends too: like real records, they compress a little."""
    letters = (string.ascii_uppercase * 10)[:256].encode()
    amount = max(1, min(POOL_RECORDS_MAX, POOL_BYTES // size))
    return [rng.randbytes(size).translate(letters) for _ in range(amount)]


def _file_records(path: str, delimiter: str) -> list[bytes]:
    import os.path

    print(f"Reading payloads from: {os.path.abspath(path)}")
    try:
        with open(path, "rb") as file:
            text = file.read()
    except OSError as error:
        raise ToolFailed(f"File does not exist or empty file provided: {path}: {error.strerror}") from error
    if not text:
        raise ToolFailed(f"File does not exist or empty file provided: {path}")
    divider = delimiter.encode().decode("unicode_escape").encode()
    records = text.split(divider)
    if not records[-1]:
        records.pop()
    print(f"Number of records read: {len(records)}")
    return records


class Run:
    """One run: the sending loop, and the latencies of all records and of those after the warm-up."""

    def __init__(self, plan: Plan, producer: Producer, failures: Failures) -> None:
        self._plan = plan
        self._producer = producer
        self._failures = failures
        self._bytes = self._sent = 0
        self._latencies: list[Latencies] = []
        """Of all records; after the warm-up also of those since then."""

    def send_all(self) -> None:
        plan, producer = self._plan, self._producer
        self._begin()
        if plan.warmup:
            print(
                f"Warmup first {plan.warmup} records. Steady state results will print after the complete test summary.",
                flush=True,
            )
        self._start = self._next_report = time.perf_counter()
        self._next_report += plan.interval_seconds
        self._transaction_end = self._start + (plan.transaction_seconds or 0)
        whole = Latencies(self._start)
        self._latencies = [whole]
        self._send(plan.warmup, _delivery_callback(self._failures, whole))
        steady = None
        if plan.warmup:
            print("In steady state.", flush=True)
            now = time.perf_counter()
            steady = Latencies(now, steady=True)
            self._latencies.append(steady)
            self._next_report = now + plan.interval_seconds
        self._send(plan.records - plan.warmup, _delivery_callback(self._failures, whole, steady))
        if plan.transaction_seconds is not None and self._sent:
            self._producer.commit_transaction()
        producer.flush()
        now, mean = time.perf_counter(), self._mean_bytes()
        print(whole.total_line(now, mean))
        if steady is not None:
            print(steady.total_line(now, mean))

    def _send(self, records: int, on_delivery: Callable[[Any, Any], None]) -> None:
        """Send in chunks; between them run delivery callbacks, print progress, limit the rate and end transactions."""
        per_second = self._plan.per_second
        # With a limit, check about every 10 ms, so that the rate is even.
        chunk = POLL_EVERY if per_second <= 0 else max(1, min(POLL_EVERY, int(per_second / 100)))
        while records > 0:
            payloads = list(islice(self._plan.payloads, min(chunk, records)))
            self._produce(payloads, on_delivery)
            records -= len(payloads)
            self._sent += len(payloads)
            self._bytes += sum(map(len, payloads))
            self._producer.poll(0)
            if per_second > 0:
                self._wait_until(self._start + self._sent / per_second)
            self._check_time()

    def _produce(self, payloads: list[bytes], on_delivery: Callable[[Any, Any], None]) -> None:
        produce, topic = self._producer.produce, self._plan.topic
        for payload in payloads:
            try:
                produce(topic, payload, on_delivery=on_delivery)
            except BufferError:
                self._produce_when_possible(payload, on_delivery)

    def _produce_when_possible(self, payload: bytes, on_delivery: Callable[[Any, Any], None]) -> None:
        """Send a record when the full queue has room again; until then run delivery callbacks, which make room."""
        while True:
            self._producer.poll(FULL_QUEUE_SECONDS)
            try:
                self._producer.produce(self._plan.topic, payload, on_delivery=on_delivery)
                return
            except BufferError:
                self._check_time()

    def _wait_until(self, deadline: float) -> None:
        while (ahead := deadline - time.perf_counter()) > 0:
            self._producer.poll(min(ahead, 0.1))
            self._check_time()

    def _check_time(self) -> None:
        now = time.perf_counter()
        for each in self._latencies:
            each.fold()
        if now >= self._next_report:
            self._next_report = now + self._plan.interval_seconds
            # After the warm-up, as in Kafka, progress is that of the steady state only.
            line = self._latencies[-1].window_line(now, self._mean_bytes())
            if line is not None:
                print(line, flush=True)
        if self._plan.transaction_seconds is not None and now >= self._transaction_end:
            self._producer.commit_transaction()
            self._producer.begin_transaction()
            self._transaction_end = time.perf_counter() + self._plan.transaction_seconds

    def _mean_bytes(self) -> float:
        return self._bytes / self._sent if self._sent else 0.0

    def _begin(self) -> None:
        if self._plan.transaction_seconds is not None:
            self._producer.init_transactions(clients.ADMIN_SECONDS)
            self._producer.begin_transaction()


def _delivery_callback(
    failures: Failures, whole: Latencies, steady: Latencies | None = None
) -> Callable[[Any, Any], None]:
    """Return the delivery callback. It is called for every record, so it only appends to lists."""
    append = whole.fresh.append
    append_steady = steady.fresh.append if steady is not None else None

    def on_delivery(error: Any, message: Any) -> None:
        if error is not None:
            failures.on_delivery(error, message)
            return
        latency = message.latency()
        append(latency)
        if append_steady is not None:
            append_steady(latency)

    return on_delivery


if __name__ == "__main__":
    sys.exit(main())
