"""The console in front of Apache Kafka: every endpoint answers, pages show its state, and changes are made.

Set MOLDAU_TEST_KAFKA_LIBS to a directory of Apache Kafka's jars (kafka-tools and what it needs); java must be on the
PATH.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from apache_node import HOST, KAFKA_LIBS, PASSWORD, SUPER_USER, Side, apache_kafka, await_coordinators, needs_apache
from confluent_kafka import Consumer, Producer
from console_server import Page, console, faults
from harness.patience import PATIENCE_S, wait_until

pytestmark = [pytest.mark.moldau_only, needs_apache]

WAY = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
PATHS = (
    "/api/overview",
    "/api/topics?internal=true",
    "/api/topics/orders",
    "/api/topics/orders/partitions",
    "/api/topics/orders/records",
    "/api/topics/orders/records/0/0",
    "/api/topics/orders/export",
    "/api/groups",
    "/api/groups/billing",
    "/api/groups/modern",
    "/api/cluster",
    "/api/cluster?topic=orders",
    "/api/brokers/1",
    "/api/transactions",
    "/api/transactions/checkout",
    "/api/hanging",
    "/api/clients",
    "/api/telemetry",
    "/api/pipelines",
    "/api/learn",
    "/api/access",
    "/api/access/test?principal=alice&operation=read&type=topic&name=orders",
    "/api/acls",
    "/api/users",
    "/api/quotas",
)


@pytest.fixture(scope="module", autouse=True)
def broker_answers() -> None:
    """These tests do not use the shared broker of this directory."""


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    directory = tmp_path_factory.mktemp("apache")
    shares = {"share_coordinator_state_topic_replication_factor": "1", "share_coordinator_state_topic_min_isr": "1"}
    with apache_kafka(directory, ["alice"], **shares) as running:
        await_coordinators(running, "checkout")
        yield running


def address(kafka: Side) -> str:
    return f"{HOST}:{kafka.broker}"


def client(kafka: Side, **more: Any) -> dict[str, Any]:
    login = {"sasl.username": SUPER_USER, "sasl.password": PASSWORD, "bootstrap.servers": address(kafka)}
    return {**WAY, **login, "log_level": 0, **{name.replace("_", "."): value for name, value in more.items()}}


@pytest.fixture(scope="module")
def page(kafka: Side) -> Iterator[Page]:
    with console(address(kafka), WAY) as begun:
        assert begun.login(SUPER_USER, PASSWORD).status == 200
        made = begun.post("/api/topics", {"name": "orders", "partitions": 2, "replication_factor": 1})
        assert made.status == 201, made.body
        for number in range(10):
            record = {"key": f"k{number}", "value": f'{{"amount": {number}}}', "partition": number % 2}
            assert begun.post("/api/topics/orders/records", record).status == 201
        yield begun


@pytest.fixture(scope="module")
def readers(kafka: Side, page: Page) -> Iterator[None]:
    """A group of each protocol, and an open transaction."""
    names = {"client_id": "reader", "auto_offset_reset": "earliest"}
    classic = Consumer(client(kafka, group_id="billing", **names))
    modern = Consumer(client(kafka, group_id="modern", group_protocol="consumer", **names))
    producer = Producer(client(kafka, transactional_id="checkout"))
    with closing(classic), closing(modern):
        for consumer in (classic, modern):
            consumer.subscribe(["orders"])
            wait_until(lambda consumer=consumer: consumer.poll(0.2), "the consumer reads")  # type: ignore[misc]
            consumer.commit(asynchronous=False)
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
        producer.produce("orders", "open", partition=0)
        producer.flush(PATIENCE_S)
        page.await_rows("/api/clients", "group", "billing", "modern")
        yield


@pytest.mark.parametrize("path", PATHS)
def test_every_endpoint_answers_with_200(page: Page, readers: None, path: str) -> None:
    answer = page.get(path)
    assert answer.status == 200, answer.body


def test_the_pages_show_the_state_of_the_cluster(page: Page, readers: None) -> None:
    wait_until(lambda: page.get("/api/overview").data["size_bytes"], "the sizes are read", every_s=0.2)
    overview = page.get("/api/overview").data
    assert [(each["id"], each["alive"], each["answers"]) for each in overview["brokers"]] == [(1, True, True)]
    assert (overview["quorum_leader"], overview["read_error"]) == (1, None)
    assert faults(overview) == []
    records = page.get("/api/topics/orders/records?where=value.amount%20%3E%207").data["records"]
    assert {each["value"]["json"]["amount"] for each in records} == {8, 9}
    for group in ("billing", "modern"):
        data = page.get(f"/api/groups/{group}").data
        assert ([member["client_id"] for member in data["members"]], data["note"]) == (["reader"], None)
        assert len(data["partitions"]) == 2
    (transaction,) = page.get("/api/transactions?open=true").data["rows"]
    assert (transaction["transactional_id"], transaction["state"]) == ("checkout", "Ongoing")
    cluster = page.get("/api/cluster?topic=orders").data
    assert [each["role"] for each in cluster["quorum"]["replicas"]] == ["leader"]
    assert [each["isr"] for each in cluster["partitions"]] == [[1], [1]]


def test_config_documentation_has_no_html(page: Page) -> None:
    """Apache Kafka's own documentation of configs is HTML."""
    for path in ("/api/topics/orders", "/api/brokers/1"):
        configs = page.get(path).data["configs"]
        assert len(configs) > 20
        texts = [each["documentation"] or "" for each in configs]
        assert not [text for text in texts if "</" in text or "<code" in text or "&lt;" in text]


