"""Which errors of Spark's Python workers have a traceback."""

from __future__ import annotations

import errno
import os

import pytest

from moldau.base.errors import ErrorCode, KafkaError, StorageFault
from moldau.spark.errors.untraced import HIDE_TRACEBACK, RUNTIME, WORKER, untraced


@pytest.fixture
def in_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RUNTIME, WORKER)
    monkeypatch.setenv(HIDE_TRACEBACK, "")


@untraced(ValueError)
def fails(error: Exception) -> None:
    raise error


@pytest.mark.usefixtures("in_worker")
@pytest.mark.parametrize(
    "error",
    [
        KafkaError(ErrorCode.NONE, "x"),
        ConnectionRefusedError("x"),
        StorageFault("/lake/orders", PermissionError(errno.EACCES, "Permission denied")),
        ValueError("x"),
    ],
)
def test_expected_errors_have_no_traceback(error: Exception) -> None:
    with pytest.raises(type(error)):
        fails(error)
    assert os.environ[HIDE_TRACEBACK] == "1"


@pytest.mark.usefixtures("in_worker")
@pytest.mark.parametrize("error", [AssertionError("x"), TypeError("x"), KeyError("x")])
def test_unexpected_errors_have_a_traceback(error: Exception) -> None:
    with pytest.raises(type(error)):
        fails(error)
    assert not os.environ[HIDE_TRACEBACK]


def test_outside_of_workers_tracebacks_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(RUNTIME, raising=False)
    with pytest.raises(ValueError, match="x"):
        fails(ValueError("x"))
    assert HIDE_TRACEBACK not in os.environ
