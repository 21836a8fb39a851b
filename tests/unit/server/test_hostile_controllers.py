"""Hostile clients of the controllers: thousands of random requests, and each attack that has a name, on live quorums.

After every siege the cluster must be led, as before unless the request may change that; nobody may wait in vain,
nothing may have grown, and a well-behaved client must be served.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from besieged import CLUSTER_ID, Besieged, Refused, Sent
from depth import deep
from poisoned import STRANGER, Poison
from random_messages import Mood, least_element, random_message

from moldau.base.errors import ErrorCode
from moldau.base.ids import METADATA_TOPIC_UUID
from moldau.base.limits import ALTER_PARTITION_BYTES_MAX, CONTROLLED_REQUEST_BYTES_MAX, QUORUM_REQUEST_BYTES_MAX
from moldau.base.names import METADATA_TOPIC
from moldau.raft.progress import OBSERVERS_MAX
from moldau.raft.roles import Leader
from moldau.server.handlers.controller.reports import REPORTS
from moldau.server.handlers.forwarded import FORWARDED
from moldau.server.handlers.quorum import VERSIONS as OF_QUORUM
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

RANDOM_REQUESTS = deep(150)
ALWAYS = {ApiKey.ENVELOPE: (0, 0), ApiKey.API_VERSIONS: (0, 4), ApiKey.DESCRIBE_CLUSTER: (1, 2)}
SERVED = {**OF_QUORUM, **{api: of for api, of in FORWARDED.items() if api not in OF_QUORUM}, **REPORTS, **ALWAYS}
UNSEATING = {ApiKey.VOTE, ApiKey.BEGIN_QUORUM_EPOCH, ApiKey.END_QUORUM_EPOCH}
"""These name an epoch, and a later one ends the term of a leader: that is Raft. Somebody must lead again."""
SILENCE_MS = 35_000
"""Longer than anything may wait: a forwarded request has thirty seconds."""
LAST_EPOCH = 2**31 - 1


def waiting_in(besieged: Besieged) -> int:
    """Fetches and changes that the leader of the quorum still owes an answer, and requests the controller does."""
    leader = besieged.led()
    role = leader.driver.quorum.role
    assert isinstance(role, Leader)
    assert leader.controller_side is not None
    own = [each for each in role.parked if each.partition.high_watermark == leader.driver.high_watermark]
    return len(role.parked) - len(own) + len(leader.controller_side.controller._parked)


def siege(besieged: Besieged, api: ApiKey, versions: tuple[int, int], *, to_controller: bool) -> None:
    standing, asked_before = besieged.standing, len(besieged.wires.asked)
    sent: list[Sent] = []
    poison = Poison(besieged, seed=api)
    for number, (request, version) in enumerate(poison.requests(api, versions, RANDOM_REQUESTS)):
        node = 1 + number % len(besieged.nodes)
        sent.append(besieged.post(request, api, version, node, to_controller=to_controller))
        if number % 20 == 0:
            besieged.timers.advance(1)
    besieged.timers.advance(SILENCE_MS)
    assert not [each for each in sent if each.is_waiting]
    refused = [each for each in sent if isinstance(each.outcome, Refused)]
    assert all(each.size > QUORUM_REQUEST_BYTES_MAX for each in refused), "all but the longest can be read"
    after = besieged.standing
    if api not in UNSEATING:
        assert after[:2] == standing[:2], "another leader, for no reason"
    if api not in UNSEATING and api not in FORWARDED:
        assert after[2] == standing[2], "something was written down"
    assert waiting_in(besieged) == 0
    assert len(besieged.wires.asked) <= asked_before + len(besieged.nodes), "nodes call whomever they are told to"


@pytest.mark.parametrize("api", SERVED, ids=lambda api: api.name.lower())
def test_controllers_survive_random_requests(besieged: Besieged, api: ApiKey) -> None:
    siege(besieged, api, SERVED[api], to_controller=True)


@pytest.mark.parametrize("api", FORWARDED, ids=lambda api: api.name.lower())
def test_brokers_survive_random_requests_that_they_pass_on(three: Besieged, api: ApiKey) -> None:
    siege(three, api, FORWARDED[api], to_controller=False)


def test_every_api_of_the_controllers_is_attacked_here() -> None:
    served = Besieged(1).nodes[1].controller_side
    assert served is not None
    assert served.router.served() == dict(sorted(SERVED.items()))


def least_forms(api: ApiKey, version: int) -> Iterator[Message]:
    """Everything empty; and each array in turn with one element whose own arrays are empty."""
    cls = request_class(api)
    yield random_message(cls, version, Mood.LEAST, 0)
    for field in fields_of(cls):
        if field.is_array and version in field.versions:
            made = random_message(cls, version, Mood.LEAST, 0)
            setattr(made, field.name, [least_element(field, version)])
            if hasattr(made, "cluster_id"):
                made.cluster_id = CLUSTER_ID
            yield made


def test_empty_arrays_and_arrays_of_empty_things_are_answered(besieged: Besieged) -> None:
    """A FetchSnapshot without topics once stopped whole quorums (CVE-2026-83525)."""
    standing = besieged.standing
    for api, (low, high) in SERVED.items():
        for version in range(low, high + 1):
            for request in least_forms(api, version):
                assert not isinstance(besieged.ask(request, api, version), Refused)
    assert besieged.standing == standing


# --- the quorum ---------------------------------------------------------------------------------------------------


def a_vote(candidate: int, epoch: int, voter: int = -1) -> votes.VoteRequest:
    wanted = votes.RequestPartitionData(0, epoch, candidate, last_offset_epoch=epoch - 1, last_offset=1 << 40)
    return votes.VoteRequest(CLUSTER_ID, voter, [votes.RequestTopicData(METADATA_TOPIC, [wanted])])


def a_beginning(leader: int, epoch: int, host: str = "198.51.100.7") -> begins.BeginQuorumEpochRequest:
    told = begins.RequestPartitionData(0, leader_id=leader, leader_epoch=epoch)
    endpoint = begins.LeaderEndpoint("CONTROLLER", host, 666)
    return begins.BeginQuorumEpochRequest(CLUSTER_ID, -1, [begins.RequestTopicData(METADATA_TOPIC, [told])], [endpoint])


def an_end(leader: int, epoch: int) -> ends.EndQuorumEpochRequest:
    told = ends.RequestPartitionData(0, leader, epoch)
    endpoint = ends.LeaderEndpoint("CONTROLLER", "198.51.100.7", 666)
    return ends.EndQuorumEpochRequest(CLUSTER_ID, [ends.RequestTopicData(METADATA_TOPIC, [told])], [endpoint])


EPOCH_NAMING: dict[str, tuple[ApiKey, Callable[[int, int], Message]]] = {
    "vote": (ApiKey.VOTE, a_vote),
    "begin": (ApiKey.BEGIN_QUORUM_EPOCH, a_beginning),
    "end": (ApiKey.END_QUORUM_EPOCH, an_end),
}


@pytest.mark.parametrize("kind", EPOCH_NAMING)
@pytest.mark.parametrize("epoch", [LAST_EPOCH, LAST_EPOCH - 1, (1 << 30) + 1])
def test_no_request_uses_up_the_epochs(three: Besieged, kind: str, epoch: int) -> None:
    """The last epoch would leave none for the next election: the cluster could never be led again."""
    api, request = EPOCH_NAMING[kind]
    standing = three.standing
    for node in three.nodes:
        other = node % 3 + 1
        answer = three.ask(request(other, epoch), api, OF_QUORUM[api][1], node)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.INVALID_REQUEST
    assert three.standing == standing


@pytest.mark.parametrize("kind", EPOCH_NAMING)
def test_a_stranger_neither_leads_nor_is_elected_where_the_settings_name_the_voters(
    besieged: Besieged, kind: str
) -> None:
    api, request = EPOCH_NAMING[kind]
    standing = besieged.standing
    for node in besieged.nodes:
        answer = besieged.ask(request(STRANGER, standing[1] + 1), api, OF_QUORUM[api][1], node)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.INCONSISTENT_VOTER_SET
    besieged.timers.advance(5_000)
    assert besieged.standing == standing


def test_a_voter_is_looked_for_where_the_settings_say_and_nowhere_else(three: Besieged) -> None:
    """Whoever could send followers to a host of its choice would feed them a metadata log of its choice."""
    _, epoch, _ = three.standing
    for node in three.nodes:
        three.ask(a_beginning(node % 3 + 1, epoch + 1), ApiKey.BEGIN_QUORUM_EPOCH, 1, node)
    three.timers.advance(2_000)
    assert {host for host, _ in three.wires.asked} == {"127.0.0.1"}
    assert three.standing[1] > epoch, "it was believed, as Raft has it, and somebody leads again"


def test_forged_epochs_of_voters_unseat_the_leader_and_somebody_leads_again(three: Besieged) -> None:
    for _ in range(20):
        _, epoch, committed = three.standing
        for node in three.nodes:
            three.ask(a_vote(node % 3 + 1, epoch + 3), ApiKey.VOTE, 2, node)
        three.timers.advance(3_000)
        assert three.standing[1] > epoch
        assert three.standing[2] >= committed


def a_fetch(epoch: int, offset: int, replica: int, **wanted: int) -> fetches.FetchRequest:
    partition = fetches.FetchPartition(0, epoch, offset, **{"last_fetched_epoch": epoch, **wanted})
    topic = fetches.FetchTopic(METADATA_TOPIC_UUID, METADATA_TOPIC, [partition])
    return fetches.FetchRequest(CLUSTER_ID, fetches.ReplicaState(replica), max_wait_ms=LAST_EPOCH, topics=[topic])


@pytest.mark.parametrize("offset", [-(2**63), -1, 1 << 40, 2**63 - 1])
def test_offsets_beyond_the_log_move_nothing(three: Besieged, offset: int) -> None:
    standing = three.standing
    for replica in (-1, STRANGER, *three.nodes):
        answer = three.ask(a_fetch(standing[1], offset, replica), ApiKey.FETCH, 17)
        partition = answer.responses[0].partitions[0]
        assert partition.error_code == ErrorCode.INVALID_REQUEST or partition.diverging_epoch is not None
    assert three.standing == standing


def test_a_fetch_does_not_wait_longer_than_a_follower_would(besieged: Besieged) -> None:
    """Whoever asked for a month and left would fill the places of those who wait, until nobody may wait any more."""
    leader, epoch, committed = besieged.standing
    role = besieged.led().driver.quorum.role
    assert isinstance(role, Leader)
    end_offset = besieged.led().driver.end_offset
    sent = [besieged.post(a_fetch(epoch, end_offset, STRANGER), ApiKey.FETCH, 17) for _ in range(300)]
    assert len(role.parked) >= 300
    besieged.timers.advance(1_001)
    assert not [each for each in sent if each.is_waiting]
    assert len(role.parked) < len(besieged.nodes)
    assert besieged.standing == (leader, epoch, committed)


def test_fetches_under_ever_new_names_are_not_all_remembered(besieged: Besieged) -> None:
    _, epoch, _ = besieged.standing
    for replica in range(100, 100 + OBSERVERS_MAX + 500):
        besieged.post(a_fetch(epoch, 0, replica, last_fetched_epoch=0), ApiKey.FETCH, 17)
    role = besieged.led().driver.quorum.role
    assert isinstance(role, Leader)
    assert len(role.progress.observers) == OBSERVERS_MAX
    described = besieged.ask(_describe(), ApiKey.DESCRIBE_QUORUM, 2)
    assert described.topics[0].partitions[0].error_code == ErrorCode.NONE
    besieged.timers.advance(300_000)
    besieged.post(a_fetch(epoch, 0, 99, last_fetched_epoch=0), ApiKey.FETCH, 17)
    assert len(role.progress.observers) == 1, "there is room again once they are silent"


def _describe() -> DescribeQuorumRequest:
    made = DescribeQuorumRequest()
    topic = least_element(fields_of(DescribeQuorumRequest)[0], 0)
    topic.topic_name = METADATA_TOPIC
    partition = least_element(fields_of(type(topic))[1], 0)
    partition.partition_index = 0
    topic.partitions = [partition]
    made.topics = [topic]
    return made


@pytest.fixture
def with_snapshots() -> Iterator[Besieged]:
    found = Besieged(3, metadata_log_max_record_bytes_between_snapshots="1")
    found.create("another")
    found.timers.advance(1_000)
    yield found
    found.check_health()


@pytest.mark.parametrize("version", [0, 1])
def test_snapshots_are_given_only_where_there_are_any(with_snapshots: Besieged, version: int) -> None:
    leader = with_snapshots.led()
    snapshot = leader.driver.quorum.log.latest_snapshot()
    assert snapshot is not None
    _, epoch, _ = standing = with_snapshots.standing
    size = leader.driver.quorum.log.snapshot_size(snapshot)
    assert size is not None

    def ask(end_offset: int, snapshot_epoch: int, position: int, max_bytes: int = 1 << 20) -> Any:
        wanted = snapshots.RequestPartitionSnapshot(
            0, epoch, snapshots.RequestSnapshotId(end_offset, snapshot_epoch), position
        )
        topic = snapshots.RequestTopicSnapshot(METADATA_TOPIC, [wanted])
        request = snapshots.FetchSnapshotRequest(CLUSTER_ID, STRANGER, max_bytes, [topic])
        return with_snapshots.ask(request, ApiKey.FETCH_SNAPSHOT, version).topics[0].partitions[0]

    assert ask(*snapshot, 0).error_code == ErrorCode.NONE
    for max_bytes in (-(2**31), -1, 0, 1, 2**31 - 1):
        given = ask(*snapshot, 0, max_bytes)
        assert given.error_code == ErrorCode.NONE
        assert 0 < len(given.unaligned_records) <= max(1, max_bytes)
    for position in (-(2**63), -1, size, size + 1, 2**63 - 1):
        assert ask(*snapshot, position).error_code == ErrorCode.POSITION_OUT_OF_RANGE
    for end_offset in (-(2**63), -1, 0, snapshot.end_offset + 1, 2**63 - 1):
        assert ask(end_offset, snapshot.epoch, 0).error_code == ErrorCode.SNAPSHOT_NOT_FOUND
    assert ask(snapshot.end_offset, -1, 0).error_code == ErrorCode.SNAPSHOT_NOT_FOUND
    assert with_snapshots.standing == standing


# --- envelopes ----------------------------------------------------------------------------------------------------


def in_envelope(inner: bytes) -> EnvelopeRequest:
    return EnvelopeRequest(inner, None, b"\x7f\x00\x00\x01")


def open_envelope(besieged: Besieged, inner: bytes) -> Any:
    return besieged.ask(in_envelope(inner), ApiKey.ENVELOPE, 0)


def test_only_what_brokers_pass_on_may_come_in_an_envelope(besieged: Besieged) -> None:
    standing = besieged.standing
    for api, (low, high) in SERVED.items():
        for version in range(low, high + 1):
            request = random_message(request_class(api), version, Mood.LEAST, 0)
            answer = open_envelope(besieged, bytes(request_frame(api, version, 1, None, request)[4:]))
            if api not in FORWARDED:
                assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION, api.name
    assert besieged.standing == standing


def test_envelopes_in_envelopes_are_not_opened(besieged: Besieged) -> None:
    create = CreateTopicsRequest([CreatableTopic("smuggled", 1, 1)])
    inner = request_frame(ApiKey.CREATE_TOPICS, 7, 1, None, create)
    for _ in range(50):
        inner = request_frame(ApiKey.ENVELOPE, 0, 1, None, in_envelope(bytes(inner[4:])))
    assert open_envelope(besieged, bytes(inner[4:])).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert "smuggled" not in besieged.led().current.image.topics


def test_what_is_in_an_envelope_may_be_nothing_or_nonsense(besieged: Besieged) -> None:
    for inner in (b"", b"\0", b"\xff" * 100, bytes(1000)):
        answer = open_envelope(besieged, inner)
        assert answer.error_code in (ErrorCode.INVALID_REQUEST, ErrorCode.UNSUPPORTED_VERSION)
    for _ in range(500):
        inner = b"\x00\x13\x00\x07" + besieged.rng.randbytes(besieged.rng.randrange(60))
        assert not isinstance(open_envelope(besieged, inner), Refused)


# --- sizes --------------------------------------------------------------------------------------------------------


def test_a_count_beyond_the_bytes_is_refused_before_anything_is_made(besieged: Besieged) -> None:
    standing = besieged.standing
    tracemalloc.start()
    refused = 0
    for api, (_, version) in SERVED.items():
        frame = request_frame(api, version, 1, None, random_message(request_class(api), version, Mood.LEAST, 0))
        for place in range(12, len(frame)):
            wounded = frame[:place] + b"\xff\xff\xff\xff\x07" + bytes(20)
            refused += isinstance(besieged.put(1, wounded, Sent(api, version)).outcome, Refused)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert refused > len(SERVED)
    assert peak_bytes < 4 << 20, "two thousand million elements were announced"
    assert besieged.standing == standing


@pytest.mark.parametrize("api", [api for api in SERVED if api not in ALWAYS], ids=lambda api: api.name.lower())
def test_requests_that_would_hold_up_a_controller_are_not_even_read(api: ApiKey) -> None:
    """A list of three-byte elements costs ten microseconds for each: what is decided in one go must be short."""
    besieged = Besieged(1)
    limit = CONTROLLED_REQUEST_BYTES_MAX if api in FORWARDED else QUORUM_REQUEST_BYTES_MAX
    if api is ApiKey.ALTER_PARTITION:
        limit = ALTER_PARTITION_BYTES_MAX
    if api in OF_QUORUM:
        limit = QUORUM_REQUEST_BYTES_MAX
    version = SERVED[api][1]
    frame = request_frame(api, version, 1, None, random_message(request_class(api), version, Mood.LEAST, 0))
    assert not isinstance(besieged.put(1, frame, Sent(api, version)).outcome, Refused)
    frame += bytes(limit + 5 - len(frame))
    assert isinstance(besieged.put(1, frame, Sent(api, version)).outcome, Refused)


# --- admin requests -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["9" * 5000, "٣", "-1", "1" * 11, "x" * 32_767, "\x00" * 32_767])
@pytest.mark.parametrize("kind", [2, 4])
@pytest.mark.parametrize("version", [0, 1, 2])
def test_configs_of_resources_with_impossible_names_are_refused(
    three: Besieged, name: str, kind: int, version: int
) -> None:
    request = AlterConfigsRequest([AlterConfigsResource(kind, name)])
    for node in three.nodes:
        answer = three.ask(request, ApiKey.ALTER_CONFIGS, version, node, to_controller=False)
        assert answer.responses[0].error_code in (ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
