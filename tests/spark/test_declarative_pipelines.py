"""Spark's Declarative Pipelines and Spark Connect read and write topics.

The example of docs/spark.md is run twice in a row, and a pipeline that `moldau pipeline export` has written once.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pyarrow.parquet
import pyspark
import pytest
from committed_records import committed_records
from confluent_kafka import Producer
from harness.patience import SPARK_PATIENCE_S

from moldau.spark.java import find_java

NEEDED = ("grpc", "grpc_status", "pandas")
DOCS = Path(__file__).parents[2] / "docs" / "spark.md"

pytestmark = pytest.mark.skipif(
    not all(map(find_spec, NEEDED)),
    reason=f"Declarative Pipelines need {', '.join(NEEDED)}: pip install 'pyspark[pipelines]' 'pandas<3'",
)


EXPORTED = """
name: shop
bootstrap: {bootstrap}
sources:
  orders: {{topic: {source}, schema: "id string, amount int"}}
  users: {{file: users.csv, schema: "id string, country string"}}
steps:
  - {{name: large, sql: "select id, amount, country from orders join users using (id) where amount > 100"}}
sinks:
  - {{name: out, from: large, topic: {target}, key: id}}
"""
CONNECT = """
from pyspark.sql import SparkSession

spark = SparkSession.builder.remote("local[2]").getOrCreate()
broker = {{"kafka.bootstrap.servers": "{bootstrap}"}}
rows = spark.read.format("moldau").options(**broker, subscribe="{source}").load()
upper = rows.selectExpr("key", "upper(cast(value as string)) as value")
upper.write.format("moldau").options(**broker, topic="{target}").mode("append").save()
stream = spark.readStream.format("moldau").options(**broker, subscribe="{source}", startingOffsets="earliest").load()
query = stream.select("key", "value").writeStream.format("moldau").options(**broker, topic="{target}")
query = query.option("checkpointLocation", "{checkpoint}").trigger(availableNow=True).start()
assert query.awaitTermination(300)
spark.stop()
"""


def example() -> tuple[str, str, list[str]]:
    """The specification, the transformations and the command of the page."""
    section = DOCS.read_text().split("\n## Declarative Pipelines\n")[1].split("\n## ")[0]
    (spec,), (code,) = (re.findall(rf"```{kind}\n(.*?)```", section, re.DOTALL) for kind in ("yaml", "python"))
    (command,) = re.findall(r"^\$ (spark-pipelines .*)$", section, re.MULTILINE)
    return spec, code, command.split()


def test_a_topic_becomes_a_table_and_a_topic_and_the_next_run_continues(
    bootstrap: str, create_topic: Callable[[int], str], tmp_path: Path
) -> None:
    spec, code, (program, *words) = example()
    source, target = create_topic(1), create_topic(1)
    (tmp_path / "transformations").mkdir()
    (tmp_path / "spark-pipeline.yml").write_text(spec.replace("/srv/orders/storage", str(tmp_path / "storage")))
    code = code.replace("localhost:9092", bootstrap).replace('subscribe="orders"', f'subscribe="{source}"')
    (tmp_path / "transformations" / "orders.py").write_text(code.replace('"orders.large"', f'"{target}"'))
    command = [Path(pyspark.__file__).parent / "bin" / program, *words]
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})

    def run(*amounts: int) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
        """Run over new orders of these amounts; return the records of the sink and the rows of the view."""
        for amount in amounts:
            producer.produce(source, json.dumps({"id": f"o{amount}", "amount": amount}))
        assert producer.flush(SPARK_PATIENCE_S) == 0
        ran = subprocess.run(
            command, cwd=tmp_path, env=environment_of_spark(), capture_output=True, text=True, timeout=SPARK_PATIENCE_S
        )
        assert ran.returncode == 0, ran.stderr[-4000:]
        records = [json.loads(record.value() or b"") for record in committed_records(bootstrap, target)]
        return records, pyarrow.parquet.read_table(tmp_path / "spark-warehouse" / "totals").to_pylist()

    first = {"id": "o101", "amount": 101}
    assert run(99, 101) == ([first], [{"orders": 2, "total": 200}])
    second = {"id": "o300", "amount": 300}
    assert run(300, 50) == ([first, second], [{"orders": 4, "total": 550}])


def environment_of_spark() -> dict[str, str]:
    return os.environ | {"PYSPARK_PYTHON": sys.executable, "JAVA_HOME": str(find_java().path)}


def test_an_exported_pipeline_runs(bootstrap: str, create_topic: Callable[[int], str], tmp_path: Path) -> None:
    source, target = create_topic(1), create_topic(1)
    (tmp_path / "users.csv").write_text("id,country\no1,CZ\no2,AT\n")
    (tmp_path / "pipeline.yaml").write_text(EXPORTED.format(bootstrap=bootstrap, source=source, target=target))
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for id_, amount in (("o1", 99), ("o2", 101)):
        producer.produce(source, json.dumps({"id": id_, "amount": amount}))
    assert producer.flush(SPARK_PATIENCE_S) == 0
    folder = tmp_path / "declarative"
    export = [
        sys.executable,
        "-m",
        "moldau",
        "pipeline",
        "export",
        str(tmp_path / "pipeline.yaml"),
        "--to",
        str(folder),
    ]
    subprocess.run(export, check=True, timeout=SPARK_PATIENCE_S)
    _, _, (program, *words) = example()
    command = [Path(pyspark.__file__).parent / "bin" / program, *words]
    ran = subprocess.run(
        command, cwd=folder, env=environment_of_spark(), capture_output=True, text=True, timeout=SPARK_PATIENCE_S
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    records = [(record.key(), json.loads(record.value() or b"")) for record in committed_records(bootstrap, target)]
    assert records == [(b"o2", {"id": "o2", "amount": 101, "country": "AT"})]


def test_sources_and_sinks_work_through_spark_connect(
    bootstrap: str, create_topic: Callable[[int], str], tmp_path: Path
) -> None:
    source, target = create_topic(1), create_topic(1)
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    producer.produce(source, "ahoy", key="k")
    assert producer.flush(SPARK_PATIENCE_S) == 0
    code = CONNECT.format(bootstrap=bootstrap, source=source, target=target, checkpoint=tmp_path / "checkpoint")
    command = [sys.executable, "-c", code]
    ran = subprocess.run(
        command, cwd=tmp_path, env=environment_of_spark(), capture_output=True, text=True, timeout=SPARK_PATIENCE_S
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    assert [(each.key(), each.value()) for each in committed_records(bootstrap, target)] == [
        (b"k", b"AHOY"),
        (b"k", b"ahoy"),
    ]
