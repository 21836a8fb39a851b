"""A broker for each test; skips pipelines where Spark cannot run."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator

import pytest
from chaos_pipeline import PARTITIONS

from moldau.spark.java import MissingJava, find_java


@pytest.fixture
def java() -> None:
    try:
        find_java()
    except MissingJava as error:
        pytest.skip(str(error))


@pytest.fixture
def broker(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    data = tmp_path_factory.mktemp("broker")
    command = [sys.executable, "-m", "moldau", "start", "--data-dir", str(data), "--listen", "127.0.0.1:0"]
    with subprocess.Popen(
        [*command, "--override", f"num.partitions={PARTITIONS}"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        match = re.search(r"ready: (\S+)", process.stdout.readline())
        assert match
        yield match[1]
        process.terminate()
