"""confluent_kafka, which only produces and consumes here, or, where it is not installed, a replacement for what the
tools use of it. All other requests are made by our own admin client.

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
        KafkaError,
        KafkaException,
        Producer,
        TopicPartition,
    )

    IS_STAND_IN = False
except ModuleNotFoundError:
    from moldau.client.stand_in.consumer import Consumer  # type: ignore[assignment]
    from moldau.client.stand_in.producer import Producer  # type: ignore[assignment]
    from moldau.client.stand_in.values import (  # type: ignore[assignment]
        OFFSET_BEGINNING,
        OFFSET_END,
        KafkaError,
        KafkaException,
        TopicPartition,
    )

    IS_STAND_IN = True

__all__ = [
    "IS_STAND_IN",
    "OFFSET_BEGINNING",
    "OFFSET_END",
    "Consumer",
    "KafkaError",
    "KafkaException",
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
