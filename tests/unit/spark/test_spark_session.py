"""The configuration that Spark is started with: precedence, local masters, missing packages. No JVM."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from moldau.base.errors import MalformedData
from moldau.spark import spark_session
from moldau.spark.spark_session import (
    LATE_OPTIMIZER,
    QUICK_START,
    MissingPackage,
    is_on_loopback,
    local_cores,
    read_spark_defaults,
)

CHECKPOINTS = "spark.sql.streaming.checkpointFileManagerClass"


@pytest.fixture
def conf_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    return tmp_path


def conf_for(quick_start: bool = False, **given: str) -> dict[str, str]:
    named = {key.replace("_", "."): value for key, value in given.items()}
    return spark_session._conf_for_start(named, quick_start)


@pytest.mark.parametrize(
    ("master", "cores"),
    [("local", 1), ("local[3]", 3), ("local[2,4]", 2), ("local[2, 4]", 2)],
)
def test_local_masters_have_cores_and_are_on_loopback(master: str, cores: int) -> None:
    assert local_cores(master) == cores
    assert is_on_loopback(master)


@pytest.mark.parametrize(
    "master", ["yarn", "spark://a:7077", "k8s://https://a:6443", "local-cluster[2,1,512]", "sc://a"]
)
def test_cluster_masters_have_no_local_cores(master: str) -> None:
    assert local_cores(master) is None


@pytest.mark.parametrize("name", ["kafka.sasl.jaas.config", "kafka.ssl.keystore.key", "kafka.ssl.key.pem", "jdbc.url"])
def test_plans_do_not_show_secret_options(conf_dir: Path, name: str) -> None:
    assert re.search(conf_for()["spark.sql.redaction.options.regex"], name)
    assert not re.search(conf_for()["spark.sql.redaction.options.regex"], "kafka.ssl.truststore.location")


@pytest.mark.parametrize(
    ("master", "loopback"),
    [
        ("spark://127.0.0.1:7077", True),
        ("spark://localhost:7077", True),
        ("spark://[::1]:7077", True),
        ("local-cluster[2,1,512]", True),
        ("spark://localhost.example.org:7077", False),
        ("spark://10.0.0.1:7077", False),
        ("spark://127.0.0.1:7077,10.0.0.1:7077", False),
        ("yarn", False),
    ],
)
def test_masters_on_loopback(master: str, loopback: bool) -> None:
    assert is_on_loopback(master) is loopback


def test_the_default_master_uses_all_local_cores(conf_dir: Path) -> None:
    conf = conf_for()
    assert conf["spark.master"] == "local[*]"
    assert conf["spark.sql.shuffle.partitions"] == str(local_cores("local[*]"))
    assert conf["spark.ui.enabled"] == "false"


def test_the_caller_wins_over_spark_defaults_and_both_over_our_defaults(conf_dir: Path) -> None:
    (conf_dir / "spark-defaults.conf").write_text(
        "spark.master local[5]\nspark.ui.enabled true\nspark.sql.session.timeZone Europe/Prague\n"
    )
    conf = conf_for(spark_ui_enabled="maybe")
    assert conf["spark.master"] == "local[5]"
    assert conf["spark.sql.shuffle.partitions"] == "5"
    assert conf["spark.ui.enabled"] == "maybe"
    assert "spark.sql.session.timeZone" not in conf, "left to spark-defaults.conf, which Spark reads itself"
    assert conf_for(spark_master="local[2]")["spark.master"] == "local[2]"


def test_an_error_in_spark_defaults_names_the_file(conf_dir: Path) -> None:
    (conf_dir / "spark-defaults.conf").write_text("spark.app.name \\users\n")
    with pytest.raises(MalformedData, match=r"spark-defaults\.conf: line 1: \\u is not followed"):
        conf_for()


def test_our_checkpoint_file_manager_is_set_on_local_masters_only(conf_dir: Path) -> None:
    assert CHECKPOINTS in conf_for(spark_master="local[2]")
    assert CHECKPOINTS not in conf_for(spark_master="spark://127.0.0.1:7077")
    assert "spark.sql.shuffle.partitions" not in conf_for(spark_master="yarn")


def test_java_options_of_spark_defaults_are_kept(conf_dir: Path) -> None:
    (conf_dir / "spark-defaults.conf").write_text("spark.driver.defaultJavaOptions -Da=b -XX:TieredStopAtLevel=4\n")
    options = conf_for(quick_start=True)["spark.driver.defaultJavaOptions"].split()
    assert options[0].startswith("-Dlog4j2.configurationFile=file:///")
    # Of two contradicting options, Java uses the last.
    assert options[1:] == [*QUICK_START, "-Da=b", "-XX:TieredStopAtLevel=4"]


def test_a_log4j_file_of_the_user_replaces_ours(conf_dir: Path) -> None:
    (conf_dir / "log4j2.xml").touch()
    assert conf_for()["spark.driver.defaultJavaOptions"].split() == list(LATE_OPTIMIZER)


def test_spark_defaults_are_parsed_in_every_form() -> None:
    text = "# comment\n\nspark.a 1\n  spark.b\t two words \nspark.c=3\nspark.d : 4\nspark.e\nspark.f -Dx=y\n! comment\n"
    assert read_spark_defaults(text) == {
        "spark.a": "1",
        "spark.b": "two words",
        "spark.c": "3",
        "spark.d": "4",
        "spark.e": "",
        "spark.f": "-Dx=y",
    }


def test_spark_defaults_are_parsed_as_java_properties() -> None:
    text = "spark.master spark\\://h\\:7077\nspark.jars a,\\\n    b\n"
    assert read_spark_defaults(text) == {"spark.master": "spark://h:7077", "spark.jars": "a,b"}


def test_pyspark_python_of_spark_defaults_wins_over_the_environment(
    conf_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/env/python")
    (conf_dir / "spark-defaults.conf").write_text("spark.pyspark.python /defaults/python\n")
    conf = conf_for(spark_master="local[1]")
    assert spark_session._python_of_workers({**spark_session._configured(), **conf}) == {
        "PYSPARK_PYTHON": "/defaults/python"
    }
    assert os.environ["PYSPARK_PYTHON"] == "/env/python"


def test_local_star_uses_the_cores_that_java_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_session, "usable_cores", lambda: 8)
    for quota, cores in ((None, 8), (1.5, 2), (0.2, 1), (16.0, 8)):
        monkeypatch.setattr(spark_session, "core_quota", lambda quota=quota: quota)
        assert local_cores("local[*]") == cores


def test_a_directory_with_a_space_stays_one_java_option(conf_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_session, "library_directory", lambda: Path("/home/Jane Doe/native"))
    assert '"-Djava.io.tmpdir=/home/Jane Doe/native"' in conf_for()["spark.driver.defaultJavaOptions"]


def test_missing_packages_are_reported_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_session, "find_spec", lambda name: None if name == "pyarrow" else object())
    with pytest.raises(MissingPackage) as missing:
        spark_session.start("x", None, False, {})
    assert str(missing.value) == "pyarrow not installed: pip install 'moldau[spark]'"
    monkeypatch.setattr(spark_session, "find_spec", lambda _: None)
    with pytest.raises(MissingPackage, match=r"^pyspark and pyarrow and numpy not installed"):
        spark_session.start("x", None, False, {})
