"""The fixtures of all tests with a real Spark: one session, one broker in a process of its own, new topics.

The broker is a process and not a thread: the driver's Python serves Spark's callbacks, and both would share one
interpreter lock.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
import uuid
import venv
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from harness.depth import DEPTH
from harness.patience import PATIENCE_S

from moldau.spark.java import MissingJava, find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXTERNAL_BOOTSTRAP = os.environ.get("MOLDAU_TEST_BOOTSTRAP")
INTERPRETED = {"spark.sql.codegen.wholeStage": False, "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Spark interprets plans instead of compiling Java classes for each, which took a fifth of the CPU time: plans run over
a few rows. `make deep` compiles them, and so do the Sparks that tests start in processes of their own."""


def missing() -> str | None:
    """Why Spark cannot run here, if it cannot."""
    if absent := [name for name in ("pyspark", "pyarrow", "numpy") if find_spec(name) is None]:
        return f"{' and '.join(absent)} not installed: pip install 'moldau[spark]'"
    try:
        find_java()
    except MissingJava as error:
        return str(error)
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    ours = [item for item in items if here in item.path.parents]
    if ours and (reason := missing()):
        for item in ours:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    import moldau.spark
    from moldau.pipelines.running.launching import SESSION_DEFAULTS

    conf: dict[str, object] = {**SESSION_DEFAULTS, "spark.sql.shuffle.partitions": 1}
    if DEPTH == 1:
        conf |= INTERPRETED
    session = moldau.spark.session("tests", master="local[2]", quick_start=True, **conf)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker. MOLDAU_TEST_BOOTSTRAP=HOST:PORT names another than ours."""
    if EXTERNAL_BOOTSTRAP:
        yield EXTERNAL_BOOTSTRAP
        return
    data = tmp_path_factory.mktemp("broker")
    command = [sys.executable, "-m", "moldau", "start", "--data-dir", str(data), "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as broker:
        try:
            assert broker.stdout is not None
            ready = broker.stdout.readline()
            address = re.search(r"ready: (\S+)", ready)
            assert address, f"the broker did not start: {ready!r}"
            yield address[1]
        finally:
            broker.terminate()
            try:
                broker.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                broker.kill()


@pytest.fixture(scope="session")
def topic() -> Callable[[], str]:
    """A function that returns a new topic name. It creates no topic."""
    prefix, counter = f"spark-{uuid.uuid4().hex[:8]}", itertools.count()
    return lambda: f"{prefix}-{next(counter)}"


@pytest.fixture(scope="session")
def create_topic(bootstrap: str, topic: Callable[[], str]) -> Callable[[int], str]:
    """Creates a topic of so many partitions and returns its name."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})  # it outlives the broker, and would log that

    def create(partitions: int = 1) -> str:
        name = topic()
        admin.create_topics([NewTopic(name, partitions, 1)])[name].result(PATIENCE_S)
        return name

    return create


@pytest.fixture(scope="session")
def clean_environment() -> dict[str, str]:
    """This process's environment, without what would lead other processes to Moldau or to another Spark."""
    leading = {"PYTHONPATH", "PYSPARK_PYTHON", "SPARK_HOME"}
    return {key: value for key, value in os.environ.items() if key not in leading}


@pytest.fixture(scope="session")
def bare_python(tmp_path_factory: pytest.TempPathFactory, clean_environment: dict[str, str]) -> Path:
    """A Python that imports all that is installed here except Moldau.

    A .pth file adds the packages of this environment, but Python does not follow the .pth files it finds among them,
    and an editable install is one of those.
    """
    home = tmp_path_factory.mktemp("bare")
    venv.create(home, symlinks=True)
    packages = next(home.glob("lib/python*/site-packages"))
    (packages / "those.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
    python = home / "bin" / "python"
    command = [python, "-c", "import pyspark, pyarrow, moldau"]
    lacks = subprocess.run(command, capture_output=True, text=True, cwd=home, env=clean_environment)
    if "No module named 'moldau'" not in lacks.stderr:
        pytest.skip(f"Moldau is not installed editable here, so it cannot be hidden: {lacks.stderr}")
    return python
