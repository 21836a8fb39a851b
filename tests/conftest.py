"""Setup of all tests: hypothesis profiles, the command that repeats a failure, progress lines and costs.

`harness` has what tests of several directories share: nodes and clusters in memory, worlds, random messages, patience.
Beside it, tests import modules of their own directory by their bare names. `runner` is how `make test` runs all.
"""

from __future__ import annotations

import atexit
import gc
import importlib.util
import logging
import os
import random
import shlex
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from harness.depth import deep
from hypothesis import HealthCheck, is_hypothesis_test, settings
from runner.costs import Costs
from runner.leftovers import collect_leftovers
from runner.progress import Progress
from runner.sharing import Sharing, hidden_from_garbage_collector
from runner.stolen_time import Repeats

# Tests start hundreds of Python processes: without bytecode files each would compile all modules again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Processes that a shell starts in the background ignore Ctrl-C, and so do their children; tests send it to processes.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile(
    "moldau",
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    max_examples=deep(35, quick=12),
)
settings.load_profile("moldau")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs_re2: skipped where google-re2 is not installed")
    config.addinivalue_line("markers", "counts_always: a failure counts, however busy the machine was")
    config.pluginmanager.register(Repeats(), "repeats")
    claims = os.environ.get("MOLDAU_TEST_CLAIMS")
    start = os.environ.get("MOLDAU_TEST_FROM", "front")
    if claims or os.environ.get("MOLDAU_TEST_COSTS"):
        config.pluginmanager.register(Costs(Path(claims, f"{start}.costs.json") if claims else None), "costs")
    if claims:
        # Runs side by side need one seed; otherwise hypothesis stores failed examples and starts with them.
        config.option.hypothesis_seed = config.option.hypothesis_seed or str(random.SystemRandom().randrange(2**32))
        sharing = Sharing(Path(claims), start)
        config.pluginmanager.register(sharing, "sharing")
        config.pluginmanager.register(Progress(config, sharing, Path(claims, f"{start}.failures")), "progress")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Plugins' tests make pytest runs of their own, and each makes five full garbage collections at its end."""
    with hidden_from_garbage_collector():
        result = yield
        gc.collect()
    atexit.register(gc.unfreeze)  # otherwise DuckDB reports its types as leaked
    return result


@pytest.hookimpl(tryfirst=True)
def pytest_unconfigure() -> None:
    """Collect what clients left open before pytest does, for which that would be an error of the whole run."""
    collect_leftovers()


@pytest.fixture(autouse=True)
def root_logger_is_restored() -> Iterator[None]:
    """Remove the log handlers that a command in this process added: its stderr is closed when its test ends, and every
    later log line would be an error, printed to the stderr of another test."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    yield
    for handler in list(root.handlers):
        if type(handler) is logging.StreamHandler and handler not in before:
            root.removeHandler(handler)
            root.setLevel(level)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("needs_re2") and importlib.util.find_spec("re2") is None:
        pytest.skip("google-re2 is not installed: it has no wheel for this Python")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the command that repeats a failed test to its report."""
    report = yield
    if report.failed:
        report.sections.append(("to repeat it", _command(item)))
    return report


def _command(item: pytest.Item) -> str:
    switches = [f"{name}={shlex.quote(value)}" for name, value in sorted(os.environ.items()) if _is_switch(name)]
    words = [*switches, "python -m pytest", shlex.quote(item.nodeid)]
    seed = item.config.option.hypothesis_seed
    if seed is not None and is_hypothesis_test(getattr(item, "obj", None)):
        words.append(f"--hypothesis-seed={seed}")
    return " ".join(words)


def _is_switch(name: str) -> bool:
    return name.startswith("MOLDAU_") and name not in ("MOLDAU_TEST_CLAIMS", "MOLDAU_TEST_FROM")
