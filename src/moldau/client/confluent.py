"""confluent_kafka, or, where it is not installed, a replacement for the parts that the tools use.

Import this module inside functions: loading librdkafka is too slow for a `--help`.
"""

from __future__ import annotations

import logging
from typing import Any

try:
    from confluent_kafka import (
        OFFSET_BEGINNING,
        OFFSET_END,
        Consumer,
        IsolationLevel,
        KafkaError,
        KafkaException,
        Producer,
        TopicPartition,
    )
    from confluent_kafka.admin import (  # type: ignore[attr-defined]
        AdminClient,
        AlterConfigOpType,
        ClusterMetadata,
        ConfigEntry,
        ConfigResource,
        ConfigSource,
        NewPartitions,
        NewTopic,
        OffsetSpec,
    )

    IS_STAND_IN = False
except ModuleNotFoundError:
    from moldau.client.stand_in.admin import (  # type: ignore[assignment]
        AdminClient,
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
        ConfigSource,
        NewPartitions,
        NewTopic,
        OffsetSpec,
    )
    from moldau.client.stand_in.consumer import Consumer  # type: ignore[assignment]
    from moldau.client.stand_in.metadata import ClusterMetadata  # type: ignore[assignment]
    from moldau.client.stand_in.producer import Producer  # type: ignore[assignment]
    from moldau.client.stand_in.values import (  # type: ignore[assignment]
        OFFSET_BEGINNING,
        OFFSET_END,
        IsolationLevel,
        KafkaError,
        KafkaException,
        TopicPartition,
    )

    IS_STAND_IN = True

__all__ = [
    "IS_STAND_IN",
    "OFFSET_BEGINNING",
    "OFFSET_END",
    "AdminClient",
    "AlterConfigOpType",
    "ClusterMetadata",
    "ConfigEntry",
    "ConfigResource",
    "ConfigSource",
    "Consumer",
    "IsolationLevel",
    "KafkaError",
    "KafkaException",
    "NewPartitions",
    "NewTopic",
    "OffsetSpec",
    "Producer",
    "TopicPartition",
    "without_log",
]


def without_log() -> dict[str, Any]:
    """Return the settings that keep librdkafka's log off stderr. Level 0 still prints fatal errors, which the caller
    gets as exceptions anyway; a logger takes these too."""
    silent = logging.getLogger("moldau.librdkafka")
    silent.disabled = True
    return {"log_level": 0, "logger": silent}
