"""The REST proxy's calls before a real broker, on real sockets, as its clients make them."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from harness.gateway_http import RunningGateway, http_gateway
from harness.patience import PATIENCE_S, wait_until
from harness.rest_proxy import JSON, V2, V2_BINARY, V2_JSON, RestClient
from harness.tokens import Issuer, provider
from test_oauth import MODULE, one_listener

from moldau.gateway.kafka.accounts import KafkaAccounts
from moldau.testing import TestBroker

CreateTopic = Callable[..., str]
CONFIG = {"format": "json", "auto.offset.reset": "earliest", "fetch.min.bytes": "1"}


@pytest.fixture(scope="module")
def gateway(bootstrap: str) -> Iterator[RunningGateway]:
    with http_gateway(lambda: KafkaAccounts(bootstrap, {}, anonymous=True)) as running:
        yield running


@pytest.fixture
def client(gateway: RunningGateway) -> Iterator[RestClient]:
    with RestClient(gateway.port) as client:
        yield client


def produce(client: RestClient, topic: str, *values: Any, partition: int = 0) -> None:
    answer = client.post(
        f"/topics/{topic}/partitions/{partition}", {"records": [{"value": each} for each in values]}, V2_JSON
    )
    assert answer.status == 200, answer


class Group:
    """A consumer of a group, on a connection of its own."""

    def __init__(self, gateway: RunningGateway, group: str, *login: str | None, **config: Any) -> None:
        """`login` is a user and a password; or none, an empty text and a token."""
        self.client = RestClient(gateway.port, *login)  # type: ignore[arg-type]
        made = self.client.post(f"/consumers/{group}", {**CONFIG, **config})
        assert made.status == 200, made
        self.uri = made.json["base_uri"]
        self.path = self.uri.partition(f":{gateway.port}")[2]

    def __enter__(self) -> Group:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.delete(self.path)
        self.client.__exit__()

    def post(self, call: str, body: Any = None) -> int:
        answer = self.client.post(self.path + call, body)
        assert answer.status < 300, answer
        return answer.status

    def get(self, call: str, body: Any = None, accept: str | None = None) -> Any:
        answer = self.client.get(self.path + call, accept, body)
        assert answer.status == 200, answer
        return answer.json

    def records(self, count: int, accept: str | None = None) -> list[Any]:
        """Ask until there are so many."""
        found: list[Any] = []
        wait_until(lambda: found.extend(self.get("/records", accept=accept)) or len(found) >= count, f"{count} records")
        return found


def test_a_client_of_v2_produces_and_consumes(gateway: RunningGateway, create_topic: CreateTopic) -> None:
    """As the proxy's documentation shows it, with requests."""
    url, topic = f"http://localhost:{gateway.port}", create_topic()
    types = {"Content-Type": V2_JSON, "Accept": V2}
    sent = requests.post(
        f"{url}/topics/{topic}", json={"records": [{"value": {"name": "a"}}]}, headers=types, timeout=PATIENCE_S
    )
    assert sent.json()["offsets"] == [{"partition": 0, "offset": 0, "error_code": None, "error": None}]
    config = {"name": "mine", **CONFIG}
    made = requests.post(
        f"{url}/consumers/docs", data=json.dumps(config), headers={"Content-Type": V2}, timeout=PATIENCE_S
    )
    assert made.json() == {"instance_id": "mine", "base_uri": f"{url}/consumers/docs/instances/mine"}
    uri = made.json()["base_uri"]
    subscribed = requests.post(
        f"{uri}/subscription", json={"topics": [topic]}, headers={"Content-Type": V2}, timeout=PATIENCE_S
    )
    assert (subscribed.status_code, subscribed.content) == (204, b"")
    found: list[Any] = []

    def read() -> list[Any]:
        answer = requests.get(f"{uri}/records", headers={"Accept": V2_JSON}, timeout=PATIENCE_S)
        assert answer.headers["content-type"] == V2_JSON
        found.extend(answer.json())
        return found

    wait_until(read, "the record is read")
    assert found == [{"topic": topic, "key": None, "value": {"name": "a"}, "partition": 0, "offset": 0}]
    assert requests.delete(uri, timeout=PATIENCE_S).status_code == 204
    assert requests.delete(uri, timeout=PATIENCE_S).json()["error_code"] == 40403


