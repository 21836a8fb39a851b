"""Storing the offsets of printed records: librdkafka commits only stored offsets, so nothing unprinted is committed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

MEMBER_CONFIG: Final = {"enable.auto.commit": True, "enable.auto.offset.store": False}


def store_printed(consumer: Any, messages: Iterable[Any]) -> None:
    """Store the offsets after these records, which are in order within each partition.

    A partition that was revoked meanwhile is skipped: its next owner reads its records again.
    """
    from moldau.client.confluent import KafkaError, KafkaException

    last_messages = {(message.topic(), message.partition()): message for message in messages}
    for message in last_messages.values():
        try:
            consumer.store_offsets(message)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._STATE:
                raise
