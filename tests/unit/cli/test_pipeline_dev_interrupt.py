"""`moldau pipeline dev`: Ctrl-C during a call to Java, whose errors are not logged."""

from __future__ import annotations

import logging
import os
import signal

import pytest

from moldau.cli.pipeline.dev import LOGGERS_OF_CALLS, _until_interrupted


@pytest.mark.parametrize("name", LOGGERS_OF_CALLS)
def test_an_interrupted_call_logs_nothing(
    name: str | None, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    logger = logging.getLogger(name)
    with _until_interrupted():
        logger.error("a failure before")
        try:
            os.kill(os.getpid(), signal.SIGINT)
        finally:
            logger.error("a broken connection")
    logger.error("a failure afterwards")
    assert [record.message for record in caplog.records] == ["a failure before", "a failure afterwards"]
    assert capsys.readouterr().out == "\nended\n"


def test_other_failures_are_raised() -> None:
    with pytest.raises(ValueError, match="as asked"), _until_interrupted():
        raise ValueError("as asked")
