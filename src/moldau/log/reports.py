"""What was found when logs were opened: for the operator, and to decide whether this node may count as in sync."""

from __future__ import annotations

from dataclasses import dataclass, field

from moldau.base.ids import TopicPartition
from moldau.base.topic_names import METADATA_TOPIC


@dataclass(slots=True)
class RecoveryReport:
    """What happened when a log was opened, for the operator."""

    partition: TopicPartition
    end_offset: int = -1
    bytes_cut: int = 0
    set_aside: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    lost_durable: bool = False
    """The log ends below its recovery point: the disk lost synced records. Rarely also true of a compacted log that was
    truncated in a gap and not written to since."""
    missing: list[str] = field(default_factory=list)
    """What is known to have been in the log, and is not there."""

    @property
    def damage(self) -> list[str]:
        """Why records may be lost that the last process had written. Nothing of this happens to a log whose process was
        only killed, except in the middle of a write."""
        found = []
        if self.bytes_cut:
            found.append(f"{self.bytes_cut} bytes of an incomplete or damaged batch were truncated")
        if self.lost_durable:
            found.append("the disk lost records that had been synced")
        return found + self.missing

    @property
    def has_findings(self) -> bool:
        return bool(self.damage or self.set_aside or self.notes)

    def __str__(self) -> str:
        findings = [f"{self.partition} ends at offset {self.end_offset}", *self.damage]
        findings += [f"bytes from the damage on are kept in {path}" for path in self.set_aside]
        return "; ".join(findings + self.notes)


@dataclass(slots=True)
class StoreReport:
    """What `LogStore.load` found."""

    was_clean: bool
    broker_epoch: int = -1
    """The broker epoch at the last clean stop; below 0 if unknown."""
    logs: int = 0
    recovered: list[RecoveryReport] = field(default_factory=list)
    """Only logs with findings."""
    unreadable: list[tuple[str, str]] = field(default_factory=list)
    """(directory, reason) of partitions that could not be opened. Their files are left as they are."""
    unreadable_checkpoints: list[str] = field(default_factory=list)

    @property
    def damage(self) -> list[str]:
        """Why records may be lost that the last process had written, a line for each log or file. Empty if all logs are
        complete. The metadata log does not count: a quorum has its own rules."""
        logs = [
            f"{each.partition}: {'; '.join(each.damage)}"
            for each in self.recovered
            if each.damage and each.partition.topic != METADATA_TOPIC
        ]
        return [
            *logs,
            *(f"{directory} cannot be read" for directory, _ in self.unreadable),
            *(f"{name} cannot be read" for name in self.unreadable_checkpoints),
        ]
