"""The helpers in transactional_libraries.py: a writer or input that cannot start leaves no thread or client behind."""

from __future__ import annotations

import socket
import threading
from typing import Any

import pytest
import transactional_libraries
from aiokafka.errors import KafkaConnectionError
from transactional_libraries import AioKafkaInput, AioKafkaWriter, ConfluentWriter, KafkaPythonWriter

pytestmark = pytest.mark.moldau_only


@pytest.fixture(scope="module", autouse=True)
def broker_answers() -> None:
    """These tests use no broker."""


@pytest.fixture
def closed_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("client", [AioKafkaWriter, lambda bootstrap, name: AioKafkaInput(bootstrap, name, "topic")])
def test_an_aiokafka_client_that_cannot_start_ends_its_thread(client: Any, closed_port: str) -> None:
    before = threading.enumerate()
    with pytest.raises(KafkaConnectionError):
        client(closed_port, "name")
    assert [thread for thread in threading.enumerate() if thread not in before] == []


def test_a_kafka_python_producer_that_cannot_start_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    class StuckProducer:
        def __init__(self, **_: Any) -> None:
            pass

        def init_transactions(self) -> None:
            raise ValueError("of the test")

        def close(self, timeout: float) -> None:
            calls.append("close")

    monkeypatch.setattr(transactional_libraries.kafka, "KafkaProducer", StuckProducer)
    with pytest.raises(ValueError, match="of the test"):
        KafkaPythonWriter("localhost:9092", "id")
    assert calls == ["close"]


def test_the_consumer_for_sending_offsets_is_closed_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    class StubClient:
        def __init__(self, _: dict[str, Any]) -> None:
            pass

        def init_transactions(self, timeout: float) -> None:
            pass

        def consumer_group_metadata(self) -> None:
            pass

        def send_offsets_to_transaction(self, *_: Any) -> None:
            raise ValueError("of the test")

        def close(self) -> None:
            calls.append("close")

    monkeypatch.setattr(transactional_libraries, "Producer", StubClient)
    monkeypatch.setattr(transactional_libraries, "Consumer", StubClient)
    with pytest.raises(ValueError, match="of the test"):
        ConfluentWriter("localhost:9092", "id").send_offsets({}, "group")
    assert calls == ["close"]
