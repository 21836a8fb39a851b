"""`moldau view` with brokers that refuse to describe configs, or counts of evaluated records."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from moldau.base.errors import ErrorCode
from moldau.base.view_configs import VIEW_FROM
from moldau.cli.connect import CommandFailed
from moldau.cli.view import commands
from moldau.cli.view.views import readable_views, view_configs
from moldau.wire.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)


def test_a_broker_that_refuses_to_describe_counts_is_reported() -> None:
    refused = DescribeConfigsResult(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Not allowed.", 2, "v", [])
    admin = SimpleNamespace(
        described=lambda: SimpleNamespace(nodes={4: None}),
        ask=lambda *_, **__: DescribeConfigsResponse(results=[refused]),
    )
    broker: Any = SimpleNamespace(admin=admin)
    with pytest.raises(CommandFailed, match=r"v: broker 4 does not return its counts: Not allowed$"):
        commands._counts(broker, "v")


class Topics:
    """A broker whose topics are views, except one whose configs it refuses to describe."""

    def __init__(self, refused: str, code: int) -> None:
        self._refused, self._code = refused, code
        self.admin = self

    def ask(self, key: Any, request: Any, response_type: Any) -> DescribeConfigsResponse:
        shown = [DescribeConfigsResourceResult(VIEW_FROM, "orders")]
        results = [
            DescribeConfigsResult(self._code, "no", 2, each.resource_name, [])
            if each.resource_name == self._refused
            else DescribeConfigsResult(0, None, 2, each.resource_name, shown)
            for each in request.resources
        ]
        return DescribeConfigsResponse(results=results)


@pytest.mark.parametrize("code", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
def test_other_views_are_listed_if_configs_of_a_topic_cannot_be_read(code: ErrorCode) -> None:
    """A user may read a topic without the right to read its configs, and a topic may be deleted meanwhile."""
    broker: Any = Topics("secret", code)
    assert list(readable_views(broker, ["secret", "big"])) == ["big"]
    with pytest.raises(CommandFailed, match="secret: no"):
        view_configs(broker, ["secret", "big"])
