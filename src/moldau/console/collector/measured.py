"""The values of which the collector keeps a history. Pure."""

from __future__ import annotations

from typing import Final

from moldau.console.collector.history import Key
from moldau.console.collector.state import ClusterState, known_sum

TOPICS_WITH_SIZES: Final = 3_000
"""With more topics than this the sizes of single topics have no history: it would take too much memory."""


def measured(state: ClusterState) -> dict[Key, float | None]:
    values: dict[Key, float | None] = {}
    for name, topic in state.topics.items():
        values["rate", name] = topic.rate
        if len(state.topics) <= TOPICS_WITH_SIZES:
            values["size", name] = topic.size_bytes
        values["topic_lag", name] = known_sum(reader.lag for reader in state.readers.get(name, ()))
    for group_id, group in state.groups.items():
        values["lag", group_id] = group.lag
        values["lag_seconds", group_id] = group.lag_seconds
        values["members", group_id] = None if group.members is None else len(group.members)
    values["all", "rate"] = known_sum(topic.rate for topic in state.topics.values())
    values["all", "lag"] = known_sum(group.lag for group in state.groups.values())
    values["all", "size"] = known_sum(topic.size_bytes for topic in state.topics.values())
    return values
