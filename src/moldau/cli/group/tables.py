"""The tables of `moldau group describe`: a group, its offsets and its members. Pure: values in, tables out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from moldau.base.ids import by_topic
from moldau.cli.output import Table
from moldau.client.admin.group_values import DescribedGroup
from moldau.operations.groups import host_of
from moldau.operations.lag import PartitionLag, ShareLag
from moldau.operations.micro_batch_ids import STORES_MICRO_BATCH_IDS

Lag = PartitionLag | ShareLag


class GroupTables(NamedTuple):
    """A group described. `instead` is shown in the place of offsets and members that mean nothing."""

    summary: Table
    offsets: Table
    members: Table
    instead: Table | None = None

    @property
    def shown(self) -> list[Table]:
        return [self.summary, self.offsets, self.members] if self.instead is None else [self.summary, self.instead]

    @property
    def data(self) -> dict[str, Any]:
        partitions, members = self.offsets.records(), self.members.records()
        return {**self.summary.records()[0], "partitions": partitions, "members": members}


def total(record_lags: Iterable[int | None]) -> int | None:
    """Return the sum of the lags that are known. Return None if the lag of no partition is known."""
    known = [lag for lag in record_lags if lag is not None]
    return sum(known) if known else None


def _seconds(lag: Lag) -> float | None:
    return None if lag.seconds is None else round(lag.seconds, 1)


def summary(described: DescribedGroup, lags: Sequence[Lag]) -> Table:
    seconds = [value for lag in lags if (value := _seconds(lag)) is not None]
    row = (
        described.group_id,
        described.state,
        described.type,
        described.protocol_type or None,
        described.assignor or None,
        str(described.coordinator),
        total(lag.records for lag in lags),
        max(seconds) if seconds else None,
    )
    columns = ("GROUP", "STATE", "TYPE", "PROTOCOL", "ASSIGNOR", "COORDINATOR", "LAG", "LAG SECONDS")
    return Table(columns, [row])


def offsets(described: DescribedGroup, lags: Sequence[PartitionLag]) -> Table:
    readers = {partition: member for member in described.members for partition in member.assignment}
    rows = []
    for lag in lags:
        reader = readers.get(lag.partition)
        member_name = reader and (reader.instance_id or reader.member_id)
        rows.append((*lag.partition, lag.committed, lag.log_end, lag.records, _seconds(lag), member_name))
    columns = ("TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "LAG SECONDS", "MEMBER")
    return Table(columns, rows, empty="no offsets committed, nothing assigned")


def share_offsets(described: DescribedGroup, lags: Sequence[ShareLag]) -> Table:
    """Return where a share group is in each partition, and how many members may get records of it."""
    rows = []
    for lag in lags:
        members = sum(lag.partition in member.assignment for member in described.members)
        rows.append((*lag.partition, lag.start, lag.log_end, lag.records, _seconds(lag), members))
    columns = ("TOPIC", "PARTITION", "START", "END", "LAG", "LAG SECONDS", "MEMBERS")
    return Table(columns, rows, empty="no start offsets, nothing assigned")


def micro_batch_ids(described: DescribedGroup, lags: Sequence[PartitionLag]) -> Table:
    """Return, in place of the offsets, the id of the last micro-batch written to each topic."""
    title = f"{described.group_id} {STORES_MICRO_BATCH_IDS}, no offsets: leave it alone"
    return Table(("TOPIC", "MICRO-BATCH ID"), [(lag.partition.topic, lag.committed) for lag in lags], title)


class Assigned(dict[str, list[int]]):
    """Partitions by topic, printed as a mapping in JSON and YAML and as one line in a table."""

    def __str__(self) -> str:
        return "; ".join(f"{topic}: {','.join(map(str, indexes))}" for topic, indexes in self.items())


def members(described: DescribedGroup) -> Table:
    rows = [
        (
            member.member_id,
            member.instance_id,
            member.client_id,
            host_of(member),
            Assigned(by_topic(sorted(member.assignment))),
        )
        for member in described.members
    ]
    return Table(("MEMBER", "INSTANCE", "CLIENT", "HOST", "PARTITIONS"), rows, empty="no active members")
