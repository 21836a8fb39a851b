"""The page Clients in a browser: the metrics subscriptions (KIP-714), and the metrics that clients push."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from chromium import Watch
from confluent_kafka import Consumer, Producer
from console_process import HOSTILE, console

from moldau.testing import TestBroker, broker

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

from harness.patience import PATIENCE_S
from playwright.sync_api import BrowserContext, expect

expect.set_options(timeout=PATIENCE_S * 1000)


@pytest.fixture
def node(context: BrowserContext) -> Iterator[TestBroker]:
    with broker(metrics_listener="127.0.0.1:0") as running:
        yield running


def subscribe_to_all_metrics(node: TestBroker) -> None:
    words = ("--alter", "--name", "everything", "--metrics", "*", "--interval", "200")
    command = [sys.executable, "-m", "moldau.cli.kafka.client_metrics", "--bootstrap-server", node.bootstrap_servers]
    subprocess.run([*command, *words], check=True, capture_output=True)


@contextmanager
def clients(node: TestBroker) -> Iterator[None]:
    """Run a producer whose client id is markup, and a consumer."""
    quiet = {"bootstrap.servers": node.bootstrap_servers, "log_level": 0}
    stop = threading.Event()
    producer = Producer({**quiet, "client.id": HOSTILE})
    producer.produce("orders", "one")
    assert producer.flush(PATIENCE_S) == 0
    consumer = Consumer({**quiet, "client.id": "billing-1", "group.id": "billing"})
    consumer.subscribe(["orders"])

    def run() -> None:
        while not stop.is_set():
            producer.poll(0)
            consumer.poll(0.1)
        consumer.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_clients_that_push_metrics_are_shown(context: BrowserContext, node: TestBroker) -> None:
    with console(node.bootstrap_servers, "--metrics", f"http://{node.metrics_address}/metrics") as address:
        watch = Watch(context.new_page(), address)
        page = watch.page
        page.goto(f"{address}/clients")
        expect(page.get_by_role("heading", name="No client pushes what it measures")).to_be_visible()
        expect(page.get_by_text("kafka-client-metrics.sh --bootstrap-server")).to_be_visible()
        subscribe_to_all_metrics(node)
        with clients(node):
            asked = page.get_by_role("table", name="Client metrics resources")
            expect(asked.get_by_role("row", name=re.compile("^everything"))).to_contain_text("200 ms")
            pushing = page.get_by_role("table", name="Clients that push what they measure")
            row = pushing.get_by_role("row").filter(has_text="billing-1")
            expect(row).to_contain_text("consumer")
            expect(row).to_contain_text("rdkafka")
            expect(pushing.get_by_role("row").filter(has_text=HOSTILE)).to_contain_text("producer")
            members = page.get_by_role("table", name="Members of groups")
            expect(members.get_by_role("row").filter(has_text="billing-1")).to_contain_text("rdkafka")

            row.get_by_role("link", name="billing-1").click()
            expect(page.get_by_role("heading", level=1, name="billing-1")).to_be_visible()
            page.get_by_label("Filter by metric or label").fill("connection_creation")
            values = page.get_by_role("table", name="What the client measures").locator("tbody tr")
            expect(values.filter(has_text="consumer_connection_creation_total")).to_have_count(1)
            expect(page).to_have_url(re.compile("filter=connection_creation"))
            page.reload()
            expect(page.get_by_role("heading", level=1, name="billing-1")).to_be_visible()
            expect(page.get_by_label("Filter by metric or label")).to_have_value("connection_creation")
            page.goto(f"{address}/clients/nobody")
            expect(page.get_by_text("does not push any more")).to_be_visible()
            assert page.title() != "hacked"
        watch.check()
