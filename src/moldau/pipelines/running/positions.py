"""Commits the positions of a pipeline's queries as consumer groups, so that every tool that shows lag shows theirs.
`BrokerWatch` calls it in its thread, once a second for each query.

Each query is a group of its own, `<pipeline>.<sink>`, without members. The groups are only for monitoring: a query
resumes from its checkpoint alone, and it does not stop when a commit fails.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

from moldau.base.errors import KafkaError, MalformedData
from moldau.base.ids import TopicPartition
from moldau.client.admin.groups import Groups
from moldau.client.cluster import Cluster

TIMEOUT_S: Final = 2.0
RETRY_AFTER_ERROR_S: Final = 30.0


def group_of(pipeline: str, query: str) -> str:
    return f"{pipeline}.{query}"


class Positions:
    """Commits the offsets that changed. On the first error it calls `say` with one line."""

    def __init__(self, pipeline: str, cluster: Cluster, say: Callable[[str], None]) -> None:
        self._pipeline = pipeline
        self._say = say
        self._committed: dict[str, dict[TopicPartition, int]] = {}
        self._not_before_s = 0.0
        """Before this time nothing is committed: the broker has just not answered."""
        self._refused_until_s: dict[str, float] = {}
        """By query: the same after the coordinator has refused its group, for example because it has members."""
        self._has_reported_error = False
        self._groups = Groups(cluster, int(TIMEOUT_S * 1000))

    def commit(self, query: str, position: Mapping[TopicPartition, int]) -> None:
        committed = self._committed.get(query, {})
        changed = {partition: offset for partition, offset in position.items() if committed.get(partition) != offset}
        if not changed or time.monotonic() < max(self._not_before_s, self._refused_until_s.get(query, 0.0)):
            return
        try:
            self._groups.commit(group_of(self._pipeline, query), changed)
            self._committed[query] = {**committed, **changed}
        except (MalformedData, OSError):  # BrokerWatch reports a broker that does not answer
            self._not_before_s = time.monotonic() + TIMEOUT_S
        except KafkaError as error:
            self._refused_until_s[query] = time.monotonic() + RETRY_AFTER_ERROR_S
            if not self._has_reported_error:
                self._has_reported_error = True
                self._say(f"the position of {query} is not committed as that of a consumer group: {error}")
