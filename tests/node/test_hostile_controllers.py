"""Hostile clients of the controllers: thousands of random requests, and specific attacks, on running quorums.

After every attack the cluster must have a leader, the same one unless the request may change that; every request must
have been answered, nothing may have grown, and a well-behaved client must be served.

Without more depth each API's random requests go to one node or to three, by turns. Brokers forward those of every
second API, all in the same way.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest
from harness.attacked_cluster import CLUSTER_ID, AttackedCluster, ConnectionClosed, SentRequest
from harness.declared_versions import BROKER_APIS, FORWARDED, QUORUM_VERSIONS
from harness.depth import deep, only_deep, sample
from harness.hostile_requests import STRANGER, HostileRequests
from harness.random_messages import Filling, least_element, random_message

from moldau.base.errors import ErrorCode
from moldau.base.ids import METADATA_TOPIC_UUID
from moldau.base.limits import ALTER_PARTITION_BYTES_MAX, CONTROLLER_REQUEST_BYTES_MAX, QUORUM_REQUEST_BYTES_MAX
from moldau.base.topic_names import METADATA_TOPIC
from moldau.raft.progress import OBSERVERS_MAX
from moldau.raft.roles import Leader
from moldau.security.authorizer_settings import STANDARD_AUTHORIZER
from moldau.wire.apis import ApiKey, request_class
from moldau.wire.frames import request_frame
from moldau.wire.messages import begin_quorum_epoch as begins
from moldau.wire.messages import end_quorum_epoch as ends
from moldau.wire.messages import fetch as fetches
from moldau.wire.messages import fetch_snapshot as snapshots
from moldau.wire.messages import vote as votes
from moldau.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResource
from moldau.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.wire.messages.describe_quorum import DescribeQuorumRequest
from moldau.wire.messages.envelope import EnvelopeRequest
from moldau.wire.schema import Message, fields_of

RANDOM_REQUESTS = deep(20)
OTHER_APIS = {
    ApiKey.ENVELOPE: (0, 0),
    ApiKey.API_VERSIONS: (0, 4),
    ApiKey.DESCRIBE_CLUSTER: (1, 2),
    ApiKey.DESCRIBE_ACLS: (1, 3),
    ApiKey.DESCRIBE_CONFIGS: (1, 4),
    ApiKey.SASL_HANDSHAKE: (0, 1),
    ApiKey.SASL_AUTHENTICATE: (0, 2),
}
ACL_APIS = {ApiKey.DESCRIBE_ACLS, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS}
"""A code 0 in them closes the connection, as in Kafka."""
SERVED = {
    **QUORUM_VERSIONS,
    **{api: of for api, of in FORWARDED.items() if api not in QUORUM_VERSIONS},
    **BROKER_APIS,
    **OTHER_APIS,
}
EPOCH_CHANGING = {ApiKey.VOTE, ApiKey.BEGIN_QUORUM_EPOCH, ApiKey.END_QUORUM_EPOCH}
"""These name an epoch; a later epoch ends a leader's term, as Raft demands. There must be a leader again afterwards."""
SILENCE_MS = 35_000
"""Longer than any request may wait: a forwarded request times out after thirty seconds."""
CALM_MS = 3_000
"""Longer than an election, which a request might cause, takes to begin."""
LAST_EPOCH = 2**31 - 1


def pending_count(cluster: AttackedCluster) -> int:
    """Count the fetches, except those of followers, and the controller requests that wait at the quorum's leader."""
    leader = cluster.wait_for_leader()
    role = leader.driver.quorum.role
    assert isinstance(role, Leader)
    assert leader.controller_side is not None
    own = [each for each in role.parked if each.partition.high_watermark == leader.driver.high_watermark]
    return len(role.parked) - len(own) + len(leader.controller_side.controller._parked)


def attack(cluster: AttackedCluster, api: ApiKey, versions: tuple[int, int], *, to_controller: bool) -> None:
    quorum_state, contacted_before = cluster.quorum_state, len(cluster.network.contacted_addresses)
    sent: list[SentRequest] = []
    hostile = HostileRequests(cluster, seed=api)
    for number, (request, version) in enumerate(hostile.requests(api, versions, RANDOM_REQUESTS)):
        node = 1 + number % len(cluster.nodes)
        sent.append(cluster.send(request, api, version, node, to_controller=to_controller))
        if number % 20 == 0:
            cluster.timers.advance(1)
    cluster.until(lambda: not any(each.is_waiting for each in sent), "all requests are answered", SILENCE_MS)
    cluster.timers.advance(CALM_MS)
    refused = [each for each in sent if isinstance(each.outcome, ConnectionClosed)]
    assert api in ACL_APIS or all(each.size > QUORUM_REQUEST_BYTES_MAX for each in refused), (
        "only requests that are too long may close the connection"
    )
    after = cluster.quorum_state
    if api not in EPOCH_CHANGING:
        assert after[:2] == quorum_state[:2], "the leader changed without a reason"
    if api not in EPOCH_CHANGING and api not in FORWARDED:
        assert after[2] == quorum_state[2], "a record was written to the metadata log"
    assert pending_count(cluster) == 0
    assert len(cluster.network.contacted_addresses) <= contacted_before + len(cluster.nodes), (
        "nodes connect to addresses that a request named"
    )


