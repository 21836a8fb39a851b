"""Which failed tests are repeated: those during which the host took CPU time away (steal time), and no others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from runner.stolen_time import STOLEN_MIN, TICKS_PER_SECOND, TRIES, ProcessorTime, Repeats, processor_time, stolen_share

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


def processor_times(share: float, seconds: float) -> Iterator[ProcessorTime]:
    """Yield the processor times of a machine of which `share` is always stolen, and where a test takes `seconds`."""
    ticks = seconds * TICKS_PER_SECOND
    for number in range(1000):
        yield ProcessorTime(round(number * ticks * (1 - share)), round(number * ticks * share))


def outcomes(
    pytester: pytest.Pytester, text: str, share: float, folder: str = "interop", seconds: float = 1
) -> tuple[dict[str, int], str]:
    (pytester.path / folder).mkdir()
    (pytester.path / folder / "test_made.py").write_text("\n".join(line[4:] for line in text.splitlines()))
    plugin = Repeats(Path(pytester.path), processor_times(share, seconds).__next__)
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-W", "error", plugins=[plugin])
    return result.parseoutcomes(), result.stdout.str()


def test_a_failed_test_is_repeated_with_new_fixtures_if_cpu_time_was_stolen(pytester: pytest.Pytester) -> None:
    found, output = outcomes(pytester, FAILS_TWICE, share=0.5)
    assert found == {"passed": 1}
    assert (
        output.count("run again, 50% of the processor was taken away, 0.5 s: interop/test_made.py::test_it: ")
        == TRIES - 1
    )
    assert "AssertionError: not yet" in output


def test_a_failure_counts_at_once_if_little_cpu_time_was_stolen(pytester: pytest.Pytester) -> None:
    found, output = outcomes(pytester, FAILS_TWICE, share=STOLEN_MIN / 2)
    assert found == {"failed": 1}
    assert "run again" not in output


def test_a_failure_counts_always_if_the_test_says_so(pytester: pytest.Pytester) -> None:
    text = FAILS_TWICE.replace("    def test_it", "    @pytest.mark.counts_always\n    def test_it")
    pytester.makeini("[pytest]\nmarkers = counts_always: a failure counts")
    found, output = outcomes(pytester, text, share=0.5)
    assert found == {"failed": 1}
    assert "run again" not in output


def test_a_long_test_is_repeated_if_a_second_was_stolen(pytester: pytest.Pytester) -> None:
    found, output = outcomes(pytester, FAILS_TWICE, share=STOLEN_MIN / 2, seconds=11)
    assert found == {"passed": 1}
    assert "run again, 10% of the processor was taken away, 1.1 s" in output


def test_a_test_that_fails_every_time_fails(pytester: pytest.Pytester) -> None:
    found, _ = outcomes(pytester, "    def test_it():\n        assert False\n", share=0.9)
    assert found == {"failed": 1}


def test_a_file_left_open_by_a_failed_try_fails_no_other_test(pytester: pytest.Pytester) -> None:
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
    found, output = outcomes(pytester, FAILS_TWICE, share=0.9, folder="unit")
    assert found == {"failed": 1}
    assert "run again" not in output


def test_a_test_is_repeated_if_spark_gave_up_on_a_worker(pytester: pytest.Pytester) -> None:
    text = FAILS_TWICE.replace("not yet", "Python worker failed to connect back.")
    found, output = outcomes(pytester, text, share=0.0, folder="spark")
    assert found == {"passed": 1}
    assert "run again, Spark gave up on a worker" in output


def test_the_stolen_share_is_between_0_and_1() -> None:
    assert 0 <= stolen_share(ProcessorTime(0, 0), processor_time()) <= 1
    assert stolen_share(ProcessorTime(100, 50), ProcessorTime(130, 60)) == 0.25
    assert stolen_share(ProcessorTime(100, 50), ProcessorTime(100, 50)) == 0.0
