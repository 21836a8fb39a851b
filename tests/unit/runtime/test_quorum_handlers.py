"""The quorum's APIs: every version of every request, from the frame to the response."""

from __future__ import annotations

import pytest
from harness.quorum_nodes import Cluster

from moldau.base.promise import Promise
from moldau.security.acls.access import UNRESTRICTED
from moldau.server.handlers.quorum import VERSIONS, quorum_handlers
from moldau.server.router import Router
from moldau.testing.clock import FakeTimers
from moldau.wire.apis import APIS, ApiKey, request_class, response_class
from moldau.wire.codec import Outgoing
from moldau.wire.frames import read_response, request_frame
from moldau.wire.messages.update_raft_voter import KRaftVersionFeature, UpdateRaftVoterRequest


@pytest.fixture(scope="module")
def router() -> Router:
    cluster = Cluster(1).start()
    driver = cluster.nodes[1].driver
    assert driver is not None
    router = Router()
    router.serve(quorum_handlers(driver, FakeTimers()))
    return router


@pytest.mark.parametrize(
    ("api", "version"), [(api, version) for api, (low, high) in VERSIONS.items() for version in range(low, high + 1)]
)
def test_an_empty_request_is_answered(router: Router, api: ApiKey, version: int) -> None:
    request = request_class(api)()
    if isinstance(request, UpdateRaftVoterRequest):
        request.k_raft_version_feature = KRaftVersionFeature()
    frame = request_frame(api, version, 7, "test", request)
    reply = router.answer("CONTROLLER", "test", UNRESTRICTED, memoryview(bytes(frame))[4:])
    assert reply is not None
    assert not isinstance(reply, Promise)
    assert isinstance(reply, Outgoing)
    correlation_id, _ = read_response(response_class(api), bytes(reply)[4:], api, version)
    assert correlation_id == 7


def test_the_versions_are_those_of_apache_kafka() -> None:
    assert {api: (APIS[api].lowest, APIS[api].highest) for api in VERSIONS} == VERSIONS