@pytest.mark.parametrize(
    ("api", "nodes"),
    [
        pytest.param(api, nodes, id=f"{api.name.lower()}-{nodes}")
        for number, api in enumerate(SERVED)
        for nodes in sample((1, 3), 2, first=number)
    ],
)
def test_controllers_survive_random_requests(api: ApiKey, nodes: int) -> None:
    cluster = AttackedCluster(nodes)
    attack(cluster, api, SERVED[api], to_controller=True)
    cluster.check_health()


@pytest.mark.parametrize("api", sample(FORWARDED, 2), ids=lambda api: api.name.lower())
def test_brokers_survive_random_requests_that_they_forward(three_nodes: AttackedCluster, api: ApiKey) -> None:
    attack(three_nodes, api, FORWARDED[api], to_controller=False)


@pytest.mark.parametrize("api", sorted(ACL_APIS), ids=lambda api: api.name.lower())
@pytest.mark.parametrize("to_controller", [False, True], ids=["broker", "controller"])
def test_nodes_with_an_authorizer_survive_random_acls(api: ApiKey, to_controller: bool) -> None:
    cluster = AttackedCluster(3, authorizer_class_name=STANDARD_AUTHORIZER)
    attack(cluster, api, (1, 3), to_controller=to_controller)
    cluster.check_health()


def test_every_api_of_the_controllers_is_covered_here() -> None:
    served = AttackedCluster(1).nodes[1].controller_side
    assert served is not None
    assert served.router.served() == dict(sorted(SERVED.items()))


def least_forms(api: ApiKey, version: int) -> Iterator[Message]:
    """Yield a request with everything empty, then one for each array with one element whose own arrays are empty."""
    cls = request_class(api)
    yield random_message(cls, version, Filling.LEAST, 0)
    for field in fields_of(cls):
        if field.is_array and version in field.versions:
            made = random_message(cls, version, Filling.LEAST, 0)
            setattr(made, field.name, [least_element(field, version)])
            if hasattr(made, "cluster_id"):
                made.cluster_id = CLUSTER_ID
            yield made


def test_empty_arrays_and_arrays_of_empty_elements_are_answered(cluster: AttackedCluster) -> None:
    """A FetchSnapshot request without topics once stopped whole quorums (CVE-2026-83525)."""
    quorum_state = cluster.quorum_state
    for api, (low, high) in SERVED.items():
        for version in range(low, high + 1):
            for request in least_forms(api, version):
                is_closed = isinstance(cluster.ask(request, api, version), ConnectionClosed)
                assert api in ACL_APIS or not is_closed
    assert cluster.quorum_state == quorum_state


# --- the quorum ---------------------------------------------------------------------------------------------------


def vote_request(candidate: int, epoch: int, voter: int = -1) -> votes.VoteRequest:
    wanted = votes.RequestPartitionData(0, epoch, candidate, last_offset_epoch=epoch - 1, last_offset=1 << 40)
    return votes.VoteRequest(CLUSTER_ID, voter, [votes.RequestTopicData(METADATA_TOPIC, [wanted])])


def begin_epoch_request(leader: int, epoch: int, host: str = "198.51.100.7") -> begins.BeginQuorumEpochRequest:
    partition = begins.RequestPartitionData(0, leader_id=leader, leader_epoch=epoch)
    endpoint = begins.LeaderEndpoint("CONTROLLER", host, 666)
    return begins.BeginQuorumEpochRequest(
        CLUSTER_ID, -1, [begins.RequestTopicData(METADATA_TOPIC, [partition])], [endpoint]
    )


def end_epoch_request(leader: int, epoch: int) -> ends.EndQuorumEpochRequest:
    partition = ends.RequestPartitionData(0, leader, epoch)
    endpoint = ends.LeaderEndpoint("CONTROLLER", "198.51.100.7", 666)
    return ends.EndQuorumEpochRequest(CLUSTER_ID, [ends.RequestTopicData(METADATA_TOPIC, [partition])], [endpoint])


