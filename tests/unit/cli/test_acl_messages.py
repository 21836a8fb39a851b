"""Messages of `moldau acl` and `moldau user`: errors that suggest the correct options, hints about mistakes."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from moldau.base.acl_operations import AclOperation
from moldau.base.errors import ErrorCode, KafkaError
from moldau.cli.acl.selection import bindings, hints
from moldau.cli.main import main
from moldau.cli.next_steps import worded
from moldau.operations.rights import Rights, rights_of, unknown_user_note
from moldau.secure_setup.directory import check_can_write_private
from moldau.security.acls.authorizer import Rules
from moldau.security.acls.bindings import AclBinding, AclFilter, PatternType, Permission, ResourceType
from moldau.security.acls.selection import Resource
from moldau.security.principals import parse_super_users

ORDERS = Resource(ResourceType.TOPIC, "orders")
BILLING = Resource(ResourceType.GROUP, "billing")


def allowed(*resources: Resource, roles: tuple[str, ...] = (), permission: Permission = Permission.ALLOW) -> None:
    bindings("User:ann", "*", permission, [], roles, resources)


@pytest.mark.parametrize(
    ("resource", "roles", "words"),
    [
        (ORDERS, (), "no operation for the topic orders; name operations (all, read, .*) or --role producer or"),
        (BILLING, ("producer",), "--role producer needs nothing of a group; leave billing out, or .* --role consumer$"),
        (Resource(ResourceType.TOPIC, "orders-*"), ("producer",), "begin with orders- use --topic orders- --prefix"),
        (Resource(ResourceType.TOPIC, "o*", PatternType.PREFIXED), ("producer",), "names of topics have no star"),
        (Resource(ResourceType.TOPIC, "*a"), ("producer",), "names of topics have no star; '\\*' is all topics"),
    ],
)
def test_errors_suggest_the_correct_options(resource: Resource, roles: tuple[str, ...], words: str) -> None:
    with pytest.raises(click.UsageError, match=words.replace("(", r"\(").replace(")", r"\)")):
        allowed(resource, roles=roles)


def test_the_error_of_deny_suggests_no_roles() -> None:
    with pytest.raises(click.UsageError) as wrong:
        allowed(ORDERS, permission=Permission.DENY)
    assert "--role" not in str(wrong.value)


def test_a_consumer_role_without_a_group_gets_a_hint() -> None:
    (line,) = hints("User:ann", ["consumer"], [ORDERS])
    assert "`moldau acl allow ann --role consumer --group GROUP`" in line
    assert hints("User:ann", ["consumer"], [ORDERS, BILLING]) == []
    assert hints("User:ann", ["producer"], [ORDERS]) == []


def test_a_group_name_with_a_star_is_accepted_with_a_hint() -> None:
    resource = Resource(ResourceType.GROUP, "billing-*")
    allowed(resource, roles=("consumer",))
    (line,) = hints("User:ann", ["consumer"], [resource])
    assert line.endswith("--group billing- --prefix")
    assert hints("User:ann", ["consumer"], [Resource(ResourceType.GROUP, "*")]) == []


@pytest.mark.parametrize(
    ("principal", "users", "words"),
    [
        ("User:anm", ["ann", "bob"], "did you mean ann?"),
        ("User:eve", ["ann"], "`moldau user add eve` adds one"),
        ("User:ann", ["ann"], None),
        ("User:*", ["ann"], None),
        ("User:CN=eve", ["ann"], None),
        ("Group:eve", ["ann"], None),
        ("User:eve", [], None),  # a cluster without SCRAM
    ],
)
def test_an_unknown_user_gets_a_hint(principal: str, users: list[str], words: str | None) -> None:
    note = unknown_user_note(principal, users)
    assert note is None if words is None else note is not None and worded(note).endswith(words)


ACL = AclBinding(ResourceType.TOPIC, "x", PatternType.LITERAL, "User:ann", "*", AclOperation.READ, Permission.ALLOW)


class FakeAcls:
    def __init__(self, answer: KafkaError | list[AclBinding], rules: Rules | None = None) -> None:
        self._answer = answer
        self._rules = rules

    def find(self, acl_filter: AclFilter) -> list[AclBinding]:
        if isinstance(self._answer, KafkaError):
            raise self._answer
        return [each for each in self._answer if acl_filter.matches(each)]

    def rules(self) -> Rules | None:
        return self._rules


@pytest.mark.parametrize(
    ("acls", "words"),
    [
        (FakeAcls([]), "ann may do nothing yet: `moldau acl allow ann"),
        (FakeAcls([ACL]), "ann may do what ACLs say"),
        (FakeAcls([ACL._replace(principal="User:*")]), "ann may do what ACLs say"),
        (FakeAcls([ACL._replace(principal="User:bob")]), "ann may do nothing yet"),
        (FakeAcls([], Rules(parse_super_users("User:admin;User:ann"))), "ann may do everything: super.users names it"),
        (FakeAcls([], Rules(allows_everyone=True)), "ann may do everything that no ACL is about"),
        (FakeAcls(KafkaError(ErrorCode.SECURITY_DISABLED)), "ann may do everything, like everybody who can connect"),
    ],
)
def test_the_rights_of_a_new_user_are_printed(acls: FakeAcls, words: str) -> None:
    rights = rights_of("ann", acls)  # type: ignore[arg-type]
    assert rights is not None
    assert worded(rights.note("ann")).startswith(words)


def test_unknown_rights_are_not_printed() -> None:
    assert rights_of("ann", FakeAcls(KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))) is None  # type: ignore[arg-type]
    assert Rights(has_authorizer=False).note("ann").text


def test_an_unwritable_save_file_is_refused_before_connecting(tmp_path: Path) -> None:
    for words in (["user", "add", "ann"], ["user", "password", "ann"]):
        # Connections to this port are refused; the path is checked before.
        place = ["--save", str(tmp_path / "none" / "ann.properties"), "-b", "127.0.0.1:1"]
        result = CliRunner().invoke(main, [*words, *place])
        assert result.exit_code == 1
        assert "ann.properties: no such file or directory; nothing was changed" in result.stderr


def test_the_check_of_a_save_file_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    check_can_write_private(tmp_path / "a")
    check_can_write_private(tmp_path / "b")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_text() == "old"
    with pytest.raises(IsADirectoryError):
        check_can_write_private(tmp_path)
