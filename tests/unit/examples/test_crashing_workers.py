"""The workers of examples/exactly-once, killed in the middle of their work: each delivery guarantee holds."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.patience import PATIENCE_S

from moldau.testing import broker

sys.path.insert(0, str(Path(__file__).parents[3] / "examples" / "exactly-once"))

import orders
import pricing
from verdict import Verdict, ids, table, verdict

EXAMPLE = Path(pricing.__file__).parent
COUNT = 700
CRASHES = (150, 90)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with broker() as running:
        orders.create_topics(running.bootstrap_servers)
        orders.send(running.bootstrap_servers, COUNT)
        yield running.bootstrap_servers


def worker(address: str, delivery: str, *options: str) -> int:
    command = [sys.executable, str(EXAMPLE / "pricing.py"), delivery, "-b", address, *options]
    return subprocess.run(command, timeout=PATIENCE_S).returncode


def after_crashes(address: str, delivery: str) -> Verdict:
    for number in CRASHES:
        assert worker(address, delivery, "--crash-after", str(number)) == -signal.SIGKILL
    assert worker(address, delivery, "--until-done") == 0
    return verdict(ids(address, pricing.ORDERS), ids(address, f"{pricing.PRICED}.{delivery}"))


def test_at_most_once_loses_orders_and_never_duplicates_them(address: str) -> None:
    found = after_crashes(address, "at-most-once")
    assert found.lost > 0
    assert found.doubled == 0


def test_at_least_once_duplicates_orders_and_never_loses_them(address: str) -> None:
    found = after_crashes(address, "at-least-once")
    assert found.lost == 0
    assert found.doubled > 0


def test_exactly_once_neither_loses_nor_duplicates_orders_though_crashes_left_records(address: str) -> None:
    assert after_crashes(address, "exactly-once") == Verdict(COUNT, lost=0, doubled=0, once=COUNT)
    everything = ids(address, f"{pricing.PRICED}.exactly-once", "read_uncommitted")
    assert len(everything) > COUNT, "aborted records are in the log, and only read_uncommitted returns them"


def test_an_order_is_priced() -> None:
    assert json.loads(pricing.priced(b'{"id": 7, "copies": 3}')) == {"id": 7, "cents": 3 * pricing.CENTS_A_COPY}


def test_the_table_counts_orders_and_not_records() -> None:
    found = verdict(range(4), [0, 1, 1, 1, 2])
    assert found == Verdict(orders=4, lost=1, doubled=1, once=2)
    assert table({"some": found}).splitlines()[1].split() == ["some", "4", "1", "1", "2"]
