"""`moldau view` with brokers that refuse to describe configs, or counts of evaluated records."""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from moldau.base.errors import ErrorCode
from moldau.base.view_configs import VIEW_FROM
from moldau.cli.connect import CommandFailed
from moldau.cli.view import commands
from moldau.cli.view.views import readable_views, view_configs
from moldau.client import cluster_admin
from moldau.client.confluent import KafkaError, KafkaException
from moldau.wire.messages.describe_configs import DescribeConfigsResponse, DescribeConfigsResult


def test_a_broker_that_refuses_to_describe_counts_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = DescribeConfigsResult(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Not allowed.", 2, "v", [])
    admin = SimpleNamespace(
        described=lambda: SimpleNamespace(nodes={4: None}), ask=lambda *_: DescribeConfigsResponse(results=[refused])
    )
    monkeypatch.setattr(commands, "answering_cluster", nullcontext)
    monkeypatch.setattr(cluster_admin, "ClusterAdmin", lambda *_: admin)
    broker: Any = None
    with pytest.raises(CommandFailed, match=r"v: broker 4 does not return its counts: Not allowed$"):
        commands._counts(broker, "v")


class Topics:
    """A broker whose topics are views, except one whose configs it refuses to describe."""

    def __init__(self, refused: str, code: int) -> None:
        self._refused, self._code = refused, code
        self.admin = self

    def describe_configs(self, resources: list[Any]) -> dict[Any, Any]:
        futures: dict[Any, Any] = {}
        for resource in resources:
            futures[resource] = future = Future[Any]()
            if resource.name == self._refused:
                future.set_exception(KafkaException(KafkaError(self._code, "no")))
            else:
                future.set_result({VIEW_FROM: SimpleNamespace(name=VIEW_FROM, value="orders")})
        return futures


@pytest.mark.parametrize("code", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
def test_other_views_are_listed_if_configs_of_a_topic_cannot_be_read(code: ErrorCode) -> None:
    """A user may read a topic without the right to read its configs, and a topic may be deleted meanwhile."""
    broker: Any = Topics("secret", code)
    assert list(readable_views(broker, ["secret", "big"])) == ["big"]
    with pytest.raises(CommandFailed, match="secret: no"):
        view_configs(broker, ["secret", "big"])
