"""What a broker tells of the rules that decide besides ACLs. Apache Kafka hides super.users: it is not the broker's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from moldau.base.errors import ErrorCode
from moldau.client.admin.acls import Acls
from moldau.client.admin.cluster_admin import ClusterAdmin
from moldau.security.acls.authorizer import Rules
from moldau.security.principals import Principal
from moldau.wire.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)

ADMIN = frozenset([Principal("User", "admin")])


class OneBroker:
    cluster = SimpleNamespace(nodes=lambda: {1: ("localhost", 9092)})

    def __init__(self, result: DescribeConfigsResult) -> None:
        self._result = result

    def ask(self, *_: Any, **__: Any) -> DescribeConfigsResponse:
        return DescribeConfigsResponse(results=[self._result])


def config(name: str, value: str | None, is_sensitive: bool = False) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(name=name, value=value, is_sensitive=is_sensitive)


EVERYONE = "allow.everyone.if.no.acl.found"


@pytest.mark.parametrize(
    ("result", "rules"),
    [
        (DescribeConfigsResult(configs=[config("super.users", "User:admin")]), Rules(ADMIN)),
        (
            DescribeConfigsResult(configs=[config("super.users", None), config(EVERYONE, "TRUE")]),
            Rules(frozenset(), True),
        ),
        (DescribeConfigsResult(configs=[]), Rules(frozenset())),
        (DescribeConfigsResult(configs=[config("super.users", None, is_sensitive=True)]), None),
        (DescribeConfigsResult(configs=[config(EVERYONE, None, is_sensitive=True)]), None),
        (DescribeConfigsResult(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, configs=[]), None),
    ],
)
def test_rules_that_a_broker_hides_are_unknown_and_not_empty(
    result: DescribeConfigsResult, rules: Rules | None
) -> None:
    assert Acls(cast(ClusterAdmin, OneBroker(result))).rules() == rules
