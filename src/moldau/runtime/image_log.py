"""Logs metadata changes for operators: registered and fenced brokers, new leaders, in-sync replicas.

The active controller logs the other brokers; each broker logs the partitions that it leads. A new topic is not logged.
A failover changes thousands of partitions at once: only the first few get a line, the rest is not examined.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from moldau.metadata.apply import Changes
from moldau.metadata.current import CurrentImage
from moldau.metadata.image import BrokerImage, MetadataImage, PartitionState

log = logging.getLogger("moldau.metadata")

LINES_MAX: Final = 20
"""The most lines for one change of the image."""


class BrokerLog:
    """Logs the brokers, on a controller while it is the active one."""

    def __init__(self, node_id: int, current: CurrentImage, is_active: Callable[[], bool]) -> None:
        self._node_id = node_id
        self._current = current
        self._is_active = is_active

    def on_image(self, image: MetadataImage, changes: Changes) -> None:
        if not changes.brokers or not self._is_active():
            return
        for broker_id in sorted(changes.brokers - {self._node_id}):
            before, now = self._current.image.brokers.get(broker_id), image.brokers.get(broker_id)
            if (line := broker_line(before, now)) is not None:
                log.info("broker %d %s", broker_id, line)


class LeadershipLog:
    """Logs the partitions that a broker leads."""

    def __init__(self, node_id: int, current: CurrentImage) -> None:
        self._node_id = node_id
        self._current = current

    def on_image(self, image: MetadataImage, changes: Changes) -> None:
        if changes.topics and log.isEnabledFor(logging.INFO):
            _log_lines(leadership_lines(self._node_id, self._current.image, image, changes.topics))


def broker_line(before: BrokerImage | None, now: BrokerImage | None) -> str | None:
    """Return what changed for a broker; None if it is not worth a line."""
    if now is None:
        return "is unregistered"
    if before is None or before.epoch != now.epoch:
        addresses = ", ".join(f"{endpoint.listener}://{endpoint.host}:{endpoint.port}" for endpoint in now.endpoints)
        return f"is registered with broker epoch {now.epoch} at {addresses}"
    if before.fenced != now.fenced:
        return "is fenced: it cannot lead, others take over" if now.fenced else "is unfenced: it may lead"
    if now.in_controlled_shutdown and not before.in_controlled_shutdown:
        return "is in controlled shutdown: others take over"
    if before.cannot_write != now.cannot_write:
        return "cannot write to its disk: others take over" if now.cannot_write else "can write to its disk again"
    return None


def leadership_lines(
    node_id: int, before: MetadataImage, now: MetadataImage, topics: Mapping[str, set[int]]
) -> Iterator[str]:
    """Yield what changed for each of these partitions that existed and that the node leads or led before."""
    for name, indexes in topics.items():
        topic, old_topic = now.topics.get(name), before.topics.get(name)
        if topic is None or old_topic is None or old_topic.id != topic.id:
            continue
        for index in sorted(indexes):
            if index < len(old_topic.partitions):
                line = _leadership_line(node_id, old_topic.partitions[index], topic.partitions[index])
                if line is not None:
                    yield f"{name}-{index}: {line}"


def _leadership_line(node_id: int, before: PartitionState, now: PartitionState) -> str | None:
    isr = f"ISR {_ids(now.isr)}"
    was_leader = before.leader == node_id
    if now.leader != node_id:
        if not was_leader:
            return None
        leader = "no leader" if now.leader < 0 else f"leader {now.leader}"
        return f"{leader} in place of this broker from leader epoch {now.leader_epoch} on, {isr}"
    if not was_leader or before.leader_epoch != now.leader_epoch:
        return f"this broker leads from leader epoch {now.leader_epoch} on, {isr}"
    return _isr_line(before.isr, now.isr)


def _isr_line(before: Sequence[int], now: Sequence[int]) -> str | None:
    old, new = frozenset(before), frozenset(now)
    if old == new:
        return None
    verb = "shrinks" if new < old else "expands" if new > old else "changes"
    return f"ISR {verb} from {_ids(before)} to {_ids(now)}"


def _ids(replicas: Iterable[int]) -> str:
    return ",".join(map(str, replicas))


def _log_lines(lines: Iterator[str]) -> None:
    for line in islice(lines, LINES_MAX):
        log.info("%s", line)
    if next(lines, None) is not None:
        log.info("and other partitions; `moldau cluster describe` shows all")
