"""Limits of exports, replays that fail midway, and values out of range, against a running broker."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from console_server import Page, console

from moldau.base.errors import ErrorCode, KafkaError
from moldau.console.endpoints import records, tails

CreateTopic = Callable[..., str]


@pytest.fixture(scope="module")
def page(bootstrap: str) -> Iterator[Page]:
    with console(bootstrap) as begun:
        yield begun


@pytest.fixture(scope="module")
def ten_records(page: Page, create_topic: CreateTopic) -> str:
    """A topic with ten records."""
    name = create_topic(partitions=2)
    for number in range(10):
        body = {"value": str(number), "partition": number % 2}
        assert page.post(f"/api/topics/{name}/records", body).status == 201
    return name


def test_an_incomplete_export_ends_with_the_reason(
    page: Page, ten_records: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = page.get(f"/api/topics/{ten_records}/export?limit=10").body.splitlines()
    assert len(lines) == 10
    *some, last = page.get(f"/api/topics/{ten_records}/export?limit=4").body.splitlines()
    assert len(some) == 4
    assert "the limit of 4 records is reached" in json.loads(last)["stopped"]["message"]
    *_, last = page.get(f"/api/topics/{ten_records}/export?limit=4&format=csv").body.splitlines()
    assert last.startswith(b"stopped: the limit of 4 records")
    monkeypatch.setattr(tails, "EXPORT_SECONDS_MAX", 0.0)
    (last,) = page.get(f"/api/topics/{ten_records}/export").body.splitlines()
    assert "it took 0 seconds, which is the most for one export" in json.loads(last)["stopped"]["message"]


def test_a_replay_that_fails_midway_reports_the_number_of_copied_records(
    page: Page, ten_records: str, create_topic: CreateTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = create_topic(partitions=2)
    write = records.write

    def write_only_to_partition_0(cluster: Any, topic: str, partition: int, *rest: Any) -> int | None:
        if partition == 1:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        return write(cluster, topic, partition, *rest)

    monkeypatch.setattr(records, "write", write_only_to_partition_0)
    body = {"to": target, "keep_partition": True, "dry_run": False}
    failed = page.post(f"/api/topics/{ten_records}/replay", body)
    assert (failed.status, failed.code) == (503, "NOT_ENOUGH_REPLICAS")
    assert failed.message.endswith("; 5 records were copied before")
    assert failed.data["error"]["copied"] == 5
    nothing = page.post(f"/api/topics/{ten_records}/replay", {**body, "partition": 1})
    assert "copied" not in nothing.data["error"]
    assert nothing.code == "NOT_ENOUGH_REPLICAS"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/api/topics/{topic}/records", {"value": "x", "timestamp_ms": 2**63}),
        ("POST", "/api/topics/{topic}/records", {"value": "x", "timestamp_ms": -(2**80)}),
        ("POST", "/api/topics/{topic}/records", {"value": "x", "timestamp_ms": -1}),
        ("POST", "/api/topics/{topic}/records", {"value": "x", "partition": 2**40}),
        ("POST", "/api/topics/{topic}/records", {"value": "\ud800"}),
        ("POST", "/api/topics/{topic}/records", {"value": "x", "headers": {"\ud800": "x"}}),
        ("POST", "/api/topics/{topic}/replay", {"to": "{topic}", "partition": 2**40}),
        ("PATCH", "/api/topics/{topic}", {"partitions": 2**31}),
        ("PATCH", "/api/topics/{topic}", {"partitions": -(2**40)}),
        ("POST", "/api/topics", {"name": "many", "partitions": 2**70}),
        ("POST", "/api/topics/{topic}/trim", {"before": "0", "partitions": ["0"], "confirm": "{topic}"}),
        ("POST", "/api/topics/{topic}/trim", {"before": "0", "partitions": [2**40], "confirm": "{topic}"}),
        ("POST", "/api/topics/{topic}/trim", {"before": "@99999999999999999999", "confirm": "{topic}"}),
        ("POST", "/api/groups/g/reset", {"offsets": {"{topic}:99999999999": 1}, "new": True}),
        ("POST", "/api/groups/g/reset", {"to": "@99999999999999999999", "topics": ["{topic}"], "new": True}),
        ("POST", "/api/cluster/reassign", {"topics": ["{topic}"], "brokers": [1], "replication_factor": 2**40}),
        ("POST", "/api/cluster/reassign", {"topics": ["{topic}"], "brokers": [1], "replication_factor": -1}),
        ("POST", "/api/cluster/reassign", {"topics": ["{topic}"], "brokers": [2**40]}),
        (
            "POST",
            "/api/cluster/reassign",
            {"plan": [{"topic": "{topic}", "partition": 2**40, "to": [1]}], "execute": True},
        ),
        (
            "POST",
            "/api/cluster/reassign",
            {"plan": [{"topic": "{topic}", "partition": 0, "to": [2**40]}], "execute": True},
        ),
        ("POST", "/api/learn/topic", {"partitions": 4, "replication_factor": 2**40}),
        ("POST", "/api/learn/produce", {"count": 2**70}),
        ("POST", "/api/learn/produce", {"count": 1, "keys": ["\ud800"]}),
        ("POST", "/api/topics", {"name": "\ud800"}),
        ("POST", "/api/topics", {"name": "many", "configs": {"retention.ms": "\ud800"}}),
        ("POST", "/api/topics", {"name": "many", "configs": {"\ud800": "1"}}),
        ("PATCH", "/api/topics/{topic}", {"set": {"retention.ms": "\ud800"}}),
        ("PATCH", "/api/topics/{topic}", {"unset": ["\ud800"]}),
        ("POST", "/api/topics/{topic}/replay", {"to": "\ud800"}),
        ("POST", "/api/topics/{topic}/replay", {"to": "{topic}", "where": 'key == "\ud800"'}),
        ("POST", "/api/where", {"where": 'key == "\ud800"'}),
        ("POST", "/api/groups/g/reset", {"to": "\ud800", "new": True}),
        ("POST", "/api/groups/g/reset", {"to": "latest", "topics": ["\ud800"], "new": True}),
        ("POST", "/api/groups/g/reset", {"offsets": {"\ud800:0": 1}, "new": True}),
        ("POST", "/api/cluster/reassign", {"topics": ["\ud800"], "brokers": [1]}),
        ("POST", "/api/cluster/elect", {"topic": "\ud800"}),
        ("POST", "/api/cluster/reassign/cancel", {"topics": ["\ud800"]}),
        ("POST", "/api/transactions/abort", {"transactional_id": "\ud800"}),
        ("POST", "/api/transactions/abort", {"topic": "\ud800", "partition": 0, "start": 0}),
        ("POST", "/api/transactions/abort", {"topic": "{topic}", "partition": 2**40, "start": 0}),
        ("POST", "/api/transactions/abort", {"topic": "{topic}", "partition": 0, "start": 2**70}),
        ("POST", "/api/groups/g/offsets/delete", {"topic": "\ud800", "confirm": "g"}),
    ],
)
def test_out_of_range_numbers_and_lone_surrogates_are_refused(
    page: Page, ten_records: str, method: str, path: str, body: Any
) -> None:
    sent = json.loads(json.dumps(body).replace("{topic}", ten_records))
    answer = page.request(method, path.replace("{topic}", ten_records), sent, {})
    assert 400 <= answer.status < 500, (answer.status, answer.body)


def test_a_replay_cannot_choose_uncommitted_records(page: Page, ten_records: str) -> None:
    body = {"to": ten_records}
    assert page.post(f"/api/topics/{ten_records}/replay", body).status == 200
    refused = page.post(f"/api/topics/{ten_records}/replay", {**body, "committed": False})
    assert refused.status == 400
    assert refused.message.startswith("unknown field 'committed'")
