"""The access matrix over the wire, at Apache Kafka and at Moldau: every API × every kind of principal, with the same
users and ACLs, gives the same error codes.

It needs MOLDAU_TEST_KAFKA_LIBS. `tests/node/test_access_matrix.py` is the same without Apache Kafka.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from apache_node import SUPER_USER, Side, await_coordinators, needs_apache, side_by_side
from harness.patience import wait_until

sys.path.append(str(Path(__file__).parents[1] / "node"))

from harness.sample_requests import RESOURCE, VERSIONS, sample_request
from test_access_matrix import acls, codes

from moldau.base.errors import ErrorCode
from moldau.security.acls.bindings import AclBinding
from moldau.server.apis import requirements
from moldau.wire.apis import APIS, ApiKey
from moldau.wire.messages.api_versions import ApiVersionsRequest
from moldau.wire.messages.create_acls import AclCreation, CreateAclsRequest
from moldau.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.wire.schema import Message

pytestmark = [pytest.mark.moldau_only, needs_apache]
KINDS = ("none", "other user", "other host", "other name", "denied", "literal", "prefixed", "all", "super")
ACLS_PER_REQUEST = 500
EXPECTED = {
    ApiKey.ENVELOPE: (["PRINCIPAL_DESERIALIZATION_FAILURE"], ["NONE"]),
    ApiKey.FETCH_SNAPSHOT: (["UNKNOWN_SERVER_ERROR"], ["NONE", "UNKNOWN_TOPIC_OR_PARTITION"]),
}
"""Intended differences for allowed principals: the codes of Apache Kafka and ours. docs/compatibility.md says why."""


class Case(NamedTuple):
    api: ApiKey
    kind: str
    to_controller: bool

    @property
    def user(self) -> str:
        return SUPER_USER if self.kind == "super" else f"{self.api.name}-{self.kind}".lower().replace(" ", "-")


def user_acls(case: Case) -> Iterator[AclBinding]:
    """Yield the ACLs of the kind, for the user of this API alone."""
    for acl in acls(case.kind, requirements()[case.api]):
        yield acl if case.kind == "other user" else acl._replace(principal=f"User:{case.user}")


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    users = [Case(api, kind, False).user for api in requirements() for kind in KINDS if kind != "super"]
    with side_by_side(tmp_path_factory.mktemp("beside-apache"), users) as both:
        bindings = [acl for api in requirements() for kind in KINDS for acl in user_acls(Case(api, kind, False))]
        for side in both:
            prepare(side, bindings)
        yield both


def prepare(side: Side, bindings: list[AclBinding]) -> None:
    with side.connect() as admin:
        for first in range(0, len(bindings), ACLS_PER_REQUEST):
            creations = [AclCreation(*acl) for acl in bindings[first : first + ACLS_PER_REQUEST]]
            made = admin.ask(ApiKey.CREATE_ACLS, CreateAclsRequest(creations), 3)
            assert {each.error_code for each in made.results} == {0}
    await_coordinators(side, RESOURCE)


def restore_topic(side: Side) -> None:
    """Create the topic that the requests name, if an allowed one has deleted it, and wait until it has a leader."""
    with side.connect() as admin:
        admin.ask(ApiKey.CREATE_TOPICS, CreateTopicsRequest([CreatableTopic(RESOURCE, 1, 1)], timeout_ms=10_000), 7)
        request = MetadataRequest([MetadataRequestTopic(name=RESOURCE)], allow_auto_topic_creation=False)
        wait_until(
            lambda: set(codes_of(admin.ask(ApiKey.METADATA, request, 9))) == {0},
            f"the topic of {side.name} has a leader",
        )


def codes_of(response: Any) -> list[int]:
    return sorted(codes(response))


def supported_versions(side: Side, *, to_controller: bool) -> dict[int, tuple[int, int]]:
    with side.connect(to_controller=to_controller) as admin:
        response = admin.ask(ApiKey.API_VERSIONS, ApiVersionsRequest("compared", "1"), 4)
    return {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}


def patient_request(api: ApiKey) -> Message:
    """Return the sample with a timeout: without one, Apache Kafka responds with REQUEST_TIMED_OUT."""
    request = sample_request(api)
    if hasattr(request, "timeout_ms"):
        request.timeout_ms = 10_000
    return request


def error_names(side: Side, case: Case, version: int) -> list[str]:
    """Return the names of all error codes in the response."""
    with side.connect(case.user, to_controller=case.to_controller) as client:
        try:
            response = client.ask(case.api, patient_request(case.api), version)
        except ConnectionError:
            return ["closed"]
        except TimeoutError:
            return ["no answer"]
    return [ErrorCode(code).name for code in codes_of(response)]


def differing_answers(sides: tuple[Side, Side], *, to_controller: bool) -> dict[str, tuple[list[str], list[str]]]:
    """Return the error codes that differ: Apache Kafka's and ours, by API and kind of principal."""
    apache, moldau = sides
    versions = supported_versions(moldau, to_controller=to_controller)
    different = {}
    for api in sorted(requirements()):
        if api not in versions:
            continue
        for kind in KINDS:
            case = Case(api, kind, to_controller)
            version = VERSIONS.get(api, versions[api][1])
            for side in sides:
                restore_topic(side)
            theirs, ours = error_names(apache, case, version), error_names(moldau, case, version)
            if theirs != ours and EXPECTED.get(api) != (theirs, ours):
                different[f"{APIS[api].name} {kind}"] = theirs, ours
    return different


@pytest.mark.parametrize("to_controller", [False, True], ids=["brokers", "controllers"])
def test_moldau_and_kafka_return_the_same_error_codes(sides: tuple[Side, Side], to_controller: bool) -> None:
    different = differing_answers(sides, to_controller=to_controller)
    assert not different, "\n".join(f"{what}: {theirs}, ours {ours}" for what, (theirs, ours) in different.items())
