"""What a node does besides its topics: requests, connections, its process, and what only Moldau has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from moldau.base.loop_watch import LoopWatch
from moldau.prometheus.text import COUNTER, GAUGE, SUMMARY, Family, escape, labels, pieces, single

_REQUESTS: Final = "kafka_network_requestmetrics"
_SOCKETS: Final = "kafka_server_socket_server_metrics"
_REQUESTS_TOTAL: Final = Family(f"{_REQUESTS}_requests_total", COUNTER, "Requests by API and version.")
_FAILURES: Final = Family("moldau_requests_failed_total", COUNTER, "Requests that closed their connection.")
_LOCAL: Final = Family(f"{_REQUESTS}_localtimems", SUMMARY, "Milliseconds on the event loop, of one in 16 requests.")
_TOTAL: Final = Family(f"{_REQUESTS}_totaltimems", SUMMARY, "Milliseconds until the response, of one in 16 requests.")
_IDLE: Final = "Share of time in which the event loop used no processor, since the last scrape."
MILLISECONDS: Final = 1000


class RequestCounts(Protocol):
    """The requests of one API in one version."""

    version: int
    requests: int
    failures: int
    timed: int
    local_s: float
    total_s: float


class ListenerCounts(NamedTuple):
    name: str
    connections: int
    accepted: int
    refused: int


class Value(NamedTuple):
    """A metric without labels."""

    name: str
    kind: str
    help: str
    value: int | float


@dataclass(slots=True)
class _Sums:
    failures: int = 0
    timed: int = 0
    local_s: float = 0.0
    total_s: float = 0.0


def collect_requests(counts: Iterable[tuple[str, RequestCounts]]) -> Iterator[str]:
    """`counts` are pairs of the API's name and the counts of one of its versions."""
    by_version: dict[tuple[str, int], int] = {}
    by_api: dict[str, _Sums] = {}
    for name, each in counts:
        by_version[name, each.version] = by_version.get((name, each.version), 0) + each.requests
        sums = by_api.setdefault(name, _Sums())
        sums.failures += each.failures
        sums.timed += each.timed
        sums.local_s += each.local_s
        sums.total_s += each.total_s
    yield from pieces(
        _REQUESTS_TOTAL, ((labels(request=name, version=number), value) for (name, number), value in by_version.items())
    )
    yield from pieces(_FAILURES, ((labels(request=name), sums.failures) for name, sums in by_api.items()))
    for family, attribute in ((_LOCAL, "local_s"), (_TOTAL, "total_s")):
        piece = family.head
        for name, sums in by_api.items():
            total_ms = getattr(sums, attribute) * MILLISECONDS
            label = labels(request=name)
            piece += f"{family.name}_sum{label} {total_ms:.3f}\n{family.name}_count{label} {sums.timed}\n"
        if by_api:
            yield piece


def collect_listeners(listeners: Sequence[ListenerCounts]) -> Iterator[str]:
    for name, kind, help, values in (
        ("connection_count", GAUGE, "Open connections.", [each.connections for each in listeners]),
        ("connection_creation_total", COUNTER, "Connections accepted.", [each.accepted for each in listeners]),
        (
            "connection_close_total",
            COUNTER,
            "Connections closed.",
            [each.accepted - each.connections for each in listeners],
        ),
        ("connection_refused_total", COUNTER, "Connections refused.", [each.refused for each in listeners]),
    ):
        rows = [
            (labels(listener=each.name, networkProcessor=0), value)
            for each, value in zip(listeners, values, strict=True)
        ]
        yield from pieces(Family(f"{_SOCKETS}_{name}", kind, help), rows)


def collect_idle(share: float) -> Iterator[str]:
    """One event loop does the work of Kafka's network and request threads, so both names have its value."""
    for name in (
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
        "kafka_network_socketserver_networkprocessoravgidle_percent",
    ):
        yield single(Family(name, GAUGE, _IDLE), round(share, 4))


def collect_loop(watch: LoopWatch) -> Iterator[str]:
    """The longest call is described in a comment: as a label it would be a new series each time."""
    for limit, count in ((5, watch.calls_above_5_ms), (50, watch.calls_above_50_ms)):
        help = f"Calls that held up the event loop for more than {limit} ms."
        yield single(Family(f"moldau_event_loop_calls_above_{limit}_ms_total", COUNTER, help), count)
    what, longest_us = watch.take_longest()
    name = "moldau_event_loop_longest_call_ms"
    yield single(Family(name, GAUGE, "The longest call since the last scrape."), longest_us / MILLISECONDS)
    if what:
        yield f"# {name}: {escape(what)}\n"


class IdleShare:
    """The share of time in which the thread of the event loop used no processor."""

    def __init__(self, cpu_s: float, now_s: float) -> None:
        self._cpu_s = cpu_s
        self._at_s = now_s
        self._share = 1.0

    def at(self, cpu_s: float, now_s: float) -> float:
        """Return the share since the last call that is at least a second ago."""
        if now_s - self._at_s >= 1.0:
            self._share = min(max(1.0 - (cpu_s - self._cpu_s) / (now_s - self._at_s), 0.0), 1.0)
            self._cpu_s, self._at_s = cpu_s, now_s
        return self._share


def collect_values(values: Iterable[Value]) -> Iterator[str]:
    yield "".join(single(Family(each.name, each.kind, each.help), each.value) for each in values)


def collect_build(version: str, node_id: int) -> Iterator[str]:
    family = Family("moldau_build_info", GAUGE, "The version of this node.")
    yield from pieces(family, [(labels(version=version, node_id=node_id), 1)])
