"""Offsets to commit, before the member is checked and anything is written.

The handlers of OffsetCommit and TxnOffsetCommit draft a long request in steps, and then submit the draft: `Offsets`
checks the member and writes all records in one step. `Offsets` drafts a short request itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from moldau.base.ids import Uuid
from moldau.base.steps import Steps, TurnItems, split
from moldau.base.turns import ITEMS_A_TURN
from moldau.coordinator.group.serde import encode_record
from moldau.coordinator.machine import UNWRITABLE, CoordinatorRecord
from moldau.metadata.image import MetadataImage
from moldau.wire.messages.offset_commit import OffsetCommitResponseTopic
from moldau.wire.messages.txn_offset_commit import TxnOffsetCommitResponseTopic

T = TypeVar("T", OffsetCommitResponseTopic, TxnOffsetCommitResponseTopic)


@dataclass(slots=True)
class CommitDraft(Generic[T]):
    topics: list[T] = field(default_factory=list)
    """The topics of the response."""
    records: list[CoordinatorRecord] = field(default_factory=list)
    encoded: list[tuple[bytes, bytes | None]] | None = field(default_factory=list)
    """The records' bytes. None if one of them cannot be written: the shard then refuses them all."""
    partitions: list[tuple[Uuid, int]] = field(default_factory=list)
    """The partitions of the records, by topic id: the member must be allowed to commit each of them."""
    has_usable_partition: bool = False
    """Whether one of the partitions exists and the client may use it."""

    def encode_new(self) -> None:
        """Encode the records that were added without their bytes since the last call."""
        if self.encoded is not None:
            try:
                self.encoded += map(encode_record, self.records[len(self.encoded) :])
            except UNWRITABLE:
                self.encoded = None

    def has_deleted_topic(self, image: MetadataImage) -> bool:
        """Return whether a topic was deleted since it was drafted."""
        return any(topic_id not in image.topic_names for topic_id in {topic_id for topic_id, _ in self.partitions})


def is_long(topics: Sequence[Any]) -> bool:
    """Return whether the topics of a request have more partitions than one turn of the loop should handle."""
    return sum(len(topic.partitions) or 1 for topic in topics) > ITEMS_A_TURN


def draft_in_steps(
    topics: Sequence[Any], add: Callable[[CommitDraft[T], Any, Sequence[Any]], None]
) -> Steps[CommitDraft[T]]:
    """Draft a commit, some hundred partitions in each step. `add` drafts some partitions of a topic: their
    records, and a topic of the response, which is then joined with the topic of the parts before."""
    draft: CommitDraft[T] = CommitDraft()
    turn = TurnItems(ITEMS_A_TURN)
    for topic in topics:
        parts: list[Sequence[Any]] = list(split(topic.partitions, ITEMS_A_TURN)) or [()]
        for part_number, some in enumerate(parts):
            if turn.is_over():
                yield
            add(draft, topic, some)
            if part_number:
                rest: Any = draft.topics.pop().partitions
                draft.topics[-1].partitions = [*draft.topics[-1].partitions, *rest]
            turn.count(1 + len(some))
    return draft
