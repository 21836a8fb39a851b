"""The authorizer: its rules one by one, and compared with an oracle that looks at every ACL for every decision."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.base.acl_operations import AclOperation
from moldau.security.acls import authorizer as module
from moldau.security.acls.access import Needs, Restricted
from moldau.security.acls.authorizer import Authorizer
from moldau.security.acls.bindings import AclBinding, AclFilter, PatternType, Permission, ResourceType, covers
from moldau.security.principals import Principal

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = Permission.ALLOW, Permission.DENY
ALL, READ, WRITE, DESCRIBE = AclOperation.ALL, AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
DESCRIBE_CONFIGS, ALTER_CONFIGS = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS


def acl(
    pattern: str = "orders",
    operation: AclOperation = READ,
    permission: Permission = ALLOW,
    pattern_type: PatternType = LITERAL,
    principal: str = "User:ann",
    host: str = "*",
    resource_type: ResourceType = TOPIC,
) -> AclBinding:
    return AclBinding(resource_type, pattern, pattern_type, principal, host, operation, permission)


def with_acls(*bindings: AclBinding) -> Authorizer:
    authorizer = Authorizer()
    authorizer.change(bindings)
    return authorizer


@pytest.mark.parametrize(
    ("binding", "is_allowed"),
    [
        (acl(), True),
        (acl("*"), True),
        (acl("ord", pattern_type=PREFIXED), True),
        (acl("orders", pattern_type=PREFIXED), True),
        (acl("orders2", pattern_type=PREFIXED), False),
        (acl("*", pattern_type=PREFIXED), False),
        (acl("ord"), False),
        (acl(operation=ALL), True),
        (acl(operation=WRITE), False),
        (acl(principal="User:*"), True),
        (acl(principal="User:bob"), False),
        (acl(principal="Group:ann"), False),
        (acl(host="10.0.0.1"), True),
        (acl(host="10.0.0.2"), False),
        (acl(resource_type=GROUP), False),
        (acl(permission=DENY), False),
    ],
)
def test_an_acl_allows_or_denies_an_operation(binding: AclBinding, is_allowed: bool) -> None:
    authorizer = with_acls(binding)
    for _ in range(2):  # decided, then remembered
        assert authorizer.allows("User:ann", "10.0.0.1", READ, TOPIC, "orders") is is_allowed


def test_one_denial_is_stronger_than_any_permission() -> None:
    denial = acl("or", permission=DENY, pattern_type=PREFIXED, principal="User:*")
    decision = with_acls(acl(), acl("*", ALL), denial).decide("User:ann", "h", READ, TOPIC, "orders")
    assert (decision.is_allowed, decision.rule) == (False, denial)


@pytest.mark.parametrize("operation", [READ, WRITE, AclOperation.DELETE, AclOperation.ALTER])
def test_other_operations_imply_describe(operation: AclOperation) -> None:
    assert with_acls(acl(operation=operation)).allows("User:ann", "h", DESCRIBE, TOPIC, "orders")
    assert not with_acls(acl(operation=ALTER_CONFIGS)).allows("User:ann", "h", DESCRIBE, TOPIC, "orders")
    assert with_acls(acl(operation=ALTER_CONFIGS)).allows("User:ann", "h", DESCRIBE_CONFIGS, TOPIC, "orders")


def test_a_denied_read_does_not_deny_describe() -> None:
    authorizer = with_acls(acl(operation=READ, permission=DENY), acl(operation=DESCRIBE))
    assert authorizer.allows("User:ann", "h", DESCRIBE, TOPIC, "orders")


def test_denials_do_not_apply_to_a_super_user() -> None:
    authorizer = Authorizer([Principal("User", "ann")])
    authorizer.change([acl(permission=DENY, operation=ALL)])
    assert authorizer.allows("User:ann", "h", READ, TOPIC, "orders")
    assert authorizer.allows_any("User:ann", "h", READ, TOPIC)
    assert not authorizer.allows("User:bob", "h", READ, TOPIC, "orders")


def test_allow_everyone_applies_to_resources_without_acls() -> None:
    authorizer = Authorizer(allow_everyone_without_acl=True)
    authorizer.change([acl("orders", principal="User:bob")])
    assert authorizer.allows("User:ann", "h", READ, TOPIC, "payments")
    assert not authorizer.allows("User:ann", "h", READ, TOPIC, "orders"), "an ACL for somebody else covers it"


def test_an_acl_change_takes_effect_at_once() -> None:
    authorizer, binding = Authorizer(), acl()
    question = ("User:ann", "h", READ, TOPIC, "orders")
    assert not authorizer.allows(*question)
    authorizer.change([binding, binding])
    assert authorizer.allows(*question)
    assert authorizer.allows_any("User:ann", "h", READ, TOPIC)
    authorizer.change([], [binding])
    assert authorizer.allows(*question), "the second of two equal ACLs is still there"
    authorizer.change([], [binding])
    assert not authorizer.allows(*question)
    assert not authorizer.allows_any("User:ann", "h", READ, TOPIC)


def test_ever_new_names_use_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DECISIONS_REMEMBERED_MAX", 10)
    authorizer = with_acls(acl())
    for number in range(100):
        authorizer.allows("User:ann", "h", READ, TOPIC, f"t{number}")
        authorizer.allows_any(f"User:{number}", "h", READ, TOPIC)
    assert len(authorizer._remembered) <= 10
    assert len(authorizer._remembered_types) <= 10


@pytest.mark.parametrize(
    ("bindings", "is_allowed"),
    [
        ([], False),
        ([acl("a")], True),
        ([acl("a"), acl("a", permission=DENY)], False),
        ([acl("a"), acl("b", permission=DENY)], True),
        ([acl("*"), acl("a", permission=DENY)], True),
        ([acl("*"), acl("a", permission=DENY, pattern_type=PREFIXED)], True),
        ([acl("*"), acl("*", permission=DENY)], False),
        ([acl("ab"), acl("a", permission=DENY, pattern_type=PREFIXED)], False),
        ([acl("ab", pattern_type=PREFIXED), acl("a", permission=DENY, pattern_type=PREFIXED)], False),
        ([acl("ab", pattern_type=PREFIXED), acl("ab", permission=DENY, pattern_type=PREFIXED)], False),
        ([acl("ab", pattern_type=PREFIXED), acl("ab", permission=DENY)], True),
        ([acl("ab", pattern_type=PREFIXED), acl("abc", permission=DENY, pattern_type=PREFIXED)], True),
        ([acl("a", operation=ALL)], True),
        ([acl("a", operation=WRITE)], False),
        ([acl("a", host="elsewhere")], False),
        ([acl("a", resource_type=GROUP)], False),
    ],
)
def test_allows_any_resource_of_a_type(bindings: Sequence[AclBinding], is_allowed: bool) -> None:
    assert with_acls(*bindings).allows_any("User:ann", "h", READ, TOPIC) is is_allowed


NAMES = st.text("ab*", min_size=1, max_size=4)
BINDINGS = st.builds(
    AclBinding,
    st.sampled_from([TOPIC, GROUP]),
    NAMES,
    st.sampled_from([LITERAL, PREFIXED]),
    st.sampled_from(["User:ann", "User:bob", "User:*"]),
    st.sampled_from(["*", "h"]),
    st.sampled_from([ALL, READ, WRITE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS]),
    st.sampled_from([ALLOW, DENY]),
)
QUESTIONS = st.tuples(
    st.sampled_from(["User:ann", "User:bob", "User:eve"]),
    st.sampled_from(["h", "other"]),
    st.sampled_from([READ, WRITE, DESCRIBE, DESCRIBE_CONFIGS]),
    st.sampled_from([TOPIC, GROUP]),
    NAMES,
)
IMPLIED = {
    (READ, DESCRIBE), (WRITE, DESCRIBE), (ALTER_CONFIGS, DESCRIBE_CONFIGS),
}  # fmt: skip


def oracle(
    bindings: Sequence[AclBinding], principal: str, host: str, operation: AclOperation, kind: ResourceType, name: str
) -> bool:
    """The rule of Kafka's documentation, read literally: no index, no cache."""
    about = [b for b in bindings if b.resource_type is kind and covers(b.pattern_type, b.pattern, name)]
    mine = [b for b in about if b.principal in (principal, "User:*") and b.host in (host, "*")]
    if any(b.permission is DENY and b.operation in (operation, ALL) for b in mine):
        return False
    return any(
        b.permission is ALLOW and (b.operation in (operation, ALL) or (b.operation, operation) in IMPLIED) for b in mine
    )


