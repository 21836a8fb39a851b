"""The search for hanging transactions: what it answers if the cluster refuses a part of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.client.admin.transactions import Transactions
from moldau.client.cluster import Topic
from moldau.console.call import Call
from moldau.console.endpoints.transactions import hanging
from moldau.console.next_steps import API_ERRORS
from moldau.operations.failures import OperationFailed

ORDERS = TopicPartition("orders", 0)


class Access:
    @contextmanager
    def cluster(self) -> Iterator[Any]:
        topics = {"orders": Topic("orders", b"", {0: 1})}
        yield SimpleNamespace(topics=lambda: topics, topic=topics.__getitem__)


def status_of_search(topic: str) -> tuple[int, str]:
    unused: Any = None
    access: Any = Access()
    with pytest.raises(OperationFailed) as raised:
        hanging(Call(unused, access, query={"topic": topic}))
    answer = API_ERRORS.known(raised.value)
    assert answer is not None
    return answer.status, answer.code


def test_a_missing_right_is_answered_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    monkeypatch.setattr(Transactions, "producers", lambda *_: {ORDERS: refused})
    assert status_of_search("orders") == (403, "NOT_ALLOWED")


def test_a_topic_that_does_not_exist_is_not_a_conflict() -> None:
    assert status_of_search("nobody") == (404, "NOT_FOUND")