EPOCH_NAMING: dict[str, tuple[ApiKey, Callable[[int, int], Message]]] = {
    "vote": (ApiKey.VOTE, vote_request),
    "begin": (ApiKey.BEGIN_QUORUM_EPOCH, begin_epoch_request),
    "end": (ApiKey.END_QUORUM_EPOCH, end_epoch_request),
}


@pytest.mark.parametrize("kind", EPOCH_NAMING)
@pytest.mark.parametrize("epoch", [LAST_EPOCH, LAST_EPOCH - 1, (1 << 30) + 1])
def test_quorum_requests_with_an_epoch_near_the_last_are_refused(
    three_nodes: AttackedCluster, kind: str, epoch: int
) -> None:
    """After the last possible epoch no election is possible: the cluster could never have a leader again."""
    api, request = EPOCH_NAMING[kind]
    quorum_state = three_nodes.quorum_state
    for node in three_nodes.nodes:
        other = node % 3 + 1
        answer = three_nodes.ask(request(other, epoch), api, QUORUM_VERSIONS[api][1], node)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.INVALID_REQUEST
    assert three_nodes.quorum_state == quorum_state


@pytest.mark.parametrize("kind", EPOCH_NAMING)
def test_a_node_that_is_not_a_configured_voter_neither_leads_nor_is_elected(
    cluster: AttackedCluster, kind: str
) -> None:
    api, request = EPOCH_NAMING[kind]
    quorum_state = cluster.quorum_state
    for node in cluster.nodes:
        answer = cluster.ask(request(STRANGER, quorum_state[1] + 1), api, QUORUM_VERSIONS[api][1], node)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.INCONSISTENT_VOTER_SET
    cluster.timers.advance(5_000)
    assert cluster.quorum_state == quorum_state


def test_nodes_connect_to_voters_only_at_the_configured_addresses(three_nodes: AttackedCluster) -> None:
    """An attacker who could redirect followers to its own host could feed them its own metadata log."""
    _, epoch, _ = three_nodes.quorum_state
    for node in three_nodes.nodes:
        three_nodes.ask(begin_epoch_request(node % 3 + 1, epoch + 1), ApiKey.BEGIN_QUORUM_EPOCH, 1, node)
    three_nodes.timers.advance(2_000)
    assert {host for host, _ in three_nodes.network.contacted_addresses} == {"127.0.0.1"}
    assert three_nodes.quorum_state[1] > epoch, (
        "the later epoch was accepted, as Raft demands, and there is a leader again"
    )


def test_after_votes_with_forged_epochs_a_leader_is_elected_again(three_nodes: AttackedCluster) -> None:
    for _ in range(deep(2, quick=5)):
        _, epoch, committed = three_nodes.quorum_state
        for node in three_nodes.nodes:
            three_nodes.ask(vote_request(node % 3 + 1, epoch + 3), ApiKey.VOTE, 2, node)
        three_nodes.timers.advance(3_000)
        assert three_nodes.quorum_state[1] > epoch
        assert three_nodes.quorum_state[2] >= committed


def fetch_request(epoch: int, offset: int, replica: int, **wanted: int) -> fetches.FetchRequest:
    partition = fetches.FetchPartition(0, epoch, offset, **{"last_fetched_epoch": epoch, **wanted})
    topic = fetches.FetchTopic(METADATA_TOPIC_UUID, METADATA_TOPIC, [partition])
    return fetches.FetchRequest(CLUSTER_ID, fetches.ReplicaState(replica), max_wait_ms=LAST_EPOCH, topics=[topic])


@pytest.mark.parametrize("offset", [-(2**63), -1, 1 << 40, 2**63 - 1])
def test_a_quorum_fetch_beyond_the_log_is_refused(three_nodes: AttackedCluster, offset: int) -> None:
    quorum_state = three_nodes.quorum_state
    for replica in (-1, STRANGER, *three_nodes.nodes):
        answer = three_nodes.ask(fetch_request(quorum_state[1], offset, replica), ApiKey.FETCH, 17)
        partition = answer.responses[0].partitions[0]
        assert partition.error_code == ErrorCode.INVALID_REQUEST or partition.diverging_epoch is not None
    assert three_nodes.quorum_state == quorum_state


def test_a_fetch_does_not_wait_longer_than_a_follower_would(cluster: AttackedCluster) -> None:
    """Otherwise clients that ask to wait for a month and disconnect would use up all places for waiting fetches."""
    leader, epoch, committed = cluster.quorum_state
    role = cluster.wait_for_leader().driver.quorum.role
    assert isinstance(role, Leader)
    end_offset = cluster.wait_for_leader().driver.end_offset
    sent = [cluster.send(fetch_request(epoch, end_offset, STRANGER), ApiKey.FETCH, 17) for _ in range(300)]
    assert len(role.parked) >= 300
    cluster.timers.advance(1_001)
    assert not [each for each in sent if each.is_waiting]
    assert len(role.parked) < len(cluster.nodes)
    assert cluster.quorum_state == (leader, epoch, committed)


