"""The conversion of exceptions that is installed in PySpark, as far as it needs no JVM."""

from __future__ import annotations

import logging
import uuid
from typing import Any

import pytest
from pyspark.errors.exceptions import captured
from pyspark.logger import PySparkLogger

from moldau.spark.errors import conversion

SILENT = logging.CRITICAL + 1


@pytest.fixture
def name() -> str:
    return f"logger-{uuid.uuid4()}"


class TestLoggersOfRefusedQueries:
    def test_loggers_are_silenced(self, name: str) -> None:
        conversion._silence(name)
        assert PySparkLogger.getLogger(name).level == SILENT

    def test_loggers_that_pyspark_created_before_are_silenced(self, name: str) -> None:
        logger = PySparkLogger.getLogger(name)
        conversion._silence(name)
        assert logger.level == SILENT

    def test_a_logger_configured_by_the_user_is_not_silenced(self, name: str) -> None:
        logging.getLogger(name).setLevel(logging.WARNING)
        conversion._silence(name)
        assert logging.getLogger(name).level == logging.WARNING

    @pytest.mark.parametrize(
        "set_up",
        [lambda logger: logger.setLevel(logging.INFO), lambda logger: logger.addHandler(logging.NullHandler())],
    )
    def test_a_pyspark_logger_changed_by_the_user_is_not_silenced(self, name: str, set_up: Any) -> None:
        logger = PySparkLogger.getLogger(name)
        set_up(logger)
        conversion._silence(name)
        assert logger.level != SILENT

    def test_a_silenced_logger_can_be_enabled_again(self, name: str) -> None:
        conversion._silence(name)
        logging.getLogger(name).setLevel(logging.ERROR)
        assert PySparkLogger.getLogger(name).isEnabledFor(logging.ERROR)


@pytest.mark.parametrize(
    ("raised", "name"),
    [
        ("ValueError", "ConnectorError"),
        ("TimeoutError", "ConnectorTimeoutError"),
        ("ConnectionRefusedError", "ConnectorConnectionRefusedError"),
        ("DataLoss", "DataLoss"),
    ],
)
def test_errors_with_a_builtin_name_get_the_prefix_connector(raised: str, name: str) -> None:
    assert conversion._class_name(raised) == name


def test_the_conversion_is_installed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def convert(java_exception: object) -> Any:
        raise AssertionError("no exception is converted here")

    monkeypatch.setattr(captured, "convert_exception", convert)
    monkeypatch.setattr(conversion, "_silence", lambda name: None)
    conversion.install()
    once = captured.convert_exception
    conversion.install()
    assert captured.convert_exception is once
    assert once is not convert
