"""Which failed tests are run again: those from which the host took the machine, and no others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from stolen_time import STOLEN_MIN, TICKS_PER_SECOND, TRIES, ProcessorTime, Repeats, processor_time, stolen_share

pytest_plugins = "pytester"
FAILS_TWICE = """
    import pytest
    made = []

    @pytest.fixture(scope="module")
    def fresh():
        made.append(True)
        return len(made)

    def test_it(fresh):
        assert fresh == 3, "not yet"
    """


def ticking(share: float, seconds: float) -> Iterator[ProcessorTime]:
    """A machine of which so much is stolen all the time; a test takes so many seconds."""
    ticks = seconds * TICKS_PER_SECOND
    for number in range(1000):
        yield ProcessorTime(round(number * ticks * (1 - share)), round(number * ticks * share))


def outcomes(
    pytester: pytest.Pytester, text: str, share: float, folder: str = "interop", seconds: float = 1
) -> tuple[dict[str, int], str]:
    (pytester.path / folder).mkdir()
    (pytester.path / folder / "test_made.py").write_text("\n".join(line[4:] for line in text.splitlines()))
    plugin = Repeats(Path(pytester.path), ticking(share, seconds).__next__)
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-W", "error", plugins=[plugin])
    return result.parseoutcomes(), result.stdout.str()


def test_a_test_whose_machine_was_taken_away_is_run_again_with_new_fixtures(pytester: pytest.Pytester) -> None:
    found, said = outcomes(pytester, FAILS_TWICE, share=0.5)
    assert found == {"passed": 1}
    assert (
        said.count("run again, 50% of the processor was taken away, 0.5 s: interop/test_made.py::test_it: ")
        == TRIES - 1
    )
    assert "AssertionError: not yet" in said


def test_on_a_machine_of_its_own_a_failure_counts_at_once(pytester: pytest.Pytester) -> None:
    found, said = outcomes(pytester, FAILS_TWICE, share=STOLEN_MIN / 2)
    assert found == {"failed": 1}
    assert "run again" not in said


def test_a_second_that_was_taken_away_from_a_long_test_is_a_reason_too(pytester: pytest.Pytester) -> None:
    found, said = outcomes(pytester, FAILS_TWICE, share=STOLEN_MIN / 2, seconds=11)
    assert found == {"passed": 1}
    assert "run again, 10% of the processor was taken away, 1.1 s" in said


def test_a_test_that_fails_every_time_fails(pytester: pytest.Pytester) -> None:
    found, _ = outcomes(pytester, "    def test_it():\n        assert False\n", share=0.9)
    assert found == {"failed": 1}


def test_what_a_failed_try_left_open_fails_no_other_test(pytester: pytest.Pytester) -> None:
    text = """
    import gc
    tries = []

    def test_it():
        tries.append(True)
        left = open(__file__)
        assert len(tries) == 3
        left.close()

    def test_another():
        gc.collect()
    """
    assert outcomes(pytester, text, share=0.9)[0] == {"passed": 2}


def test_a_test_without_processes_is_not_repeated(pytester: pytest.Pytester) -> None:
    found, said = outcomes(pytester, FAILS_TWICE, share=0.9, folder="unit")
    assert found == {"failed": 1}
    assert "run again" not in said


def test_a_worker_that_spark_gave_up_is_a_reason_too(pytester: pytest.Pytester) -> None:
    text = FAILS_TWICE.replace("not yet", "Python worker failed to connect back.")
    found, said = outcomes(pytester, text, share=0.0, folder="spark")
    assert found == {"passed": 1}
    assert "run again, Spark gave up on a worker" in said


def test_the_share_of_this_machine_is_a_share() -> None:
    assert 0 <= stolen_share(ProcessorTime(0, 0), processor_time()) <= 1
    assert stolen_share(ProcessorTime(100, 50), ProcessorTime(130, 60)) == 0.25
    assert stolen_share(ProcessorTime(100, 50), ProcessorTime(100, 50)) == 0.0
