"""The delegation token APIs on a node with an authorizer: permissions, errors and expiration."""

from __future__ import annotations

from typing import Any

import pytest
from harness.in_memory_node import InMemoryNode
from harness.restricted_node import RestrictedNode

from moldau.base.acl_operations import AclOperation
from moldau.base.errors import ErrorCode
from moldau.base.persistent_map import PersistentMap
from moldau.base.promise import Promise
from moldau.base.turns import SLOW_ITEMS_A_TURN
from moldau.metadata.current import CurrentImage
from moldau.metadata.image import MetadataImage
from moldau.security.acls.access import Unrestricted
from moldau.security.acls.bindings import ResourceType
from moldau.security.delegation_tokens import DelegationToken, TokenHmacs
from moldau.security.principal_data import principal_bytes
from moldau.security.principals import ANONYMOUS, Principal
from moldau.security.token_settings import TokenSettings
from moldau.server.apis import forwarded_handler
from moldau.server.handler import Caller
from moldau.server.handlers.controller.envelope import Envelope
from moldau.server.handlers.describe_delegation_token import DescribeDelegationToken
from moldau.testing.clock import FakeTimers
from moldau.wire.apis import ApiKey
from moldau.wire.frames import read_response, request_frame
from moldau.wire.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from moldau.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from moldau.wire.messages.describe_delegation_token import DescribeDelegationTokenOwner, DescribeDelegationTokenRequest
from moldau.wire.messages.envelope import EnvelopeRequest
from moldau.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from moldau.wire.messages.renew_delegation_token import RenewDelegationTokenRequest

KEY = "t0p-s3cret"
ANN, BOB, EVE = (Principal("User", name) for name in ("ann", "bob", "eve"))
ANN_WITH_TOKEN = ANN._replace(by_token=True)
CHECK_MS, EXPIRY_MS = 10_000, 60_000
SETTINGS = {
    "delegation.token.secret.key": KEY,
    "delegation.token.expiry.time.ms": str(EXPIRY_MS),
    "delegation.token.expiry.check.interval.ms": str(CHECK_MS),
}


class TokenNode:
    """A node and the four token requests, sent as any principal."""

    def __init__(self, node: InMemoryNode) -> None:
        self.node = node
        node.start()

    def ask(self, api: ApiKey, request: Any, who: Principal) -> Any:
        broker = self.node.assembly.broker_side
        assert broker is not None
        handler = next(handler for handler in broker.handlers if handler.api == api)
        access = self.node.assembly.access(who, "10.0.0.1")
        reply = handler.answer(request, Caller("SASL_SSL", "10.0.0.1:5", "test", handler.versions[1], access))
        self.node.flush()
        return reply.value() if isinstance(reply, Promise) else reply

    def create(self, who: Principal = ANN, owner: Principal | None = None, *renewers: Principal) -> Any:
        request = CreateDelegationTokenRequest(
            owner and owner.type,
            owner and owner.name,
            [CreatableRenewers(each.type, each.name) for each in renewers],
            -1,
        )
        return self.ask(ApiKey.CREATE_DELEGATION_TOKEN, request, who)

    def renew(self, hmac: bytes, who: Principal = ANN) -> Any:
        return self.ask(ApiKey.RENEW_DELEGATION_TOKEN, RenewDelegationTokenRequest(hmac, -1), who)

    def expire(self, hmac: bytes, who: Principal = ANN, period_ms: int = -1) -> Any:
        return self.ask(ApiKey.EXPIRE_DELEGATION_TOKEN, ExpireDelegationTokenRequest(hmac, period_ms), who)

    def describe(self, who: Principal = ANN, *owners: Principal, all_owners: bool = True) -> Any:
        named = [DescribeDelegationTokenOwner(each.type, each.name) for each in owners]
        request = DescribeDelegationTokenRequest(named or (None if all_owners else []))
        return self.ask(ApiKey.DESCRIBE_DELEGATION_TOKEN, request, who)

    def owners(self, *arguments: Any, **named: Any) -> list[str]:
        return [each.principal_name for each in self.describe(*arguments, **named).tokens]


def allow(node: TokenNode, operation: AclOperation, resource: ResourceType, name: str, who: str = "User:ann") -> None:
    assert isinstance(node.node, RestrictedNode)
    node.node.allow(operation, resource, name, who)


@pytest.fixture
def node() -> TokenNode:
    return TokenNode(RestrictedNode(**SETTINGS))


