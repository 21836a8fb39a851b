"""Single steps of one replica: what is on disk before it is said, and what hostile or strange requests come to."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from memory_raft_log import MemoryRaftLog, MemoryStateStore
from quorum_world import CLUSTER_ID, LISTENER, SETTINGS, directory_of

from moldau.base.errors import ErrorCode, KafkaError, StorageFault
from moldau.base.promise import Promise
from moldau.raft.machine import Quorum
from moldau.raft.member import Member
from moldau.raft.roles import Candidate, Follower, Leader, OutgoingRequest, Prospective, Resigned, Unattached
from moldau.raft.snapshots import SnapshotId
from moldau.raft.states import QuorumState
from moldau.raft.voters import Endpoint, static_voters
from moldau.testing.clock import FakeClock
from moldau.wire.apis import ApiKey
from moldau.wire.messages import begin_quorum_epoch, describe_quorum, end_quorum_epoch, fetch, fetch_snapshot, vote
from moldau.wire.records import Record, build_batch
from moldau.wire.schema import Message

TOPIC = "__cluster_metadata"
TOPIC_ID = bytes(15) + b"\x01"


class FailingStore(MemoryStateStore):
    fails = False

    def write(self, state: QuorumState) -> None:
        if self.fails:
            raise StorageFault("quorum-state", OSError("full"))
        super().write(state)


class Replica:
    """Node 1 of as many voters, and whom it would talk to."""

    def __init__(self, voters: int = 3, log: MemoryRaftLog | None = None, state: QuorumState | None = None) -> None:
        self.clock = FakeClock()
        self.log = log or MemoryRaftLog()
        self.store = FailingStore()
        if state is not None:
            self.store.write(state)
        addresses = {each: (f"node{each}", 9093) for each in range(1, voters + 1)}
        me = Member(1, directory_of(1), CLUSTER_ID, LISTENER, (Endpoint(LISTENER, "node1", 9093),))
        bootstrap = [Endpoint(LISTENER, *address) for address in addresses.values()]
        self.quorum = Quorum(
            me, static_voters(addresses, LISTENER), bootstrap, self.log, self.store, Random(1), self.clock, SETTINGS
        )
        self.quorum.start()

    def ask(self, request: Message) -> Any:
        return self.quorum.answer(request)

    def sent(self, api: ApiKey) -> list[OutgoingRequest]:
        return [asked for asked in self.quorum.take_outgoing() if asked.api is api]

    def wait(self, ms: int) -> None:
        self.clock.move(ms)
        self.quorum.poll()

    def lead(self) -> Replica:
        """Elected by node 2, and its first record committed by it."""
        while not isinstance(self.quorum.role, Candidate):
            self.wait(100)
            self._grant()
        self._grant()
        assert isinstance(self.quorum.role, Leader)
        self.log.flush(self.log.end_offset)
        self.quorum.flushed()
        self.ask(fetch_request(2, self.quorum.leader_epoch, self.log.end_offset, self.log.last_epoch))
        self.quorum.take_outgoing()
        return self

    def _grant(self) -> None:
        self.quorum.poll()
        for asked in self.sent(ApiKey.VOTE):
            if asked.node_id == 2:
                epoch = asked.request.topics[0].partitions[0].replica_epoch  # type: ignore[attr-defined]
                granted = vote.ResponsePartitionData(0, 0, -1, epoch, True)
                self.quorum.on_response(asked, vote.VoteResponse(0, [vote.ResponseTopicData(TOPIC, [granted])]))


def vote_request(
    candidate: int, epoch: int, last: tuple[int, int] = (0, 0), *, is_pre_vote: bool = False
) -> vote.VoteRequest:
    offset, last_epoch = last
    partition = vote.RequestPartitionData(
        0, epoch, candidate, directory_of(candidate), bytes(16), last_epoch, offset, is_pre_vote
    )
    return vote.VoteRequest(CLUSTER_ID, 1, [vote.RequestTopicData(TOPIC, [partition])])


def fetch_request(replica_id: int, epoch: int, offset: int, last_epoch: int, wait_ms: int = 0) -> fetch.FetchRequest:
    partition = fetch.FetchPartition(0, epoch, offset, last_epoch, replica_directory_id=directory_of(replica_id))
    topics = [fetch.FetchTopic(TOPIC_ID, "", [partition])]
    return fetch.FetchRequest(CLUSTER_ID, fetch.ReplicaState(replica_id), max_wait_ms=wait_ms, topics=topics)


def begin_request(leader_id: int, epoch: int) -> begin_quorum_epoch.BeginQuorumEpochRequest:
    partition = begin_quorum_epoch.RequestPartitionData(0, bytes(16), leader_id, epoch)
    return begin_quorum_epoch.BeginQuorumEpochRequest(
        CLUSTER_ID, 1, [begin_quorum_epoch.RequestTopicData(TOPIC, [partition])]
    )


def granted(response: vote.VoteResponse) -> bool:
    return response.topics[0].partitions[0].vote_granted


# --- what is on disk before it is said


def test_a_vote_is_on_disk_before_it_is_given() -> None:
    replica = Replica()
    assert granted(replica.ask(vote_request(2, 5)))
    remembered = replica.store.read()
    assert remembered is not None
    assert (remembered.leader_epoch, remembered.voted_id) == (5, 2)


def test_a_vote_that_could_not_be_written_down_was_not_given() -> None:
    replica = Replica()
    replica.ask(vote_request(2, 5, is_pre_vote=True))
    assert replica.quorum.leader_epoch == 5
    replica.store.fails = True
    with pytest.raises(StorageFault):
        replica.ask(vote_request(2, 5))
    replica.store.fails = False
    assert granted(replica.ask(vote_request(3, 5))), "node 2 has heard nothing of a vote"
    remembered = replica.store.read()
    assert remembered is not None
    assert remembered.voted_id == 3
    assert not granted(replica.ask(vote_request(2, 5)))


def test_an_epoch_is_on_disk_before_votes_are_asked_for_in_it() -> None:
    replica = Replica()
    replica.wait(1_000)
    replica._grant()
    assert isinstance(replica.quorum.role, Candidate)
    remembered = replica.store.read()
    assert remembered is not None
    assert (remembered.leader_epoch, remembered.voted_id) == (1, 1)
    assert [asked.node_id for asked in replica.sent(ApiKey.VOTE)] == [2, 3]


def test_an_epoch_is_not_led_twice_even_by_the_same_node() -> None:
    first = Replica().lead()
    assert first.quorum.leader_epoch == 1
    second = Replica(log=first.log, state=first.store.read())
    assert isinstance(second.quorum.role, Resigned)
    with pytest.raises(KafkaError) as refused:
        second.quorum.append([b"x"])
    assert refused.value.code is ErrorCode.NOT_CONTROLLER
    assert second.lead().quorum.leader_epoch > 1


def test_votes_given_for_a_log_that_was_lost_are_not_gathered_in_the_next_life() -> None:
    """A candidate asked for them with batches that were not on disk; a majority may have committed these."""
    state = QuorumState(CLUSTER_ID, -1, 7, 1, (1, 2, 3))
    replica = Replica(state=state)
    assert isinstance(replica.quorum.role, Unattached)
    assert not replica.sent(ApiKey.VOTE)
    assert not granted(replica.ask(vote_request(2, 7))), "its own vote is given"
    assert replica.lead().quorum.leader_epoch == 8


def test_an_epoch_in_the_log_that_the_memory_forgot_is_not_used_again() -> None:
    log = MemoryRaftLog()
    log.append(build_batch([Record(0, 0, None, b"x")]), 9, 0)
    log.flush(1)
    replica = Replica(log=log, state=QuorumState(CLUSTER_ID, -1, 3, -1, ()))
    assert replica.quorum.leader_epoch == 9
    assert replica.lead().quorum.leader_epoch == 10


# --- elections that are lost


def test_a_candidate_that_only_a_dead_voter_could_elect_does_not_wait_for_it() -> None:
    replica = Replica()
    replica.wait(1_000)
    replica._grant()
    assert isinstance(replica.quorum.role, Candidate)
    for asked in replica.sent(ApiKey.VOTE):
        no = vote.ResponsePartitionData(0, 0, -1, 1, False)
        refused = vote.VoteResponse(0, [vote.ResponseTopicData(TOPIC, [no])])
        replica.quorum.on_response(asked, refused if asked.node_id == 2 else KafkaError(ErrorCode.NETWORK_EXCEPTION))
    replica.wait(2 * SETTINGS.retry_backoff_ms)
    assert isinstance(replica.quorum.role, Prospective), "long before the election timeout"


# --- one leader an epoch


def test_two_leaders_of_one_epoch_are_not_believed() -> None:
    replica = Replica()
    assert replica.ask(begin_request(2, 4)).topics[0].partitions[0].error_code == 0
    refused = replica.ask(begin_request(3, 4)).topics[0].partitions[0]
    assert (refused.error_code, refused.leader_id) == (ErrorCode.INVALID_REQUEST, 2)
    assert replica.quorum.leader_id == 2
    leader = Replica().lead()
    assert leader.ask(begin_request(2, 1)).topics[0].partitions[0].error_code == ErrorCode.INVALID_REQUEST
    assert leader.quorum.is_leader


def test_answers_to_an_earlier_role_mean_nothing() -> None:
    replica = Replica()
    replica.wait(1_000)
    asked = [each for each in replica.sent(ApiKey.VOTE) if each.node_id == 2]
    replica.ask(begin_request(3, 4))
    yes = vote.ResponsePartitionData(0, 0, -1, 0, True)
    replica.quorum.on_response(asked[0], vote.VoteResponse(0, [vote.ResponseTopicData(TOPIC, [yes])]))
    assert (replica.quorum.leader_id, replica.quorum.leader_epoch) == (3, 4)


# --- what is strange


NOBODY_FITS: list[Message] = [
    vote.VoteRequest(CLUSTER_ID, 1),
    vote.VoteRequest(CLUSTER_ID, 1, [vote.RequestTopicData(TOPIC)]),
    vote.VoteRequest(CLUSTER_ID, 1, [vote.RequestTopicData("x", [vote.RequestPartitionData()])]),
    vote.VoteRequest(CLUSTER_ID, 1, [vote.RequestTopicData(TOPIC, [vote.RequestPartitionData(1)])]),
    begin_quorum_epoch.BeginQuorumEpochRequest(CLUSTER_ID),
    begin_quorum_epoch.BeginQuorumEpochRequest(CLUSTER_ID, 1, [begin_quorum_epoch.RequestTopicData(TOPIC)]),
    end_quorum_epoch.EndQuorumEpochRequest(CLUSTER_ID),
    end_quorum_epoch.EndQuorumEpochRequest(CLUSTER_ID, [end_quorum_epoch.RequestTopicData(TOPIC)]),
    fetch.FetchRequest(CLUSTER_ID),
    fetch.FetchRequest(CLUSTER_ID, topics=[fetch.FetchTopic(TOPIC_ID)]),
    fetch.FetchRequest(CLUSTER_ID, topics=[fetch.FetchTopic(b"x" * 16, "", [fetch.FetchPartition()])]),
    fetch_snapshot.FetchSnapshotRequest(CLUSTER_ID, 2),
    fetch_snapshot.FetchSnapshotRequest(CLUSTER_ID, 2, 9, [fetch_snapshot.RequestTopicSnapshot(TOPIC)]),
    fetch_snapshot.FetchSnapshotRequest(CLUSTER_ID, 2, 9, [fetch_snapshot.RequestTopicSnapshot(TOPIC)] * 2),
]


@pytest.mark.parametrize("request_", NOBODY_FITS, ids=lambda each: type(each).__name__)
def test_requests_that_name_no_partition_are_refused_by_leaders_and_others(request_: Message) -> None:
    for replica in (Replica(), Replica().lead()):
        before = type(replica.quorum.role)
        assert replica.ask(request_).error_code == ErrorCode.INVALID_REQUEST
        assert type(replica.quorum.role) is before


def test_a_describe_request_without_topics_is_answered_without_topics() -> None:
    assert Replica().lead().ask(describe_quorum.DescribeQuorumRequest()).topics == []


def snapshot_request(epoch: int, position: int, end_offset: int = 2) -> fetch_snapshot.FetchSnapshotRequest:
    named = fetch_snapshot.RequestSnapshotId(end_offset, 1)
    partition = fetch_snapshot.RequestPartitionSnapshot(0, epoch, named, position)
    return fetch_snapshot.FetchSnapshotRequest(
        CLUSTER_ID, 2, 50, [fetch_snapshot.RequestTopicSnapshot(TOPIC, [partition])]
    )


@pytest.mark.parametrize(
    ("position", "end_offset", "code"),
    [
        (0, 2, ErrorCode.NONE),
        (49, 2, ErrorCode.NONE),
        (-1, 2, ErrorCode.POSITION_OUT_OF_RANGE),
        (1 << 40, 2, ErrorCode.POSITION_OUT_OF_RANGE),
        (0, 3, ErrorCode.SNAPSHOT_NOT_FOUND),
        (0, 0, ErrorCode.SNAPSHOT_NOT_FOUND),
    ],
)
def test_pieces_of_a_snapshot_are_bounded_and_within_it(position: int, end_offset: int, code: ErrorCode) -> None:
    replica = Replica().lead()
    replica.quorum.append([b"x"])
    replica.log.write_snapshot(SnapshotId(2, 1), [b"value"] * 10, 0)
    piece = replica.ask(snapshot_request(1, position, end_offset)).topics[0].partitions[0]
    assert piece.error_code == code
    if code is ErrorCode.NONE:
        assert piece.unaligned_records == replica.log.snapshots[SnapshotId(2, 1)][position : position + 50]
        assert piece.size == len(replica.log.snapshots[SnapshotId(2, 1)])


def test_a_fetch_waits_no_longer_than_it_asked_to_and_gets_what_came() -> None:
    replica = Replica().lead()
    answer = replica.ask(fetch_request(3, 1, 1, 1, wait_ms=300))
    assert isinstance(answer, Promise)
    replica.wait(299)
    assert replica.quorum.take_replies() == []
    replica.wait(1)
    [(waiting, response)] = replica.quorum.take_replies()
    assert waiting is answer
    assert response.responses[0].partitions[0].records == b""  # type: ignore[attr-defined]
    replica.ask(fetch_request(3, 1, 1, 1, wait_ms=300))
    replica.quorum.append([b"x"])
    [(_, response)] = replica.quorum.take_replies()
    assert response.responses[0].partitions[0].records == replica.log.content[-1]  # type: ignore[attr-defined]


def test_who_waits_when_the_leader_goes_is_told_so() -> None:
    replica = Replica().lead()
    replica.ask(fetch_request(3, 1, 1, 1, wait_ms=300))
    replica.ask(vote_request(2, 9, last=(50, 8)))
    [(_, response)] = replica.quorum.take_replies()
    partition = response.responses[0].partitions[0]  # type: ignore[attr-defined]
    assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (-1, 9)


def test_batches_that_are_broken_are_asked_for_again() -> None:
    replica = Replica()
    replica.ask(begin_request(2, 4))
    asked = replica.sent(ApiKey.FETCH)[-1]
    batch = build_batch([Record(0, 0, None, b"x" * 50)], leader_epoch=4)
    batch[-1] ^= 1
    partition = fetch.PartitionData(0, records=bytes(batch), current_leader=fetch.LeaderIdAndEpoch(2, 4))
    topics = [fetch.FetchableTopicResponse(TOPIC_ID, "", [partition])]
    replica.quorum.on_response(asked, fetch.FetchResponse(responses=topics))
    assert replica.log.end_offset == 0
    assert isinstance(replica.quorum.role, Follower)
    replica.wait(SETTINGS.retry_backoff_ms)
    assert [each.request for each in replica.sent(ApiKey.FETCH)][-1:] == [asked.request]


def test_an_observer_asks_around_until_somebody_names_the_leader() -> None:
    log = MemoryRaftLog()
    addresses = {each: (f"node{each}", 9093) for each in (1, 2, 3)}
    bootstrap = [Endpoint(LISTENER, *address) for address in addresses.values()]
    clock = FakeClock()
    me = Member(9, directory_of(9), CLUSTER_ID, LISTENER)
    voters = static_voters(addresses, LISTENER)
    quorum = Quorum(me, voters, bootstrap, log, MemoryStateStore(), Random(3), clock, SETTINGS)
    quorum.start()
    asked_hosts = set()
    for _ in range(40):
        for asked in quorum.take_outgoing():
            asked_hosts.add(asked.to.host)
            quorum.on_response(asked, KafkaError(ErrorCode.NETWORK_EXCEPTION))
        clock.move(SETTINGS.retry_backoff_ms)
        quorum.poll()
    assert asked_hosts == {"node1", "node2", "node3"}
    assert isinstance(quorum.role, Unattached), "it is never a candidate"
    [asked] = quorum.take_outgoing()
    partition = fetch.PartitionData(
        0, ErrorCode.NOT_LEADER_OR_FOLLOWER, current_leader=fetch.LeaderIdAndEpoch(3, 6), records=b""
    )
    topics = [fetch.FetchableTopicResponse(TOPIC_ID, "", [partition])]
    where = [fetch.NodeEndpoint(3, "elsewhere", 9999)]
    quorum.on_response(asked, fetch.FetchResponse(responses=topics, node_endpoints=where))
    assert (quorum.leader_id, quorum.leader_endpoint) == (3, Endpoint(LISTENER, "elsewhere", 9999))
    assert [each.to.host for each in quorum.take_outgoing()] == ["elsewhere"]
