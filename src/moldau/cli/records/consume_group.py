"""`moldau consume -g`: reading as a member of a group, and committing what was printed.

An offset is stored when its record has left the process, never before: what is committed was printed. librdkafka
commits what is stored every few seconds, when partitions are taken away, and when the consumer is closed, which also
leaves the group at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from moldau.cli.connect import Broker, plain_failures
from moldau.cli.records.consumed import Message, Printer, arrived, end_of_log
from moldau.cli.records.pattern_subscription import PatternSubscription
from moldau.cli.stop_signals import Stop
from moldau.cli.stored_offsets import MEMBER_CONFIG, store_printed

Partition = tuple[str, int]


class Membership:
    """Which partitions this member has, and which of them it has read to their end."""

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
        gone = {(partition.topic, partition.partition) for partition in partitions}
        self._assigned -= gone
        self._at_end -= gone

    def reached_end(self, where: Partition) -> None:
        self._at_end.add(where)

    def goes_on(self, where: Partition) -> None:
        self._at_end.discard(where)

    def is_done(self) -> bool:
        """A member without any partition has nothing to wait for either."""
        return self.has_joined and self._assigned <= self._at_end


def consume_group(
    broker: Broker,
    config: dict[str, Any],
    topics: Sequence[str] | Callable[[str], bool],
    printer: Printer,
    exit_at_end: bool,
) -> int:
    """Reads until the printer is full, the end is reached or a signal comes; the signal's exit status, or 0."""
    consumer = broker.consumer(config | MEMBER_CONFIG)
    membership = Membership()
    group = f"group {config['group.id']}"
    with plain_failures(group), Stop() as stop:
        try:
            source = None
            if callable(topics):
                source = PatternSubscription(consumer, topics, membership.callbacks)
            else:
                consumer.subscribe(list(topics), **membership.callbacks)
            while not (printer.is_full() or stop.status or (exit_at_end and membership.is_done())):
                if source is not None:
                    source.look(time.monotonic())
                _print(consumer, arrived(consumer), printer, membership)
        finally:
            consumer.close()
    return stop.status


def _print(consumer: Any, messages: Sequence[Message], printer: Printer, membership: Membership) -> None:
    printed: list[Message] = []
    for message in messages:
        where = (message.topic() or "", message.partition() or 0)
        if message.error() is not None:
            end_of_log(message)
            membership.reached_end(where)
            continue
        if printer.is_full():
            break
        membership.goes_on(where)
        printer.print(message)
        printed.append(message)
    printer.flush()
    store_printed(consumer, printed)
