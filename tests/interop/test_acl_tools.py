"""ACLs against a running broker: kafka-acls, `moldau acl`, the admin clients, and a client that is refused.

Without authentication every client is User:ANONYMOUS: a super user of the shared broker, and a user without ACLs on the
broker of the last test.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from harness.patience import PATIENCE_S, wait_until
from kafka_tools import Outcome, Tools

from moldau.cli.main import main
from moldau.security.authorizer_settings import STANDARD_AUTHORIZER
from moldau.testing import broker

pytestmark = pytest.mark.moldau_only
ANYTHING = AclBindingFilter(
    ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
)


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    settings = {"authorizer_class_name": STANDARD_AUTHORIZER, "super_users": "User:ANONYMOUS"}
    with broker(**settings) as running:
        yield running.bootstrap_servers


@pytest.fixture(autouse=True)
def delete_all_acls(admin: AdminClient) -> None:
    for deleted in admin.delete_acls([ANYTHING]).values():
        deleted.result(PATIENCE_S)


@pytest.fixture
def tools(bootstrap: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Tools:
    return Tools(bootstrap, capsys, monkeypatch)


def listed(admin: AdminClient) -> set[tuple[str, str, str, str, str]]:
    found = admin.describe_acls(ANYTHING).result(PATIENCE_S)
    return {
        (acl.principal, acl.operation.name, acl.restype.name, acl.name, acl.resource_pattern_type.name) for acl in found
    }


def test_producer_acls_are_added_listed_and_removed(tools: Tools, admin: AdminClient) -> None:
    def kafka_acls(*words: str, stdin: str = "") -> Outcome:
        return tools("acls", *words, stdin=stdin)

    added = kafka_acls("--add", "--allow-principal", "User:Bob", "--producer", "--topic", "Test-topic")
    resource = "ResourcePattern(resourceType=TOPIC, name=Test-topic, patternType=LITERAL)"
    entries = [
        f"\t(principal=User:Bob, host=*, operation={operation}, permissionType=ALLOW)"
        for operation in ("WRITE", "CREATE", "DESCRIBE")
    ]
    assert added == (0, f"Adding ACLs for resource `{resource}`: \n " + "\n".join(entries) + "\n\n", "")
    wait_until(lambda: len(listed(admin)) == 3, "3 ACLs")
    again = kafka_acls("--add", "--allow-principal", "User:Bob", "--operation", "Write", "--topic", "Test-topic")
    assert again.out == f"Acl (pattern={resource}, entry={entries[0].strip()}) already exists.\n"
    shown = kafka_acls("--list", "--topic", "Test-topic")
    assert shown == (0, f"Current ACLs for resource `{resource}`:\n" + "\n".join(entries) + "\n\n", "")
    without_acls = kafka_acls("--list", "--principal", "User:Eve")
    assert without_acls == (0, "ACLs for principal `User:Eve`\n", "")
    kept = kafka_acls("--remove", "--topic", "Test-topic", stdin="n\n")
    assert kept.out == f"Are you sure you want to delete all ACLs for resource filter `{resource}`? (y/n)\n"
    assert len(listed(admin)) == 3
    assert kafka_acls("--remove", "--topic", "Test-topic", "--force") == (0, "", "")
    wait_until(lambda: not listed(admin), "no ACLs")


def test_consumer_prefix_host_and_deny_acls_are_added(tools: Tools, admin: AdminClient) -> None:
    for words in (
        "--add --allow-principal User:ann --consumer --topic orders --group app",
        "--add --allow-principal User:ann --allow-host 10.0.0.1 --operation All --topic team- "
        "--resource-pattern-type prefixed",
        "--add --deny-principal User:* --operation Delete --topic *",
        "--add --allow-principal User:ann --producer --idempotent --topic orders --transactional-id t",
    ):
        assert tools("acls", *words.split()).status == 0
    expected = {
        ("User:ann", "READ", "TOPIC", "orders", "LITERAL"),
        ("User:ann", "DESCRIBE", "TOPIC", "orders", "LITERAL"),
        ("User:ann", "READ", "GROUP", "app", "LITERAL"),
        ("User:ann", "ALL", "TOPIC", "team-", "PREFIXED"),
        ("User:*", "DELETE", "TOPIC", "*", "LITERAL"),
        ("User:ann", "WRITE", "TOPIC", "orders", "LITERAL"),
        ("User:ann", "CREATE", "TOPIC", "orders", "LITERAL"),
        ("User:ann", "IDEMPOTENT_WRITE", "BROKER", "kafka-cluster", "LITERAL"),
        ("User:ann", "WRITE", "TRANSACTIONAL_ID", "t", "LITERAL"),
        ("User:ann", "DESCRIBE", "TRANSACTIONAL_ID", "t", "LITERAL"),
    }
    wait_until(lambda: listed(admin) == expected, "the ACLs")
    matching = tools("acls", "--list", "--topic", "team-a", "--resource-pattern-type", "match").out
    assert "name=team-, patternType=PREFIXED" in matching
    assert "name=*, patternType=LITERAL" in matching
    assert "orders" not in matching


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "Command must include exactly one action: --list, --add, --remove. "),
        ("--add --list", "Command must include exactly one action: --list, --add, --remove. "),
        ("--list --producer", 'Option "[list]" can\'t be used with option "[producer]"'),
        ("--add --principal User:a", "The --principal option is only available if --list is set"),
        ("--add --producer --allow-principal User:a", "With --producer you must specify a --topic"),
        ("--add --consumer --allow-principal User:a --topic t", "With --consumer you must specify a --topic and a"),
        ("--add --idempotent --topic t", "The --idempotent option is only available if --producer is set"),
        ("--add --allow-principal User:a", "You must provide at least one resource: --topic <topic> or --cluster"),
        ("--add --topic t", "You must specify one of: --allow-principal, --deny-principal when trying to add ACLs."),
        ("--add --topic t --allow-principal User:a --resource-pattern-type any", "A '--resource-pattern-type' value"),
        ("--add --topic t --allow-principal User:a --operation ClusterAction", "ResourceType TOPIC only supports"),
        ("--add --topic t --allow-principal User:a --operation Fly", "ResourceType TOPIC only supports operations"),
        ("--list --resource-pattern-type odd", "Cannot parse argument 'odd' of option resource-pattern-type"),
    ],
)
def test_wrong_flags_are_reported_as_by_kafka(tools: Tools, words: str, message: str) -> None:
    outcome = tools("acls", *words.split())
    assert outcome.status == 1
    assert outcome.err.startswith(message)


def test_a_bad_principal_and_a_missing_authorizer_are_reported(tools: Tools) -> None:
    wrong = tools("acls", "--add", "--topic", "t", "--allow-principal", "ann")
    assert (wrong.status, wrong.err) == (1, "expected a string in format principalType:principalName but got ann\n")
    with broker() as open_to_all:
        outcome = tools("acls", "--list", "--bootstrap-server", open_to_all.bootstrap_servers, address=False)
    assert outcome.status == 1
    assert "SecurityDisabledException: No Authorizer is configured on the broker" in outcome.out


def moldau_acl(bootstrap: str, *words: str, status: int = 0) -> Result:
    result = CliRunner(env={"MOLDAU_BOOTSTRAP": bootstrap}).invoke(main, ["acl", *words])
    assert result.exit_code == status, result.output
    return result


def test_moldau_acl_allow_deny_list_test_and_remove(bootstrap: str, admin: AdminClient) -> None:
    allowed = moldau_acl(bootstrap, "allow", "ann", "read,write", "--topic", "orders")
    assert allowed.stdout.splitlines() == [
        "User:ann from * may READ TOPIC:LITERAL:orders",
        "User:ann from * may WRITE TOPIC:LITERAL:orders",
    ]
    moldau_acl(bootstrap, "deny", "*", "write", "--topic", "ord", "--prefix")
    moldau_acl(bootstrap, "allow", "ann", "--role", "consumer", "--topic", "orders", "--group", "app")
    wait_until(lambda: len(listed(admin)) == 5, "5 ACLs")
    table = moldau_acl(bootstrap, "list", "--user", "*").stdout.splitlines()
    assert table[1].split() == ["User:*", "*", "deny", "write", "topic", "ord", "prefixed"]
    may = moldau_acl(bootstrap, "test", "ann", "read,describe", "--topic", "orders").stdout.splitlines()
    assert may[0].startswith("User:ann may read topic orders: an ACL allows it: User:ann from * may READ")
    assert may[1].startswith("User:ann may describe topic orders: an ACL allows it")
    moldau_acl(bootstrap, "deny", "*", "read", "--topic", "orders", "--host", "10.0.0.9")
    wait_until(lambda: len(listed(admin)) == 6, "6 ACLs")
    depends = moldau_acl(bootstrap, "test", "ann", "read", "--topic", "orders").stdout
    assert depends.startswith("User:ann may read topic orders, but not from 10.0.0.9: an ACL allows it")
    there = moldau_acl(bootstrap, "test", "ann", "read", "--topic", "orders", "--host", "10.0.0.9", status=1).stdout
    assert there.startswith("User:ann may not read topic orders: an ACL denies it")
    denied = moldau_acl(bootstrap, "test", "ann", "write", "--topic", "orders", status=1).stdout
    assert denied.startswith("User:ann may not write topic orders: an ACL denies it: User:* from * may not WRITE")
    unknown = moldau_acl(bootstrap, "test", "eve", "read", "--group", "app", status=1).stdout
    assert unknown == "User:eve may not read group app: no ACL allows it\n"
    anonymous = moldau_acl(bootstrap, "test", "ANONYMOUS", "alter", "--cluster").stdout
    assert anonymous == "User:ANONYMOUS may alter cluster kafka-cluster: super user\n"
    removed = moldau_acl(bootstrap, "remove", "--user", "ann", "--topic", "orders", "--yes").stdout
    assert removed.endswith("removed 3\n")
    wait_until(lambda: len(listed(admin)) == 3, "3 ACLs")
    assert moldau_acl(bootstrap, "remove", "--user", "without_acls").stdout == "no such ACLs\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("allow ann read", "name a resource: --topic, --group, --transactional-id or --cluster"),
        ("allow ann --topic t", "no operation for the topic t; name operations (all, read, write"),
        ("allow ann read --topic * --prefix", "--prefix needs the beginning of a name, not '*'"),
        ("allow ann alter --cluster --prefix", "--prefix needs --topic, --group or --transactional-id"),
        ("allow ann fly --topic t", "'fly' is not an operation; expected one of all, read"),
        ("allow ann cluster-action --topic t", "a topic has no operation cluster-action; it has all, read"),
        ("allow : read --topic t", "':' is not a principal; expected a user's name, or TYPE:NAME"),
        ("allow ann read --topic t --host shop.example.com", "'shop.example.com' is not an address; expected one like"),
        ("deny ann read --topic t --host 10.0.0.0/8", "'10.0.0.0/8' is not an address"),
        ("remove", "name what to remove: --user, a resource, or an operation"),
        ("test ann read --topic t --prefix", "name resources, without --prefix"),
    ],
)
def test_wrong_arguments_of_moldau_acl_are_reported(bootstrap: str, words: str, message: str) -> None:
    assert message in moldau_acl(bootstrap, *words.split(), status=1).stderr


def test_a_user_without_acls_cannot_create_produce_or_consume() -> None:
    settings = {"authorizer_class_name": STANDARD_AUTHORIZER, "super_users": "User:without_acls"}
    with broker(**settings) as running:
        config = {"bootstrap.servers": running.bootstrap_servers}
        admin = AdminClient(config)
        with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
            admin.create_topics([NewTopic("t", 1, 1)])["t"].result(PATIENCE_S)
        binding = AclBinding(
            ResourceType.TOPIC, "t", ResourcePatternType.LITERAL, "User:ANONYMOUS", "*", AclOperation.ALL,
            AclPermissionType.ALLOW,
        )  # fmt: skip
        with pytest.raises(KafkaException, match="CLUSTER_AUTHORIZATION_FAILED"):
            admin.create_acls([binding])[binding].result(PATIENCE_S)
        errors: list[str] = []
        producer = Producer(config)
        producer.produce("t", b"x", on_delivery=lambda error, _: errors.append(str(error)))
        producer.flush(PATIENCE_S)
        assert "TOPIC_AUTHORIZATION_FAILED" in errors[0]
        consumer = Consumer({**config, "group.id": "g"})
        consumer.subscribe(["t"])
        found = wait_until(lambda: (polled := consumer.poll(0.1)) and polled.error(), "the consumer gets an error")
        assert found.name() in ("TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED")
        consumer.close()
