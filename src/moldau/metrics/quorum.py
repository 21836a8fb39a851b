"""The quorum of controllers: Kafka's raft-metrics and raft-channel-metrics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from moldau.prometheus.text import COUNTER, GAUGE, UNTYPED, Family, labels, pieces, single
from moldau.raft.commit_times import CommitTimes
from moldau.raft.machine import Quorum

_RAFT: Final = "kafka_server_raftmetrics"
_CHANNEL: Final = "kafka_server_raftchannelmetrics"
_STATE: Final = Family(f"{_RAFT}_current_state", UNTYPED, "The role of this node; the label has its name.")
NOBODY: Final = -1


class ChannelCounts(NamedTuple):
    """What this node sent to other voters, and what they answered."""

    requests: int
    responses: int
    bytes_out: int
    bytes_in: int


class RecordRate:
    """Records a second between two scrapes, from the end offset of the metadata log."""

    def __init__(self) -> None:
        self._end_offset: int | None = None
        self._at_ms = 0
        self._rate = 0.0

    def at(self, end_offset: int, now_ms: int) -> float:
        if self._end_offset is not None and now_ms > self._at_ms:
            self._rate = max(end_offset - self._end_offset, 0) * 1000 / (now_ms - self._at_ms)
        if self._end_offset is None or now_ms > self._at_ms:
            self._end_offset, self._at_ms = end_offset, now_ms
        return self._rate


def state_name(quorum: Quorum) -> str:
    """Return the role as Kafka calls it; one that does not vote is an observer."""
    name = type(quorum.role).__name__.lower()
    return "observer" if name == "follower" and not quorum.is_voter else name


def collect(quorum: Quorum, times: CommitTimes, rate: float, channel: ChannelCounts) -> Iterator[str]:
    """`rate` is the number of records a second that the metadata log grows by."""
    leads, voted = quorum.is_leader, quorum.role.voted
    yield from pieces(_STATE, [(labels(current_state=state_name(quorum)), 1)])
    for name, help, value in (
        ("current_leader", "The active controller; -1 if none is known.", quorum.leader_id),
        (
            "current_vote",
            "The node that this one voted for; -1 if none.",
            NOBODY if voted is None else voted.id,
        ),
        ("current_epoch", "The epoch.", quorum.leader_epoch),
        ("high_watermark", "The end of the committed metadata.", quorum.high_watermark),
        ("log_end_offset", "The end of the metadata log.", quorum.log.end_offset),
        ("log_end_epoch", "The epoch of its last record.", quorum.log.last_epoch),
        ("append_records_rate", "Records a second that this leader appends.", rate if leads else 0),
        ("fetch_records_rate", "Records a second that this follower fetches.", 0 if leads else rate),
        ("commit_latency_avg", "Milliseconds from append to commit, of the last batches.", times.average_ms),
        ("commit_latency_max", "The longest of them.", times.longest_ms),
        ("number_of_voters", "Controllers that vote.", len(tuple(quorum.voters))),
    ):
        yield single(Family(f"{_RAFT}_{name}", GAUGE, help), value)
    for name, help, value in (
        ("request_total", "Requests to other controllers.", channel.requests),
        ("response_total", "Their responses.", channel.responses),
        ("outgoing_byte_total", "Bytes of these requests.", channel.bytes_out),
        ("incoming_byte_total", "Bytes of these responses.", channel.bytes_in),
    ):
        yield single(Family(f"{_CHANNEL}_{name}", COUNTER, help), value)
