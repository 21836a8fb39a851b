"""The connector with `delegationToken=true`, without a JVM: what Spark sends to tasks has a token and no password."""

from __future__ import annotations

import logging
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from harness.patience import PATIENCE_S
from spark_connector import rows

from moldau.client import token_login
from moldau.client.admin.cluster_admin import ClusterAdmin
from moldau.client.admin.delegation_tokens import DelegationTokens, TokenWithHmac
from moldau.client.cluster import Cluster
from moldau.security.sasl.jaas import SCRAM_MODULE
from moldau.spark import delegation
from moldau.spark.columns import source_schema
from moldau.spark.source import MoldauSource
from moldau.testing import TestBroker, broker

pytest.importorskip("pyspark")
pytestmark = pytest.mark.moldau_only
from pyspark.cloudpickle import dumps, loads  # noqa: E402
from pyspark.sql.types import BinaryType, StructField, StructType  # noqa: E402

PASSWORD = "pl4nted-ann"
DAY_MS = 86_400_000
SINK_SCHEMA = StructType([StructField("value", BinaryType())])


@pytest.fixture(scope="module", autouse=True)
def broker_answers() -> None:
    """These tests do not use the shared broker of this directory."""


@pytest.fixture(scope="module")
def kafka() -> Iterator[TestBroker]:
    with broker(secure=True) as running:
        running.add_user("ann", PASSWORD)
        running.allow("ann", "read,write,describe", topic="orders")
        running.allow("ann", "read", group="moldau-spark", prefix=True)
        running.allow("ann", "write,describe", transactional_id="moldau-spark", prefix=True)
        admin = AdminClient({**running.client_config(), "log_level": "0"})
        admin.create_topics([NewTopic("orders", 2)])["orders"].result(PATIENCE_S)
        yield running


@pytest.fixture(autouse=True)
def new_process() -> Iterator[None]:
    """Forget tokens, as each of Spark's processes begins without any."""
    delegation._tokens.clear()
    yield
    delegation._tokens.clear()


def login(kafka: TestBroker) -> dict[str, str]:
    return {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(kafka.authority_file),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f'{SCRAM_MODULE} required username="ann" password="{PASSWORD}";',
    }


def source(kafka: TestBroker, **options: str) -> MoldauSource:
    properties = {"bootstrap.servers": kafka.bootstrap_servers, **login(kafka)}
    given = {f"kafka.{name}": value for name, value in properties.items()}
    return MoldauSource({**given, "delegationToken": "true", **options})


def tokens(kafka: TestBroker) -> list[TokenWithHmac]:
    """Return all tokens of ann."""
    with ClusterAdmin(Cluster(kafka.bootstrap_servers, login(kafka)), 15_000) as admin:
        return DelegationTokens(admin).describe()


def sent(what: Any, kafka: TestBroker) -> Any:
    """Return what arrives at a task. Check that neither the password nor the login of the user is in it."""
    data = dumps(what)
    assert PASSWORD.encode() not in data
    assert b'username="ann"' not in data
    return loads(data)


def write(kafka: TestBroker, values: list[str], **options: str) -> None:
    writer: Any = sent(source(kafka, topic="orders", **options).writer(SINK_SCHEMA, False), kafka)
    batch = pa.RecordBatch.from_pydict({"value": pa.array([each.encode() for each in values], pa.binary())})
    writer.commit([writer.write(iter([batch]))])


def test_tasks_read_and_write_with_a_token_of_the_driver(kafka: TestBroker, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    write(kafka, ["a", "b"])
    write(kafka, ["c"], deliveryGuarantee="exactly-once")
    (token,) = tokens(kafka)
    assert str(token.token.owner) == "User:ann"
    planned = source(kafka, subscribe="orders")
    reader: Any = planned.reader(source_schema(False))
    partitions = reader.partitions()
    hmac = b64encode(token.hmac).decode()
    assert hmac not in repr(partitions)
    in_task = sent(reader, kafka)
    sent(planned, kafka)
    assert {name for name in in_task._options.properties if name.startswith("sasl")} == set()
    table = rows(in_task, sent(partitions, kafka), in_task._schema)
    assert sorted(table["value"].to_pylist()) == [b"a", b"b", b"c"]
    assert [each.token.id for each in tokens(kafka)] == [token.token.id], "the earlier token is used again"
    assert PASSWORD not in caplog.text
    assert hmac not in caplog.text


def test_a_stream_gives_a_new_token_to_later_batches(kafka: TestBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    planned: Any = source(kafka, subscribe="orders", startingOffsets="earliest").streamReader(source_schema(False))
    in_task = sent(planned, kafka)  # PySpark sends it once, for all batches
    with closing(Stopped(planned.stop)):
        start = planned.initialOffset()
        middle = planned.latestOffset(start, planned.getDefaultReadLimit())
        first = planned.partitions(start, middle)
        write(kafka, ["later"])
        before = len(tokens(kafka))
        later_ms = token_login.now_ms() + DAY_MS * 5 // 8
        monkeypatch.setattr(token_login, "now_ms", lambda: later_ms)
        end = planned.latestOffset(middle, planned.getDefaultReadLimit())
        second = planned.partitions(middle, end)
    assert len(tokens(kafka)) == before + 1
    logins = [{each.login.properties["sasl.jaas.config"] for each in some} for some in (first, second)]
    assert [len(each) for each in logins] == [1, 1]
    assert logins[0] != logins[1]
    assert "later" not in str(rows(in_task, sent(first, kafka), in_task._schema)["value"].to_pylist())
    assert rows(in_task, sent(second, kafka), in_task._schema)["value"].to_pylist() == [b"later"]


class Stopped:
    def __init__(self, close: Callable[[], None]) -> None:
        self.close = close


def test_a_broker_without_delegation_tokens_is_reported() -> None:
    jaas = f'{SCRAM_MODULE.replace("scram.Scram", "plain.Plain")} required username="ann" password="{PASSWORD}"'
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": f'{jaas} user_ann="{PASSWORD}";',
    }
    with broker(**settings) as running:
        given = {
            "kafka.bootstrap.servers": running.bootstrap_servers,
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.jaas.config": f"{jaas};",
            "topic": "orders",
            "delegationToken": "true",
        }
        with pytest.raises(ValueError, match=r"set delegation\.token\.secret\.key"):
            MoldauSource(given).writer(SINK_SCHEMA, False)
