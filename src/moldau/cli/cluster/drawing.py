"""How `moldau cluster describe` draws a cluster: brokers, controllers, and a grid of partitions and brokers.

Pure: returns the tables of output.py. Cells may have a style; output.py decides about colours: on a terminal it gives
the styles to rich, which obeys NO_COLOR, and in a pipe it drops them. The caller, describe.py, decides about the signs:
SYMBOLS where there are colours, LETTERS where there are none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from moldau.cli.output import Styled, Table, cell_text
from moldau.operations.cluster_overview import ClusterOverview, PartitionRow


class Signs(NamedTuple):
    """What the grid shows for a broker's replica of a partition."""

    leader: str
    in_sync: str
    behind: str
    none: str

    def legend(self) -> str:
        return (
            f"{self.leader} leads   {self.in_sync} follows in sync   {self.behind} not in sync   {self.none} no replica"
        )


SYMBOLS: Final = Signs("●", "○", "◌", "·")
LETTERS: Final = Signs("L", "f", "x", ".")
STATE_STYLES: Final[Mapping[str, str]] = {"up": "green", "fenced": "yellow", "unregistered": "bold red"}
ROLE_STYLES: Final[Mapping[str, str]] = {"leader": "bold green", "voter": "", "observer": "dim"}


def tables(overview: ClusterOverview, signs: Signs) -> list[Table]:
    shown = [_brokers(overview)]
    if overview.quorum is not None:
        shown.append(_controllers(overview))
    shown.append(_grid(overview, signs))
    return shown


def summary(overview: ClusterOverview) -> str:
    """Return one line: the number of brokers, the topics and partitions shown, and the troubles of all partitions,
    shown or not."""
    up = sum(row.state == "up" for row in overview.brokers)
    brokers = counted(len(overview.brokers), "broker")
    counts = ", ".join(
        (
            brokers if up == len(overview.brokers) else f"{up} of {brokers} up",
            counted(overview.topic_count, "topic"),
            counted(len(overview.partitions), "partition"),
        )
    )
    troubles = []
    if overview.health.leaderless:
        troubles.append(f"{overview.health.leaderless} offline")
    if overview.health.under_replicated:
        troubles.append(f"{overview.health.under_replicated} under-replicated")
    line = f"cluster {overview.cluster_id}: {counts}"
    if troubles:
        return f"{line}; {'' if overview.shows_all_troubles else 'in all topics: '}{', '.join(troubles)}"
    return f"{line}; all in sync" if overview.partitions else line


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _brokers(overview: ClusterOverview) -> Table:
    leader = overview.quorum.leader_id if overview.quorum is not None else None
    rows = [
        (
            row.id,
            row.address,
            row.rack,
            Styled(row.state, STATE_STYLES[row.state]),
            Styled("active", "bold green") if row.id == leader else None,
            row.leads,
            row.replicas,
        )
        for row in overview.brokers
    ]
    return Table(("BROKER", "ADDRESS", "RACK", "STATE", "CONTROLLER", "LEADS", "REPLICAS"), rows, summary(overview))


def _controllers(overview: ClusterOverview) -> Table:
    assert overview.quorum is not None
    rows = [
        (
            row.id,
            Styled(row.role, ROLE_STYLES[row.role]),
            row.address,
            row.log_end,
            row.lag,
            None if row.caught_up_ms_ago is None else f"{row.caught_up_ms_ago} ms ago",
        )
        for row in overview.controllers
    ]
    title = f"metadata quorum: epoch {overview.quorum.leader_epoch}, high watermark {overview.quorum.high_watermark}"
    return Table(("NODE", "ROLE", "ADDRESS", "LOG END", "LAG", "CAUGHT UP"), rows, title)


def _grid(overview: ClusterOverview, signs: Signs) -> Table:
    """Return a row for each partition with a column for each broker."""
    brokers = [row.id for row in overview.brokers]
    columns = ["TOPIC", "PARTITION", *map(str, brokers), "ISR"]
    if overview.group is not None:
        columns.append("READ BY")
    has_notes = any(row.note for row in overview.partitions)
    if has_notes:
        columns.append("NOTE")
    rows = []
    for row in overview.partitions:
        isr = f"{len(row.isr)}/{len(row.replicas)}"
        cells: list[object] = [row.topic, row.partition, *(sign(row, broker, signs) for broker in brokers)]
        cells.append(Styled(isr, "bold red" if row.is_under_replicated else "green"))
        if overview.group is not None:
            cells.append(Styled(row.reader, "cyan") if row.reader else None)
        if has_notes:
            cells.append(Styled(row.note, "yellow"))
        rows.append(tuple(cells))
    return Table(
        tuple(columns), rows, _title(overview, signs), empty="no topics to show; `moldau topic create NAME` makes one"
    )


def _title(overview: ClusterOverview, signs: Signs) -> str:
    if overview.group is None:
        return signs.legend()
    group = overview.group
    members = counted(len(group.members), "member")
    state = f"group {group.group_id}: {group.state}, {members}, coordinated by broker {group.coordinator.node_id}"
    idle = f", reading nothing: {', '.join(map(cell_text, overview.idle))}" if overview.idle else ""
    return f"{state}{idle}\n{signs.legend()}"


def sign(row: PartitionRow, broker: int, signs: Signs) -> Styled:
    if broker == row.leader:
        return Styled(signs.leader, "bold green")
    if broker not in row.replicas:
        return Styled(signs.none, "dim")
    if broker in row.isr:
        return Styled(signs.in_sync, "cyan")
    return Styled(signs.behind, "bold red")