def test_topics_are_described(client: RestClient, create_topic: CreateTopic) -> None:
    topic = create_topic(2, {"retention.ms": "77000"})
    produce(client, topic, 1, 2, partition=1)
    assert topic in client.get("/topics").json
    described = client.get(f"/topics/{topic}").json
    assert described["configs"]["retention.ms"] == "77000"
    (broker,) = client.get("/brokers").json["brokers"]
    replicas = [{"broker": broker, "leader": True, "in_sync": True}]
    assert described["partitions"] == [{"partition": each, "leader": broker, "replicas": replicas} for each in (0, 1)]
    assert client.get(f"/topics/{topic}/partitions/1/offsets").json == {"beginning_offset": 0, "end_offset": 2}
    assert client.get("/topics/missing").json["error_code"] == 40401
    answer = client.post(f"/topics/{topic}", {"records": [{"value": 1, "partition": 9}, {"value": 1}]}, V2_JSON)
    assert [each["error_code"] for each in answer.json["offsets"]] == [40402, None]


def test_members_of_a_group_share_partitions_and_go_on(
    gateway: RunningGateway, client: RestClient, create_topic: CreateTopic
) -> None:
    topic = create_topic(2)
    produce(client, topic, 1, 2, partition=0)
    produce(client, topic, 3, partition=1)
    with Group(gateway, "shared") as first:
        first.post("/subscription", {"topics": [topic]})
        assert first.get("/subscription") == {"topics": [topic]}
        assert sorted(each["value"] for each in first.records(3)) == [1, 2, 3]
        assert first.get("/assignments") == {"partitions": [{"topic": topic, "partition": each} for each in (0, 1)]}
    produce(client, topic, 4)
    with Group(gateway, "shared") as second:  # it goes on behind what was answered: to delete is to commit
        second.post("/subscription", {"topics": [topic]})
        assert [each["value"] for each in second.records(1)] == [4]
        assert client.ask("DELETE", second.path + "/subscription").status == 204
        assert second.get("/subscription") == {"topics": []}


def test_positions_and_offsets(gateway: RunningGateway, client: RestClient, create_topic: CreateTopic) -> None:
    topic = create_topic()
    produce(client, topic, *range(10))
    place = {"topic": topic, "partition": 0}
    with Group(gateway, "positions", **{"auto.commit.enable": "false"}) as consumer:
        assert consumer.post("/assignments", {"partitions": [place]}) == 204
        assert consumer.post("/positions", {"offsets": [{**place, "offset": 7}]}) == 204
        assert [each["value"] for each in consumer.records(3)] == [7, 8, 9]
        consumer.post("/positions/beginning", {"partitions": [place]})
        assert consumer.get("/records?max_bytes=2&timeout=900") == consumer_records(topic, [0, 1])
        assert consumer.get("/records?max_bytes=1") == consumer_records(topic, [2])
        assert consumer.get("/offsets", {"partitions": [place]}) == {"offsets": []}
        consumer.post("/offsets")
        assert consumer.get("/offsets", {"partitions": [place]})["offsets"][0]["offset"] == 3
        consumer.post("/offsets", {"offsets": [{**place, "offset": 4, "metadata": "mine"}]})
        assert consumer.get("/offsets", {"partitions": [place]})["offsets"] == [
            {**place, "offset": 5, "metadata": "mine"}
        ]
        consumer.post("/positions/end", {"partitions": [place]})
        assert consumer.get("/records?timeout=100") == []
        consumer.post("/positions", {"timestamps": [{**place, "timestamp": 0}]})
        assert len(consumer.records(10)) == 10


def consumer_records(topic: str, values: list[int]) -> list[dict[str, Any]]:
    return [{"topic": topic, "key": None, "value": each, "partition": 0, "offset": each} for each in values]


def test_bytes_are_base64_and_what_is_no_json_is_told(
    gateway: RunningGateway, client: RestClient, create_topic: CreateTopic
) -> None:
    topic = create_topic()
    produce(client, topic, 1)
    client.post(f"/topics/{topic}", {"records": [{"key": "AA==", "value": "/w=="}]}, V2_BINARY)
    place = {"topic": topic, "partition": 0}
    with Group(gateway, "formats", format="binary") as binary, Group(gateway, "formats", format="json") as as_json:
        for consumer in (binary, as_json):
            consumer.post("/assignments", {"partitions": [place]})
        assert [(each["key"], each["value"]) for each in binary.records(2, V2_BINARY)] == [
            (None, "MQ=="),
            ("AA==", "/w=="),
        ]
        assert binary.client.get(binary.path + "/records", V2_JSON).json["error_code"] == 40601
        assert [each["value"] for each in as_json.records(1)] == [1]
        answer = as_json.client.get(as_json.path + "/records")
        assert (answer.status, answer.json["error_code"]) == (408, 40801)
        as_json.post("/positions/end", {"partitions": [place]})
        produce(client, topic, 2)
        assert [each["value"] for each in as_json.records(1)] == [2]


