"""A real browser (Chromium), a real cluster, and the console as a process between them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from chromium import Watch, chromium, patient
from console_process import HOSTILE, Shop, console, create_topics, running_pipeline

from moldau.testing import TestBroker, TestCluster, broker, cluster

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    pytest.importorskip("starlette", reason="the extra `console` is not installed")
    path = chromium()
    if path is None:
        pytest.skip("there is no Chromium (Debian: apt-get install chromium)")
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture(scope="session")
def kafka(browser: Browser) -> Iterator[TestCluster]:
    with cluster() as running:
        yield running


@pytest.fixture(scope="session")
def shop(kafka: TestCluster) -> Iterator[Shop]:
    bootstrap = kafka.bootstrap_servers
    create_topics(bootstrap, {"orders": 6, "oddities": 1, "payments": 3, "shipments": 2}, replicas=3)
    running = Shop(bootstrap)
    running.write_orders(600)
    running.write_oddities()
    running.commit_once("warehouse", "orders", 100)
    running.commit_once(HOSTILE, "oddities", 1)
    running.start_group("billing", "orders", members=2)
    yield running
    running.close()


@pytest.fixture(scope="session")
def address(kafka: TestCluster, shop: Shop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("pipelines")
    with running_pipeline(folder), console(kafka.bootstrap_servers, "--pipelines", str(folder)) as running:
        yield running


@pytest.fixture(scope="session")
def secure_kafka(browser: Browser) -> Iterator[TestBroker]:
    pytest.importorskip("cryptography", reason="the extra `tls` is not installed")
    with broker(secure=True) as running:
        running.add_user("ann", "ann-secret-1")
        yield running


@pytest.fixture(scope="session")
def secure_address(secure_kafka: TestBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    properties = tmp_path_factory.mktemp("secure") / "client.properties"
    lines = secure_kafka.command_config().read_text().splitlines(keepends=True)
    properties.write_text("".join(line for line in lines if "sasl.jaas" not in line))
    with console(secure_kafka.bootstrap_servers, properties=properties) as address:
        yield address


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    context = patient(browser.new_context(viewport={"width": 1440, "height": 900}, reduced_motion="reduce"))
    yield context
    context.close()


@pytest.fixture
def watch(context: BrowserContext, address: str) -> Iterator[Watch]:
    watch = Watch(context.new_page(), address)
    yield watch
    watch.check()


@pytest.fixture
def page(watch: Watch) -> Page:
    return watch.page