def test_the_page_telemetry_shows_how_to_enable_it(page: Page) -> None:
    def sentences() -> list[str] | None:
        data = page.get("/api/telemetry").data
        return data["empty"] if len(data["empty"]) == 2 else None

    shown = wait_until(sentences, "the resources are read", every_s=0.2)
    assert shown is not None
    assert "--metrics" in shown[0]
    assert "kafka-client-metrics.sh" in shown[1]


def test_a_share_group_is_shown(kafka: Side, page: Page, tmp_path: Path) -> None:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    login = f'sasl.jaas.config={module} required username="{SUPER_USER}" password="{PASSWORD}";\n'
    config = tmp_path / "client.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in WAY.items()) + login)
    words = ("--bootstrap-server", address(kafka), "--topic", "orders", "--group", "sharers")
    tool = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
    command = ["java", "-cp", f"{KAFKA_LIBS}/*", tool, *words, "--command-config", str(config)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            assert page.await_rows("/api/groups", "group", "sharers")["sharers"]["type"] == "Share"

            def shown() -> dict[str, Any]:
                data: dict[str, Any] = page.get("/api/groups/sharers").data
                return data

            wait_until(lambda: len(shown()["partitions"]) == 2, "its partitions are assigned", every_s=0.2)
            data = shown()
            assert (data["note"], data["states_error"], len(data["members"])) == (None, None, 1)
            assert data["dead_letters"] == {"topic": None, "copies": False, "error": None}
            refused = page.post("/api/groups/sharers/reset", {"to": "earliest", "topics": ["orders"]})
            assert (refused.status, "active member" in refused.message) == (409, True)
        finally:
            process.kill()


def test_topics_groups_and_records_are_changed(page: Page) -> None:
    body = {"name": "mine", "partitions": 1, "replication_factor": 1, "configs": {"cleanup.policy": "compact"}}
    assert page.post("/api/topics", body).status == 201
    page.await_rows("/api/topics", "name", "mine")
    assert page.patch("/api/topics/mine", {"partitions": 2}).status == 200
    assert page.patch("/api/topics/mine", {"set": {"retention.ms": "60000"}}).status == 200
    configs = {each["name"]: each for each in page.get("/api/topics/mine").data["configs"]}
    assert (configs["retention.ms"]["value"], configs["retention.ms"]["source"]) == ("60000", "topic")
    assert page.patch("/api/topics/mine", {"set": {"retention.ms": "soon"}}).code == "INVALID_CONFIG"
    reset = page.post("/api/groups/later/reset", {"to": "earliest", "topics": ["orders"], "new": True, "execute": True})
    assert reset.data["executed"] is True
    assert page.delete("/api/groups/later", {"confirm": "later"}).status == 200
    assert page.post("/api/cluster/elect", {"topic": "orders"}).data["elected"] == 0
    assert page.delete("/api/topics/mine", {"confirm": "mine"}).status == 200
    assert page.post("/api/topics/orders/trim", {"before": "1", "confirm": "orders"}).data["starts"] == {"0": 1, "1": 1}


def test_acls_users_and_quotas_are_changed(page: Page) -> None:
    about = page.get("/api/access").data
    assert (about["authorizer"], about["super_users"], set(about["may"].values())) == (True, None, {True})
    group = {"type": "group", "name": "g"}
    allow = {"permission": "allow", "principal": "bob", "operations": ["all"], "resources": [group]}
    assert (
        page.post("/api/acls", {**allow, "execute": True}).data["changes"][0]["effect"]
        == "User:bob gains all operations"
    )
    rows = page.get("/api/acls?principal=bob").data["rows"]
    asked = "/api/access/test?principal=bob&operation=read&type=group&name=g"
    tested = page.get(asked).data
    assert tested["rule"] == rows[0]
    assert tested["notes"][-1].startswith("super users, who may do everything, are not known"), (
        "Kafka hides super.users"
    )
    removal = page.post("/api/acls/remove", {"acls": rows, "execute": True}).data
    assert removal["changes"][0]["effect"] == "User:bob loses all operations"
    assert page.get("/api/acls?principal=bob").data["rows"] == []
    assert page.post("/api/users", {"name": "bob", "password": "secret", "execute": True}).status == 200
    users = {row["principal"]: row["mechanisms"] for row in page.get("/api/users").data["rows"]}
    assert users["User:bob"] == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    assert page.delete("/api/users/bob", {"execute": True}).status == 200
    for change, shown in (({"set": {"producer_byte_rate": 1000}}, [1000.0]), ({"unset": ["producer_byte_rate"]}, [])):
        assert page.post("/api/quotas", {"entity": {"user": None}, **change, "execute": True}).status == 200
        assert [row["producer_byte_rate"] for row in page.get("/api/quotas").data["rows"]] == shown


def test_the_page_learn(page: Page) -> None:
    made = page.post("/api/learn/topic", {"partitions": 2, "replication_factor": 1}).data
    assert len(made["partitions"]) == 2
    sent = page.post("/api/learn/produce", {"count": 4, "keys": ["anna", "ben"], "acks": "all"}).data["results"]
    assert [each["error"] for each in sent] == [None] * 4
    page.post("/api/learn/consumers", {"count": 1})
    wait_until(lambda: page.get("/api/learn").data["consumers"][0]["received"] == 4, "it reads", every_s=0.2)
    assert page.delete("/api/learn/topic").data["exists"] is False


def test_a_user_without_rights_sees_nothing_and_is_shown_the_reason(page: Page) -> None:
    alice = Page(page.port)
    assert alice.login("alice", PASSWORD).status == 200
    assert alice.get("/api/topics").data["rows"] == []
    assert alice.get("/api/topics/orders/records").code == "NOT_ALLOWED"
    assert alice.post("/api/topics", {"name": "more"}).code == "NOT_ALLOWED"
    wait_until(
        lambda: "DescribeConfigs" in alice.get("/api/telemetry").data["empty"][0],
        "the page names the missing right",
        every_s=0.2,
    )