@pytest.mark.parametrize("nodes", [1, pytest.param(3, marks=only_deep)])
def test_fetches_with_ever_new_replica_ids_do_not_grow_the_observers(nodes: int) -> None:
    """The leader counts them. Three nodes only make the five minutes until they are forgotten dearer."""
    cluster = AttackedCluster(nodes)
    _, epoch, _ = cluster.quorum_state
    for replica in range(100, 100 + OBSERVERS_MAX + 500):
        cluster.send(fetch_request(epoch, 0, replica, last_fetched_epoch=0), ApiKey.FETCH, 17)
    role = cluster.wait_for_leader().driver.quorum.role
    assert isinstance(role, Leader)
    assert len(role.progress.observers) == OBSERVERS_MAX
    described = cluster.ask(describe_quorum_request(), ApiKey.DESCRIBE_QUORUM, 2)
    assert described.topics[0].partitions[0].error_code == ErrorCode.NONE
    cluster.timers.advance(300_000)
    cluster.send(fetch_request(epoch, 0, 99, last_fetched_epoch=0), ApiKey.FETCH, 17)
    assert len(role.progress.observers) == 1, "observers that stopped fetching are forgotten"
    cluster.check_health()


def describe_quorum_request() -> DescribeQuorumRequest:
    made = DescribeQuorumRequest()
    topic = least_element(fields_of(DescribeQuorumRequest)[0], 0)
    topic.topic_name = METADATA_TOPIC
    partition = least_element(fields_of(type(topic))[1], 0)
    partition.partition_index = 0
    topic.partitions = [partition]
    made.topics = [topic]
    return made


@pytest.fixture
def snapshot_cluster() -> Iterator[AttackedCluster]:
    cluster = AttackedCluster(3, metadata_log_max_record_bytes_between_snapshots="1")
    cluster.create("another")
    cluster.timers.advance(1_000)
    yield cluster
    cluster.check_health()


@pytest.mark.parametrize("version", [0, 1])
def test_fetch_snapshot_answers_only_for_existing_snapshots_and_positions(
    snapshot_cluster: AttackedCluster, version: int
) -> None:
    leader = snapshot_cluster.wait_for_leader()
    snapshot = leader.driver.quorum.log.latest_snapshot()
    assert snapshot is not None
    _, epoch, _ = quorum_state = snapshot_cluster.quorum_state
    size = leader.driver.quorum.log.snapshot_size(snapshot)
    assert size is not None

    def ask(end_offset: int, snapshot_epoch: int, position: int, max_bytes: int = 1 << 20) -> Any:
        wanted = snapshots.RequestPartitionSnapshot(
            0, epoch, snapshots.RequestSnapshotId(end_offset, snapshot_epoch), position
        )
        topic = snapshots.RequestTopicSnapshot(METADATA_TOPIC, [wanted])
        request = snapshots.FetchSnapshotRequest(CLUSTER_ID, STRANGER, max_bytes, [topic])
        return snapshot_cluster.ask(request, ApiKey.FETCH_SNAPSHOT, version).topics[0].partitions[0]

    assert ask(*snapshot, 0).error_code == ErrorCode.NONE
    for max_bytes in (-(2**31), -1, 0, 1, 2**31 - 1):
        chunk = ask(*snapshot, 0, max_bytes)
        assert chunk.error_code == ErrorCode.NONE
        assert 0 < len(chunk.unaligned_records) <= max(1, max_bytes)
    for position in (-(2**63), -1, size, size + 1, 2**63 - 1):
        assert ask(*snapshot, position).error_code == ErrorCode.POSITION_OUT_OF_RANGE
    for end_offset in (-(2**63), -1, 0, snapshot.end_offset + 1, 2**63 - 1):
        assert ask(end_offset, snapshot.epoch, 0).error_code == ErrorCode.SNAPSHOT_NOT_FOUND
    assert ask(snapshot.end_offset, -1, 0).error_code == ErrorCode.SNAPSHOT_NOT_FOUND
    assert snapshot_cluster.quorum_state == quorum_state


# --- envelopes ----------------------------------------------------------------------------------------------------


def in_envelope(inner: bytes) -> EnvelopeRequest:
    return EnvelopeRequest(inner, None, b"\x7f\x00\x00\x01")


