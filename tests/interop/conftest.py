"""Fixtures of the interop tests: a broker, unused topic names, an admin client, a plain connection and Kafka's tools.

Set MOLDAU_TEST_BOOTSTRAP=HOST:PORT to run the same tests against another broker; Apache Kafka is the reference.
"""

from __future__ import annotations

import itertools
import os
import shutil
import uuid
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from harness.patience import PATIENCE_S, wait_until
from kafka_tools import Tools
from runner.leftovers import collect_leftovers
from wire_client import Wire, message

EXTERNAL_BOOTSTRAP = os.environ.get("MOLDAU_TEST_BOOTSTRAP")
CreateTopic = Callable[..., str]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "moldau_only: not run against another broker (MOLDAU_TEST_BOOTSTRAP)")
    # kafka-python reads its packaged schemas in a deprecated way.
    config.addinivalue_line("filterwarnings", "ignore:(read|open)_text is deprecated:DeprecationWarning")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if EXTERNAL_BOOTSTRAP and item.get_closest_marker("moldau_only"):
        pytest.skip("about this broker only, and MOLDAU_TEST_BOOTSTRAP names another")


@pytest.fixture(scope="module", autouse=True)
def sockets_are_collected() -> Iterator[None]:
    yield
    collect_leftovers()


@pytest.fixture
def sockets_are_collected_at_once() -> Iterator[None]:
    """For tests that leave so many that the next test of the file would meet them."""
    yield
    collect_leftovers()


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """One broker for each file: the topics of all tests together would need more open files than `select` supports."""
    if EXTERNAL_BOOTSTRAP:
        yield EXTERNAL_BOOTSTRAP
        return
    from moldau.testing import broker

    with broker() as running:
        yield running.bootstrap_servers


@pytest.fixture(scope="module")
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "topic.metadata.refresh.interval.ms": -1})


@pytest.fixture(scope="module")
def topic(admin: AdminClient) -> Iterator[Callable[[], str]]:
    """Return a factory of unused topic names. It creates nothing; topics with these names are deleted at the end."""
    prefix, counter = f"it-{uuid.uuid4().hex[:8]}", itertools.count()
    yield lambda: f"{prefix}-{next(counter)}"
    if EXTERNAL_BOOTSTRAP:
        ours = [name for name in admin.list_topics(timeout=PATIENCE_S).topics if name.startswith(prefix)]
        for deleted in admin.delete_topics(ours).values() if ours else ():
            deleted.result(PATIENCE_S)


@pytest.fixture(scope="module")
def create_topic(bootstrap: str, admin: AdminClient, topic: Callable[[], str]) -> Iterator[CreateTopic]:
    """Return a function that creates a topic and returns its name once every partition has a leader that serves."""
    with Wire(bootstrap) as probe:

        def create(partitions: int = 1, config: dict[str, str] | None = None, name: str | None = None) -> str:
            name = name or topic()
            new = NewTopic(name, num_partitions=partitions, replication_factor=1, config=config or {})
            admin.create_topics([new], operation_timeout=PATIENCE_S)[name].result(PATIENCE_S)
            await_topic(probe, name, partitions)
            return name

        yield create


def await_topic(probe: Wire, name: str, partitions: int) -> None:
    """Wait until each partition answers. Metadata is not enough: a broker shows a leader a moment before it leads."""
    requested = [{"partition_index": index, "timestamp": -1} for index in range(partitions)]
    topics = [{"name": name, "partitions": requested}]
    request = message("list_offsets", 7, replica_id=-1, isolation_level=0, topics=topics)
    wait_until(
        lambda: all(partition.error_code == 0 for partition in probe.ask(request).topics[0].partitions),
        f"the {partitions} partitions of {name} answer",
        every_s=0,  # each attempt is a round trip
    )


@pytest.fixture
def wire(bootstrap: str) -> Iterator[Wire]:
    with Wire(bootstrap) as connection:
        yield connection


@pytest.fixture
def tools(bootstrap: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Tools:
    """Return a function that runs one of Kafka's tools in this process against the broker."""
    return Tools(bootstrap, capsys, monkeypatch)


@pytest.fixture(scope="session")
def kcat() -> str:
    path = shutil.which("kcat") or shutil.which("kafkacat")
    if path is None:
        pytest.skip("kcat is not on PATH (Debian and Ubuntu: apt-get install kcat)")
    return path


@pytest.fixture(scope="module", autouse=True)
def broker_answers(admin: AdminClient) -> None:
    """End the whole run at once, with a clear message, if no broker answers."""
    try:
        admin.list_topics(timeout=PATIENCE_S)
    except KafkaException as error:
        pytest.exit(f"no broker answers: {error}", returncode=3)
