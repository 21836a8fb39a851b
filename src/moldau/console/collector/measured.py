"""The values of which the collector keeps a history. Pure."""

from __future__ import annotations

from typing import Final

from moldau.console.collector.state import ClusterState, known_sum, total_size

TOPICS_WITH_SIZES: Final = 3_000
"""With more topics than this the sizes of single topics have no history: it would take too much memory."""


def measured(state: ClusterState) -> dict[str, dict[str, float | None]]:
    topics, groups, readers = state.topics, state.groups, state.readers
    has_sizes = len(topics) <= TOPICS_WITH_SIZES
    return {
        "rate": {name: topic.rate for name, topic in topics.items()},
        "size": {name: topic.size_bytes for name, topic in topics.items()} if has_sizes else {},
        "topic_lag": {name: known_sum(reader.lag for reader in readers.get(name, ())) for name in topics},
        "lag": {group_id: group.lag for group_id, group in groups.items()},
        "lag_seconds": {group_id: group.age and group.age.seconds for group_id, group in groups.items()},
        "members": {
            group_id: None if group.members is None else len(group.members) for group_id, group in groups.items()
        },
        "all": {
            "rate": known_sum(topic.rate for topic in topics.values()),
            "lag": known_sum(group.lag for group in groups.values()),
            "size": total_size(topics.values()),
        },
    }
