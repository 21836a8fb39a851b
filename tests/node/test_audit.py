"""The audit log: a line for each denied request, admin action and failed login; safe to parse, and limited in rate."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from harness.restricted_node import RestrictedNode

from moldau.base.acl_operations import AclOperation
from moldau.base.counters import AUDIT_LINES_DROPPED, DENIED, Counters
from moldau.base.errors import ErrorCode
from moldau.base.promise import Promise
from moldau.base.steps import finish
from moldau.metadata.records import ConfigResource
from moldau.security.acls.access import Needs
from moldau.security.acls.authorizer import Decision
from moldau.security.acls.bindings import ResourceType
from moldau.security.authorizer_settings import STANDARD_AUTHORIZER
from moldau.server import audit
from moldau.server.apis import declared_handlers
from moldau.server.handler import Caller, Handler, is_audited
from moldau.server.handlers.forwarded import ForwardedHandler
from moldau.server.handlers.forwarded.create_topics import CreateTopics
from moldau.server.handlers.groups.listing import DeleteGroups
from moldau.server.handlers.groups.offsets import OffsetCommit
from moldau.testing.clock import FakeClock, FakeTimers
from moldau.wire.apis import APIS, ApiKey, request_class, response_class
from moldau.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from moldau.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest, ScramCredentialUpsertion
from moldau.wire.messages.create_acls import AclCreation, CreateAclsRequest
from moldau.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from moldau.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from moldau.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from moldau.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from moldau.wire.messages.delete_topics import DeleteTopicsRequest
from moldau.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from moldau.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

AUDITED = [each for each in declared_handlers() if is_audited(each)]

READ_TOPIC = Needs(AclOperation.READ, ResourceType.TOPIC)


def decide() -> Decision:
    return Decision(False, "no ACL allows it")


def audit_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "moldau.audit"]


def test_a_denied_request_is_logged_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    node = RestrictedNode()
    node.start()
    node.create_topic("secret")
    caplog.set_level(logging.INFO, "moldau.audit")
    node.ask(ApiKey.METADATA, MetadataRequest([MetadataRequestTopic(name="secret")]), 12)
    assert audit_lines(caplog) == [
        "denied principal=User:ann host=10.0.0.1 operation=describe resource=topic:secret"
        ' rule="no ACL covers the resource"'
    ]
    caplog.clear()
    node.ask(ApiKey.METADATA, MetadataRequest(None), 12)
    assert audit_lines(caplog) == [], "a request for all topics leaves out denied topics without a line"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("plain", "topic:plain"),
        ("a b", '"topic:a b"'),
        ('a"b', '"topic:a\\"b"'),
        ("a\nadmin principal=root", '"topic:a\\nadmin principal=root"'),
        ("\x1b[31m", "topic:\\x1b[31m"),
        ("x" * 10_000, f"topic:{'x' * 294}..."),
        ("\0" * 10_000, "topic:" + r"\x00" * 73 + r"\x..."),
    ],
    ids=["plain", "space", "quote", "line break", "escape sequence", "10000 characters", "10000 null bytes"],
)
def test_a_hostile_name_cannot_forge_a_log_line(caplog: pytest.LogCaptureFixture, name: str, shown: str) -> None:
    caplog.set_level(logging.INFO, "moldau.audit")
    audit.AuditLog(FakeClock()).denied("User:ann", "h", READ_TOPIC, name, decide)
    (line,) = audit_lines(caplog)
    assert line == f'denied principal=User:ann host=h operation=read resource={shown} rule="no ACL allows it"'


def test_denied_requests_above_the_rate_limit_are_counted_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "moldau.audit")
    clock = FakeClock()
    log = audit.AuditLog(clock)
    decisions = []
    for _ in range(1000):
        log.denied("User:ann", "h", READ_TOPIC, "t", lambda: decisions.append(1) or decide())
    assert len(decisions) == audit.DENIED_LINES_PER_SECOND_MAX, "no decision is made for a line that is left out"
    assert len(audit_lines(caplog)) == audit.DENIED_LINES_PER_SECOND_MAX
    clock.move(1000)
    log.denied("User:bob", "h", READ_TOPIC, "t", decide)
    assert audit_lines(caplog)[-2:] == [
        f"{1000 - audit.DENIED_LINES_PER_SECOND_MAX} more lines of denied requests were left out",
        'denied principal=User:bob host=h operation=read resource=topic:t rule="no ACL allows it"',
    ]


def admin_lines(node: RestrictedNode, caplog: pytest.LogCaptureFixture, api: ApiKey, request: Any, version: int) -> Any:
    """Send a request as root, check that all audit lines name root and the API, and return the rest of each line."""
    caplog.clear()
    node.completed(node.ask(api, request, version, "root"))
    start = f"admin principal=User:root host=10.0.0.1 client=test action={APIS[api].name} "
    assert all(line.startswith(start) for line in audit_lines(caplog)), audit_lines(caplog)
    return [line.removeprefix(start) for line in audit_lines(caplog)]


@pytest.fixture
def node(caplog: pytest.LogCaptureFixture) -> RestrictedNode:
    started = RestrictedNode()
    started.start()
    caplog.set_level(logging.INFO, "moldau.audit")
    return started


def test_the_log_line_of_a_new_view_names_its_source_topic() -> None:
    view = CreatableTopic("big", -1, -1, configs=[CreatableTopicConfig("moldau.view.from", "orders")])
    request = CreateTopicsRequest([view, CreatableTopic("plain", 2, 1)])
    results = [
        CreatableTopicResult("big", num_partitions=3, replication_factor=1),
        CreatableTopicResult("plain", num_partitions=2, replication_factor=1),
    ]
    actions = CreateTopics.admin_actions(request, CreateTopicsResponse(topics=results))
    assert [each.detail for each in actions] == ["view of orders partitions=3 replicas=1", "partitions=2 replicas=1"]
    refused = [CreatableTopicResult("big", error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)]
    actions = CreateTopics.admin_actions(request, CreateTopicsResponse(topics=refused))
    assert [each.detail for each in actions] == ["view of orders"]


def test_creating_growing_and_deleting_topics_is_logged(node: RestrictedNode, caplog: pytest.LogCaptureFixture) -> None:
    create = CreateTopicsRequest([CreatableTopic("orders", 2, 1), CreatableTopic("bad name", 1, 1)])
    assert admin_lines(node, caplog, ApiKey.CREATE_TOPICS, create, 7) == [
        'resource=topic:orders result=OK detail="partitions=2 replicas=1"',
        'resource="topic:bad name" result=INVALID_TOPIC_EXCEPTION detail=""',
    ]
    grow = CreatePartitionsRequest([CreatePartitionsTopic("orders", 3, None)])
    assert admin_lines(node, caplog, ApiKey.CREATE_PARTITIONS, grow, 3) == [
        'resource=topic:orders result=OK detail="partitions=3"'
    ]
    delete = DeleteTopicsRequest(topic_names=["orders"])
    assert admin_lines(node, caplog, ApiKey.DELETE_TOPICS, delete, 5) == ['resource=topic:orders result=OK detail=""']
    only_checked = CreateTopicsRequest([CreatableTopic("other", 2, 1)], validate_only=True)
    assert admin_lines(node, caplog, ApiKey.CREATE_TOPICS, only_checked, 7) == [], "validate_only changes nothing"


def test_secrets_are_not_logged(node: RestrictedNode, caplog: pytest.LogCaptureFixture) -> None:
    configs = [AlterableConfig("ssl.key.password", 0, "hunter2"), AlterableConfig("log.retention.ms", 1, None)]
    alter = IncrementalAlterConfigsRequest([AlterConfigsResource(ConfigResource.BROKER, "1", configs)])
    assert admin_lines(node, caplog, ApiKey.INCREMENTAL_ALTER_CONFIGS, alter, 1) == [
        "resource=broker:1 result=INVALID_REQUEST detail=set:ssl.key.password,delete:log.retention.ms"
    ]
    upsertion = ScramCredentialUpsertion("ann", 1, 4096, b"saltsalt", b"hunter2hunter2hunter2hunter2hunt")
    scram = AlterUserScramCredentialsRequest(upsertions=[upsertion])
    assert admin_lines(node, caplog, ApiKey.ALTER_USER_SCRAM_CREDENTIALS, scram, 0) == [
        "resource=user:ann result=OK detail=set:SCRAM-SHA-256"
    ]
    assert "hunter2" not in caplog.text


def test_changes_of_acls_and_quotas_are_logged(node: RestrictedNode, caplog: pytest.LogCaptureFixture) -> None:
    creation = AclCreation(ResourceType.TOPIC, "orders", 3, "User:ann", "*", AclOperation.READ, 3)
    rule = 'detail="User:ann from * may READ TOPIC:LITERAL:orders"'
    assert admin_lines(node, caplog, ApiKey.CREATE_ACLS, CreateAclsRequest([creation]), 3) == [
        f"resource=topic:orders result=OK {rule}"
    ]
    everything = DeleteAclsFilter(ResourceType.ANY, None, 1, None, None, AclOperation.ANY, 1)
    assert admin_lines(node, caplog, ApiKey.DELETE_ACLS, DeleteAclsRequest([everything]), 3) == [
        f"resource=topic:orders result=OK {rule}"
    ]
    changes = [OpData("producer_byte_rate", 1024.0), OpData("request_percentage", 0.0, True)]
    entry = RequestEntryData([RequestEntityData("user", "ann"), RequestEntityData("client-id", None)], changes)
    assert admin_lines(node, caplog, ApiKey.ALTER_CLIENT_QUOTAS, AlterClientQuotasRequest([entry]), 1) == [
        'resource="quota:client-id=<default>,user=ann" result=OK'
        ' detail="producer_byte_rate=1024,delete:request_percentage"'
    ]


def test_an_offset_reset_is_administrative_and_a_members_commit_is_not() -> None:
    reset = OffsetCommitRequest("g", -1, "")
    member, simple_consumer_of_a_group = OffsetCommitRequest("g", 3, "m"), OffsetCommitRequest("g", 3, "")
    assert OffsetCommit.is_administrative(reset)
    assert not OffsetCommit.is_administrative(member)
    assert not OffsetCommit.is_administrative(simple_consumer_of_a_group)


def test_commits_without_a_member_are_logged_once_a_minute_per_group(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "moldau.audit")
    clock = FakeClock()
    topic = OffsetCommitRequestTopic(name="t", partitions=[OffsetCommitRequestPartition(0, 7)])
    done = OffsetCommitResponse(
        topics=[OffsetCommitResponseTopic(name="t", partitions=[OffsetCommitResponsePartition(0, 0)])]
    )
    caller = Caller("PLAINTEXT", "10.0.0.1:5", "tool", 9)

    class CommitsAtOnce(OffsetCommit):
        def __init__(self) -> None:
            pass

        def answer(self, request: OffsetCommitRequest, caller: Caller) -> OffsetCommitResponse:
            return done

    answer = audit.audited(CommitsAtOnce(), audit.AuditLog(clock), FakeTimers(clock))
    # Without a generation a member id means nothing: the coordinator does not look at it.
    for group, generation, member_id in (("c", 3, "m"), ("a", -1, "m"), ("a", -1, ""), ("b", -1, ""), ("a", -1, "")):
        assert answer(OffsetCommitRequest(group, generation, member_id, topics=[topic]), caller) is done
    assert [line.partition("action=")[2] for line in audit_lines(caplog)] == [
        'OffsetCommit resource=group:a result=OK detail="t-0=7"',
        'OffsetCommit resource=group:b result=OK detail="t-0=7"',
    ]
    clock.move(audit.COMMIT_EVERY_MS)
    answer(OffsetCommitRequest("a", -1, "", topics=[topic]), caller)
    assert len(audit_lines(caplog)) == 3


class ScriptedCommits(OffsetCommit):
    """Answers each OffsetCommit when the test calls `complete`, with its error codes."""

    def __init__(self) -> None:
        self.waiting: list[Promise[OffsetCommitResponse]] = []

    def answer(self, request: OffsetCommitRequest, caller: Caller) -> Promise[OffsetCommitResponse]:
        self.waiting.append(Promise())
        return self.waiting[-1]

    def complete(self, *error_codes: int) -> None:
        partitions = [OffsetCommitResponsePartition(index, code) for index, code in enumerate(error_codes)]
        response = OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=partitions)])
        self.waiting.pop(0).complete(response)


def test_a_failed_commit_does_not_hide_the_reset_after_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "moldau.audit")
    commits = ScriptedCommits()
    answer = audit.audited(commits, audit.AuditLog(FakeClock()), FakeTimers(FakeClock()))
    caller = Caller("PLAINTEXT", "10.0.0.1:5", "tool", 9)

    def commit(*error_codes: int) -> list[str]:
        caplog.clear()
        answer(OffsetCommitRequest("a", -1, ""), caller)
        commits.complete(*error_codes)
        return [line.partition("result=")[2].partition(" ")[0] for line in audit_lines(caplog)]

    assert commit(ErrorCode.UNKNOWN_MEMBER_ID) == ["UNKNOWN_MEMBER_ID"]
    assert commit(ErrorCode.UNKNOWN_MEMBER_ID) == [], "failed commits are also logged once a minute"
    assert commit(0, ErrorCode.UNKNOWN_MEMBER_ID) == []
    assert commit(0, 0) == ["OK"]
    assert commit(0, 0) == []
    assert commit(ErrorCode.UNKNOWN_MEMBER_ID) == []


def test_commits_answered_together_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "moldau.audit")
    commits = ScriptedCommits()
    answer = audit.audited(commits, audit.AuditLog(FakeClock()), FakeTimers(FakeClock()))
    for _ in range(3):
        answer(OffsetCommitRequest("a", -1, ""), Caller("PLAINTEXT", "10.0.0.1:5", "tool", 9))
    for _ in range(3):
        commits.complete(0)
    assert len(audit_lines(caplog)) == 1


def test_a_flood_of_denied_requests_does_not_hide_admin_actions(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "moldau.audit")
    counters = Counters()
    log = audit.AuditLog(FakeClock(), counters)
    for _ in range(1000):
        log.denied("User:ann", "h", READ_TOPIC, "t", decide)
    result = DeleteGroupsResponse(results=[DeletableGroupResult("g", ErrorCode.NON_EMPTY_GROUP)])
    caller = Caller("", "10.0.0.1:5", None, 2)
    finish(log.answered(DeleteGroups, DeleteGroupsRequest(["g"]), result, caller))
    assert audit_lines(caplog)[-1] == (
        'admin principal=User:ANONYMOUS host=10.0.0.1 client="" action=DeleteGroups resource=group:g'
        ' result=NON_EMPTY_GROUP detail=""'
    )
    assert counters[DENIED] == 1000
    assert counters[AUDIT_LINES_DROPPED] == 1000 - audit.DENIED_LINES_PER_SECOND_MAX


def test_refused_admin_requests_do_not_hide_successful_ones(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "moldau.audit")
    audited = audit.AuditLog(FakeClock())
    caller = Caller("PLAINTEXT", "10.0.0.1:5", "tool", 7)
    for code, count in ((ErrorCode.TOPIC_AUTHORIZATION_FAILED, 5_000), (ErrorCode.NONE, 1)):
        names = [f"t{number}" for number in range(count)]
        request = CreateTopicsRequest([CreatableTopic(name, 1, 1) for name in names])
        response = CreateTopicsResponse(topics=[CreatableTopicResult(name=name, error_code=code) for name in names])
        finish(audited.answered(CreateTopics, request, response, caller))
    assert len(audit_lines(caplog)) == audit.FAILED_LINES_PER_SECOND_MAX + 1
    assert "resource=topic:t0 result=OK" in audit_lines(caplog)[-1]


def test_a_failed_login_is_logged_with_the_attempted_user_name(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "moldau.audit")
    log = audit.AuditLog(FakeClock())
    reason = "authentication failed: Invalid username or password"
    log.login_failed(audit.FailedLogin("EXTERNAL", "10.0.0.9", "PLAIN", "ann", reason))
    log.login_failed(audit.FailedLogin("EXTERNAL", "10.0.0.9", "PLAIN", "a\nadmin x=" + "y" * 70_000, reason))
    first, second = audit_lines(caplog)
    assert first == (
        "login listener=EXTERNAL host=10.0.0.9 mechanism=PLAIN user=ann result=FAILED"
        ' reason="Invalid username or password"'
    )
    assert second.count("\n") == 0
    assert ' user="a\\nadmin x=y' in second
    assert len(second) < 500


def test_a_flood_of_failed_logins_does_not_hide_denied_requests(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "moldau.audit")
    counters = Counters()
    log = audit.AuditLog(FakeClock(), counters)
    for _ in range(1000):
        log.login_failed(audit.FailedLogin("EXTERNAL", "10.0.0.9", "PLAIN", "ann", "x"))
    log.denied("User:ann", "h", READ_TOPIC, "t", decide)
    assert audit_lines(caplog)[-1].startswith("denied principal=User:ann")
    assert counters[AUDIT_LINES_DROPPED] == 1000 - audit.LOGIN_LINES_PER_SECOND_MAX


def test_every_forwarded_api_that_changes_metadata_is_audited() -> None:
    """Requests that the controller decides are audited, except those that only read."""
    reading = {ApiKey.LIST_PARTITION_REASSIGNMENTS, ApiKey.DESCRIBE_QUORUM}
    forwarded = {each.api for each in declared_handlers() if issubclass(each, ForwardedHandler)}
    assert forwarded - reading <= {each.api for each in AUDITED}


@pytest.mark.parametrize("handler", AUDITED, ids=lambda each: each.api.name)
def test_an_empty_request_of_each_audited_api_can_be_described(handler: type[Handler]) -> None:
    """The functions that build the log lines read only fields that exist."""
    list(handler.admin_actions(request_class(handler.api)(), response_class(handler.api)()))


@pytest.mark.parametrize(("authorizer", "level"), [(STANDARD_AUTHORIZER, "INFO"), ("", "DEBUG")])
def test_administrative_actions_without_an_authorizer_are_logged_for_debugging(
    caplog: pytest.LogCaptureFixture, authorizer: str, level: str
) -> None:
    caplog.set_level(logging.DEBUG)
    node = RestrictedNode(**{"authorizer.class.name": authorizer})
    node.start()
    node.completed(node.ask(ApiKey.CREATE_TOPICS, CreateTopicsRequest([CreatableTopic("orders", 1, 1)]), 7, "root"))
    logged = [record for record in caplog.records if "topic:orders" in record.getMessage()]
    assert [(record.name, record.levelname) for record in logged] == [("moldau.audit", level)]