def test_a_client_that_takes_little_at_a_time_does_not_fill_memory(
    gateway: RunningGateway, client: RestClient, create_topic: CreateTopic
) -> None:
    topic = create_topic()
    produce(client, topic, *range(3_000))
    for _ in range(20):
        produce(client, topic, *["x" * 100_000] * 10)
    with Group(gateway, "little") as group:
        group.post("/assignments", {"partitions": [{"topic": topic, "partition": 0}]})
        wait_until(lambda: group.get("/records?max_bytes=1"), "the first")
        (instance,) = gateway.server.consumers._instances.values()
        most = 0
        for _ in range(2_500):
            group.get("/records?max_bytes=1")
            most = max(most, sum(len(each.value()) for each in instance.consumer._waiting))
        assert most < 5_000_000


def test_a_pattern_subscribes_to_the_topics_that_match(
    gateway: RunningGateway, client: RestClient, create_topic: CreateTopic
) -> None:
    topic = create_topic()
    produce(client, topic, 1)
    with Group(gateway, "pattern") as consumer:
        consumer.post("/subscription", {"topic_pattern": f"{topic[:-1]}[{topic[-1]}]"})
        wait_until(lambda: topic in {each["topic"] for each in consumer.get("/records")}, "the topic is read")
        assert topic in consumer.get("/subscription")["topics"]


def test_calls_that_do_not_fit_are_refused(
    gateway: RunningGateway, client: RestClient, create_topic: CreateTopic
) -> None:
    topic = create_topic()
    place = {"topic": topic, "partition": 0}
    with Group(gateway, "refused", name="one") as consumer:

        def refused(call: str, body: Any) -> tuple[int, int]:
            answer = consumer.client.post(consumer.path + call, body)
            return answer.status, answer.json["error_code"]

        assert refused("/positions/end", {"partitions": [place]}) == (409, 40903)
        assert refused("/subscription", {"topic_pattern": "a("}) == (422, 42204)
        consumer.client.delete(consumer.path + "/subscription")
        consumer.post("/subscription", {"topics": [topic]})
        assert refused("/subscription", {"topic_pattern": "a.*"}) == (409, 40903)
        assert refused("/assignments", {"partitions": [place]}) == (409, 40903)
        assert refused("/positions", {"offsets": [{**place, "offset": -1}]}) == (422, 422)
        assert refused("/positions", {"offsets": [{**place, "partition": -1, "offset": 1}]}) == (422, 422)
        assert refused("/offsets", {"offsets": [{"topic": "missing", "partition": 0, "offset": 1}]}) == (404, 40401)
        assert client.post("/consumers/refused", {"name": "one"}).json["error_code"] == 40902
        assert client.get(consumer.path + "/records?timeout=soon").json["error_code"] == 400


