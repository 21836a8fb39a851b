"""What helps after a failure: each front end has its own words for each step."""

from __future__ import annotations

import pytest

from moldau.base.errors import ErrorCode, KafkaError
from moldau.cli import next_steps as of_commands
from moldau.console import next_steps as of_console
from moldau.operations.failures import NotFound, kafka_failure
from moldau.operations.next_steps import NextStep, Note


@pytest.mark.parametrize("step", NextStep)
def test_each_front_end_has_words_for_each_step(step: NextStep) -> None:
    note = Note("it fails", step, "ann")
    for front_end in (of_commands, of_console):
        assert front_end.worded(note).startswith("it fails")
        assert "{" not in front_end.worded(note)


@pytest.mark.parametrize("step", NextStep)
def test_the_console_names_no_commands_and_flags(step: NextStep) -> None:
    words = of_console.WORDS[step]
    assert "moldau " not in words
    assert "--" not in words


def test_a_failure_in_the_words_of_a_command() -> None:
    failed = kafka_failure(KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, "The group is gone."), "group billing")
    expected = "group billing: The group is gone; `moldau group list` shows the groups there are"
    assert of_commands.worded(failed) == expected
    missing = NotFound("no open transaction begins at offset 7 of orders partition 0", NextStep.SEE_PRODUCERS, "orders")
    assert of_commands.worded(missing).endswith("; `moldau transaction producers orders` shows where they do")


def test_advice_that_is_the_same_everywhere_is_part_of_the_reason() -> None:
    failed = kafka_failure(KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED))
    assert str(failed) == "group authorization failed; ask for an ACL on the group"
    assert of_commands.worded(failed) == of_console.worded(failed) == str(failed)
