"""OffsetCommit drafts the bytes of its records without the codec; for every kind of commit they equal the codec's."""

from __future__ import annotations

from random import Random
from typing import Any

import hypothesis.strategies as st
from harness.depth import deep
from hypothesis import given, settings

from moldau.base.ids import ZERO_UUID
from moldau.coordinator.group.groups import Groups
from moldau.coordinator.group.settings import GroupSettings
from moldau.coordinator.machine import Client
from moldau.metadata.current import CurrentImage
from moldau.metadata.image import MetadataImage, PartitionState, TopicImage
from moldau.testing.clock import FakeClock
from moldau.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

TOPICS = tuple(
    TopicImage(name, name.encode().ljust(16, b"-")[:16], (PartitionState((1,), (1,), 1, 0, 0),) * 4)
    for name in ("t", "ü".ljust(200, "x"))
)
OFFSETS = st.builds(
    OffsetCommitRequestPartition,
    st.integers(-1, 5),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-1, 2**31 - 1),
    st.sampled_from([None, "", "x", "é" * 300]),
)
GROUP_IDS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=300)


def groups_with_topics() -> Groups:
    current = CurrentImage()
    current.image = MetadataImage(
        topics={topic.name: topic for topic in TOPICS}, topic_names={topic.id: topic.name for topic in TOPICS}
    )
    return Groups(GroupSettings(), current, FakeClock(), Random(0))


@settings(max_examples=deep(20, quick=8), deadline=None)
@given(
    GROUP_IDS,
    st.integers(2, 10),
    st.sampled_from([-1, 0, 86_400_000]),
    st.lists(st.tuples(st.sampled_from(TOPICS), st.lists(OFFSETS, max_size=4)), max_size=4),
)
def test_drafted_bytes_are_those_of_the_codec(group_id: str, version: int, retention_ms: int, named: Any) -> None:
    groups = groups_with_topics()
    topics = [
        OffsetCommitRequestTopic(
            ZERO_UUID if version < 10 else topic.id, topic.name if version < 10 else "", partitions
        )
        for topic, partitions in named
    ]
    request = OffsetCommitRequest(group_id, -1, retention_time_ms=retention_ms, topics=topics)
    outcome = groups.offsets.commit(request, Client("client", "/127.0.0.1", version))
    known = [0 <= each.partition_index < 4 for _, partitions in named for each in partitions]
    assert len(outcome.records) == sum(known), "each offset of a partition that exists is a record"
    assert outcome.encoded == [groups.encode(record) for record in outcome.records]
