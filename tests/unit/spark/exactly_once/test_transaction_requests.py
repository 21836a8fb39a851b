"""The sink's requests where a coordinator answers with an error."""

from __future__ import annotations

from typing import Any

import pytest

from moldau.base.errors import ErrorCode, KafkaError
from moldau.client.cluster import Cluster
from moldau.spark.exactly_once import wire
from moldau.spark.exactly_once.wire import KafkaTransactionRequests
from moldau.spark.options import write_options
from moldau.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse


class RefusingCluster(Cluster):
    """A cluster of one broker, which answers FindCoordinator with an error and no node."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__("localhost:9092", {})
        self._code = code
        self.lookups = 0

    def nodes(self) -> dict[int, tuple[str, int]]:
        return {1: ("localhost", 9092)}

    def ask_any(self, *arguments: Any) -> Any:
        self.lookups += 1
        return FindCoordinatorResponse(coordinators=[Coordinator("sink", -1, "", -1, self._code, None)])


def requests_to(cluster: Cluster) -> KafkaTransactionRequests:
    options = write_options({"kafka.bootstrap.servers": "localhost:9092", "kafka.max.block.ms": "300"}, is_stream=True)
    return KafkaTransactionRequests(cluster, options, "sink", 60_000)


def test_an_authorization_failure_of_the_transactional_id_is_not_retried() -> None:
    cluster = RefusingCluster(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaError) as raised:
        requests_to(cluster).init_producer()
    assert raised.value.code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert cluster.lookups == 1


def test_an_unavailable_coordinator_is_looked_up_again() -> None:
    cluster = RefusingCluster(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    with pytest.raises(KafkaError) as raised:
        requests_to(cluster).last_micro_batch_id()
    assert raised.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert cluster.lookups > 1


class RefusingSending:
    """Sends nothing: the leader refuses it."""

    code = ErrorCode.MESSAGE_TOO_LARGE

    def __init__(self, *arguments: Any) -> None:
        pass

    def send(self, batches: Any) -> None:
        raise KafkaError(self.code, f"t-0: {self.code.name}")

    def abandon(self) -> None:
        pass


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (ErrorCode.MESSAGE_TOO_LARGE, "t-0: MESSAGE_TOO_LARGE"),
        (
            ErrorCode.INVALID_PRODUCER_EPOCH,
            "sink: another run of this query has taken over, or the transaction timed out: INVALID_PRODUCER_EPOCH",
        ),
    ],
)
def test_an_error_of_the_leader_is_reported_once(
    monkeypatch: pytest.MonkeyPatch, code: ErrorCode, message: str
) -> None:
    monkeypatch.setattr(RefusingSending, "code", code)
    monkeypatch.setattr(wire, "Sending", RefusingSending)
    with pytest.raises(KafkaError) as raised:
        requests_to(RefusingCluster(ErrorCode.NONE)).write(iter(()))
    assert str(raised.value) == message
