"""What a change of ACLs does, as the console says it before it is made; users, quotas and kept answers of that page."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import pytest

from moldau.base.acl_operations import AclOperation
from moldau.base.errors import ErrorCode, KafkaError
from moldau.console.access import Access
from moldau.console.acl_plans import acl_of, acl_row, plan_addition, plan_notes, plan_removal
from moldau.console.call import Call
from moldau.console.endpoints import acls, quotas, users
from moldau.console.failures import ApiError
from moldau.console.lately import KEPT_SECONDS, SEEN_SECONDS, ReadLately
from moldau.console.options import ConsoleOptions
from moldau.security.acls.authorizer import Rules
from moldau.security.acls.bindings import AclBinding, PatternType, Permission, ResourceType
from moldau.security.acls.selection import UnusableAcl, host_of
from moldau.security.principals import parse_super_users

HOSTILE = '<img src=x onerror="alert(1)">'


def acl(
    permission: Permission = Permission.ALLOW,
    operation: AclOperation = AclOperation.READ,
    name: str = "orders",
    principal: str = "User:ann",
    pattern: PatternType = PatternType.LITERAL,
    kind: ResourceType = ResourceType.TOPIC,
    host: str = "*",
) -> AclBinding:
    return AclBinding(kind, name, pattern, principal, host, operation, permission)


DENIED = acl(Permission.DENY, principal="User:*", name="ord", pattern=PatternType.PREFIXED)


@pytest.mark.parametrize(
    ("wanted", "existing", "rules", "effect"),
    [
        (acl(), [], Rules(), "User:ann gains it"),
        (acl(), [acl()], Rules(), "is there already"),
        (acl(), [acl(operation=AclOperation.ALL)], Rules(), "User:ann already may: an ACL allows it: User:ann from *"),
        (acl(), [DENIED], Rules(), "User:ann still may not: an ACL denies it: User:* from *"),
        (acl(), [], Rules(parse_super_users("User:ann")), "User:ann already may: super user"),
        (acl(Permission.DENY), [acl()], Rules(), "User:ann loses it"),
        (acl(Permission.DENY), [], Rules(), "User:ann still may not: an ACL denies it: User:ann from * may not READ"),
        (acl(host="10.0.0.1"), [], Rules(), "User:ann gains it"),
    ],
)  # fmt: skip
def test_the_plan_of_an_addition_says_who_gains_and_loses(
    wanted: AclBinding, existing: list[AclBinding], rules: Rules, effect: str
) -> None:
    (change,) = plan_addition([wanted], existing, rules)
    assert change["effect"].startswith(effect)
    assert change["exists"] is (wanted in existing)
    assert acl_of({name: change[name] for name in acl_row(wanted)}) == wanted


def test_the_plan_of_a_removal_says_what_remains() -> None:
    allows_all = acl(operation=AclOperation.ALL)
    (lost,) = plan_removal([acl()], [acl()], Rules())
    (kept,) = plan_removal([acl()], [acl(), allows_all], Rules())
    (free,) = plan_removal([DENIED], [acl(principal="User:*"), DENIED], Rules())
    assert lost["effect"] == "User:ann loses it"
    assert kept["effect"] == f"User:ann still may: an ACL allows it: {allows_all}"
    # The pattern as a whole: that one topic in it may now be read by everybody is another ACL's doing.
    assert (free["before"], free["after"]) == (False, False)


def test_the_first_and_the_last_acl_of_a_resource_are_noted_where_everybody_may_use_the_others() -> None:
    rules, changes = Rules(allows_everyone=True), [acl_row(acl()) | {"before": True, "after": True}]
    assert plan_notes(changes, [], [acl()], rules, None)[0].startswith(
        "The first ACL for the topic orders: from then on"
    )
    assert plan_notes(changes, [acl()], [], rules, None)[0].startswith("The last ACL for the topic orders: without it")
    assert plan_notes(changes, [DENIED], [DENIED, acl()], rules, None) == []
    assert plan_notes(changes, [], [acl()], Rules(), None) == []


def test_one_is_warned_before_one_loses_ones_own_rights_on_the_cluster() -> None:
    own = acl(kind=ResourceType.CLUSTER, name="kafka-cluster", operation=AclOperation.ALTER)
    changes = plan_removal([own], [own], Rules())
    assert plan_notes(changes, [own], [], Rules(), "ann") == [
        "You are ann: this takes rights on the cluster from yourself"
    ]
    assert plan_notes(changes, [own], [], Rules(), "bob") == []


@pytest.mark.parametrize("row", [None, {}, acl_row(acl()) | {"name": 5}, acl_row(acl()) | {"operation": HOSTILE}])
def test_what_is_no_row_of_an_acl_is_refused(row: object) -> None:
    with pytest.raises(ApiError) as refused:
        acl_of(row)
    assert (refused.value.status, refused.value.code) == (400, "BAD_REQUEST")


@pytest.mark.parametrize(
    ("text", "host"),
    [("*", "*"), ("10.0.0.7", "10.0.0.7"), ("::1", "0:0:0:0:0:0:0:1"), ("2001:DB8::7", "2001:db8:0:0:0:0:0:7"),
     ("::ffff:10.0.0.7", "10.0.0.7")],
)  # fmt: skip
def test_hosts_of_acls_are_written_as_brokers_compare_them(text: str, host: str) -> None:
    assert host_of(text) == host


@pytest.mark.parametrize("text", ["", "10.0.0.0/8", "shop.example.com", "10.0.0", HOSTILE, "[::1]"])
def test_a_host_that_no_client_can_have_is_refused(text: str) -> None:
    with pytest.raises(UnusableAcl, match="is not an address"):
        host_of(text)


class NoCluster:
    """An access whose cluster must not be asked."""

    user = "admin"

    def __init__(self) -> None:
        self.lately = ReadLately()

    def admin(self) -> Any:
        raise AssertionError("the cluster was asked before the request was checked")


def call(body: Any = None, query: dict[str, str] | None = None, user: str = "", **options: Any) -> Call:
    access = cast(Access, NoCluster())
    return Call(ConsoleOptions("localhost:1", **options), access, {"user": user}, query or {}, body)


ALLOW: dict[str, Any] = {
    "permission": "allow",
    "principal": "ann",
    "operations": ["read"],
    "resources": [{"type": "topic", "name": "orders"}],
}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"permission": "perhaps"}, "permission: expected allow or deny"),
        ({"principal": ""}, "principal: expected 1 to 1024 characters"),
        ({"principal": "a" * 1025}, "principal: expected 1 to 1024 characters"),
        ({"principal": "ann\u202e"}, "principal: has a character that cannot be shown"),
        ({"principal": ":"}, "principal: ':' is not a principal"),
        ({"host": "10.0.0.0/8"}, "'10.0.0.0/8' is not an address"),
        ({"host": "x" * 5000}, "'xxx"),
        ({"operations": ["fly"]}, "'fly' is not an operation; expected one of all, read"),
        ({"operations": ["any"]}, "'any' is not an operation"),
        ({"operations": ["cluster-action"]}, "a topic has no operation cluster-action; it has all, read"),
        ({"operations": []}, "no operation for the topic orders; name operations"),
        ({"operations": [HOSTILE * 10]}, "operations: expected a short list of short texts"),
        ({"operations": [5]}, "operations: expected a short list of short texts"),
        ({"roles": ["king"]}, "roles: expected some of producer, consumer"),
        ({"permission": "deny", "roles": ["producer"]}, "roles: expected some of producer, consumer, and only"),
        ({"resources": []}, "resources: name 1 to 1000 of them"),
        ({"resources": ["orders"]}, "resources: expected objects with type, name and prefix"),
        ({"resources": [{"type": "moon", "name": "x"}]}, "type: expected one of topic, group"),
        ({"resources": [{"type": "topic", "name": HOSTILE}]}, "name: no topic can have it"),
        ({"resources": [{"type": "topic", "name": "a" * 300}]}, "name: no topic can have it: the length of"),
        ({"resources": [{"type": "topic", "name": "orders-*"}]},
         "topic orders-*: names of topics have no star; for all topics that begin with orders- use the prefix orders-"),
        ({"resources": [{"type": "topic", "name": "*", "prefix": True}]}, "a prefix needs the beginning of a name"),
        ({"resources": [{"type": "group", "name": "g", "prefix": "yes"}]}, "prefix: expected true or false"),
        ({"operations": [], "roles": ["producer"], "resources": [{"type": "group", "name": "g"}]},
         "the role producer needs nothing of a group; leave g out, or name operations"),
    ],
)  # fmt: skip
def test_an_acl_that_cannot_be_is_refused_before_the_cluster_is_asked(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ApiError) as refused:
        acls.add_acls(call({**ALLOW, **changed}))
    assert refused.value.status == 400
    assert refused.value.message.startswith(message)
    assert len(refused.value.message) < 600


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"entity": {}}, "entity: expected user, client_id or both, or ip alone"),
        ({"entity": {"user": "ann", "ip": "10.0.0.1"}}, "entity: expected"),
        ({"entity": {"user": 5}}, "user: expected a text, or null"),
        ({"entity": {"user": ""}}, "user: expected 1 to 1000 characters"),
        ({"entity": {"user": "ann"}}, "name what to set or unset"),
        ({"entity": {"user": "ann"}, "set": {"speed": 1}}, "'speed' is no quota of these; they have"),
        ({"entity": {"ip": "10.0.0.1"}, "set": {"producer_byte_rate": 1}}, "'producer_byte_rate' is no quota"),
        ({"entity": {"user": "ann"}, "set": {"producer_byte_rate": 0}}, "producer_byte_rate: expected a number"),
        ({"entity": {"user": "ann"}, "set": {"producer_byte_rate": 10**400}}, "producer_byte_rate: expected a number"),
        ({"entity": {"user": "ann"}, "set": {"producer_byte_rate": float("nan")}}, "producer_byte_rate: expected"),
        ({"entity": {"user": "ann"}, "set": {"producer_byte_rate": "1"}}, "producer_byte_rate: expected a number"),
        ({"entity": {"user": "ann"}, "unset": [{}]}, "'{}' is no quota of these"),
        ({"entity": {"user": "ann"}, "set": {"producer_byte_rate": 1}, "unset": ["producer_byte_rate"]}, "a quota is"),
    ],
)  # fmt: skip
def test_a_quota_that_cannot_be_is_refused_before_the_cluster_is_asked(body: dict[str, Any], message: str) -> None:
    with pytest.raises(ApiError) as refused:
        quotas.change_quota(call(body))
    assert refused.value.message.startswith(message)


def test_passwords_are_taken_over_tls_or_on_this_machine_only() -> None:
    body = {"name": "ann", "password": "planted-secret", "execute": True}
    for handler in (users.add_user, users.change_password):
        with pytest.raises(ApiError) as refused:
            handler(call(body, user="ann", host="0.0.0.0"))
        assert (refused.value.status, refused.value.code) == (403, "INSECURE")
        assert "planted-secret" not in refused.value.message
    assert ConsoleOptions("b", host="0.0.0.0", certificate="c.pem").passwords_problem is None
    assert ConsoleOptions("b", host="::1").passwords_problem is None


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"name": "", "password": "x", "execute": True}, "name: expected 1 to 500 characters"),
        ({"name": "a\nb"}, "name: expected 1 to 500 characters that can be shown"),
        ({"name": "ann", "execute": True}, "password: expected 1 to 500 characters"),
        ({"name": "ann", "password": "x" * 501}, "password: expected 1 to 500 characters"),
    ],
)
def test_a_user_who_cannot_be_is_refused_before_the_cluster_is_asked(body: dict[str, Any], message: str) -> None:
    with pytest.raises(ApiError) as refused:
        users.add_user(call(body))
    assert refused.value.message.startswith(message)


def test_the_users_are_those_with_a_password_and_those_whom_acls_name() -> None:
    counts = Counter({"User:ann": 3, "User:*": 1, "User:CN=node,O=shop": 2, "User:plain": 1})
    rows = {row["principal"]: row for row in users.user_rows({"ann": {"SCRAM-SHA-512": 4096}, "bob": {}}, counts)}
    assert {name: (row["kind"], row["acls"]) for name, row in rows.items()} == {
        "User:*": ("everybody", 1),
        "User:CN=node,O=shop": ("certificate", 2),
        "User:ann": ("password", 3),
        "User:bob": ("password", 0),
        "User:plain": ("other", 1),
    }
    assert rows["User:ann"]["mechanisms"] == ["SCRAM-SHA-512"]
    assert [row["acls"] for row in users.user_rows({"ann": {}}, None)] == [None]


@pytest.mark.parametrize(
    ("names", "title"),
    [
        ({"user": "ann"}, "user ann"),
        ({"client-id": None, "user": "ann"}, "user ann, every client id without its own"),
        ({"ip": None}, "every address without its own"),
    ],
)
def test_the_title_of_a_quota_says_whom_it_is_for(names: dict[str, str | None], title: str) -> None:
    assert quotas.title_of(names) == title


@pytest.mark.parametrize(
    ("code", "status", "words"),
    [
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, 403, "you may not see ACLs: that needs DESCRIBE on the cluster"),
        (ErrorCode.SECURITY_DISABLED, 400, "Everybody who can connect may do everything:"),
    ],
)  # fmt: skip
def test_refusals_of_the_broker_become_a_sentence(code: ErrorCode, status: int, words: str) -> None:
    with pytest.raises(ApiError) as refused, acls.needs(AclOperation.DESCRIBE, "see ACLs"):
        raise KafkaError(code)
    assert refused.value.status == status
    assert refused.value.message.startswith(words)


def test_a_list_is_read_once_for_some_seconds_and_again_after_a_change() -> None:
    clock = SimpleNamespace(now=100.0)
    lately = ReadLately(lambda: clock.now)
    readings = iter(range(100))

    def read() -> int:
        return next(readings)

    assert [lately.get("acls", read) for _ in range(3)] == [0, 0, 0]
    clock.now += KEPT_SECONDS
    assert lately.get("acls", read) == 1
    lately.changed(lambda: True)
    assert lately.get("acls", read) == 2

    def read_while_somebody_changes() -> int:
        lately.changed(lambda: True)
        return next(readings)

    clock.now += KEPT_SECONDS
    assert lately.get("acls", read_while_somebody_changes) == 3
    assert lately.get("acls", read) == 4, "what was read before the change is not kept"


def test_a_change_that_a_broker_does_not_see_is_not_awaited_for_ever() -> None:
    clock = SimpleNamespace(now=100.0)
    lately = ReadLately(lambda: clock.now)
    asked = []

    def is_seen() -> bool:
        asked.append(clock.now)
        clock.now += SEEN_SECONDS
        return False

    lately.changed(is_seen)
    assert asked == [100.0]


def test_the_acls_of_a_page_are_filtered_by_principal_resource_type_and_permission() -> None:
    rows = [acl_row(acl(name=f"topic-{number}", principal=f"User:u{number % 3}")) for number in range(5000)]
    rows.append(acl_row(acl(Permission.DENY, kind=ResourceType.GROUP, name=HOSTILE)))

    def listed(**query: str) -> dict[str, Any]:
        asked = call(query=query)
        asked.access.lately.get("acls", lambda: rows)
        return acls.list_acls(asked)

    assert (listed()["total"], listed()["pages"], len(listed()["rows"])) == (5001, 101, 50)
    assert listed(principal="U1", resource="TOPIC-499")["matching"] == 5
    assert listed(principal="=User:u1", resource="=topic-499")["matching"] == 1
    assert listed(principal="=User:u", resource="=topic-49")["matching"] == 0
    assert [row["name"] for row in listed(type="group")["rows"]] == [HOSTILE]
    assert [row["name"] for row in listed(permission="deny")["rows"]] == [HOSTILE]
    assert listed(principal="nobody")["total"] == 5001
    with pytest.raises(ApiError, match="type: 'moon' is none; expected one of topic, group"):
        listed(type="moon")