def test_a_token_is_created_described_renewed_and_expired(node: TokenNode) -> None:
    created = node.create(ANN, None, BOB)
    assert created.error_code == 0
    (shown,) = node.describe().tokens
    assert (shown.token_id, bytes(shown.hmac)) == (created.token_id, created.hmac)
    assert [(each.principal_type, each.principal_name) for each in shown.renewers] == [("User", "bob")]
    times = (shown.issue_timestamp, shown.expiry_timestamp, shown.max_timestamp)
    assert times == (created.issue_timestamp_ms, created.expiry_timestamp_ms, created.max_timestamp_ms)
    node.node.clock.move(1_000)
    assert node.renew(created.hmac, BOB).expiry_timestamp_ms == created.expiry_timestamp_ms + 1_000
    assert node.renew(created.hmac, EVE).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert node.expire(created.hmac, EVE).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert node.expire(created.hmac, ANN).error_code == 0
    assert node.describe().tokens == []
    assert node.renew(created.hmac).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND


@pytest.mark.parametrize("who", [ANONYMOUS, ANN_WITH_TOKEN], ids=["anonymous", "authenticated with a token"])
def test_anonymous_and_token_authenticated_clients_are_refused(node: TokenNode, who: Principal) -> None:
    hmac = node.create().hmac
    before = node.node.assembly.driver.end_offset
    answers = [node.create(who), node.renew(hmac, who), node.expire(hmac, who), node.describe(who)]
    assert {each.error_code for each in answers} == {ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED}
    assert [answers[0].issue_timestamp_ms, answers[1].expiry_timestamp_ms, answers[2].expiry_timestamp_ms] == [-1] * 3
    assert node.node.assembly.driver.end_offset == before


def test_without_a_secret_key_token_requests_are_disabled() -> None:
    node = TokenNode(RestrictedNode())
    answers = [node.create(), node.renew(b"x"), node.expire(b"x"), node.describe()]
    assert {each.error_code for each in answers} == {ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED}
    assert node.describe(ANONYMOUS).error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


def test_a_token_for_another_owner_needs_create_tokens(node: TokenNode) -> None:
    denied = node.create(ANN, BOB)
    assert denied.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    assert (denied.principal_name, denied.token_requester_principal_name, denied.hmac) == ("bob", "ann", b"")
    allow(node, AclOperation.CREATE_TOKENS, ResourceType.USER, "User:bob")
    created = node.create(ANN, BOB)
    assert (created.error_code, created.principal_name) == (0, "bob")
    assert node.create(ANN, EVE).error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    assert node.create(ANN, ANN).error_code == 0
    assert node.owners(BOB) == ["bob"]
    assert sorted(node.owners(ANN)) == ["ann", "bob"], "ann has requested both"
    assert sorted(node.owners(ANN, ANN)) == ["ann", "bob"]
    assert node.owners(ANN, BOB) == ["bob"]
    root = Principal("User", "root")
    assert sorted(node.owners(root, ANN)) == ["ann", "bob"]
    assert node.renew(created.hmac, ANN).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH


def test_owners_and_renewers_must_have_the_principal_type_user(node: TokenNode) -> None:
    group = Principal("Group", "admins")
    assert node.create(ANN, None, group).error_code == ErrorCode.INVALID_PRINCIPAL_TYPE
    allow(node, AclOperation.CREATE_TOKENS, ResourceType.USER, "Group:admins")
    assert node.create(ANN, group).error_code == ErrorCode.INVALID_PRINCIPAL_TYPE
    assert node.create(BOB, group).error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED


def test_a_client_sees_tokens_that_it_owns_renews_or_may_describe(node: TokenNode) -> None:
    node.create(ANN, None, BOB)
    token_id = node.create(BOB).token_id
    root = Principal("User", "root")
    assert [sorted(node.owners(who)) for who in (ANN, BOB, EVE, root)] == [["ann"], ["ann", "bob"], [], ["ann", "bob"]]
    assert node.owners(ANN, all_owners=False) == []
    assert sorted(node.owners(root, BOB)) == ["ann", "bob"], "tokens whose owner or renewer is bob"
    assert node.owners(root, ANN) == ["ann"]
    assert node.owners(root, EVE) == []
    allow(node, AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token_id, "User:eve")
    assert node.owners(EVE) == ["bob"]
    allow(node, AclOperation.DESCRIBE_TOKENS, ResourceType.USER, "User:ann", "User:eve")
    assert sorted(node.owners(EVE)) == ["ann", "bob"]


