"""v3's calls about the cluster and its topics, over HTTP before a cluster in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from harness.gateway_accounts import MemoryAccounts, MemoryCluster
from harness.gateway_http import RunningGateway, http_gateway
from harness.memory_metadata import CLUSTER_ID
from harness.rest_proxy import JSON, V2, RestClient

TOPICS = f"/v3/clusters/{CLUSTER_ID}/topics"


@pytest.fixture(scope="module")
def shared() -> MemoryCluster:
    return MemoryCluster()


@pytest.fixture(scope="module")
def gateway(shared: MemoryCluster) -> Iterator[RunningGateway]:
    with http_gateway(lambda: MemoryAccounts(shared, "nobody")) as running:
        yield running


@pytest.fixture
def cluster(shared: MemoryCluster) -> MemoryCluster:
    shared.topics.clear()
    shared.create_topic("telemetry", 2)
    return shared


@pytest.fixture
def client(gateway: RunningGateway, cluster: MemoryCluster) -> Iterator[RestClient]:
    with RestClient(gateway.port) as client:
        yield client


def test_clusters_topics_and_partitions_are_described(gateway: RunningGateway, client: RestClient) -> None:
    base = f"http://localhost:{gateway.port}"
    clusters = client.get("/v3/clusters")
    assert clusters.headers["content-type"] == JSON
    assert (clusters.json["kind"], clusters.json["metadata"]["self"]) == ("KafkaClusterList", f"{base}/v3/clusters")
    assert clusters.json["data"] == [client.get(f"/v3/clusters/{CLUSTER_ID}").json]
    (cluster,) = clusters.json["data"]
    assert cluster["cluster_id"] == CLUSTER_ID
    assert cluster["topics"] == {"related": base + TOPICS}
    topic = client.get(f"{TOPICS}/telemetry").json
    assert client.get(TOPICS).json["data"] == [topic]
    assert topic == {
        "kind": "KafkaTopic",
        "metadata": {
            "self": f"{base}{TOPICS}/telemetry",
            "resource_name": f"crn:///kafka={CLUSTER_ID}/topic=telemetry",
        },
        "cluster_id": CLUSTER_ID,
        "topic_name": "telemetry",
        "is_internal": False,
        "replication_factor": 1,
        "partitions_count": 2,
        "partitions": {"related": f"{base}{TOPICS}/telemetry/partitions"},
        "configs": {"related": f"{base}{TOPICS}/telemetry/configs"},
        "partition_reassignments": {"related": f"{base}{TOPICS}/telemetry/partitions/-/reassignment"},
        "authorized_operations": [],
    }
    partitions = client.get(f"{TOPICS}/telemetry/partitions").json
    assert (partitions["kind"], len(partitions["data"])) == ("KafkaPartitionList", 2)
    assert partitions["data"][1] == client.get(f"{TOPICS}/telemetry/partitions/1").json
    assert partitions["data"][1]["metadata"]["resource_name"].endswith("/topic=telemetry/partition=1")
    assert partitions["data"][1]["leader"]["related"].endswith("/partitions/1/replicas/1")


def test_topics_are_created_and_deleted(client: RestClient, cluster: MemoryCluster) -> None:
    configs = [{"name": "cleanup.policy", "value": "compact"}]
    checked = client.post(TOPICS, {"topic_name": "new", "validate_only": True}, JSON)
    assert (checked.status, "new" in cluster.topics) == (200, False)
    created = client.post(TOPICS, {"topic_name": "new", "partitions_count": 3, "configs": configs}, JSON)
    assert (created.status, created.json["partitions_count"], created.json["topic_name"]) == (201, 3, "new")
    assert created.headers["location"].endswith(f"{TOPICS}/new")
    assert len(cluster.topics["new"].partitions) == 3
    assert client.delete(f"{TOPICS}/new").status == 204
    assert "new" not in cluster.topics
    assigned = client.post(TOPICS, {"topic_name": "new", "replicas_assignments": {"1": [1], "0": [1]}}, JSON)
    assert (assigned.status, assigned.json["partitions_count"]) == (201, 2)


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "/v3/clusters/other", None, 404, 404),
        ("GET", "/v3/clusters/other/topics", None, 404, 404),
        ("GET", f"{TOPICS}/missing", None, 404, 40403),
        ("GET", f"{TOPICS}/missing/partitions", None, 404, 40403),
        ("GET", f"{TOPICS}/telemetry/partitions/2", None, 404, 404),
        ("GET", f"{TOPICS}/telemetry/configs", None, 404, 404),
        ("DELETE", f"{TOPICS}/missing", None, 404, 40403),
        ("PATCH", f"{TOPICS}/telemetry", None, 405, 405),
        ("POST", TOPICS, b"", 422, 42206),
        ("POST", TOPICS, b"{", 400, 400),
        ("POST", TOPICS, {}, 422, 422),
        ("POST", TOPICS, {"topic_name": "telemetry"}, 400, 40002),
        ("POST", TOPICS, {"topic_name": "new", "partitions_count": 0}, 422, 422),
        ("POST", TOPICS, {"topic_name": "new", "replication_factor": 1 << 20}, 422, 422),
        ("POST", TOPICS, {"topic_name": "new", "replicas_assignments": {"1": [1]}}, 422, 422),
        ("POST", TOPICS, {"topic_name": "new", "surprise": 1}, 422, 422),
    ],
)
def test_bad_calls_are_refused(
    client: RestClient, cluster: MemoryCluster, method: str, path: str, body: Any, status: int, code: int
) -> None:
    answer = client.ask(method, path, body, JSON)
    assert (answer.status, answer.json["error_code"]) == (status, code), answer
    assert list(cluster.topics) == ["telemetry"]


def test_a_topic_is_created_with_json_only(client: RestClient, cluster: MemoryCluster) -> None:
    assert client.post(TOPICS, {"topic_name": "new"}, V2).json["error_code"] == 415
