"""The console and a cluster of three: a killed broker, elections, reassignment, and the exercises of the page Learn."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner
from console_server import Page, console, faults
from harness.patience import wait_until

from moldau.cli.main import main
from moldau.testing import TestCluster, cluster

pytestmark = pytest.mark.moldau_only


@pytest.fixture(scope="module", autouse=True)
def broker_answers() -> None:
    """These tests do not use the shared broker of this directory."""


@pytest.fixture(scope="module")
def kafka() -> Iterator[TestCluster]:
    with cluster() as running:
        yield running


@pytest.fixture(scope="module")
def page(kafka: TestCluster) -> Iterator[Page]:
    with console(kafka.bootstrap_servers) as begun:
        yield begun


def tool(kafka: TestCluster, *words: str) -> Any:
    result = CliRunner(env={"MOLDAU_BOOTSTRAP": kafka.bootstrap_servers}).invoke(main, [*words, "--format", "json"])
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def await_cluster(page: Page, what: str, condition: Any, topic: str = "") -> dict[str, Any]:
    """Wait for an event of the live stream that fulfils the condition."""
    with page.stream(f"/api/live/cluster?topic={topic}" if topic else "/api/live/cluster") as events:
        for kind, data in events:
            assert kind == "cluster", data
            if condition(data):
                return dict(data)
    raise AssertionError(what)


def test_a_reassignment_is_planned_shown_and_done(page: Page, kafka: TestCluster) -> None:
    page.post("/api/topics", {"name": "moved", "partitions": 2, "replication_factor": 1})
    asked = {"topics": ["moved"], "brokers": [1, 2, 3], "replication_factor": 3}
    proposed = page.post("/api/cluster/reassign", asked).data
    assert proposed["executed"] is False
    assert {len(row["to"]) for row in proposed["plan"]} == {3}
    assert len(page.get("/api/cluster?topic=moved").data["partitions"][0]["replicas"]) == 1, "nothing was changed"
    done = page.post("/api/cluster/reassign", {"plan": proposed["plan"], "execute": True}).data
    assert done["executed"] is True
    data = await_cluster(
        page, "all replicas are in sync", lambda data: all(len(row["isr"]) == 3 for row in data["partitions"]), "moved"
    )
    assert {tuple(row["replicas"]) for row in data["partitions"]} == {tuple(row["to"]) for row in proposed["plan"]}
    assert page.post("/api/cluster/reassign", {"topics": ["moved"], "brokers": [9]}).status == 400
    assert page.post("/api/cluster/reassign", {"topics": ["gone"], "brokers": [1]}).status == 404
    assert page.post("/api/cluster/reassign", {"execute": True}).status == 400
    assert page.post("/api/cluster/reassign/cancel", {"topics": ["moved"]}).status == 404


def test_a_killed_leader_is_shown_as_down_and_elected_again(page: Page, kafka: TestCluster) -> None:
    page.post("/api/topics", {"name": "watched", "partitions": 1, "replication_factor": 3})
    kafka.wait_for_isr("watched", 0, {1, 2, 3})
    before = await_cluster(
        page, "all in sync", lambda data: len(data["partitions"][0]["isr"]) == 3, "watched"
    )["partitions"][0]  # fmt: skip
    leader = before["leader"]
    kafka.kill(leader)
    data = await_cluster(
        page, "another leads", lambda data: data["partitions"][0]["leader"] not in (leader, None), "watched"
    )
    (row,) = data["partitions"]
    assert f"not in sync: {leader}" in row["note"]

    def is_down() -> bool:
        brokers = {each["id"]: each["alive"] for each in page.get("/api/overview").data["brokers"]}
        return brokers[leader] is False

    wait_until(is_down, "the broker is shown as down", every_s=0.1)
    overview = page.get("/api/overview").data
    assert overview["problems"][0]["title"] == f"Broker {leader} is down"
    described = tool(kafka, "cluster", "describe", "--topic", "watched")
    assert [each["leader"] for each in described["partitions"]] == [row["leader"]]
    assert page.post("/api/topics/watched/records", {"value": "written meanwhile"}).status == 201

    kafka.restart(leader)
    kafka.wait_for_isr("watched", 0, {1, 2, 3})

    def elected() -> bool:
        answer = page.post("/api/cluster/elect", {"topic": "watched"})
        partitions = page.get("/api/cluster?topic=watched").data["partitions"]
        return answer.status == 200 and partitions[0]["leader"] == leader

    wait_until(elected, "the preferred leader leads again", every_s=0.2)

    wait_until(lambda: not faults(page.get("/api/overview").data), "no problem is shown", every_s=0.2)


def test_learn_produces_by_key_and_round_robin(page: Page) -> None:
    made = page.post("/api/learn/topic", {"partitions": 3, "replication_factor": 3}).data
    assert (made["exists"], len(made["partitions"])) == (True, 3)
    keyed = page.post("/api/learn/produce", {"count": 6, "keys": ["anna", "ben"], "acks": "all"}).data["results"]
    places = {each["key"]: {other["partition"] for other in keyed if other["key"] == each["key"]} for each in keyed}
    assert all(len(partitions) == 1 for partitions in places.values()), "a key has one partition"
    assert all(each["error"] is None for each in keyed)
    in_turn = page.post("/api/learn/produce", {"count": 3, "keys": None, "acks": "1"}).data["results"]
    assert sorted(each["partition"] for each in in_turn) == [0, 1, 2]
    unanswered = page.post("/api/learn/produce", {"count": 1, "acks": "0"}).data["results"]
    assert unanswered[0]["offset"] is None
    assert page.post("/api/learn/produce", {"count": 1000}).status == 400


def test_learn_with_consumers_of_a_group(page: Page) -> None:
    page.post("/api/learn/topic", {"partitions": 3, "replication_factor": 1})
    page.post("/api/learn/consumers", {"count": 2})

    def shared() -> bool:
        consumers = page.get("/api/learn").data["consumers"]
        return sorted(each for consumer in consumers for each in consumer["partitions"]) == [0, 1, 2]

    wait_until(shared, "two consumers share three partitions", every_s=0.1)
    with page.stream("/api/live/learn") as events:
        page.post("/api/learn/produce", {"count": 3, "keys": ["anna"]})
        received: list[dict[str, Any]] = []
        for kind, data in events:
            if kind == "record":
                received.append(data)
            if len(received) == 3:
                break
    assert {each["key"] for each in received} == {"anna"}
    assert len({each["consumer"] for each in received}) == 1
    assert page.post("/api/learn/consumers", {"count": 7}).status == 400
    gone = page.delete("/api/learn/topic").data
    assert (gone["exists"], gone["consumers"]) == (False, [])


def test_learn_compaction_before_and_after(page: Page) -> None:
    page.post("/api/learn/topic", {"partitions": 1, "replication_factor": 1})
    assert page.post("/api/learn/compact").status == 400
    page.post("/api/learn/topic", {"partitions": 1, "replication_factor": 1, "compacted": True})
    before = page.post("/api/learn/compact").data["before"]
    assert [each["key"] for each in before] == ["anna", "ben", "clara"] * 3

    def compacted() -> Any:
        return (page.get("/api/learn").data["compacted"] or {}).get("after")

    after = wait_until(compacted, "the log was compacted", every_s=0.3)
    assert len(after) < len(before)
    assert {each["key"]: each["value"] for each in after} == dict.fromkeys(("anna", "ben", "clara"), "version 3")
    page.delete("/api/learn/topic")
