"""A run and its broker, in a thread of its own: once a second it asks where logs end, and tells where queries are.

The run itself never waits for a broker: it hands over its positions and takes the last answer. That answer is gone as
soon as the broker does not give another one, so that no lag is shown which is not true any more. Silence of the broker
is told in a line, and so is its return.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Self

from moldau.base.errors import KafkaError, MalformedData, UnusableProperty
from moldau.base.ids import TopicPartition
from moldau.client.cluster import Cluster
from moldau.pipelines.running.positions import Positions
from moldau.pipelines.running.progress import LogEnds, Offsets
from moldau.pipelines.spec import Pipeline

ASK_EVERY_S: Final = 1.0
ANSWER_S: Final = 5.0
"""Who refuses a connection does so at once; a broker on a slow machine may take long to answer."""
LAST_TRIES: Final = 3
SILENT_AFTER: Final = 2
"""Questions in a row without an answer, before that is told."""


class BrokerWatch:
    """Started and ended by `with`. `say` is for a line when the broker is silent, and when it is back."""

    def __init__(self, pipeline: Pipeline, say: Callable[[str], None]) -> None:
        self._bootstrap, self._say = pipeline.bootstrap, say
        self._read_committed = is_read_committed(pipeline)
        self._cluster = cluster_of_pipeline(pipeline)
        self._told = None if self._cluster is None else Positions(pipeline.name, self._cluster, say)
        self._positions: Mapping[str, Offsets] = {}
        self._ends: LogEnds | None = None
        self._unanswered = 0
        self.trouble: str | None = None
        """Why nothing gets on, while the broker is silent."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._go, name="broker watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        if self._cluster is not None:
            self._cluster.close()

    def exchange(self, positions: Mapping[str, Offsets]) -> LogEnds | None:
        """Where queries are, for where logs end; None while that is not known."""
        self._positions = positions
        return self._ends

    def last_exchange(self, positions: Mapping[str, Offsets]) -> LogEnds | None:
        """Waits for an answer of now: what is shown when a run is over is what it ended with."""
        self._end()
        self._positions, self._ends = positions, None
        for _ in range(LAST_TRIES):
            if self._ends is None:
                self._once()
        return self._ends

    def _end(self) -> None:
        self._over.set()
        self._thread.join()

    def _go(self) -> None:
        while not self._over.is_set():
            try:
                self._once()
            except Exception as error:  # no end that is known would be true for long
                self._ends = None
                self._say(f"lag is not known any more: {type(error).__name__}: {error}")
                return
            self._over.wait(ASK_EVERY_S)

    def _once(self) -> None:
        positions = self._positions
        partitions = {where for position in positions.values() for where in position}
        if self._cluster is None or self._told is None or not partitions:
            return
        self._ends = self._asked(self._cluster, partitions)
        if self._ends is not None:
            for query, position in positions.items():
                self._told.tell(query, position)

    def _asked(self, cluster: Cluster, partitions: Iterable[TopicPartition]) -> LogEnds | None:
        try:
            ends = cluster.latest(partitions, self._read_committed)
        except KafkaError:  # a topic that is gone, a partition without a leader: its queries tell of that
            cluster.forget()
            return None
        except (OSError, MalformedData) as error:
            cluster.close()
            self._unanswered += 1
            if self._unanswered == SILENT_AFTER:
                self.trouble = f"{self._bootstrap} does not answer; the queries wait for it ({error})"
                self._say(self.trouble)
            return None
        if self._unanswered >= SILENT_AFTER:
            self._say(f"{self._bootstrap} answers again")
        self._unanswered, self.trouble = 0, None
        return LogEnds(time.time(), ends)


def ends_now(pipeline: Pipeline, partitions: Iterable[TopicPartition]) -> LogEnds | None:
    """Asked once, for a pipeline that does not run; None if the broker does not say."""
    cluster = cluster_of_pipeline(pipeline)
    if cluster is None:
        return None
    try:
        return LogEnds(time.time(), cluster.latest(partitions, is_read_committed(pipeline)))
    except (KafkaError, MalformedData, OSError):
        return None
    finally:
        cluster.close()


def is_read_committed(pipeline: Pipeline) -> bool:
    return pipeline.kafka.get("isolation.level", "read_committed") == "read_committed"


def cluster_of_pipeline(pipeline: Pipeline) -> Cluster | None:
    """None where only Java's client can speak to it."""
    assert pipeline.bootstrap is not None
    try:
        return Cluster(pipeline.bootstrap, pipeline.kafka, ANSWER_S)
    except UnusableProperty:
        return None
