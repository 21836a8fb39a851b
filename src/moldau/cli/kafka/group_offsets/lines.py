"""The output of kafka-consumer-groups about groups: listings, offsets, members, states.

share_lines.py has that of kafka-share-groups. Column widths and trailing blanks are exactly Kafka's. Pure: values in,
lines out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from moldau.base.ids import TopicPartition
from moldau.client.admin.group_values import UNKNOWN, CommittedOffsets, DescribedGroup, ListedGroup, Member

MISSING: Final = "-"
COLUMN_MIN: Final = 15
OFFSET_HEADER: Final = (
    "GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID",
)  # fmt: skip


class OffsetRow(NamedTuple):
    """A partition, the group's offset in it, and the member that reads it. None is shown as a dash."""

    group: str
    partition: TopicPartition
    offset: int | None
    log_end: int | None
    leader_epoch: int | None
    consumer_id: str = MISSING
    host: str = MISSING
    client_id: str = MISSING

    def cells(self, verbose: bool) -> tuple[str, ...]:
        lag = None if self.offset is None or self.log_end is None else self.log_end - self.offset
        epoch = (cell(self.leader_epoch),) if verbose else ()
        return (
            *(self.group, self.partition.topic, str(self.partition.partition), *epoch),
            *(cell(self.offset), cell(self.log_end), cell(lag)),
            *(self.consumer_id, self.host, self.client_id),
        )


def cell(value: object) -> str:
    return MISSING if value is None else str(value)


def padded(cells: Sequence[object], widths: Sequence[int]) -> str:
    """Pad cells to their widths, with a blank between; a width of 0 leaves a cell as it is."""
    return " ".join(f"{cell!s:<{width}}" for cell, width in zip(cells, widths, strict=True))


def listing(groups: Sequence[ListedGroup], with_type: bool, with_state: bool) -> Iterator[str]:
    width = max([COLUMN_MIN, *(len(group.group_id) for group in groups)]) + 10
    header = ["GROUP", *(["TYPE"] if with_type else []), *(["STATE"] if with_state else [])]
    widths = [width, *([20] * (len(header) - 1))]
    yield padded(header, widths)
    for group in groups:
        kind = [group.type or UNKNOWN] if with_type else []
        state = [group.state or UNKNOWN] if with_state else []
        yield padded([group.group_id, *kind, *state], widths)


def offset_rows(
    group: DescribedGroup, committed: CommittedOffsets, log_ends: Mapping[TopicPartition, int | None]
) -> list[OffsetRow]:
    """Return the rows of each member, that with most partitions first; then partitions that no member reads."""

    def rows(partitions: Iterable[TopicPartition], *consumer: str) -> list[OffsetRow]:
        new_rows = []
        for partition in sorted(partitions):
            position = committed.get(partition)
            offset, epoch = (None, None) if position is None else (position.offset, position.leader_epoch)
            new_rows.append(OffsetRow(group.group_id, partition, offset, log_ends.get(partition), epoch, *consumer))
        return new_rows

    readers = sorted((m for m in group.members if m.assignment), key=lambda member: -len(member.assignment))
    assigned_rows = [row for m in readers for row in rows(m.assignment, m.member_id, m.host, m.client_id)]
    assigned = {partition for member in readers for partition in member.assignment}
    return assigned_rows + rows(partition for partition in committed if partition not in assigned)


def offsets(rows: Sequence[OffsetRow], verbose: bool) -> Iterator[str]:
    """Yield the lines of the table. Kafka prints an empty line before it."""
    header = list(OFFSET_HEADER)
    if verbose:
        header.insert(3, "LEADER-EPOCH")
    widths = [
        max([COLUMN_MIN, *(len(row.group) for row in rows)]),
        max([COLUMN_MIN, *(len(row.partition.topic) for row in rows)]),
        *([10, 15, 15, 15, 15] if verbose else [10, 15, 15, 15]),
        max([COLUMN_MIN, *(len(row.consumer_id) for row in rows)]),
        max([COLUMN_MIN, *(len(row.host) for row in rows)]),
        0,
    ]
    yield ""
    yield padded(header, widths)
    for row in rows:
        yield padded(row.cells(verbose), widths)


def assignment_text(assignment: Iterable[TopicPartition] | None) -> str:
    """Return `topic:0,1;other:2`."""
    by_topic: dict[str, list[int]] = {}
    for topic, index in sorted(assignment or ()):
        by_topic.setdefault(topic, []).append(index)
    texts = sorted(f"{topic}:{','.join(map(str, indexes))}" for topic, indexes in by_topic.items())
    return ";".join(texts) or MISSING


