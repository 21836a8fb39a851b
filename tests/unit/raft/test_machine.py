"""Single steps of one replica: state is on disk before it is sent, and hostile or invalid requests are refused."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from harness.memory_raft_log import MemoryRaftLog, MemoryStateStore
from harness.quorum_world import CLUSTER_ID, LISTENER, SETTINGS, directory_of

from moldau.base.errors import ErrorCode, KafkaError, StorageFault
from moldau.base.promise import Promise
from moldau.raft.control_records import kraft_version_record
from moldau.raft.machine import Quorum
from moldau.raft.member import Member
from moldau.raft.news import LeaderChanged
from moldau.raft.quorum_state import QuorumState
from moldau.raft.roles import Candidate, Follower, Leader, OutgoingRequest, Prospective, Resigned, Unattached
from moldau.raft.snapshots import BOOTSTRAP, SnapshotId, bootstrap_snapshot
from moldau.raft.voters import SUPPORTED_KRAFT_VERSIONS, Endpoint, VoterSet, static_voters
from moldau.testing.clock import FakeClock
from moldau.wire.apis import ApiKey
from moldau.wire.batch import stamp
from moldau.wire.messages import (
    add_raft_voter,
    api_versions,
    begin_quorum_epoch,
    describe_quorum,
    end_quorum_epoch,
    fetch,
    fetch_snapshot,
    vote,
)
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
    """Node 1 of `voters` voters, without a network."""

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
        return [outgoing for outgoing in self.quorum.take_outgoing() if outgoing.api is api]

    def wait(self, ms: int) -> None:
        self.clock.move(ms)
        self.quorum.poll()

    def lead(self) -> Replica:
        """Let node 2 elect this one and commit its first record."""
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
        for outgoing in self.sent(ApiKey.VOTE):
            if outgoing.node_id == 2:
                epoch = outgoing.request.topics[0].partitions[0].replica_epoch  # type: ignore[attr-defined]
                partition = vote.ResponsePartitionData(0, 0, -1, epoch, True)
                self.quorum.on_response(outgoing, vote.VoteResponse(0, [vote.ResponseTopicData(TOPIC, [partition])]))


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


# --- state is on disk before it is sent


def test_a_vote_is_on_disk_before_it_is_granted() -> None:
    replica = Replica()
    assert granted(replica.ask(vote_request(2, 5)))
    state = replica.store.read()
    assert state is not None
    assert (state.leader_epoch, state.voted_id) == (5, 2)


def test_a_vote_that_could_not_be_written_is_not_granted() -> None:
    replica = Replica()
    replica.ask(vote_request(2, 5, is_pre_vote=True))
    assert replica.quorum.leader_epoch == 5
    replica.store.fails = True
    with pytest.raises(StorageFault):
        replica.ask(vote_request(2, 5))
    replica.store.fails = False
    assert granted(replica.ask(vote_request(3, 5))), "node 2 got no vote"
    state = replica.store.read()
    assert state is not None
    assert state.voted_id == 3
    assert not granted(replica.ask(vote_request(2, 5)))


def test_an_epoch_is_on_disk_before_votes_are_requested_in_it() -> None:
    replica = Replica()
    replica.wait(1_000)
    replica._grant()
    assert isinstance(replica.quorum.role, Candidate)
    state = replica.store.read()
    assert state is not None
    assert (state.leader_epoch, state.voted_id) == (1, 1)
    assert [outgoing.node_id for outgoing in replica.sent(ApiKey.VOTE)] == [2, 3]


def test_a_restarted_leader_does_not_lead_its_epoch_again() -> None:
    first = Replica().lead()
    assert first.quorum.leader_epoch == 1
    second = Replica(log=first.log, state=first.store.read())
    assert isinstance(second.quorum.role, Resigned)
    with pytest.raises(KafkaError) as refused:
        second.quorum.append([b"x"])
    assert refused.value.code is ErrorCode.NOT_CONTROLLER
    assert second.lead().quorum.leader_epoch > 1


def test_a_restarted_single_voter_is_not_announced_as_the_leader_of_its_old_epoch() -> None:
    replica = Replica(voters=1, state=QuorumState(CLUSTER_ID, 1, 7, -1, (1,)))
    leaders = [(each.leader_id, each.epoch) for each in replica.quorum.take_news() if isinstance(each, LeaderChanged)]
    assert leaders == [(-1, 8), (1, 8)]


def test_votes_granted_for_a_lost_log_do_not_count_after_a_restart() -> None:
    """The candidate requested them with batches that were not on disk; a majority may have committed these."""
    state = QuorumState(CLUSTER_ID, -1, 7, 1, (1, 2, 3))
    replica = Replica(state=state)
    assert isinstance(replica.quorum.role, Unattached)
    assert not replica.sent(ApiKey.VOTE)
    assert not granted(replica.ask(vote_request(2, 7))), "it voted for itself"
    assert replica.lead().quorum.leader_epoch == 8


def test_an_epoch_in_the_log_that_quorum_state_lacks_is_not_used_again() -> None:
    log = MemoryRaftLog()
    log.append(build_batch([Record(0, 0, None, b"x")]), 9, 0)
    log.flush(1)
    replica = Replica(log=log, state=QuorumState(CLUSTER_ID, -1, 3, -1, ()))
    assert replica.quorum.leader_epoch == 9
    assert replica.lead().quorum.leader_epoch == 10


# --- elections that are lost


def test_a_candidate_that_needs_an_unreachable_voter_does_not_wait_for_it() -> None:
    replica = Replica()
    replica.wait(1_000)
    replica._grant()
    assert isinstance(replica.quorum.role, Candidate)
    for outgoing in replica.sent(ApiKey.VOTE):
        partition = vote.ResponsePartitionData(0, 0, -1, 1, False)
        refused = vote.VoteResponse(0, [vote.ResponseTopicData(TOPIC, [partition])])
        replica.quorum.on_response(
            outgoing, refused if outgoing.node_id == 2 else KafkaError(ErrorCode.NETWORK_EXCEPTION)
        )
    replica.wait(2 * SETTINGS.retry_backoff_ms)
    assert isinstance(replica.quorum.role, Prospective), "long before the election timeout"


# --- one leader per epoch


def test_a_second_leader_of_the_same_epoch_is_refused() -> None:
    replica = Replica()
    assert replica.ask(begin_request(2, 4)).topics[0].partitions[0].error_code == 0
    refused = replica.ask(begin_request(3, 4)).topics[0].partitions[0]
    assert (refused.error_code, refused.leader_id) == (ErrorCode.INVALID_REQUEST, 2)
    assert replica.quorum.leader_id == 2
    leader = Replica().lead()
    assert leader.ask(begin_request(2, 1)).topics[0].partitions[0].error_code == ErrorCode.INVALID_REQUEST
    assert leader.quorum.is_leader


def test_responses_to_an_earlier_role_are_ignored() -> None:
    replica = Replica()
    replica.wait(1_000)
    outgoing = [each for each in replica.sent(ApiKey.VOTE) if each.node_id == 2]
    replica.ask(begin_request(3, 4))
    partition = vote.ResponsePartitionData(0, 0, -1, 0, True)
    replica.quorum.on_response(outgoing[0], vote.VoteResponse(0, [vote.ResponseTopicData(TOPIC, [partition])]))
    assert (replica.quorum.leader_id, replica.quorum.leader_epoch) == (3, 4)


# --- invalid requests


REQUESTS_WITHOUT_PARTITION: list[Message] = [
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


@pytest.mark.parametrize("request_", REQUESTS_WITHOUT_PARTITION, ids=lambda each: type(each).__name__)
def test_requests_without_a_known_partition_are_refused_by_leaders_and_others(request_: Message) -> None:
    for replica in (Replica(), Replica().lead()):
        before = type(replica.quorum.role)
        assert replica.ask(request_).error_code == ErrorCode.INVALID_REQUEST
        assert type(replica.quorum.role) is before


def test_a_describe_request_without_topics_is_answered_without_topics() -> None:
    assert Replica().lead().ask(describe_quorum.DescribeQuorumRequest()).topics == []


def snapshot_request(epoch: int, position: int, end_offset: int = 2) -> fetch_snapshot.FetchSnapshotRequest:
    snapshot_id = fetch_snapshot.RequestSnapshotId(end_offset, 1)
    partition = fetch_snapshot.RequestPartitionSnapshot(0, epoch, snapshot_id, position)
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
def test_pieces_of_a_snapshot_are_limited_in_size_and_range(position: int, end_offset: int, code: ErrorCode) -> None:
    replica = Replica().lead()
    replica.quorum.append([b"x"])
    replica.log.write_snapshot(SnapshotId(2, 1), [b"value"] * 10, 0)
    piece = replica.ask(snapshot_request(1, position, end_offset)).topics[0].partitions[0]
    assert piece.error_code == code
    if code is ErrorCode.NONE:
        assert piece.unaligned_records == replica.log.snapshots[SnapshotId(2, 1)][position : position + 50]
        assert piece.size == len(replica.log.snapshots[SnapshotId(2, 1)])


def test_a_parked_fetch_is_answered_at_its_deadline_or_when_data_arrives() -> None:
    replica = Replica().lead()
    promise = replica.ask(fetch_request(3, 1, 1, 1, wait_ms=300))
    assert isinstance(promise, Promise)
    replica.wait(299)
    assert replica.quorum.take_replies() == []
    replica.wait(1)
    [(answered, response)] = replica.quorum.take_replies()
    assert answered is promise
    assert response.responses[0].partitions[0].records == b""  # type: ignore[attr-defined]
    replica.ask(fetch_request(3, 1, 1, 1, wait_ms=300))
    replica.quorum.append([b"x"])
    [(_, response)] = replica.quorum.take_replies()
    assert response.responses[0].partitions[0].records == replica.log.content[-1]  # type: ignore[attr-defined]


def test_a_parked_fetch_is_refused_when_the_leader_steps_down() -> None:
    replica = Replica().lead()
    replica.ask(fetch_request(3, 1, 1, 1, wait_ms=300))
    replica.ask(vote_request(2, 9, last=(50, 8)))
    [(_, response)] = replica.quorum.take_replies()
    partition = response.responses[0].partitions[0]  # type: ignore[attr-defined]
    assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (-1, 9)


def test_corrupt_batches_are_fetched_again() -> None:
    replica = Replica()
    replica.ask(begin_request(2, 4))
    outgoing = replica.sent(ApiKey.FETCH)[-1]
    batch = build_batch([Record(0, 0, None, b"x" * 50)], leader_epoch=4)
    batch[-1] ^= 1
    partition = fetch.PartitionData(0, records=bytes(batch), current_leader=fetch.LeaderIdAndEpoch(2, 4))
    topics = [fetch.FetchableTopicResponse(TOPIC_ID, "", [partition])]
    replica.quorum.on_response(outgoing, fetch.FetchResponse(responses=topics))
    assert replica.log.end_offset == 0
    assert isinstance(replica.quorum.role, Follower)
    replica.wait(SETTINGS.retry_backoff_ms)
    assert [each.request for each in replica.sent(ApiKey.FETCH)][-1:] == [outgoing.request]


def test_control_records_before_a_corrupt_batch_count() -> None:
    """A follower has appended the first batch, and fetches only the second one again."""
    replica = Replica()
    replica.ask(begin_request(2, 4))
    outgoing = replica.sent(ApiKey.FETCH)[-1]
    version = build_batch([kraft_version_record(1, 0)], leader_epoch=4, is_control=True)
    corrupt = build_batch([Record(1, 0, None, b"x" * 50)], leader_epoch=4)
    stamp(memoryview(corrupt), 1, 4)
    corrupt[-1] ^= 1
    partition = fetch.PartitionData(0, records=bytes(version + corrupt), current_leader=fetch.LeaderIdAndEpoch(2, 4))
    topics = [fetch.FetchableTopicResponse(TOPIC_ID, "", [partition])]
    replica.quorum.on_response(outgoing, fetch.FetchResponse(responses=topics))
    assert (replica.log.end_offset, replica.quorum.kraft_version) == (1, 1)


def respond_with_snapshot_id(replica: Replica, outgoing: OutgoingRequest, end_offset: int) -> None:
    """Answer a fetch as node 2, the leader of epoch 4: the replica needs a snapshot first."""
    partition = fetch.PartitionData(
        0, current_leader=fetch.LeaderIdAndEpoch(2, 4), snapshot_id=fetch.SnapshotId(end_offset, 3), records=b""
    )
    topics = [fetch.FetchableTopicResponse(TOPIC_ID, "", [partition])]
    replica.quorum.on_response(outgoing, fetch.FetchResponse(responses=topics))


def replica_with_a_partial_snapshot() -> Replica:
    """Return a follower with the first 300 bytes of a snapshot, whose request for the next ones has failed."""
    replica = Replica()
    replica.ask(begin_request(2, 4))
    respond_with_snapshot_id(replica, replica.sent(ApiKey.FETCH)[-1], 50)
    snapshot_id, leader = fetch_snapshot.ResponseSnapshotId(50, 3), fetch_snapshot.LeaderIdAndEpoch(2, 4)
    piece = fetch_snapshot.ResponsePartitionSnapshot(0, 0, snapshot_id, leader, 900, 0, bytes(300))
    response = fetch_snapshot.FetchSnapshotResponse(topics=[fetch_snapshot.ResponseTopicSnapshot(TOPIC, [piece])])
    replica.quorum.on_response(replica.sent(ApiKey.FETCH_SNAPSHOT)[-1], response)
    replica.quorum.on_response(replica.sent(ApiKey.FETCH_SNAPSHOT)[-1], KafkaError(ErrorCode.REQUEST_TIMED_OUT))
    return replica


@pytest.mark.parametrize(("named", "position"), [(50, 300), (60, 0)])
def test_a_download_continues_unless_the_leader_names_a_newer_snapshot(named: int, position: int) -> None:
    """Until the retry backoff is over, the follower does not fetch from the leader, but a fetch to a bootstrap server
    may reach the leader."""
    replica = replica_with_a_partial_snapshot()
    role = replica.quorum.role
    assert isinstance(role, Follower)
    first = role.download
    [outgoing] = replica.sent(ApiKey.FETCH)
    assert outgoing.node_id != 2
    replica.clock.move(SETTINGS.retry_backoff_ms)
    respond_with_snapshot_id(replica, outgoing, named)
    [again] = replica.sent(ApiKey.FETCH_SNAPSHOT)
    partition = again.request.topics[0].partitions[0]  # type: ignore[attr-defined]
    assert (partition.snapshot_id.end_offset, partition.position) == (named, position)
    assert first is not None
    assert first.size == position, "the download of an older snapshot is removed"


def test_an_observer_sends_fetches_to_all_bootstrap_servers_until_one_names_the_leader() -> None:
    log = MemoryRaftLog()
    addresses = {each: (f"node{each}", 9093) for each in (1, 2, 3)}
    bootstrap = [Endpoint(LISTENER, *address) for address in addresses.values()]
    clock = FakeClock()
    me = Member(9, directory_of(9), CLUSTER_ID, LISTENER)
    voters = static_voters(addresses, LISTENER)
    quorum = Quorum(me, voters, bootstrap, log, MemoryStateStore(), Random(3), clock, SETTINGS)
    quorum.start()
    hosts = set()
    for _ in range(40):
        for outgoing in quorum.take_outgoing():
            hosts.add(outgoing.to.host)
            quorum.on_response(outgoing, KafkaError(ErrorCode.NETWORK_EXCEPTION))
        clock.move(SETTINGS.retry_backoff_ms)
        quorum.poll()
    assert hosts == {"node1", "node2", "node3"}
    assert isinstance(quorum.role, Unattached), "it is never a candidate"
    [outgoing] = quorum.take_outgoing()
    partition = fetch.PartitionData(
        0, ErrorCode.NOT_LEADER_OR_FOLLOWER, current_leader=fetch.LeaderIdAndEpoch(3, 6), records=b""
    )
    topics = [fetch.FetchableTopicResponse(TOPIC_ID, "", [partition])]
    node_endpoints = [fetch.NodeEndpoint(3, "elsewhere", 9999)]
    quorum.on_response(outgoing, fetch.FetchResponse(responses=topics, node_endpoints=node_endpoints))
    assert (quorum.leader_id, quorum.leader_endpoint) == (3, Endpoint(LISTENER, "elsewhere", 9999))
    assert [each.to.host for each in quorum.take_outgoing()] == ["elsewhere"]


def test_a_single_voter_does_not_resign_when_it_adds_a_second_one_that_fetched_some_time_ago() -> None:
    clock, log = FakeClock(), MemoryRaftLog()
    endpoint = Endpoint(LISTENER, "node1", 9093)
    me = Member(1, directory_of(1), CLUSTER_ID, LISTENER, (endpoint,))
    log.snapshots[BOOTSTRAP] = bootstrap_snapshot([], VoterSet([me.voter]), 0)
    quorum = Quorum(me, VoterSet(), [], log, MemoryStateStore(), Random(1), clock, SETTINGS)
    quorum.start()
    log.flush(log.end_offset)
    quorum.flushed()
    quorum.answer(fetch_request(2, quorum.leader_epoch, log.end_offset, log.last_epoch))
    clock.move(10 * SETTINGS.check_quorum_ms)
    listener = add_raft_voter.Listener(LISTENER, "node2", 9093)
    quorum.answer(add_raft_voter.AddRaftVoterRequest(CLUSTER_ID, 1_000, 2, directory_of(2), [listener]))
    [outgoing] = quorum.take_outgoing()
    feature = api_versions.SupportedFeatureKey("kraft.version", *SUPPORTED_KRAFT_VERSIONS)
    quorum.on_response(outgoing, api_versions.ApiVersionsResponse(supported_features=[feature]))
    assert quorum.voters.ids == (1, 2)
    assert quorum.is_leader, "the response shows that the new voter is alive"
    clock.move(SETTINGS.check_quorum_ms)
    quorum.poll()
    assert isinstance(quorum.role, Resigned), "it does not fetch"
