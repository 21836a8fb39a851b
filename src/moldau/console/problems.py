"""What is wrong with a cluster, and what to do about it, from what the collector knows. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from moldau.base.listeners import host_and_port
from moldau.console.collector.state import ClusterState

AFFECTED_MAX: Final = 20
"""Names in an answer."""
DISK_FREE_LOW: Final = 0.10
LAG_SECONDS_HIGH: Final = 300.0
STEP_NAMES: Final = {
    "brokers": "brokers",
    "topics": "topics",
    "ends": "log end offsets",
    "starts": "log start offsets",
    "views": "configs of topics",
    "groups": "groups",
    "offsets": "committed offsets",
    "members": "members of groups",
    "log_dirs": "log directories",
    "quorum": "controller quorum",
    "reassignments": "reassignments",
    "subscriptions": "client metrics subscriptions",
    "metrics": "metrics of the brokers",
}
"""What users call the things that the collector's steps read."""


@dataclass(frozen=True, slots=True)
class Problem:
    severity: str
    title: str
    what_to_do: str
    link: str | None = None
    affected: list[str] = field(default_factory=list)
    """All of them; an answer names the first."""

    def data(self) -> dict[str, Any]:
        return {
            "severity": self.severity,
            "title": self.title,
            "what_to_do": self.what_to_do,
            "link": self.link,
            "affected": self.affected[:AFFECTED_MAX],
            "affected_total": len(self.affected),
        }


def problems_of(state: ClusterState) -> list[Problem]:
    """Return all problems, the most severe first."""
    order = {"error": 0, "warning": 1, "info": 2}
    found = [*_unreadable(state), *_brokers(state), *_partitions(state), *_disks(state), *_groups(state)]
    return sorted(found, key=lambda problem: order[problem.severity])


def _unreadable(state: ClusterState) -> Iterator[Problem]:
    if state.read_error:
        yield Problem("error", "The cluster cannot be read", f"{state.read_error}. What is shown was read before.")
        return
    for step, reason in sorted(state.failures.lasting().items()):
        yield Problem(
            "warning",
            f"The {STEP_NAMES[step]} cannot be read",
            f"{reason}. What is shown was read before; see whether this console reaches all brokers.",
            "/cluster",
        )


def _brokers(state: ClusterState) -> Iterator[Problem]:
    gone = sorted(set(state.nodes) - state.alive)
    if gone and state.alive:
        named = ", ".join(map(str, gone))
        plural = len(gone) > 1
        yield Problem(
            "error",
            f"Broker{'s' if plural else ''} {named} {'are' if plural else 'is'} down",
            f"Start {'them' if plural else 'it'} again; the log of the broker says why it stopped.",
            "/cluster",
            [f"broker {each}" for each in gone],
        )
    for broker in sorted(state.silent & state.alive):
        node = state.nodes.get(broker)
        if node is None:
            continue  # read a moment later than those that are alive
        yield Problem(
            "warning",
            f"Broker {broker} does not answer",
            f"The cluster still counts it as up. If it died, the cluster notices after broker.session.timeout.ms; if"
            f" not, see whether this console reaches {host_and_port(node.host, node.port)}.",
            "/cluster",
            [f"broker {broker}"],
        )


def _partitions(state: ClusterState) -> Iterator[Problem]:
    layout = state.layout
    leaderless, under_replicated = layout.leaderless, layout.under_replicated
    not_preferred = sum(count for broker, count in layout.not_preferred.items() if broker in state.alive)
    away = sorted(layout.missing - state.alive)
    advice = (
        f"Start broker{'s' if len(away) > 1 else ''} {', '.join(map(str, away))}."
        if away
        else "Look at the logs of the brokers."
    )
    if leaderless:
        yield Problem(
            "error",
            f"{_count(leaderless, 'partition')} {'are' if len(leaderless) > 1 else 'is'} offline:"
            " clients can neither read nor write there",
            advice,
            "/cluster",
            leaderless,
        )
    if under_replicated:
        catch_up_advice = (
            advice if away else "Replicas catch up by themselves; if it lasts, look at the disk and network load."
        )
        yield Problem(
            "warning",
            f"{_count(under_replicated, 'partition')} {'are' if len(under_replicated) > 1 else 'is'} under-replicated",
            catch_up_advice,
            "/cluster",
            under_replicated,
        )
    if not_preferred:
        yield Problem(
            "info",
            f"{_count(not_preferred, 'partition')} {'are' if not_preferred > 1 else 'is'} not led by the preferred"
            " replica",
            "Elect the preferred leaders on the cluster page: the load is then spread as planned.",
            "/cluster",
        )


def _disks(state: ClusterState) -> Iterator[Problem]:
    for broker, directories in sorted((state.log_dirs or {}).items()):
        for each in directories:
            if each.error:
                yield Problem(
                    "error",
                    f"Broker {broker}: the directory {each.path} is offline ({each.error})",
                    "Repair or replace the disk, then start the broker again.",
                    f"/brokers/{broker}",
                )
            elif (
                each.total_bytes and each.free_bytes is not None and each.free_bytes < each.total_bytes * DISK_FREE_LOW
            ):
                yield Problem(
                    "warning",
                    f"Broker {broker}: only {100 * each.free_bytes / each.total_bytes:.0f} % of the disk of"
                    f" {each.path} is free",
                    "Keep less (retention.ms, retention.bytes of the largest topics), or give it a larger disk.",
                    f"/brokers/{broker}",
                )


def _groups(state: ClusterState) -> Iterator[Problem]:
    late = [
        group
        for group in state.groups.values()
        if group.age is not None and group.age.seconds > LAG_SECONDS_HIGH and group.state != "Empty"
    ]
    if late:
        late.sort(key=lambda group: -group.age.seconds if group.age else 0)
        yield Problem(
            "warning",
            f"{_count(late, 'group')} {'are' if len(late) > 1 else 'is'} more than"
            f" {LAG_SECONDS_HIGH / 60:.0f} minutes behind",
            "Check whether their members still consume; more members help up to the number of partitions.",
            "/groups",
            [group.group_id for group in late],
        )
    waiting = [group.group_id for group in state.groups.values() if group.state == "Empty" and group.lag]
    if waiting:
        yield Problem(
            "info",
            f"{_count(waiting, 'group')} without members {'have' if len(waiting) > 1 else 'has'} unread records",
            "Start the consumers, or delete the group if nobody needs it any more.",
            "/groups",
            sorted(waiting),
        )


def _count(items: Iterable[Any] | int, noun: str) -> str:
    number = items if isinstance(items, int) else len(list(items))
    return f"{number:,} {noun}{'s' if number != 1 else ''}"
