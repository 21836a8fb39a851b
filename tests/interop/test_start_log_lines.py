"""Log lines of `moldau start` and kafka-server-start: level and format by option and by variable; and what a start
imports, which is most of its CPU time.

Each test starts its own server.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from moldau.cli.kafka import server_start

MODULES_MAX = 590
"""Modules of ours that a start imports, each a third of a millisecond; 581 on 2026-11-19, 26 of them for share groups.
Before this is raised: could what is new be imported where it is first needed?"""
NOT_FOR_A_START = {
    "argparse", "concurrent.futures.process", "csv", "difflib", "email", "http", "importlib.metadata", "moldau.doctor",
    "multiprocessing", "sqlite3", "unittest", "xml", "zipfile",
    "crc32c", "cryptography", "confluent_kafka", "duckdb", "joserfc", "numpy", "pyarrow", "rich", "yaml",
    "moldau.cli.cores.plan", "moldau.cli.secure_start", "moldau.client.access_tokens", "moldau.console",
    "moldau.pipelines", "moldau.prometheus", "moldau.secure_setup", "moldau.security.sasl.settings", "moldau.spark",
    "moldau.testing", "moldau.views.expressions",
}  # fmt: skip
"""With all that is below them: what only SASL, views, metrics or a mistake need."""
MACHINE_IS_SLOW = "held up the event loop|did not run"


@pytest.fixture(scope="module", autouse=True)
def broker_answers() -> None:
    """These tests do not use the shared broker of this directory."""


def environment(**variables: str) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("KAFKA_", "MOLDAU_"))}
    return {**kept, **variables}


@pytest.fixture
def properties(tmp_path: Path) -> Path:
    file = tmp_path / "server.properties"
    file.write_text(
        f"node.id=3\nlog.dirs={tmp_path}/data\nlisteners=PLAINTEXT://127.0.0.1:0\nno.such.setting=1\n", "utf-8"
    )
    return file


def stderr_lines(words: list[str], environ: dict[str, str]) -> list[str]:
    """Start a server, stop it when it is ready, and return the lines of its standard error."""
    server = subprocess.Popen(
        [sys.executable, "-m", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ
    )
    assert server.stdout is not None
    assert "is ready" in server.stdout.readline()
    server.terminate()
    _, stderr_text = server.communicate()
    assert server.returncode == 0
    return stderr_text.splitlines()


def test_a_server_logs_only_json(properties: Path) -> None:
    words = ["moldau", "start", "-c", str(properties), "--log-format", "json"]
    log_lines = [json.loads(line) for line in stderr_lines(words, environment())]
    assert {each["node"] for each in log_lines} == {3}
    assert any("no.such.setting" in each["message"] and each["level"] == "warning" for each in log_lines)
    assert any("active controller" in each["message"] and each["level"] == "info" for each in log_lines)


def test_kafka_server_start_reads_log_variables(properties: Path) -> None:
    environ = environment(MOLDAU_LOG_FORMAT="json", MOLDAU_LOG_LEVEL="warning")
    log_lines = [json.loads(line) for line in stderr_lines([server_start.__name__, str(properties)], environ)]
    messages = [each["message"] for each in log_lines if not re.search(MACHINE_IS_SLOW, each["message"])]
    assert {each["level"] for each in log_lines} == {"warning"}
    assert len(messages) == 1, messages


def test_a_failed_start_is_logged_as_json(properties: Path) -> None:
    words = ["moldau", "start", "-c", str(properties), "-o", "num.partitions=none", "--log-format", "json"]
    ran = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, env=environment())
    assert ran.returncode == 1
    warning, error = map(json.loads, ran.stderr.splitlines())
    assert (warning["level"], error["level"]) == ("warning", "error")
    assert "unknown setting" in warning["message"]  # the unknown setting in the file; it may be the reason of the error
    assert "num.partitions" in error["message"]


def test_a_start_imports_only_what_a_plain_broker_needs(tmp_path: Path) -> None:
    words = ["moldau", "start", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data")]
    lines = stderr_lines(words, environment(PYTHONPROFILEIMPORTTIME="1"))
    imported = {line.rpartition("|")[2].strip() for line in lines if line.startswith("import time:")}
    assert "moldau.node.node" in imported
    needless = {name for name in imported if any(f"{name}.".startswith(f"{each}.") for each in NOT_FOR_A_START)}
    assert needless == set()
    assert len([name for name in imported if name.startswith("moldau.")]) <= MODULES_MAX


@pytest.mark.parametrize(
    ("words", "environ", "line"),
    [
        (["moldau", "start"], {"MOLDAU_LOG_LEVEL": "loud"}, "MOLDAU_LOG_LEVEL 'loud': expected debug, info"),
        (["moldau", "start", "--log-level", "loud"], {}, "'--log-level': 'loud' is not one of 'debug', 'info'"),
        (["moldau", "cluster", "start"], {"MOLDAU_LOG_FORMAT": "xml"}, "MOLDAU_LOG_FORMAT 'xml': expected text or"),
        ([server_start.__name__, "absent.properties"], {"MOLDAU_LOG_FORMAT": "xml"}, "MOLDAU_LOG_FORMAT 'xml'"),
        ([server_start.__name__, "-daemon", "absent.properties"], {"MOLDAU_LOG_LEVEL": "x"}, "MOLDAU_LOG_LEVEL 'x'"),
    ],
)
def test_a_wrong_log_level_or_format_stops_the_start(
    words: list[str], environ: dict[str, str], line: str, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", *words]
    ran = subprocess.run(command, capture_output=True, text=True, env=environment(**environ), cwd=tmp_path)
    assert ran.returncode == 1
    assert line in ran.stderr
    assert ran.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
