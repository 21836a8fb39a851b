"""The largest requests that each API accepts do not block the event loop: no turn exceeds its budget of lines."""

from __future__ import annotations

from typing import Final

import pytest
from harness.attacked_cluster import AttackedCluster
from harness.depth import DEPTH
from harness.largest_requests import largest_requests
from harness.restricted_node import NoPermissions
from harness.turns_of_requests import turns_of

from moldau.base.errors import MalformedData
from moldau.security.acls.access import UNRESTRICTED, Access
from moldau.server.handler import ELEMENTS_MAX
from moldau.wire.apis import ApiKey
from moldau.wire.frames import request_frame
from moldau.wire.messages.describe_quorum import DescribeQuorumRequest, RequestPartitionData, RequestTopicData

TURN_OPERATIONS_MAX: Final = 200_000
"""Lines of Python: about 20 ms."""
PRODUCE_BYTES: Final = 1 << 20


@pytest.fixture(scope="module")
def cluster() -> AttackedCluster:
    return AttackedCluster(1)


@pytest.mark.parametrize("api", sorted(ApiKey), ids=lambda api: api.name)
def test_no_turn_of_the_largest_request_exceeds_its_budget(cluster: AttackedCluster, api: ApiKey) -> None:
    router = cluster.routers[9001]
    if api not in router.served():
        pytest.skip("not served by brokers")
    _, version = router.served()[api]
    route = router.find_route(api, version)
    assert route is not None
    bytes_max = min(route.bytes_max, PRODUCE_BYTES) if api is ApiKey.PRODUCE else route.bytes_max
    elements_max = route.handler.elements_max
    accesses: list[Access] = [NoPermissions(), UNRESTRICTED]
    if DEPTH == 1:
        del accesses[api % 2]  # half the APIs with each
    for name, frame in largest_requests(api, version, bytes_max, elements_max):
        for access in accesses:
            turns, reply = turns_of(router, cluster.timers, frame, access=access)
            assert reply, (name, reply.refusal)
            assert max(turns) < TURN_OPERATIONS_MAX, (api.name, name, type(access).__name__, turns.index(max(turns)))


@pytest.mark.parametrize(
    ("api", "version", "access"),
    [(ApiKey.FETCH, 12, NoPermissions()), (ApiKey.DESCRIBE_QUORUM, 2, UNRESTRICTED)],
    ids=["refused Fetch", "DescribeQuorum"],
)
def test_no_turn_of_the_largest_request_to_a_controller_exceeds_its_budget(
    cluster: AttackedCluster, api: ApiKey, version: int, access: Access
) -> None:
    router = cluster.routers[9101]
    route = router.find_route(api, version)
    assert route is not None
    for name, frame in largest_requests(api, version, route.bytes_max, ELEMENTS_MAX):
        turns, reply = turns_of(router, cluster.timers, frame, access=access)
        assert reply, (name, reply.refusal)
        assert max(turns) < TURN_OPERATIONS_MAX, name


@pytest.mark.parametrize("port", [9001, 9101], ids=["broker", "controller"])
def test_describe_quorum_of_thousands_of_partitions_is_refused(cluster: AttackedCluster, port: int) -> None:
    partitions = [RequestPartitionData(index) for index in range(800)]
    request = DescribeQuorumRequest([RequestTopicData(str(number), partitions) for number in range(16)])
    frame = request_frame(ApiKey.DESCRIBE_QUORUM, 2, 7, "client", request)
    with pytest.raises(MalformedData, match="DescribeQuorum of 64"):
        turns_of(cluster.routers[port], cluster.timers, frame)