@pytest.mark.parametrize(
    ("principal", "code", "owner"),
    [
        (principal_bytes(ANN), ErrorCode.NONE, "ann"),
        (principal_bytes(ANN_WITH_TOKEN), ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, "ann"),
        (None, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, "ANONYMOUS"),
    ],
    ids=["user", "authenticated with a token", "anonymous"],
)
def test_a_forwarded_request_has_the_principal_of_its_client(
    node: TokenNode, principal: bytes | None, code: ErrorCode, owner: str
) -> None:
    """Not that of the broker that forwards it."""
    controller = node.node.assembly.controller_side
    assert controller is not None
    inner = request_frame(ApiKey.CREATE_DELEGATION_TOKEN, 3, 1, None, CreateDelegationTokenRequest(None, None, [], -1))
    access = node.node.assembly.access(Principal("User", "root"), "10.0.0.2")
    caller = Caller("CONTROLLER", "10.0.0.2:5", "node", 0, access)
    reply = Envelope(controller.ask, forwarded_handler).answer(EnvelopeRequest(bytes(inner)[4:], principal), caller)
    node.node.flush()
    assert isinstance(reply, Promise)
    opened = reply.value()
    assert opened.error_code == 0
    data = opened.response_data
    _, response = read_response(CreateDelegationTokenResponse, data, ApiKey.CREATE_DELEGATION_TOKEN, 3)
    assert (response.error_code, response.principal_name, response.token_requester_principal_name) == (
        code,
        owner,
        owner,
    )


def test_the_controller_removes_expired_tokens(node: TokenNode) -> None:
    hmac = node.create().hmac
    node.create(BOB)
    assert node.expire(hmac, ANN, 15_000).error_code == 0

    def pass_time(ms: int) -> None:
        for _ in range(ms // 1_000):
            node.node.timers.advance(1_000)
            node.node.flush()

    def left() -> set[str]:
        return {token.owner.name for token in node.node.current.image.delegation_tokens.values()}

    pass_time(12_000)
    assert left() == {"ann", "bob"}
    pass_time(10_000)
    assert left() == {"bob"}
    pass_time(EXPIRY_MS)
    assert left() == set()


def test_describe_configs_hides_the_secret_key(node: TokenNode) -> None:
    request = DescribeConfigsRequest([DescribeConfigsResource(4, "1", None)], True, True)
    response = node.ask(ApiKey.DESCRIBE_CONFIGS, request, Principal("User", "root"))
    (result,) = response.results
    (entry,) = [each for each in result.configs if each.name == "delegation.token.secret.key"]
    assert (entry.value, entry.is_sensitive) == (None, True)
    assert KEY not in repr(response)


def test_without_an_authorizer_every_client_may_create_tokens_for_every_owner() -> None:
    """As in Kafka."""
    node = TokenNode(InMemoryNode(static=SETTINGS))
    assert node.create(ANN, BOB).error_code == 0
    assert node.owners(EVE) == ["bob"]


@pytest.mark.parametrize("count", [SLOW_ITEMS_A_TURN, 10 * SLOW_ITEMS_A_TURN])
def test_many_tokens_are_described_in_turns(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    described: list[str] = []
    hmac = TokenHmacs.hmac
    monkeypatch.setattr(TokenHmacs, "hmac", lambda self, token_id: described.append(token_id) or hmac(self, token_id))
    tokens = {
        f"t{number:05}": DelegationToken(f"t{number:05}", owner, owner, (), number, 10**15, 10**15)
        for number, owner in enumerate([ANN, BOB] * count)
    }
    current = CurrentImage()
    current.image = MetadataImage(delegation_tokens=PersistentMap(tokens))
    timers = FakeTimers()
    handler = DescribeDelegationToken(current, TokenSettings(KEY), timers)
    request = DescribeDelegationTokenRequest([DescribeDelegationTokenOwner("User", "ann")])
    reply: Any = handler.answer(request, Caller("", "h:1", None, 3, Unrestricted(ANN)))
    while not reply.done:
        before = len(described)
        timers.run_one_soon()
        assert len(described) - before <= SLOW_ITEMS_A_TURN
    assert [each.token_id for each in reply.value().tokens] == sorted(described)
    assert len(described) == count
