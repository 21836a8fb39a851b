"""Share groups at the leaders of their partitions: sessions, records that are in flight, and what became of others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from moldau.prometheus.text import COUNTER, GAUGE, PIECE_SERIES, Family, labels, pieces, single
from moldau.share.runs import RecordState
from moldau.share.traffic import ShareTraffic
from moldau.share.window import ACCEPT, GAP, REJECT, RELEASE, RENEW, Window

_SESSIONS: Final = Family("kafka_server_sharesessioncache_sharesessionscount", GAUGE, "Sessions of share groups.")
_PARTITIONS: Final = Family(
    "kafka_server_sharesessioncache_sharepartitionscount", GAUGE, "Partitions in sessions of share groups."
)
_RECORDS: Final = Family(
    "moldau_share_records", GAUGE, "Records that a share group has begun and not finished, by topic and state."
)
_ACQUIRED: Final = Family("moldau_share_acquired_total", COUNTER, "Records given to members of share groups.")
_SAID: Final = Family(
    "kafka_server_share_group_metrics_record_acknowledgement_total", COUNTER, "Records that members acknowledged."
)
_TIMED_OUT: Final = Family(
    "moldau_share_lock_timeouts_total", COUNTER, "Records that members of share groups did not acknowledge in time."
)
_DEAD_LETTERS: Final = Family(
    "moldau_share_dead_letters_total", COUNTER, "Records that share groups with a topic for dead letters gave up."
)
_TYPES: Final = {GAP: "gap", ACCEPT: "accept", RELEASE: "release", REJECT: "reject", RENEW: "renew"}


class Shared(NamedTuple):
    """A partition as a share group reads it."""

    group: str
    topic: str
    window: Window


def collect(sessions: int, places: int, traffic: ShareTraffic, shared: Iterable[Shared]) -> Iterator[str]:
    yield single(_SESSIONS, sessions) + single(_PARTITIONS, places)
    yield single(_ACQUIRED, traffic.acquired) + single(_TIMED_OUT, traffic.timed_out)
    yield single(_DEAD_LETTERS, traffic.dead_letters)
    yield from pieces(_SAID, [(labels(ackType=name), traffic.acknowledged[kind]) for kind, name in _TYPES.items()])
    counts: Counter[tuple[str, str, RecordState]] = Counter()
    for number, each in enumerate(shared, 1):
        for state, count in each.window.counts().items():
            counts[each.group, each.topic, state] += count
        if not number % PIECE_SERIES:
            yield ""
    yield from pieces(
        _RECORDS,
        (
            (labels(group=group, topic=topic, state=state.name.lower()), count)
            for (group, topic, state), count in counts.items()
        ),
    )
