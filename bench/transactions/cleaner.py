"""The cleaner of compacted logs: its speed, its memory, and its effect on a producer.

A topic is filled while its policy is `delete` and then becomes compacted. The clock runs from then until the
checkpoint says that all but the active segment is clean. It includes the search for dirty logs (every 50 ms here), two
reads, writing, syncing and swapping. Only Moldau is measured: only Kafka's script knows where its files are.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from confluent_kafka import KafkaError
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from bench.brokers.client_workloads import TIMEOUT_S, producer_to
from bench.brokers.connection import BrokerRefused
from bench.brokers.frames import record_batch
from bench.brokers.procfs import children, cpu_seconds, resident_mib
from bench.brokers.raw_workloads import KIB, MIB, producing
from bench.brokers.servers import MOLDAU, MoldauProcess, Server
from bench.brokers.topics import delete_topic, new_topic
from bench.cluster.topics import new_name
from bench.measuring.report import NOTHING, Table, with_spread
from bench.measuring.results import Quantity, Result
from bench.measuring.rounds import Measured, Turn, Workload
from bench.measuring.versus import Versus

SETTINGS = {"log.cleaner.backoff.ms": "50"}
TOPIC_CONFIG = {"cleanup.policy": "delete", "segment.bytes": str(8 * MIB), "min.cleanable.dirty.ratio": "0.01"}
CHECKPOINT = "cleaner-offset-checkpoint"
LOG_BYTES = 120 * MIB
RECORDS_A_KEY = 4
"""So that a quarter of the records remains."""
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
TEXT_BYTES = 4 * MIB
WORDS = 500
STRIDE = 7_919
"""A prime: all values occur, in no order."""
REST_S = 1.0
"""The pause between filling and cleaning: for about this long, cores that were all busy compute up to a third more
slowly (seen on a virtual machine, with and without waiting for the disk)."""
LOOK_S = 0.005
WANTED = {"MB/s": "≥ 100", "MiB": "≤ 128"}
LATENCY_WANTED = 0.5
"""At most twice as long."""
LATENCY_RATE = 500
LATENCY_LOG_BYTES = 300 * MIB
LOOK_EVERY = 20


@dataclass(frozen=True)
class Dirty:
    """A filled topic that will become compacted."""

    process: MoldauProcess
    server: Server
    topic: str
    active_offset: int
    """The first offset of the active segment, which is not cleaned."""
    input_bytes: int
    decompressed_bytes: int
    """The size of keys and values in the cleaned part."""

    def compact(self) -> None:
        entry = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, self.topic, incremental_configs=[entry])
        admin = AdminClient({"bootstrap.servers": self.server.address, "log_level": 0})
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(TIMEOUT_S)

    @property
    def is_clean(self) -> bool:
        lines = []
        with suppress(FileNotFoundError):
            lines = (self.process.data / CHECKPOINT).read_text().splitlines()
        entries = [line.split() for line in lines if line.startswith(f"{self.topic} ")]
        return bool(entries) and int(entries[0][2]) >= self.active_offset

    def delete(self) -> None:
        delete_topic(self.server.address, self.topic)


def cleaner_workloads(process: MoldauProcess, scale: float) -> Iterator[Workload]:
    for value_bytes in (100, KIB):
        for compression in COMPRESSIONS:
            yield _cleaning(process, value_bytes, compression, int(LOG_BYTES * scale))


def _cleaning(process: MoldauProcess, value_bytes: int, compression: str, log_bytes: int) -> Workload:
    size = f"{value_bytes // KIB}KiB" if value_bytes >= KIB else f"{value_bytes}B"
    name = f"clean {size}, {compression}"
    quantities = (
        Quantity(name, "MB/s", work_unit="MB"),
        *([] if compression == "none" else [Quantity(f"{name}, decompressed", "MB/s", work_unit="MB")]),
        Quantity(f"{name}, memory", "MiB", False, "MB"),
        Quantity(f"{name}, CPU time", "ms/MB", False, "MB"),
    )

    def prepare(server: Server, _: ExitStack) -> Turn:
        def turn() -> Measured:
            dirty = fill(process, server, value_bytes, compression, log_bytes)
            before_s = _cpu_of_children(server.pid)
            seconds, grown_mib = _clean(dirty)
            cpu_ms, megabytes = (_cpu_of_children(server.pid) - before_s) * 1e3, dirty.input_bytes / 1e6
            rates = [megabytes / seconds, dirty.decompressed_bytes / 1e6 / seconds][: len(quantities) - 2]
            return Measured((*rates, grown_mib, cpu_ms / megabytes), megabytes, dirty.delete)

        return turn

    return Workload(quantities, prepare)


def fill(process: MoldauProcess, server: Server, value_bytes: int, compression: str, log_bytes: int) -> Dirty:
    """Fill a topic of one partition with this many bytes before compression."""
    topic = new_name()
    admin = AdminClient({"bootstrap.servers": server.address, "log_level": 0})
    admin.create_topics([NewTopic(topic, 1, config=TOPIC_CONFIG)])[topic].result(TIMEOUT_S)
    failed: list[KafkaError] = []
    producer = producer_to(server, failed, {"linger.ms": 20, "batch.size": 256 * KIB, "compression.type": compression})
    text, records = _text(), log_bytes // (value_bytes + len(_key(0)))
    keys = [_key(number) for number in range(max(1, records // RECORDS_A_KEY))]
    for number, key in enumerate(random.choices(keys, k=records)):
        start = number * STRIDE % (TEXT_BYTES - value_bytes)
        while True:
            try:
                producer.produce(topic, text[start : start + value_bytes], key)
                break
            except BufferError:
                producer.poll(0.01)
    if producer.flush(TIMEOUT_S) or failed:
        raise BrokerRefused(f"{server.address}: not all records were delivered, {failed[:1]}")
    sizes = _segment_sizes(process.data / f"{topic}-0")
    active, whole = max(sizes), sum(sizes.values())
    cleaned = whole - sizes[active]
    _rest()
    return Dirty(process, server, topic, active, cleaned, log_bytes * cleaned // whole)


def _rest() -> None:
    """Wait until everything written or deleted before is on disk."""
    os.sync()
    time.sleep(REST_S)


def _key(number: int) -> bytes:
    return b"key-%012d" % number


def _text() -> bytes:
    """Return random words: like most log data they compress well, but not to nothing."""
    words = [random.randbytes(random.randint(2, 5)).hex().encode() for _ in range(WORDS)]
    return b" ".join(random.choices(words, k=TEXT_BYTES // 4))[:TEXT_BYTES]


def _segment_sizes(directory: Path) -> dict[int, int]:
    return {int(file.stem): file.stat().st_size for file in directory.glob("*.log")}


def _clean(dirty: Dirty) -> tuple[float, float]:
    """Return the seconds, and the peak growth of the memory of the broker and its children."""
    if not dirty.input_bytes:
        raise BrokerRefused("nothing to clean: the log has one segment only")
    pid = dirty.server.pid
    before, peak = resident_mib(pid), 0.0
    began = time.perf_counter()
    dirty.compact()
    while not dirty.is_clean:
        peak = max(peak, resident_mib(pid) + sum(map(_resident_mib, children(pid))))
        _check_time(began)
        time.sleep(LOOK_S)
    return time.perf_counter() - began, peak - before


def _cpu_of_children(pid: int) -> float:
    """The cleaner process is reused for the next log, so its earlier CPU time must be subtracted."""
    return sum(map(cpu_seconds, children(pid)))


def _resident_mib(pid: int) -> float:
    """Return 0 if the process has ended."""
    try:
        return resident_mib(pid)
    except (FileNotFoundError, ProcessLookupError):
        return 0.0


def _check_time(began: float) -> None:
    if time.perf_counter() > began + TIMEOUT_S:
        raise BrokerRefused(f"the log is not clean after {TIMEOUT_S:g} s")


# --- the effect on a producer ----------------------------------------------------------------------------------------


def latency_while_cleaning(process: MoldauProcess, scale: float, seconds: float) -> Versus:
    """Send a record every 2 ms, each in its own request, timed from its scheduled time to its response."""
    name = f"produce latency p99 while a log is cleaned, {LATENCY_RATE} rec/s"

    def prepare(server: Server, cleanup: ExitStack) -> tuple[Turn, Turn]:
        topic = new_topic(server.address, 1, cleanup)
        batch = record_batch(1, 100)
        producer = producing(server, topic, 0, batch, cleanup)

        def idle() -> Measured:
            _rest()
            deadline = time.perf_counter() + seconds
            return _p99(partial(producer.run, 1), lambda: time.perf_counter() > deadline)

        def cleaning() -> Measured:
            dirty = fill(process, server, KIB, "none", int(LATENCY_LOG_BYTES * scale))
            dirty.compact()
            measured = _p99(partial(producer.run, 1), lambda: dirty.is_clean)
            return Measured(measured.values, measured.work, dirty.delete)

        return idle, cleaning

    return Versus(Quantity(name, "ms", False), prepare, LATENCY_WANTED)


def _p99(send: Callable[[], None], is_over: Callable[[], bool]) -> Measured:
    latencies: list[float] = []
    began = time.perf_counter()
    while len(latencies) % LOOK_EVERY or not is_over():
        scheduled = began + len(latencies) / LATENCY_RATE
        time.sleep(max(0.0, scheduled - time.perf_counter()))
        send()
        latencies.append(time.perf_counter() - scheduled)
        _check_time(began)
    latencies.sort()
    return Measured((latencies[len(latencies) * 99 // 100] * 1e3,), len(latencies))


def table(results: list[Result]) -> Table:
    rows = [
        [each.quantity.name, unit := each.quantity.unit, with_spread(each.value(MOLDAU)), WANTED.get(unit, NOTHING)]
        for each in results
    ]
    return Table("the cleaner: input is read twice and counted once", ["workload", "unit", "moldau", "wanted"], rows)