@given(st.lists(BINDINGS, max_size=12), st.lists(BINDINGS, max_size=6), st.lists(QUESTIONS, min_size=1, max_size=8))
def test_decisions_are_those_of_the_oracle(
    stay: list[AclBinding], go: list[AclBinding], questions: list[tuple[str, str, AclOperation, ResourceType, str]]
) -> None:
    authorizer = with_acls(*go, *stay)
    for question in questions:
        authorizer.allows(*question)
    authorizer.change([], go)
    for question in questions:
        assert authorizer.allows(*question) is oracle(stay, *question)


@given(BINDINGS, NAMES)
def test_a_match_filter_finds_the_patterns_that_cover_a_name(binding: AclBinding, name: str) -> None:
    found = AclFilter(pattern=name, pattern_type=PatternType.MATCH).matches(binding)
    assert found is covers(binding.pattern_type, binding.pattern, name)


@given(BINDINGS, BINDINGS)
def test_a_filter_with_all_fields_matches_one_binding(one: AclBinding, other: AclBinding) -> None:
    acl_filter = AclFilter(*one)
    assert acl_filter.only_binding() == one
    assert acl_filter.matches(other) is (other == one)
    assert AclFilter(*one[:6]).only_binding() is None
    assert AclFilter(*one[:3], None, *one[4:]).only_binding() is None
    assert AclFilter(one[0], one[1], PatternType.MATCH, *one[3:]).only_binding() is None


