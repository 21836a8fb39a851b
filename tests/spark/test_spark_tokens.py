"""Spark with `delegationToken=true` on a secured broker: neither tasks nor files get the driver's password."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from harness.patience import PATIENCE_S, SPARK_PATIENCE_S

from moldau.client.admin.cluster_admin import ClusterAdmin
from moldau.client.admin.delegation_tokens import DelegationTokens
from moldau.client.cluster import Cluster
from moldau.security.sasl.jaas import SCRAM_MODULE
from moldau.testing import TestBroker, broker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PASSWORD = "pl4nted-ann"


@pytest.fixture(scope="module")
def kafka() -> Iterator[TestBroker]:
    with broker(secure=True) as running:
        running.add_user("ann", PASSWORD)
        for name in ("orders", "copies"):
            running.allow("ann", "read,write,describe", topic=name)
        running.allow("ann", "read", group="moldau-spark", prefix=True)
        running.allow("ann", "write,describe", transactional_id="moldau-spark", prefix=True)
        admin = AdminClient({**running.client_config(), "log_level": "0"})
        for made in admin.create_topics([NewTopic("orders", 2), NewTopic("copies", 1)]).values():
            made.result(PATIENCE_S)
        yield running


def login(kafka: TestBroker) -> dict[str, str]:
    return {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(kafka.authority_file),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f'{SCRAM_MODULE} required username="ann" password="{PASSWORD}";',
    }


def options(kafka: TestBroker) -> dict[str, str]:
    properties = {"bootstrap.servers": kafka.bootstrap_servers, **login(kafka)}
    return {"delegationToken": "true", **{f"kafka.{name}": value for name, value in properties.items()}}


def hmacs(kafka: TestBroker) -> list[str]:
    """Return the passwords of all tokens."""
    with ClusterAdmin(Cluster(kafka.bootstrap_servers, login(kafka)), 15_000) as admin:
        return [b64encode(each.hmac).decode() for each in DelegationTokens(admin).describe()]


def sent_to_tasks(spark: SparkSession, frame: DataFrame) -> bytes:
    """Return what Spark sends to the tasks of a read: a factory with a pickled function, and partitions."""
    scan: Any = frame._jdf.queryExecution().sparkPlan().collectLeaves().head()
    jvm: Any = spark._jvm
    written = jvm.java.io.ByteArrayOutputStream()
    stream = jvm.java.io.ObjectOutputStream(written)
    stream.writeObject(scan.readerFactory())
    for partition in scan.batch().planInputPartitions():
        stream.writeObject(partition)
    stream.close()
    return bytes(written.toByteArray())


def test_tasks_get_a_token_and_no_password(
    spark: SparkSession, kafka: TestBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    given = options(kafka)
    written = spark.createDataFrame([(b"%d" % number,) for number in range(50)], "value binary")
    written.write.format("moldau").options(**given, topic="orders").mode("append").save()
    frame = spark.read.format("moldau").options(**given, subscribe="orders").load()
    assert frame.count() == 50
    (hmac,) = hmacs(kafka)
    data = sent_to_tasks(spark, frame)
    assert hmac.encode() in data
    assert PASSWORD.encode() not in data
    stream = spark.readStream.format("moldau").options(**given, subscribe="orders", startingOffsets="earliest").load()
    query = (
        stream.select("value")
        .writeStream.format("moldau")
        .options(**given, topic="copies", checkpointLocation=str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(SPARK_PATIENCE_S)
    assert query.exception() is None
    copies = spark.read.format("moldau").options(**given, subscribe="copies").load()
    assert copies.count() == 50
    assert hmacs(kafka) == [hmac], "batches and processes share a token"
    plans = "".join(each._jdf.queryExecution().toString() for each in (frame, stream, copies))
    files = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    for secret in (PASSWORD, hmac):
        assert secret not in plans
        assert secret.encode() not in files
        assert secret not in caplog.text
