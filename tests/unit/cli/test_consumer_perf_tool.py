"""kafka-consumer-perf-test: which settings reach its consumer; without a broker."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from moldau.cli.kafka import consumer_perf
from moldau.cli.kafka.connection import clients
from moldau.client.properties import for_librdkafka

WORDS = ["--bootstrap-server", "localhost:1", "--topic", "t", "--num-records", "1"]


class StubConsumer:
    def subscribe(self, topics: list[str]) -> None:
        pass


@pytest.fixture
def properties_file(tmp_path: Path) -> str:
    file = tmp_path / "client.properties"
    file.write_text(
        "group.id=of-the-file\nauto.offset.reset=earliest\nclient.id=mine\n"
        "max.partition.fetch.bytes=1\nreceive.buffer.bytes=2\n"
    )
    return str(file)


def settings(monkeypatch: pytest.MonkeyPatch, *words: str) -> dict[str, Any]:
    """Return the settings of the consumer that the tool creates."""
    created: dict[str, Any] = {}

    def create(servers: str, java_config: Mapping[str, str], tool_config: Mapping[str, Any]) -> StubConsumer:
        created.update(tool_config)
        created.update(for_librdkafka(java_config))
        return StubConsumer()

    monkeypatch.setattr(clients, "consumer", create)
    monkeypatch.setattr(clients, "cluster", lambda servers, java_config: None)
    monkeypatch.setattr(clients, "require_groups", lambda servers, java_config: None)
    consumer_perf._consumer(consumer_perf.FLAGS.parse([*WORDS, *words]), {})
    return created


def test_flags_override_the_file(monkeypatch: pytest.MonkeyPatch, properties_file: str) -> None:
    words = ["--group", "of-the-flag", "--from-latest", "--fetch-size", "3", "--socket-buffer-size", "4"]
    created = settings(monkeypatch, "--command-config", properties_file, *words)
    assert (created["group.id"], created["auto.offset.reset"], created["client.id"]) == (
        "of-the-flag",
        "latest",
        "mine",
    )
    assert (created["fetch.message.max.bytes"], created["socket.receive.buffer.bytes"]) == (3, 4)
    assert "max.partition.fetch.bytes" not in created


def test_without_a_flag_the_group_of_the_file_is_joined(monkeypatch: pytest.MonkeyPatch, properties_file: str) -> None:
    created = settings(monkeypatch, "--command-config", properties_file)
    assert (created["group.id"], created["auto.offset.reset"]) == ("of-the-file", "earliest")
    assert created["enable.auto.commit"] is True


def test_a_wrong_date_format_is_refused_before_anything_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert consumer_perf.main([*WORDS, "--date-format", "HH:bb"]) == 1
    assert capsys.readouterr().err.startswith("--date-format HH:bb: Illegal pattern character 'b'\n")