@pytest.mark.parametrize(
    ("acl_filter", "is_matched"),
    [
        (AclFilter(), True),
        (AclFilter(pattern="orders"), True),
        (AclFilter(pattern="order"), False),
        (AclFilter(pattern="orders", pattern_type=PREFIXED), False),
        (AclFilter(pattern="orders", pattern_type=LITERAL), True),
        (AclFilter(resource_type=GROUP), False),
        (AclFilter(principal="User:ann"), True),
        (AclFilter(principal="User:*"), False),
        (AclFilter(operation=READ, permission=ALLOW, host="*"), True),
        (AclFilter(operation=WRITE), False),
        (AclFilter(permission=DENY), False),
    ],
)
def test_a_filter_matches_bindings_with_its_fields(acl_filter: AclFilter, is_matched: bool) -> None:
    assert acl_filter.matches(acl()) is is_matched


def test_an_open_connection_follows_changes_and_uses_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DECISIONS_REMEMBERED_MAX", 10)
    authorizer, binding = Authorizer(), acl()
    access, needs = Restricted(authorizer, Principal("User", "ann"), "h"), Needs(READ, TOPIC)
    others = Restricted(authorizer, Principal("User", "bob"), "h")
    for _ in range(2):
        assert not access.allows(needs, "orders")
        authorizer.change([binding])
        assert access.allows(needs, "orders")
        assert access.allows(needs, "orders"), "the decision is remembered"
        assert access.allows_quietly(needs, "orders")
        assert not others.allows(needs, "orders")
        authorizer.change([], [binding])
    authorizer.change([acl("*")])
    for number in range(100):
        assert access.allows(needs, f"t{number}")
        assert len(access._granted[needs]) <= 10


def test_a_list_of_names_is_known_to_be_allowed_once_each_was_decided() -> None:
    authorizer, binding, denial = Authorizer(), acl("*"), acl("b", READ, DENY)
    authorizer.change([binding])
    access, needs = Restricted(authorizer, Principal("User", "ann"), "h"), Needs(READ, TOPIC)
    assert not access.is_known_to_allow(needs, ["a", "b"]), "not decided yet"
    assert access.allows_quietly(needs, "a")
    assert not access.is_known_to_allow(needs, ["a", "b"])
    assert access.allows_quietly(needs, "b")
    assert access.is_known_to_allow(needs, ["a", "b"])
    assert not access.is_known_to_allow(Needs(WRITE, TOPIC), ["a"])
    authorizer.change([denial])
    assert not access.is_known_to_allow(needs, ["a"]), "after an ACL change everything is decided again"
    assert access.allows_quietly(needs, "a")
    assert not access.allows_quietly(needs, "b")
    assert access.is_known_to_allow(needs, ["a"])
    assert not access.is_known_to_allow(needs, ["a", "b"])


def test_decisions_about_long_names_are_not_remembered() -> None:
    authorizer = with_acls(acl("*"), acl("*", WRITE, DENY))
    access = Restricted(authorizer, Principal("User", "ann"), "h")
    tracemalloc.start()
    try:
        for number in range(100):
            assert access.allows(Needs(READ, TOPIC), f"{number:030000}")
            assert not access.allows(Needs(WRITE, TOPIC), f"{number:030000}")
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept_bytes < 30_000 * 100 / 10
    assert access.allows(Needs(READ, TOPIC), "t" * 256)
    assert "t" * 256 in access._granted[READ, TOPIC]
