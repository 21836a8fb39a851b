"""The quorum's APIs: every version of every request, from the frame to the response."""

from __future__ import annotations

from typing import Any

import pytest
from harness.quorum_nodes import Cluster

from moldau.base.promise import Promise
from moldau.security.acls.access import UNRESTRICTED
from moldau.server.apis import controller_handlers
from moldau.server.handlers.quorum.quorum_admin import QuorumAdmin
from moldau.server.handlers.quorum.raft_apis import RaftHandler
from moldau.server.router import Router
from moldau.testing.clock import FakeTimers
from moldau.wire.apis import APIS, ApiKey, request_class, response_class
from moldau.wire.codec import Outgoing
from moldau.wire.frames import read_response, request_frame
from moldau.wire.messages.update_raft_voter import KRaftVersionFeature, UpdateRaftVoterRequest

HANDLERS: list[Any] = [each for each in controller_handlers() if issubclass(each, QuorumAdmin | RaftHandler)]
CASES = [(each.api, version) for each in HANDLERS for version in range(each.versions[0], each.versions[1] + 1)]


def unexpected_call(*_: object) -> Promise[Any]:
    raise AssertionError("the quorum answers itself")


@pytest.fixture(scope="module")
def router() -> Router:
    cluster = Cluster(1).start()
    driver = cluster.nodes[1].driver
    assert driver is not None
    router = Router()
    for handler in HANDLERS:
        is_forwarded = issubclass(handler, QuorumAdmin)
        timers = FakeTimers()
        router.serve([handler(unexpected_call, timers, driver) if is_forwarded else handler(driver, timers)])
    return router


@pytest.mark.parametrize(
    ("api", "version"),
    CASES,
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
    for handler in HANDLERS:
        assert handler.versions == (APIS[handler.api].lowest, APIS[handler.api].highest), handler.api
