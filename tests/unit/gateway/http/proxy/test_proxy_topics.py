"""v2's calls about topics and records, over HTTP before a cluster in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from harness.gateway_accounts import MemoryAccounts, MemoryCluster
from harness.gateway_http import RunningGateway, http_gateway
from harness.rest_proxy import JSON, V2, V2_BINARY, V2_JSON, RestClient

from moldau.base.errors import ErrorCode

Records = list[tuple[bytes | None, bytes | None, int]]


@pytest.fixture(scope="module")
def shared() -> MemoryCluster:
    return MemoryCluster()


@pytest.fixture(scope="module")
def gateway(shared: MemoryCluster) -> Iterator[RunningGateway]:
    with http_gateway(lambda: MemoryAccounts(shared, "nobody")) as running:
        yield running


@pytest.fixture
def cluster(shared: MemoryCluster) -> MemoryCluster:
    """The cluster with new topics."""
    shared.create_topic("telemetry", 2)
    shared.create_topic("logs")
    return shared


@pytest.fixture
def client(gateway: RunningGateway, cluster: MemoryCluster) -> Iterator[RestClient]:
    with RestClient(gateway.port) as client:
        yield client


def records(cluster: MemoryCluster, topic: str = "telemetry") -> Records:
    return [(each.key, each.value, each.partition) for each in cluster.topics[topic].records()]


PARTITION_0 = {"partition": 0, "leader": 1, "replicas": [{"broker": 1, "leader": True, "in_sync": True}]}


def test_topics_partitions_and_brokers_are_described(client: RestClient) -> None:
    names = client.get("/topics", accept=V2)
    assert (names.status, names.json, names.headers["content-type"]) == (200, ["logs", "telemetry"], V2)
    assert client.get("/topics/").json == ["logs", "telemetry"]
    assert client.get("/topics/logs").json == {
        "name": "logs",
        "configs": {"cleanup.policy": "delete"},
        "partitions": [PARTITION_0],
    }
    assert [each["partition"] for each in client.get("/topics/telemetry/partitions").json] == [0, 1]
    assert client.get("/topics/telemetry/partitions/0").json == PARTITION_0
    assert client.get("/brokers").json == {"brokers": [1]}


def test_offsets_are_those_of_the_partition(client: RestClient, cluster: MemoryCluster) -> None:
    client.post("/topics/logs", {"records": [{"value": each} for each in range(3)]}, V2_JSON)
    cluster.delete_before("logs", 0, 1)
    assert client.get("/topics/logs/partitions/0/offsets").json == {"beginning_offset": 1, "end_offset": 3}


def test_records_are_appended_as_json_and_as_bytes(client: RestClient, cluster: MemoryCluster) -> None:
    sent = (
        b'{"records": [{"key": "a", "value": {"t": 21.50}, "partition": 1}, {"value": null, "key": 1, "partition": 0}]}'
    )
    answer = client.post("/topics/telemetry", sent, V2_JSON + "; charset=utf-8")
    assert (answer.status, answer.headers["content-type"]) == (200, V2)
    assert answer.json == {
        "offsets": [
            {"partition": 1, "offset": 0, "error_code": None, "error": None},
            {"partition": 0, "offset": 0, "error_code": None, "error": None},
        ],
        "key_schema_id": None,
        "value_schema_id": None,
    }
    assert records(cluster) == [(b"1", None, 0), (b'"a"', b'{"t": 21.50}', 1)]
    answer = client.post("/topics/logs/partitions/0", {"records": [{"key": "a2V5", "value": "AAH/"}, {}]}, V2_BINARY)
    assert [each["offset"] for each in answer.json["offsets"]] == [0, 1]
    assert records(cluster, "logs") == [(b"key", b"\0\1\xff", 0), (None, None, 0)]


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/topics/missing", 404, 40401),
        ("/topics/missing/partitions", 404, 40401),
        ("/topics/missing/partitions/0", 404, 40401),
        ("/topics/telemetry/partitions/2", 404, 40402),
        ("/topics/telemetry/partitions/-1", 404, 40402),
        ("/topics/telemetry/partitions/99999999999", 404, 40402),
        ("/topics/telemetry/partitions/one", 404, 404),
        ("/topics/telemetry/partitions/2/offsets", 404, 40402),
        ("/topics/" + "x" * 2_000, 400, 400),
        ("/topics/a%00b", 400, 400),
        ("/brokers/1", 404, 404),
        ("/consumers", 404, 404),
    ],
)
def test_what_is_not_there_has_the_codes_of_the_proxy(client: RestClient, path: str, status: int, code: int) -> None:
    answer = client.get(path)
    assert (answer.status, answer.json["error_code"]) == (status, code)
    assert answer.json["message"]
    assert answer.headers["content-type"] == V2


@pytest.mark.parametrize(
    ("content_type", "body", "status", "code"),
    [
        (V2_JSON, b"", 400, 400),
        (V2_JSON, b"{", 400, 400),
        (V2_JSON, b'{"records": [{"value": 1}]} x', 400, 400),
        (V2_JSON, b'{"records": [{"value": "\xff"}]}', 400, 400),
        (V2_JSON, b"[" * 100_000, 422, 422),
        (V2_JSON, b'{"records": [{"value": ' + b"[" * 5_000, 400, 400),
        (V2_JSON, {}, 422, 422),
        (V2_JSON, {"records": []}, 422, 422),
        (V2_JSON, {"records": 1}, 422, 422),
        (V2_JSON, {"records": [{"value": 1, "headers": []}]}, 422, 422),
        (V2_JSON, {"records": [{"value": 1, "partition": -1}]}, 422, 422),
        (V2_JSON, {"records": [{"value": 1, "partition": 1 << 40}]}, 422, 422),
        (V2_BINARY, {"records": [{"value": "not base64"}]}, 422, 422),
        (V2_BINARY, {"records": [{"value": {"a": 1}}]}, 422, 422),
        (V2, {"records": [{"value": 1}]}, 415, 415),
        ("application/vnd.kafka.json.v1+json", {"records": [{"value": 1}]}, 415, 415),
        ("application/vnd.kafka.avro.v2+json", {"records": [{"value": 1}]}, 422, 42206),
        ("application/vnd.kafka.jsonschema.v2+json", {"records": [{"value": 1}]}, 422, 42206),
        ("application/vnd.kafka.protobuf.v2+json", {"records": [{"value": 1}]}, 422, 42206),
    ],
)
def test_bad_records_are_refused(
    client: RestClient, cluster: MemoryCluster, content_type: str, body: Any, status: int, code: int
) -> None:
    for path in ("/topics/telemetry", "/topics/telemetry/partitions/0"):
        answer = client.post(path, body, content_type)
        assert (answer.status, answer.json["error_code"]) == (status, code), answer
    assert records(cluster) == []


def test_a_partition_of_records_needs_a_type_of_the_proxy(client: RestClient) -> None:
    assert client.post("/topics/telemetry/partitions/0", {"records": [{"value": 1}]}, JSON).json["error_code"] == 415
    assert client.post("/topics/missing", {"records": [{"value": 1}]}, V2_JSON).json["error_code"] == 40401
    assert client.post("/topics/logs/partitions/1", {"records": [{"value": 1}]}, V2_JSON).json["error_code"] == 40402


def test_the_gateways_own_calls_are_left_to_it(client: RestClient, cluster: MemoryCluster) -> None:
    assert client.post("/topics/logs", {"records": []}, JSON).json == {"offsets": [{"partition": 0, "offset": 0}]}
    assert client.get("/topics/logs", accept="text/event-stream").status == 404
    assert client.ask("PUT", "/topics/logs").status == 404
    assert client.ask("PUT", "/brokers").json["error_code"] == 405


def test_a_large_body_is_refused_and_ends_the_connection(gateway: RunningGateway) -> None:
    head = b"POST /topics/telemetry HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/vnd.kafka.json.v2+json\r\n"
    with gateway.connect() as connection:
        connection.sendall(head + b"Content-Length: 100000000\r\n\r\n{")
        received = connection.makefile("rb").read()
    assert received.startswith(b"HTTP/1.1 413")
    assert json.loads(received.partition(b"\r\n\r\n")[2])["error_code"] == 413


def test_many_records_are_appended_in_order(client: RestClient, cluster: MemoryCluster) -> None:
    answer = client.post("/topics/logs", {"records": [{"value": each} for each in range(20_000)]}, V2_JSON)
    assert [each["offset"] for each in answer.json["offsets"]] == list(range(20_000))
    assert cluster.topics["logs"].records()[-1].value == b"19999"
    answer = client.post("/topics/logs", {"records": [{}] * 50_001}, V2_JSON)
    assert (answer.status, answer.json["error_code"]) == (413, 413)


def test_a_part_of_many_records_may_be_refused(client: RestClient, cluster: MemoryCluster) -> None:
    cluster.fail_append("logs", ErrorCode.NOT_ENOUGH_REPLICAS)
    body = {"records": [{"value": each} for each in range(600)]}
    answer = client.post("/topics/logs", body, V2_JSON)
    assert answer.status == 200
    assert [each["error_code"] for each in answer.json["offsets"]] == [50003] * 250 + [None] * 350
    cluster.fail_append("logs", ErrorCode.NOT_ENOUGH_REPLICAS, 3)
    answer = client.post("/topics/logs", body, V2_JSON)
    assert (answer.status, answer.json["error_code"]) == (500, 50003)


def test_each_user_has_the_own_rights(gateway: RunningGateway, cluster: MemoryCluster) -> None:
    cluster.passwords["anna"] = "secret"
    cluster.allow("anna", read=["telemetry"])
    body = {"records": [{"value": 1}]}
    with RestClient(gateway.port, "anna", "secret") as anna, RestClient(gateway.port, "anna", "wrong") as stranger:
        answer = anna.post("/topics/telemetry", body, V2_JSON)
        assert (answer.status, answer.json["error_code"]) == (403, 40301)
        answer = stranger.post("/topics/telemetry", body, V2_JSON)
        assert (answer.status, answer.json["error_code"]) == (401, 40101)
        assert answer.headers["www-authenticate"].startswith("Basic")
        assert stranger.get("/topics").status == 401


@pytest.mark.parametrize(
    ("refusal", "status", "code"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, 200, 50003),
        (ErrorCode.INVALID_RECORD, 200, 50002),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 200, 40402),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, 403, 40301),
    ],
)
def test_a_record_that_is_refused_has_its_error(
    client: RestClient, cluster: MemoryCluster, refusal: ErrorCode, status: int, code: int
) -> None:
    cluster.refuse_records("logs", refusal)
    answer = client.post("/topics/logs", {"records": [{"value": 1}, {"value": 2}]}, V2_JSON)
    assert answer.status == status
    refused, appended = answer.json["offsets"]
    assert (refused["partition"], refused["offset"], refused["error_code"]) == (None, None, code)
    assert refused["error"]
    assert appended == {"partition": 0, "offset": 0, "error_code": None, "error": None}


def test_what_the_cluster_refuses_as_a_whole_is_told(client: RestClient, cluster: MemoryCluster) -> None:
    cluster.fail_append("logs", ErrorCode.NOT_ENOUGH_REPLICAS)
    answer = client.post("/topics/logs", {"records": [{"value": 1}]}, V2_JSON)
    assert (answer.status, answer.json["error_code"]) == (500, 50003)
