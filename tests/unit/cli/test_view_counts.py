"""`moldau view describe` and brokers that refuse to tell what they have evaluated."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from moldau.base.errors import ErrorCode
from moldau.cli.connect import CommandFailed
from moldau.cli.view import commands
from moldau.client import cluster_admin
from moldau.wire.messages.describe_configs import DescribeConfigsResponse, DescribeConfigsResult


def test_a_refusal_is_no_lack_of_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = DescribeConfigsResult(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Not allowed.", 2, "v", [])
    admin = SimpleNamespace(
        described=lambda: SimpleNamespace(nodes={4: None}), ask=lambda *_: DescribeConfigsResponse(results=[refused])
    )
    monkeypatch.setattr(commands, "answering_cluster", nullcontext)
    monkeypatch.setattr(cluster_admin, "ClusterAdmin", lambda *_: admin)
    broker: Any = None
    with pytest.raises(CommandFailed, match=r"v: broker 4 does not tell its counts: Not allowed$"):
        commands._counts(broker, "v")
