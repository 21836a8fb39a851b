"""Asks the broker once a second for the log end offsets, and commits the positions of the queries, in its own thread.

The run itself never waits for the broker: it passes its positions and gets the last answer. The answer is dropped when
the next request fails, so that no outdated lag is shown. A deleted topic, or a partition without a leader, hides only
the lag of the queries that read it. One line says that the broker does not answer, another that it answers again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Final, Self

from moldau.base.errors import KafkaError, MalformedData, UnusableProperty
from moldau.base.ids import TopicPartition
from moldau.client.cluster import Cluster
from moldau.pipelines.running.positions import Positions
from moldau.pipelines.running.progress import LogEnds, Offsets
from moldau.pipelines.spec import Pipeline

ASK_EVERY_S: Final = 1.0
TIMEOUT_S: Final = 5.0
"""A refused connection fails at once; a broker on a slow machine may take long to answer."""
LAST_TRIES: Final = 3
SILENT_AFTER: Final = 2
"""After so many requests in a row without a response, a line says so."""


class BrokerWatch:
    """Runs for the length of a `with`. It calls `say` when the broker does not answer, and when it answers again."""

    def __init__(self, pipeline: Pipeline, say: Callable[[str], None]) -> None:
        self._bootstrap, self._say = pipeline.bootstrap, say
        self._read_committed = is_read_committed(pipeline)
        self._cluster = cluster_of_pipeline(pipeline)
        self._committer = None if self._cluster is None else Positions(pipeline.name, self._cluster, say)
        self._positions: Mapping[str, Offsets] = {}
        """By query."""
        self._ends: LogEnds | None = None
        self._unanswered = 0
        self.silence: str | None = None
        """The line for the status while the broker does not answer."""
        self._has_failed = False
        """After an unexpected error the broker is not asked again."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._poll_until_over, name="broker watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        if self._cluster is not None:
            self._cluster.close()

    @property
    def cluster_id(self) -> str | None:
        return None if self._cluster is None else self._cluster.cluster_id

    def exchange(self, positions: Mapping[str, Offsets]) -> LogEnds | None:
        """Set the positions of the queries; return the last known log ends, or None while they are unknown."""
        self._positions = positions
        return self._ends

    def last_exchange(self, positions: Mapping[str, Offsets]) -> LogEnds | None:
        """Stop the thread and wait for a new answer, so that the summary shows the lag at the end of the run."""
        self._end()
        self._positions, self._ends = positions, None
        for _ in range(LAST_TRIES):
            if self._ends is None and not self._has_failed:
                self._poll_or_report()
        return self._ends

    def _end(self) -> None:
        self._over.set()
        self._thread.join()

    def _poll_until_over(self) -> None:
        while not (self._over.is_set() or self._has_failed):
            self._poll_or_report()
            self._over.wait(ASK_EVERY_S)

    def _poll_or_report(self) -> None:
        try:
            self._poll()
        except Exception as error:  # the known ends would soon be outdated
            self._ends, self._has_failed = None, True
            self._say(
                f"lag is not known any more, and positions are not committed any more: {type(error).__name__}: {error}"
            )

    def _poll(self) -> None:
        positions = self._positions
        partitions = {partition for position in positions.values() for partition in position}
        if self._cluster is None or self._committer is None or not partitions:
            return
        self._ends = ends = self._request_ends(self._cluster, partitions)
        if ends is not None:
            for query, position in positions.items():
                if position.keys() <= ends.offsets.keys():
                    self._committer.commit(query, position)

    def _request_ends(self, cluster: Cluster, partitions: Iterable[TopicPartition]) -> LogEnds | None:
        try:
            ends = _ends_of_led(cluster, partitions, self._read_committed)
        except KafkaError:  # leaders are moving
            self._note_response()
            cluster.forget()
            return None
        except (OSError, MalformedData) as error:
            cluster.close()
            self._unanswered += 1
            if self._unanswered == SILENT_AFTER:
                self.silence = f"{self._bootstrap} does not answer; the queries wait for it ({error})"
                self._say(self.silence)
            return None
        self._note_response()
        return LogEnds(time.time(), ends) if ends else None

    def _note_response(self) -> None:
        if self._unanswered >= SILENT_AFTER:
            self._say(f"{self._bootstrap} answers again")
        self._unanswered, self.silence = 0, None


def ends_now(pipeline: Pipeline, partitions: Iterable[TopicPartition]) -> LogEnds | None:
    """Request the log ends once, for a pipeline that does not run; None if the broker does not answer."""
    cluster = cluster_of_pipeline(pipeline)
    if cluster is None:
        return None
    try:
        return LogEnds(time.time(), _ends_of_led(cluster, partitions, is_read_committed(pipeline)))
    except (KafkaError, MalformedData, OSError):
        return None
    finally:
        cluster.close()


def _ends_of_led(cluster: Cluster, partitions: Iterable[TopicPartition], read_committed: bool) -> Offsets:
    """Return the log ends, without those of a deleted topic or a partition that has no leader: the queries that read it
    report that."""
    try:
        return cluster.latest(partitions, read_committed)
    except KafkaError:
        cluster.forget()
        led, _ = cluster.led(partitions)
        return cluster.latest(chain.from_iterable(led.values()), read_committed)


def is_read_committed(pipeline: Pipeline) -> bool:
    return pipeline.kafka.get("isolation.level", "read_committed") == "read_committed"


def cluster_of_pipeline(pipeline: Pipeline) -> Cluster | None:
    """Return a connection to the pipeline's cluster; None if only the Java client supports its settings."""
    assert pipeline.bootstrap is not None
    try:
        return Cluster(pipeline.bootstrap, pipeline.kafka, TIMEOUT_S)
    except UnusableProperty:
        return None