def members(group: DescribedGroup, verbose: bool) -> Iterator[str]:
    has_mixed_members = {True, False} <= {member.upgraded for member in group.members}
    header, widths = _member_columns(group, verbose, has_mixed_members)
    yield ""
    yield padded(header, widths) + ("" if verbose else " ")
    for member in group.members:
        yield padded(_member_cells(group, member, verbose, header), widths) + ("" if verbose else " ")


def _member_columns(group: DescribedGroup, verbose: bool, has_mixed_members: bool) -> tuple[list[str], list[int]]:
    def longest(least: int, texts: Iterable[str]) -> int:
        return max([least, *map(len, texts)])

    all_members = group.members
    has_instances = any(member.instance_id for member in all_members)
    columns = {
        "GROUP": longest(COLUMN_MIN, (group.group_id for _ in all_members)),
        "CONSUMER-ID": longest(COLUMN_MIN, (member.member_id for member in all_members)),
        "GROUP-INSTANCE-ID": longest(17, (member.instance_id or "" for member in all_members)),
        "HOST": longest(COLUMN_MIN, (member.host for member in all_members)),
        "CLIENT-ID": longest(COLUMN_MIN, (member.client_id for member in all_members)),
        "#PARTITIONS": 15,
    }
    if not has_instances:
        del columns["GROUP-INSTANCE-ID"]
    if verbose:
        columns |= {
            "CURRENT-EPOCH": 15,
            "CURRENT-ASSIGNMENT": longest(20, (assignment_text(member.assignment) for member in all_members)),
            "TARGET-EPOCH": 15,
            "TARGET-ASSIGNMENT": longest(20, (assignment_text(member.target) for member in all_members)),
        }
        if has_mixed_members:
            columns["UPGRADED"] = 0
    return list(columns), list(columns.values())


def _member_cells(group: DescribedGroup, member: Member, verbose: bool, header: Sequence[str]) -> list[str]:
    cells = {
        "GROUP": group.group_id,
        "CONSUMER-ID": member.member_id,
        "GROUP-INSTANCE-ID": member.instance_id or "",
        "HOST": member.host,
        "CLIENT-ID": member.client_id,
        "#PARTITIONS": str(len(member.assignment)),
        "CURRENT-EPOCH": cell(member.epoch),
        "CURRENT-ASSIGNMENT": assignment_text(member.assignment),
        "TARGET-EPOCH": cell(group.assignment_epoch),
        "TARGET-ASSIGNMENT": assignment_text(member.target),
        "UPGRADED": cell(member.upgraded).lower(),
    }
    return [cells[column] for column in header]


def state(group: DescribedGroup, verbose: bool) -> Iterator[str]:
    coordinator = f"{group.coordinator}  ({group.coordinator.node_id})"
    columns: dict[str, tuple[int, str]] = {
        "GROUP": (max(COLUMN_MIN, len(group.group_id)), group.group_id),
        "COORDINATOR (ID)": (max(25, len(coordinator)), coordinator),
        "ASSIGNMENT-STRATEGY": (20, group.assignor or MISSING),
        "STATE": (20, group.state),
    }
    if verbose:
        columns["GROUP-EPOCH"] = (15, cell(group.epoch))
        columns["TARGET-ASSIGNMENT-EPOCH"] = (25, cell(group.assignment_epoch))
    columns["#MEMBERS"] = (0, str(len(group.members)))
    widths = [width for width, _ in columns.values()]
    yield ""
    yield padded(list(columns), widths)
    yield padded([cell for _, cell in columns.values()], widths)


def reset_table(plan: Mapping[str, Mapping[TopicPartition, int]]) -> Iterator[str]:
    rows = [
        (group, partition, offset) for group, offsets_of in plan.items() for partition, offset in offsets_of.items()
    ]
    widths = [
        max([COLUMN_MIN, *map(len, plan)]),
        max([COLUMN_MIN, *(len(partition.topic) for _, partition, _ in rows)]),
        10,
        0,
    ]
    if plan:
        yield ""
        yield padded(("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"), widths)
    for group, partition, offset in rows:
        yield padded((group, partition.topic, partition.partition, offset), widths)
    if not plan:
        yield ""


def deletion_table(statuses: Mapping[TopicPartition, str]) -> Iterator[str]:
    """Yield the table of `statuses` by partition; an index of -1 stands for an unknown topic."""
    widths = [max([COLUMN_MIN, *(len(partition.topic) for partition in statuses)]), 10, 15]
    yield ""
    yield padded(("TOPIC", "PARTITION", "STATUS"), widths)
    for partition in sorted(statuses, key=lambda partition: f"{partition.topic}{partition.partition}"):
        index = MISSING if partition.partition < 0 else partition.partition
        yield padded((partition.topic, index, statuses[partition]), widths)