def open_envelope(cluster: AttackedCluster, inner: bytes) -> Any:
    return cluster.ask(in_envelope(inner), ApiKey.ENVELOPE, 0)


def test_an_envelope_may_hold_only_requests_that_brokers_forward(cluster: AttackedCluster) -> None:
    quorum_state = cluster.quorum_state
    for api, (low, high) in SERVED.items():
        for version in range(low, high + 1):
            request = random_message(request_class(api), version, Filling.LEAST, 0)
            answer = open_envelope(cluster, bytes(request_frame(api, version, 1, None, request)[4:]))
            if api not in FORWARDED:
                assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION, api.name
    assert cluster.quorum_state == quorum_state


def test_envelopes_in_envelopes_are_not_opened(cluster: AttackedCluster) -> None:
    create = CreateTopicsRequest([CreatableTopic("smuggled", 1, 1)])
    inner = request_frame(ApiKey.CREATE_TOPICS, 7, 1, None, create)
    for _ in range(50):
        inner = request_frame(ApiKey.ENVELOPE, 0, 1, None, in_envelope(bytes(inner[4:])))
    assert open_envelope(cluster, bytes(inner[4:])).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert "smuggled" not in cluster.wait_for_leader().current.image.topics


def test_empty_and_garbage_envelopes_are_refused(cluster: AttackedCluster) -> None:
    for inner in (b"", b"\0", b"\xff" * 100, bytes(1000)):
        answer = open_envelope(cluster, inner)
        assert answer.error_code in (ErrorCode.INVALID_REQUEST, ErrorCode.UNSUPPORTED_VERSION)
    for _ in range(500):
        inner = b"\x00\x13\x00\x07" + cluster.rng.randbytes(cluster.rng.randrange(60))
        assert not isinstance(open_envelope(cluster, inner), ConnectionClosed)


# --- sizes --------------------------------------------------------------------------------------------------------


def test_an_array_count_beyond_the_bytes_is_refused_before_memory_is_allocated(cluster: AttackedCluster) -> None:
    quorum_state = cluster.quorum_state
    tracemalloc.start()
    refused = 0
    for api, (_, version) in SERVED.items():
        frame = request_frame(api, version, 1, None, random_message(request_class(api), version, Filling.LEAST, 0))
        for place in range(12, len(frame)):
            broken_frame = frame[:place] + b"\xff\xff\xff\xff\x07" + bytes(20)
            refused += isinstance(cluster.deliver(1, broken_frame, SentRequest(api, version)).outcome, ConnectionClosed)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert refused > len(SERVED)
    assert peak_bytes < 4 << 20, "two thousand million elements were announced"
    assert cluster.quorum_state == quorum_state


@pytest.fixture(scope="module")
def one_node() -> AttackedCluster:
    return AttackedCluster(1)


@pytest.mark.parametrize("api", [api for api in SERVED if api not in OTHER_APIS], ids=lambda api: api.name.lower())
def test_requests_that_are_too_long_for_a_controller_are_not_read(one_node: AttackedCluster, api: ApiKey) -> None:
    """Each three-byte element of a list costs ten microseconds, and a request is handled without a pause."""
    limit = CONTROLLER_REQUEST_BYTES_MAX if api in FORWARDED else QUORUM_REQUEST_BYTES_MAX
    if api is ApiKey.ALTER_PARTITION:
        limit = ALTER_PARTITION_BYTES_MAX
    if api in QUORUM_VERSIONS:
        limit = QUORUM_REQUEST_BYTES_MAX
    version = SERVED[api][1]
    frame = request_frame(api, version, 1, None, random_message(request_class(api), version, Filling.LEAST, 0))
    assert not isinstance(one_node.deliver(1, frame, SentRequest(api, version)).outcome, ConnectionClosed)
    frame += bytes(limit + 5 - len(frame))
    assert isinstance(one_node.deliver(1, frame, SentRequest(api, version)).outcome, ConnectionClosed)


# --- admin requests -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["9" * 5000, "٣", "-1", "1" * 11, "x" * 32_767, "\x00" * 32_767],
    ids=["5000 digits", "Arabic digit", "negative", "11 digits", "32767 characters", "32767 null bytes"],
)
def test_configs_of_resources_with_impossible_names_are_refused(three_nodes: AttackedCluster, name: str) -> None:
    for kind, version, node in product((2, 4), (0, 1, 2), three_nodes.nodes):
        request = AlterConfigsRequest([AlterConfigsResource(kind, name)])
        answer = three_nodes.ask(request, ApiKey.ALTER_CONFIGS, version, node, to_controller=False)
        assert answer.responses[0].error_code in (ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
