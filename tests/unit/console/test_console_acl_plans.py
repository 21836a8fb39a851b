"""What a change of ACLs does, as the console says it before it is made; users, quotas and kept answers of that page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from itertools import product
from types import SimpleNamespace
from typing import Any, cast

import pytest
from harness.depth import deep
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.base.acl_operations import AclOperation
from moldau.base.errors import ErrorCode, KafkaError
from moldau.console.access import Access
from moldau.console.acl_effects import Effect, effects_of, is_pattern, name_in
from moldau.console.acl_plans import acl_of, acl_row, plan_addition, plan_removal
from moldau.console.call import Call
from moldau.console.endpoints import acls, quotas, users
from moldau.console.lately import KEPT_SECONDS, SEEN_SECONDS, ReadLately
from moldau.console.options import ConsoleOptions
from moldau.security.acls.authorizer import Rules
from moldau.security.acls.bindings import AclBinding, PatternType, Permission, ResourceType, covers
from moldau.security.acls.selection import Resource, UnusableAcl, decide_from, decision_line, host_of, operations_for
from moldau.security.principals import parse_super_users
from moldau.web.failures import ApiError

CERTIFIED = {"security.protocol": "SSL", "ssl.keystore.location": "me.p12"}
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


ALL, READ, ALTER = AclOperation.ALL, AclOperation.READ, AclOperation.ALTER
DENY, PREFIXED, CLUSTER = Permission.DENY, PatternType.PREFIXED, ResourceType.CLUSTER
ADMIN = Rules(parse_super_users("User:admin"))
OPEN = Rules(allows_everyone=True)
ANYBODY = "User:*"


def cluster(permission: Permission = Permission.ALLOW, operation: AclOperation = ALL, who: str = "ann") -> AclBinding:
    return acl(permission, operation, "kafka-cluster", f"User:{who}", kind=CLUSTER)


@pytest.mark.parametrize(
    ("wanted", "existing", "rules", "effect"),
    [
        (acl(), [], Rules(), "User:ann gains read, describe"),
        (acl(), [acl()], Rules(), "is there already"),
        (acl(), [acl(operation=ALL)], Rules(), "User:ann already may: an ACL allows it: User:ann from *"),
        (acl(), [DENIED], Rules(), "User:ann gains describe"),
        (acl(), [acl(DENY, ALL)], Rules(), "User:ann still may not: an ACL denies it: User:ann from * may not ALL"),
        (acl(), [], Rules(parse_super_users("User:ann")), "User:ann already may: super user"),
        (acl(DENY), [acl()], Rules(), "User:ann loses read"),
        (acl(DENY), [], Rules(), "User:ann still may not: an ACL denies it: User:ann from * may not READ"),
        (acl(host="10.0.0.1"), [], Rules(), "User:ann gains read, describe from 10.0.0.1"),
        (acl(), [acl(DENY, host="10.0.0.9")], Rules(),
         "User:ann gains read but not from 10.0.0.9; User:ann gains describe"),
        (acl(DENY, ALL), [acl()], Rules(), "User:ann loses read, describe"),
        (acl(operation=ALL), [acl()], Rules(),
         "User:ann gains write, create, delete, alter, describe-configs, alter-configs"),
        (acl(operation=ALL), [], Rules(), "User:ann gains all operations"),
        (acl(DENY, name="*"), [acl(), acl(name="team-", pattern=PREFIXED)], Rules(),
         "User:ann loses read on orders, all others that begin with team-"),
        (acl(name="or", pattern=PREFIXED), [acl(DENY, ALL)], Rules(),
         "User:ann gains read, describe on all other topics of it"),
        (acl(principal=ANYBODY), [acl(), acl(principal="User:bob")], Rules(),
         "everybody but User:ann, User:bob gains read, describe"),
        (acl(principal=ANYBODY), [], ADMIN, "everybody but super users gains read, describe"),
        (acl(DENY, ALTER, "kafka-cluster", ANYBODY, kind=CLUSTER), [cluster(), cluster(who="bob")], ADMIN,
         "User:ann, User:bob lose alter"),
        (acl(), [], OPEN,
         "User:ann loses write, create, delete, alter, describe-configs, alter-configs; everybody but User:ann l"),
    ],
)  # fmt: skip
def test_the_plan_of_an_addition_says_who_gains_and_loses(
    wanted: AclBinding, existing: list[AclBinding], rules: Rules, effect: str
) -> None:
    (change,) = plan_addition([wanted], existing, rules).changes
    assert change["effect"].startswith(effect)
    assert change["exists"] is (wanted in existing)
    assert (change["gains"], change["loses"]) == ("gains" in effect, "loses" in effect or "lose " in effect)
    assert acl_of({name: change[name] for name in acl_row(wanted)}) == wanted


@pytest.mark.parametrize(
    ("unwanted", "kept", "effect"),
    [
        (acl(), [], "User:ann loses read, describe"),
        (acl(), [acl(operation=ALL)], f"User:ann still may: an ACL allows it: {acl(operation=ALL)}"),
        (acl(DENY, ALL), [acl()], "User:ann gains read, describe"),
        (acl(DENY, name="*"), [acl()], "User:ann gains read on orders"),
        (acl(DENY, principal=ANYBODY), [acl(), acl(principal="User:bob")], "User:ann, User:bob gain read"),
        (DENIED, [acl(principal=ANYBODY)], "everybody gains read on orders"),
        (acl(DENY), [], "User:ann still may not: no ACL covers the resource"),
    ],
)
def test_the_plan_of_a_removal_says_who_gains_and_loses(
    unwanted: AclBinding, kept: list[AclBinding], effect: str
) -> None:
    assert plan_removal([unwanted], [unwanted, *kept], Rules()).changes[0]["effect"] == effect


def test_a_plan_says_what_it_has_not_compared() -> None:
    allowed = [acl(name=f"topic-{number}", principal=f"User:u{number}") for number in range(100)]
    (change,) = plan_addition([acl(DENY, name="*", principal=ANYBODY)], allowed, Rules()).changes
    assert change["effect"].endswith("; not compared: 81 more principals, 81 more resources")
    assert (change["gains"], change["loses"]) == (None, True)
    (none,) = plan_addition([acl(DENY, name="*", principal="User:bob")], allowed, Rules()).changes
    assert none["effect"] == "nobody who was compared gains or loses anything; not compared: 81 more resources"


def test_a_plan_of_very_many_acls_is_bounded() -> None:
    allowed = [acl(name=f"topic-{number}", principal=f"User:u{number}") for number in range(100)]
    many = [acl(DENY, ALL, "topic-", ANYBODY, PREFIXED, host=f"10.0.0.{number}") for number in range(9)]
    plan = plan_addition(many, allowed, Rules(), "u1")
    assert plan.changes[-1]["effect"].startswith("not compared: this is too much at once")
    assert (plan.changes[-1]["gains"], plan.changes[-1]["loses"]) == (None, None)
    assert plan.notes[-1].startswith("Not all of it was compared")


NAMES = ("orders", "or", "o", "bills", "*")
WHO = ("User:ann", "User:bob", "User:admin", ANYBODY)
FROM = ("*", "10.0.0.1", "10.0.0.2")
acl_sets = st.lists(
    st.builds(
        acl,
        st.sampled_from([Permission.ALLOW, DENY]),
        st.sampled_from([ALL, READ, AclOperation.DESCRIBE, ALTER, AclOperation.ALTER_CONFIGS]),
        st.sampled_from(NAMES),
        st.sampled_from(WHO),
        st.sampled_from([PatternType.LITERAL, PREFIXED]),
        st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP]),
        st.sampled_from(FROM),
    ).filter(lambda each: each.pattern_type is PatternType.LITERAL or each.pattern != "*"),
    max_size=6,
    unique=True,
)


@settings(max_examples=deep(14, quick=8))
@given(acl_sets, acl_sets, st.booleans(), st.booleans())
def test_gains_and_losses_are_those_of_the_authorizer(
    existing: list[AclBinding], changed: list[AclBinding], is_addition: bool, allows_everyone: bool
) -> None:
    """Of all principals, addresses, operations and resources that the ACLs name, and of some that they do not."""
    rules = Rules(parse_super_users("User:admin"), allows_everyone)
    without = set(existing).difference(changed)
    before, after = (without, {*without, *changed}) if is_addition else ({*without, *changed}, without)
    old, new = rules.authorizer(before), rules.authorizer(after)
    effects = effects_of(changed, before, after, rules, "User:ann")
    expected = {
        asked: new.decide(*asked).is_allowed
        for asked in product(
            (*WHO[:-1], "User:eve"), (*FROM[1:], "10.9.9.9"), operations_for(ResourceType.TOPIC)[1:],
            (ResourceType.TOPIC, ResourceType.GROUP), (*NAMES[:-1], "orders-2", "zebra"),
        )
        if asked[2] in operations_for(asked[3]) and old.decide(*asked) [0] != new.decide(*asked)[0]
    }  # fmt: skip
    found = {asked: is_gain for asked in expected if (is_gain := _found(effects, asked)) is not None}
    assert found == expected
    for effect in effects:
        assert not effect.scope.left_out
        for each in effect.differences:
            asked = (each.principal, each.host, each.operation, each.resource.type, name_in(each.resource))
            assert (old.decide(*asked).is_allowed, new.decide(*asked).is_allowed) == (not each.is_gain, each.is_gain)


def _found(effects: Sequence[Effect], asked: tuple[str, str, AclOperation, ResourceType, str]) -> bool | None:
    """Return what the effects say about this one: by its names, or as one of all others."""
    principal, host, operation, kind, name = asked
    for scope, differences in ((each.scope, each.differences) for each in effects):
        covering = [
            each for each in scope.resources if each.type is kind and covers(each.pattern_type, each.name, name)
        ]
        if covering:
            narrowest = max(
                covering, key=lambda each: (each.name == name, not is_pattern(each), len(each.name), each.name != "*")
            )
            who = principal if principal in scope.principals else ANYBODY
            where = host if host in scope.hosts else "*"
            for each in differences:
                if each[1:] == (who, where, operation, narrowest):
                    return each.is_gain
    return None


def test_the_first_and_the_last_acl_of_a_resource_are_noted_where_everybody_may_use_the_others() -> None:
    (first,) = plan_addition([acl()], [], OPEN).notes
    (last,) = plan_removal([acl()], [acl()], OPEN).notes
    assert first.startswith("The first ACL for the topic orders: from then on")
    assert last.startswith("The last ACL for the topic orders: without it")
    assert plan_addition([acl()], [DENIED], OPEN).notes == []
    assert plan_addition([acl()], [], Rules()).notes == []


@pytest.mark.parametrize(
    ("wanted", "lost"),
    [
        (cluster(DENY), "all operations on the cluster"),
        (acl(DENY, ALTER, "kafka-cluster", ANYBODY, kind=CLUSTER), "alter on the cluster"),
        (acl(DENY, name="*"), "read on the topic orders"),
        (cluster(DENY, who="bob"), None),
    ],
)
def test_one_is_warned_before_one_loses_ones_own_rights(wanted: AclBinding, lost: str | None) -> None:
    existing = [cluster(), acl()]
    notes = [] if lost is None else [f"You are ann: this takes rights from yourself: {lost}"]
    assert plan_addition([wanted], existing, Rules(), "ann").notes == notes
    assert plan_addition([wanted], existing, Rules(), None).notes == []
    assert plan_addition([wanted], existing, Rules(parse_super_users("User:ann")), "ann").notes == []
    assert len(plan_removal([cluster()], existing, Rules(), "ann").notes) == 1


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
    ("options", "has_authorizer", "reason"),
    [
        ({"properties": CERTIFIED}, True, "everybody who reaches it acts as the owner of its certificate"),
        ({"properties": CERTIFIED}, False, "everybody who reaches it acts as the owner of its certificate"),
        ({"properties": CERTIFIED, "asks_login": False}, True, None),
        ({"properties": {**CERTIFIED, "security.protocol": "SASL_SSL"}}, True, None),
        ({"properties": {"security.protocol": "SSL"}}, True, "nobody logs in to it, and the cluster has an authorizer"),
        ({}, True, "nobody logs in to it, and the cluster has an authorizer"),
        ({}, False, None),
    ],
)
def test_who_may_do_what_is_not_changed_for_everybody_who_reaches_the_console(
    options: dict[str, Any], has_authorizer: bool, reason: str | None
) -> None:
    problem = ConsoleOptions("b", **options).access_problem(lambda: has_authorizer)
    assert (
        (problem is None)
        if reason is None
        else (problem or "").startswith(
            f"This console changes no users, ACLs and quotas: {reason}. Start it with `--no-login`"
        )
    )


def test_no_change_of_the_page_access_is_made_with_a_certificate_for_everybody() -> None:
    entity = {"entity": {"user": "ann"}, "set": {"producer_byte_rate": 1}}
    for handler, body in (
        (acls.add_acls, ALLOW),
        (acls.remove_acls, {"acls": [acl_row(acl())]}),
        (users.add_user, {"name": "ann"}),
        (users.change_password, {}),
        (users.remove_user, {}),
        (quotas.change_quota, entity),
    ):
        asked = call(body, user="ann", properties=CERTIFIED)
        asked.access.admin = nullcontext  # type: ignore[assignment, method-assign]
        with pytest.raises(ApiError, match="This console changes no users, ACLs and quotas") as refused:
            handler(asked)
        assert (refused.value.status, refused.value.code) == (403, "NOT_ALLOWED")


@pytest.mark.parametrize(
    ("acls_of_orders", "answer"),
    [
        ([acl(), acl(DENY, host="10.0.0.9")], "User:ann may read topic orders, but not from 10.0.0.9: an ACL"),
        ([acl(), acl(DENY, principal=ANYBODY, host="10.0.0.9")],
         "User:ann may read topic orders, but not from 10.0.0.9"),
        ([acl(host="10.0.0.7"), acl(host="10.0.0.8")],
         "User:ann may not read topic orders, but may from 10.0.0.7, 10.0.0.8: no ACL allows it"),
        ([acl(), acl(host="10.0.0.9")], "User:ann may read topic orders: an ACL allows it"),
        ([acl(), acl(DENY, host="10.0.0.9", principal="User:bob")], "User:ann may read topic orders: an ACL allows it"),
    ],
)  # fmt: skip
def test_the_answer_names_the_addresses_from_which_it_is_another(acls_of_orders: list[AclBinding], answer: str) -> None:
    orders = Resource(ResourceType.TOPIC, "orders")
    authorizer = Rules().authorizer(acls_of_orders)
    decision, others = decide_from(authorizer, acls_of_orders, "User:ann", "*", READ, orders)
    assert decision_line("User:ann", READ, orders, decision, others).startswith(answer)
    assert decide_from(authorizer, acls_of_orders, "User:ann", "10.0.0.9", READ, orders)[1] == []


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
