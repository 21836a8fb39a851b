"""The output of kafka-share-groups about groups: listings, offsets, members, states.

Column widths are exactly Kafka's. Pure: values in, lines out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from moldau.base.ids import TopicPartition
from moldau.cli.kafka.group_offsets.lines import COLUMN_MIN, assignment_text, cell, padded
from moldau.client.admin.group_values import UNKNOWN, DescribedGroup, ListedGroup, ShareOffset


def _width(texts: Iterable[str], least: int = COLUMN_MIN) -> int:
    return max([least, *map(len, texts)])


def listing(groups: Sequence[ListedGroup]) -> Iterator[str]:
    widths = [_width(group.group_id for group in groups), 0]
    yield padded(("GROUP", "STATE"), widths)
    for group in groups:
        yield padded((group.group_id, group.state or UNKNOWN), widths)


def offsets(group_id: str, found: Mapping[TopicPartition, ShareOffset | None], verbose: bool) -> Iterator[str]:
    if not found:
        yield ""
        yield f"Share group '{group_id}' has no offset information."
        return
    columns = {"GROUP": _width([group_id]), "TOPIC": _width(partition.topic for partition in found), "PARTITION": 10}
    if verbose:
        columns["LEADER-EPOCH"] = 13
    columns |= {"START-OFFSET": 13, "LAG": 0}
    widths = list(columns.values())
    yield ""
    yield padded(list(columns), widths)
    for partition in sorted(found):
        offset = found[partition]
        start, epoch, lag = (None, None, None) if offset is None else offset
        cells = (epoch, start, lag) if verbose else (start, lag)
        yield padded((group_id, *partition, *map(cell, cells)), widths)


def state(group: DescribedGroup, verbose: bool) -> Iterator[str]:
    coordinator = f"{group.coordinator}  ({group.coordinator.node_id})"
    columns: dict[str, tuple[int, str]] = {
        "GROUP": (_width([group.group_id]), group.group_id),
        "COORDINATOR (ID)": (_width([coordinator], 25), coordinator),
        "STATE": (15, group.state),
    }
    if verbose:
        columns["GROUP-EPOCH"] = (12, cell(group.epoch))
        columns["ASSIGNMENT-EPOCH"] = (17, cell(group.assignment_epoch))
    columns["#MEMBERS"] = (0, str(len(group.members)))
    widths = [width for width, _ in columns.values()]
    yield ""
    yield padded(list(columns), widths)
    yield padded([text for _, text in columns.values()], widths)


def members(group: DescribedGroup, verbose: bool) -> Iterator[str]:
    found = sorted(group.members, key=lambda member: member.member_id)
    columns = {
        "GROUP": _width([group.group_id]),
        "CONSUMER-ID": _width(member.member_id for member in found),
        "HOST": _width(member.host for member in found),
        "CLIENT-ID": _width(member.client_id for member in found),
        "#PARTITIONS": 12,
    }
    if verbose:
        columns["MEMBER-EPOCH"] = 13
    columns["ASSIGNMENT"] = 0
    widths = list(columns.values())
    yield ""
    yield padded(list(columns), widths)
    for member in found:
        epoch = (cell(member.epoch),) if verbose else ()
        assigned = len(member.assignment)
        text = assignment_text(member.assignment) if member.assignment else ""
        yield padded((group.group_id, member.member_id, member.host, member.client_id, assigned, *epoch, text), widths)


def deletion_table(statuses: Mapping[str, str]) -> Iterator[str]:
    """Yield the table of `statuses` by topic."""
    widths = [_width(statuses), 0]
    yield ""
    yield padded(("TOPIC", "STATUS"), widths)
    for topic in sorted(statuses):
        yield padded((topic, statuses[topic]), widths)
