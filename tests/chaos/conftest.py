"""A broker for each test; skips pipelines where Spark cannot run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from chaos_pipeline import PARTITIONS
from harness.restartable_broker import RestartableBroker

from moldau.spark.java import MissingJava, find_java


@pytest.fixture
def java() -> None:
    try:
        find_java()
    except MissingJava as error:
        pytest.skip(str(error))


@pytest.fixture
def restartable_broker(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestartableBroker]:
    broker = RestartableBroker(tmp_path_factory.mktemp("broker"), "--override", f"num.partitions={PARTITIONS}")
    with broker.running():
        yield broker


@pytest.fixture
def broker(restartable_broker: RestartableBroker) -> str:
    return restartable_broker.bootstrap
