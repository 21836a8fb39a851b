"""Check the brokers of a manual assignment, and build the record of a new partition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import Uuid
from moldau.metadata.image import MetadataImage
from moldau.wire.log_records.metadata import PartitionRecord


def check_assignment(image: MetadataImage, brokers: Sequence[int]) -> tuple[int, ...]:
    if not brokers:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "The manual partition assignment includes an empty replica list."
        )
    for broker in brokers:
        if broker not in image.brokers:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"The manual partition assignment includes broker {broker}, but no such broker is registered.",
            )
    for broker, count in Counter(brokers).items():
        if count > 1:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"The manual partition assignment includes the broker {broker} more than once.",
            )
    return tuple(brokers)


def partition_record(image: MetadataImage, index: int, topic_id: Uuid, replicas: tuple[int, ...]) -> PartitionRecord:
    """Build the record of a new partition: all active replicas that can write are in sync, and the first of them
    leads. If none can write, all active ones are in sync."""
    active = tuple(broker for broker in replicas if image.brokers[broker].is_active)
    isr = tuple(broker for broker in active if not image.brokers[broker].cannot_write) or active
    if not isr:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"All brokers specified in the manual partition assignment for partition {index} are fenced or in "
            "controlled shutdown.",
        )
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=replicas,
        isr=isr,
        leader=isr[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=[image.brokers[broker].default_directory for broker in replicas],
    )
