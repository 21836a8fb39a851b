"""`moldau consume -g`: read as a member of a group, and commit the offsets of printed records.

An offset is stored after its record was written to stdout, never before: what is committed was printed. librdkafka
commits the stored offsets every few seconds, when partitions are revoked, and when the consumer is closed, which also
leaves the group at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from moldau.cli.connect import Broker, plain_failures
from moldau.cli.records.consumed import Message, Printer, eof_offset, poll_messages
from moldau.cli.records.pattern_subscription import PatternSubscription
from moldau.cli.stop_signals import StopSignals
from moldau.cli.stored_offsets import MEMBER_CONFIG, store_printed

Partition = tuple[str, int]


class Membership:
    """The partitions assigned to this member, and those of them that it has read to the end."""

    def __init__(self) -> None:
        self.has_joined = False
        self._assigned: set[Partition] = set()
        self._at_end: set[Partition] = set()

    @property
    def callbacks(self) -> dict[str, Callable[..., None]]:
        return {"on_assign": self._on_assign, "on_revoke": self._on_revoke, "on_lost": self._on_revoke}

    def _on_assign(self, _: Any, partitions: list[Any]) -> None:
        self.has_joined = True
        self._assigned.update((partition.topic, partition.partition) for partition in partitions)

    def _on_revoke(self, _: Any, partitions: list[Any]) -> None:
        revoked = {(partition.topic, partition.partition) for partition in partitions}
        self._assigned -= revoked
        self._at_end -= revoked

    def reached_end(self, partition: Partition) -> None:
        self._at_end.add(partition)

    def left_end(self, partition: Partition) -> None:
        self._at_end.discard(partition)

    def is_done(self) -> bool:
        """Return whether all assigned partitions are at their end; also if this member was assigned no partition."""
        return self.has_joined and self._assigned <= self._at_end


def consume_group(
    broker: Broker,
    config: dict[str, Any],
    topics: Sequence[str] | Callable[[str], bool],
    printer: Printer,
    exit_at_end: bool,
) -> int:
    """Read until the printer's limit of records is reached, all partitions are at their end or a signal comes; return
    the signal's exit status, or 0."""
    consumer = broker.consumer(config | MEMBER_CONFIG)
    membership = Membership()
    group = f"group {config['group.id']}"
    with plain_failures(group), StopSignals() as stop:
        try:
            subscription = None
            if callable(topics):
                subscription = PatternSubscription(consumer, broker.admin.cluster, topics, membership.callbacks)
            else:
                consumer.subscribe(list(topics), **membership.callbacks)
            while not (printer.reached_limit() or stop.exit_status or (exit_at_end and membership.is_done())):
                if subscription is not None:
                    subscription.refresh(time.monotonic())
                _print(consumer, poll_messages(consumer), printer, membership)
        finally:
            consumer.close()
    return stop.exit_status


def _print(consumer: Any, messages: Sequence[Message], printer: Printer, membership: Membership) -> None:
    printed: list[Message] = []
    for message in messages:
        partition = (message.topic() or "", message.partition() or 0)
        if message.error() is not None:
            eof_offset(message)  # Raises the error unless it only says that the partition's end was reached.
            membership.reached_end(partition)
            continue
        if printer.reached_limit():
            break
        membership.left_end(partition)
        printer.print(message)
        printed.append(message)
    printer.flush()
    store_printed(consumer, printed)