def test_a_client_of_v3_creates_a_topic_and_sends_records(
    gateway: RunningGateway, client: RestClient, topic: Callable[[], str]
) -> None:
    name = topic()
    (cluster,) = client.get("/v3/clusters").json["data"]
    topics = cluster["topics"]["related"].partition(f":{gateway.port}")[2]
    configs = [{"name": "retention.ms", "value": "77000"}]
    created = client.post(topics, {"topic_name": name, "partitions_count": 2, "configs": configs}, JSON)
    assert (created.status, created.json["partitions_count"], created.json["replication_factor"]) == (201, 2, 1)
    assert client.post(topics, {"topic_name": name}, JSON).json["error_code"] == 40002
    assert client.post(topics, {"topic_name": "/"}, JSON).json["error_code"] == 40002
    wait_until(lambda: client.get(f"/topics/{name}").status == 200, "the topic is known")
    assert client.get(f"/topics/{name}").json["configs"]["retention.ms"] == "77000"
    assert name in [each["topic_name"] for each in client.get(topics).json["data"]]
    assert len(client.get(f"{topics}/{name}/partitions").json["data"]) == 2

    def stream() -> Iterator[bytes]:
        for number in range(5_000):
            yield json.dumps({"partition_id": number % 2, "value": {"type": "JSON", "data": number}}).encode()

    url = f"http://localhost:{gateway.port}{topics}/{name}/records"
    answer = requests.post(url, data=stream(), headers={"Content-Type": JSON}, timeout=PATIENCE_S)
    lines = [json.loads(line) for line in answer.content.splitlines()]
    assert [(each["error_code"], each["partition_id"], each["offset"]) for each in lines] == [
        (200, number % 2, number // 2) for number in range(5_000)
    ]
    wrong = client.post(f"{topics}/{name}/records", {"partition_id": 7}, JSON)
    assert (wrong.status, wrong.json["error_code"]) == (200, 40402)
    missing = client.post(f"{topics}/missing/records", {"value": {"type": "JSON", "data": 1}}, JSON)
    assert (missing.status, missing.json["error_code"]) == (200, 40401)
    assert client.delete(f"{topics}/{name}").status == 204
    wait_until(lambda: client.get(f"{topics}/{name}").status == 404, "the topic is deleted")
    assert client.delete(f"{topics}/{name}").json["error_code"] == 40403


def test_each_client_acts_as_its_user(moldau_secure_broker: TestBroker) -> None:
    """The brokers check the password, and the ACLs of each."""
    kafka = moldau_secure_broker
    anna, bert = kafka.add_user("anna"), kafka.add_user("bert")
    kafka.allow("anna", "write", topic="orders")
    kafka.allow("bert", "read", topic="orders", group="readers")
    own = kafka.client_config()
    bootstrap = own.pop("bootstrap.servers")
    with http_gateway(lambda: KafkaAccounts(bootstrap, own)) as gateway:
        admin = ("admin", kafka.password("admin"))
        with RestClient(gateway.port, *admin) as client:
            (cluster,) = client.get("/v3/clusters").json["data"]
            topics = f"/v3/clusters/{cluster['cluster_id']}/topics"
            assert client.post(topics, {"topic_name": "orders"}, JSON).status == 201
            wait_until(lambda: client.get("/topics/orders").status == 200, "the topic is known")
        with RestClient(gateway.port, "anna", anna) as client:
            assert client.get("/topics").json == ["orders"]
            assert client.post("/topics/orders", {"records": [{"value": 1}]}, V2_JSON).status == 200
            answer = client.post(topics, {"topic_name": "more"}, JSON)
            assert (answer.status, answer.json["error_code"]) == (403, 40301)
        with RestClient(gateway.port, "anna", "wrong") as client:
            assert client.post("/consumers/readers", CONFIG).json["error_code"] == 40101
        with Group(gateway, "readers", "bert", bert) as consumer:
            consumer.post("/subscription", {"topics": ["orders"]})
            assert [each["value"] for each in consumer.records(1)] == [1]
            answer = consumer.client.post("/topics/orders", {"records": [{"value": 1}]}, V2_JSON)
            assert (answer.status, answer.json["offsets"][0]["error_code"]) == (403, 40301)
        with Group(gateway, "readers", "anna", anna) as consumer:
            consumer.post("/subscription", {"topics": ["orders"]})
            wait_until(lambda: consumer.client.get(consumer.path + "/records").status == 403, "anna may not read")


def test_a_client_with_a_token_consumes(tmp_path: Path) -> None:
    """The gateway has a user of its own, with tokens too."""
    with provider(Issuer()) as running:
        running.clients["gateway"] = "secret"
        kafka = TestBroker(tmp_path / "data", one_listener(f"{running.url}/jwks")).start()
        own = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f"{MODULE};",
            "sasl.oauthbearer.token.endpoint.url": f"{running.url}/token",
            "sasl.oauthbearer.client.credentials.client.id": "gateway",
            "sasl.oauthbearer.client.credentials.client.secret": "secret",
        }
        login = (None, "", running.issuer.token("ann"))
        with http_gateway(lambda: KafkaAccounts(kafka.bootstrap_servers, own, anonymous=True)) as gateway:
            with RestClient(gateway.port) as client:
                (cluster,) = client.get("/v3/clusters").json["data"]
                path = f"/v3/clusters/{cluster['cluster_id']}/topics"
                assert client.post(path, {"topic_name": "open"}, JSON).status == 201
                wait_until(lambda: client.get("/topics/open").status == 200, "the topic is known")
            with Group(gateway, "ann", *login) as ann, Group(gateway, "own") as of_gateway:
                produce(ann.client, "open", 1)
                for consumer in (ann, of_gateway):
                    consumer.post("/subscription", {"topics": ["open"]})
                    assert [each["value"] for each in consumer.records(1)] == [1]
        kafka.stop()


def test_consumers_leave_their_groups_when_the_gateway_stops(bootstrap: str, create_topic: CreateTopic) -> None:
    """A consumer elsewhere has their partitions at once."""
    topic = create_topic()
    with http_gateway(lambda: KafkaAccounts(bootstrap, {}, anonymous=True)) as first:
        member = Group(first, "leaving", **{"consumer.request.timeout.ms": "60000", "fetch.min.bytes": "-1"})
        member.post("/subscription", {"topics": [topic]})
        answers: list[Any] = []
        reader = threading.Thread(target=lambda: answers.append(member.get("/records")))
        reader.start()
        wait_until(lambda: first.server.consumers.pending, "it waits for records")
        first.loop.call_soon_threadsafe(first.server.stop)
        reader.join(PATIENCE_S)
        assert answers == [[]]
        member.client.__exit__()
    with http_gateway(lambda: KafkaAccounts(bootstrap, {}, anonymous=True)) as second, Group(second, "leaving") as heir:
        heir.post("/subscription", {"topics": [topic]})
        with RestClient(second.port) as client:
            produce(client, topic, 1)
        assert [each["value"] for each in heir.records(1)] == [1]
