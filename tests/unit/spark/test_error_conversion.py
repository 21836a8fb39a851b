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
    def test_are_silent(self, name: str) -> None:
        conversion._silence(name)
        assert PySparkLogger.getLogger(name).level == SILENT

    def test_also_if_pyspark_made_them_before(self, name: str) -> None:
        logger = PySparkLogger.getLogger(name)
        conversion._silence(name)
        assert logger.level == SILENT

    def test_but_not_if_somebody_set_them_up(self, name: str) -> None:
        logging.getLogger(name).setLevel(logging.WARNING)
        conversion._silence(name)
        assert logging.getLogger(name).level == logging.WARNING

    @pytest.mark.parametrize(
        "set_up",
        [lambda logger: logger.setLevel(logging.INFO), lambda logger: logger.addHandler(logging.NullHandler())],
    )
    def test_neither_if_somebody_changed_pysparks(self, name: str, set_up: Any) -> None:
        logger = PySparkLogger.getLogger(name)
        set_up(logger)
        conversion._silence(name)
        assert logger.level != SILENT

    def test_speak_again_when_they_are_told_to(self, name: str) -> None:
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
def test_no_error_has_the_name_of_a_builtin_one_that_would_not_catch_it(raised: str, name: str) -> None:
    assert conversion._class_name(raised) == name


def test_the_conversion_is_installed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []

    def convert(java_exception: object) -> Any:
        made.append(java_exception)

    monkeypatch.setattr(captured, "convert_exception", convert)
    monkeypatch.setattr(conversion, "_silence", lambda name: None)
    conversion.install()
    once = captured.convert_exception
    conversion.install()
    assert captured.convert_exception is once
    assert once is not convert
