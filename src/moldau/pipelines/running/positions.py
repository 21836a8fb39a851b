"""Where a pipeline's queries are, told to the broker as consumer groups: every tool that shows lag then shows theirs.

Each query is a group of its own, `<pipeline>.<sink>`, without members. It is told for those who watch: what a query
goes on from is its checkpoint alone, and a broker that cannot be told is no reason to stop.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

from moldau.base.errors import KafkaError, MalformedData
from moldau.base.ids import TopicPartition
from moldau.client.cluster import Cluster
from moldau.client.groups import Groups

ANSWER_S: Final = 2.0
AGAIN_AFTER_S: Final = 30.0
"""After a refusal."""


def group_of(pipeline: str, query: str) -> str:
    return f"{pipeline}.{query}"


class Positions:
    """Told where queries are, tells the broker what is new of it. `say` is for the one line if that fails."""

    def __init__(self, pipeline: str, cluster: Cluster, say: Callable[[str], None]) -> None:
        self._pipeline = pipeline
        self._say = say
        self._told: dict[str, dict[TopicPartition, int]] = {}
        self._not_before_s = 0.0
        self._has_said = False
        self._groups = Groups(cluster, int(ANSWER_S * 1000))

    def tell(self, query: str, position: Mapping[TopicPartition, int]) -> None:
        known = self._told.get(query, {})
        news = {where: offset for where, offset in position.items() if known.get(where) != offset}
        if not news or time.monotonic() < self._not_before_s:
            return
        try:
            self._groups.commit(group_of(self._pipeline, query), news)
            self._told[query] = {**known, **news}
        except (MalformedData, OSError):  # whether the broker answers is told by who asks it all the time
            self._not_before_s = time.monotonic() + ANSWER_S
        except KafkaError as error:
            self._not_before_s = time.monotonic() + AGAIN_AFTER_S
            if not self._has_said:
                self._has_said = True
                self._say(f"the position of {query} is not told as a consumer group: {error}")
