"""The console's page Clients: the metrics that librdkafka pushes (KIP-714), and the right to see them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from console_server import Page, console, name_in_path
from harness.patience import PATIENCE_S, wait_until
from kafka_tools import Tools

from moldau.testing import TestBroker, broker

pytestmark = pytest.mark.moldau_only

HOSTILE = 'shop-"} 7\u2028kafka_server_brokertopicmetrics_bytesin_total 1e15'
ASK = ("--alter", "--name", "all", "--metrics", "*", "--interval", "200", "--match", "client_id=(shop|billing).*")


@pytest.fixture(scope="module", autouse=True)
def broker_answers() -> None:
    """These tests do not use the shared broker of this directory."""


@pytest.fixture
def node() -> Iterator[TestBroker]:
    with broker(metrics_listener="127.0.0.1:0") as running:
        yield running


@pytest.fixture
def tools(node: TestBroker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Tools:
    return Tools(node.bootstrap_servers, capsys, monkeypatch)


def metrics_url(node: TestBroker) -> str:
    return f"http://{node.metrics_address}/metrics"


def await_hint(page: Page, words: str) -> list[str]:
    def hint() -> list[str] | None:
        sentences: list[str] = page.get("/api/telemetry").data["empty"]
        return sentences if any(words in each for each in sentences) else None

    found = wait_until(hint, f"the page shows: {words}", every_s=0.1)
    assert found is not None
    return found


def await_pushing(page: Page, keep_busy: Callable[[], Any], *client_ids: str) -> dict[str, dict[str, Any]]:
    def rows() -> dict[str, dict[str, Any]] | None:
        keep_busy()
        found = {row["client_id"]: row for row in page.get("/api/telemetry").data["rows"]}
        return found if found.keys() >= set(client_ids) else None

    result = wait_until(rows, f"{client_ids} pushed", every_s=0.1)
    assert result is not None
    return result


def test_the_page_shows_how_to_enable_telemetry_and_then_the_clients(node: TestBroker, tools: Tools) -> None:
    quiet = {"bootstrap.servers": node.bootstrap_servers, "log_level": 0}
    with console(node.bootstrap_servers) as page:
        both = await_hint(page, "--metrics http://HOST:PORT/metrics")
        assert f"kafka-client-metrics.sh --bootstrap-server {node.bootstrap_servers} --alter" in both[1]
    with console(node.bootstrap_servers, metrics=(metrics_url(node),)) as page:
        (sentence,) = await_hint(page, "No client is asked")
        words = sentence.partition("`")[2].partition("`")[0].split()[3:]
        assert tools("client_metrics", *(word.strip("'") for word in words)).status == 0, (
            "the command that is shown works"
        )
        assert tools("client_metrics", *ASK).lines == ["Altered client metrics config for all."]
        await_hint(page, "none has so far")
        (asked,) = page.get("/api/telemetry").data["subscriptions"]
        assert asked == {"name": "all", "metrics": "*", "interval_ms": 200, "match": "client_id=(shop|billing).*"}

        shop = Producer({**quiet, "client.id": HOSTILE})
        office = Producer({**quiet, "client.id": "office"})
        group = {**quiet, "client.id": "billing-1", "group.id": "billing", "auto.offset.reset": "earliest"}
        with closing(Consumer(group)) as billing:
            shop.produce("orders", "one")
            assert shop.flush(PATIENCE_S) == 0
            billing.subscribe(["orders"])

            def poll() -> None:
                shop.poll(0)
                office.poll(0)
                billing.poll(0.05)

            clients = await_pushing(page, poll, HOSTILE, "billing-1")
            assert clients.keys() == {HOSTILE, "billing-1"}, "the client office does not match the subscription"
            assert (clients[HOSTILE]["kind"], clients["billing-1"]["kind"]) == ("producer", "consumer")
            software = clients["billing-1"]["software"]
            assert "rdkafka" in software
            assert any(character.isdigit() for character in software), "with its version"
            check_one_client(page, clients["billing-1"])

            def member() -> dict[str, Any] | None:
                poll()
                rows = page.get("/api/clients").data["rows"]
                return next((row for row in rows if row["client_id"] == "billing-1" and row["software"]), None)

            found = wait_until(member, "the member has its software", every_s=0.1)
            assert found is not None
            assert (found["software"], found["pushes_as"]) == (software, clients["billing-1"]["instance_id"])
        overview = page.get("/api/overview").data
        assert overview["bytes_in_per_second"] is None or overview["bytes_in_per_second"] < 1e9, (
            "the client id adds no sample"
        )


def check_one_client(page: Page, row: dict[str, Any]) -> None:
    path = f"/api/telemetry/{name_in_path(row['instance_id'])}"
    data = page.get(f"{path}?size=500").data
    assert data["client"]["client_id"] == row["client_id"]
    assert {each["name"].partition("_")[0] for each in data["rows"]} == {"consumer"}
    filtered = page.get(f"{path}?filter=connection&sort=-value").data
    assert 0 < filtered["matching"] < data["total"]
    missing = page.get("/api/telemetry/nobody")
    assert (missing.status, missing.code) == (404, "NOT_FOUND")
    assert "does not push any more" in missing.message


def test_a_user_without_describe_configs_sees_no_client_metrics(
    tmp_path: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with broker(secure=True, metrics_listener="127.0.0.1:0") as node:
        node.add_user("alice", "wonderland")
        with console(node.bootstrap_servers, node.client_config(), metrics=(metrics_url(node),)) as operator:
            assert operator.login("admin", node.password("admin")).status == 200
            admin = tmp_path / "admin.properties"
            admin.write_text(node.command_config().read_text())
            tool = Tools(node.bootstrap_servers, capsys, monkeypatch)
            assert tool("client_metrics", "--command-config", str(admin), *ASK).status == 0
            producer = Producer({**node.client_config(), "client.id": "shop-1", "log_level": 0})
            await_pushing(operator, lambda: producer.poll(0), "shop-1")
            alice = Page(operator.port)
            assert alice.login("alice", "wonderland").status == 200
            await_hint(alice, "DescribeConfigs on the cluster")
            assert alice.get("/api/telemetry").data["subscriptions"] == []
            shown = operator.get("/api/telemetry").data["rows"][0]["instance_id"]
            assert alice.get(f"/api/telemetry/{name_in_path(shown)}").status == 404
