"""The sink's commit against a real cluster without Spark, in processes that kill themselves at a chosen step."""

from __future__ import annotations

import os
import signal
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from moldau.base.ids import ProducerIdAndEpoch, TopicPartition
from moldau.client.cluster import Cluster
from moldau.spark.exactly_once.committing import commit
from moldau.spark.exactly_once.staging import Staged
from moldau.spark.exactly_once.wire import KafkaTransactionRequests
from moldau.spark.options import WriteOptions, write_options
from moldau.spark.sending import RecordBatch
from moldau.spark.sink import stage

TASKS = 2
ROWS = 60
STEPS = ("init_producer", "last_micro_batch_id", "add_partitions", "write", "add_group", "commit_micro_batch_id", "end")
Gate = Callable[[str], None]


def undisturbed(step: str) -> None:
    pass


def kill_at(at: str) -> Gate:
    def gate(step: str) -> None:
        if step == at:
            os.kill(os.getpid(), signal.SIGKILL)

    return gate


class GatedRequests(KafkaTransactionRequests):
    """The real requests, with a gate before and after every step."""

    def __init__(self, cluster: Cluster, options: WriteOptions, sink_id: str, gate: Gate) -> None:
        super().__init__(cluster, options, sink_id, 60_000)
        self._gate = gate

    def init_producer(self) -> ProducerIdAndEpoch:
        self._gate("before init_producer")
        taken = super().init_producer()
        self._gate("after init_producer")
        return taken

    def last_micro_batch_id(self) -> int | None:
        self._gate("before last_micro_batch_id")
        found = super().last_micro_batch_id()
        self._gate("after last_micro_batch_id")
        return found

    def add_partitions(self, producer: ProducerIdAndEpoch, partitions: Sequence[TopicPartition]) -> None:
        self._gate("before add_partitions")
        super().add_partitions(producer, partitions)
        self._gate("after add_partitions")

    def write(self, batches: Iterator[RecordBatch]) -> None:
        """In two halves, each acknowledged, with a gate between them."""
        every = list(batches)
        self._gate("before write")
        super().write(iter(every[: len(every) // 2]))
        self._gate("amid write")
        super().write(iter(every[len(every) // 2 :]))
        self._gate("after write")

    def add_group(self, producer: ProducerIdAndEpoch) -> None:
        self._gate("before add_group")
        super().add_group(producer)
        self._gate("after add_group")

    def commit_micro_batch_id(self, producer: ProducerIdAndEpoch, batch_id: int, topics: Sequence[str]) -> None:
        self._gate("before commit_micro_batch_id")
        super().commit_micro_batch_id(producer, batch_id, topics)
        self._gate("after commit_micro_batch_id")

    def end(self, producer: ProducerIdAndEpoch, commit: bool) -> None:
        self._gate("before end")
        super().end(producer, commit)
        self._gate("after end")


class Sink:
    """A sink of two topics, and the micro-batches written to it: `ROWS` numbered records of each task."""

    def __init__(self, bootstrap: str, sink_id: str, topics: Sequence[str], staging: Path) -> None:
        given = {"kafka.bootstrap.servers": bootstrap, "stagingLocation": str(staging), "stagingInlineBytes": "1000"}
        self._options = write_options(given, is_stream=True)
        self._sink_id, self._topics = sink_id, topics

    def staged(self, batch_id: int, attempt: int) -> list[Staged]:
        """As tasks stage it, one in its message, the other in a file. Attempts assign rows to different partitions."""
        assert self._options.exactly_once is not None
        found = []
        for task in range(TASKS):
            names = [f"{batch_id}.{task}.{row}" for row in range(ROWS)]
            rows = {
                "key": pa.array([f"{attempt}{name}".encode() for name in names]),
                "value": pa.array([name.encode() for name in names]),
                "topic": pa.array([self._topics[row % 2] for row in range(ROWS)]),
            }
            how = replace(self._options.exactly_once, inline_bytes_max=task << 20)
            found.append(stage(self._options, how, self._sink_id, iter([pa.record_batch(rows)])).staged)
        return found

    def commit(self, batch_id: int, staged: Sequence[Staged], gate: Gate = undisturbed) -> bool:
        with closing(Cluster(self._options.bootstrap, {})) as cluster:
            return commit(GatedRequests(cluster, self._options, self._sink_id, gate), staged, batch_id)

    def commit_and_die(self, batch_id: int, staged: Sequence[Staged], at: str) -> bool:
        """Commit in a forked process that kills itself at this step. Return whether it did."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # threads of clients are not used in the child
            child = os.fork()
        if not child:
            try:
                self.commit(batch_id, staged, kill_at(at))
            except BaseException:
                traceback.print_exc()
            os._exit(1)
        _, status = os.waitpid(child, 0)
        return os.WIFSIGNALED(status)


def expected(batch_ids: Sequence[int]) -> list[str]:
    return sorted(f"{batch}.{task}.{row}" for batch in batch_ids for task in range(TASKS) for row in range(ROWS))
