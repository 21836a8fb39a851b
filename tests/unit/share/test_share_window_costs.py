"""What a fetch and an acknowledgement cost grows with their records and not with their square, however the records of a
window are divided."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from harness.operations import operations_of
from window_driver import LIMITS, WindowDriver

from moldau.share.limits import ShareLimits
from moldau.share.window import ACCEPT, RELEASE, RENEW

FEW, MANY = 150, 600
GROWTH_MAX = 1.5 * MANY / FEW
WIDE: ShareLimits = LIMITS._replace(partition_max_record_locks=MANY)


def one_batch(count: int) -> WindowDriver:
    driver = WindowDriver(f"0-{count - 1}", limits=WIDE)
    driver.fetch()
    return driver


def batches_of_one(count: int) -> WindowDriver:
    """Each record was acquired by a fetch of its own."""
    driver = WindowDriver(*map(str, range(count)), limits=WIDE)
    driver.fetch(batch_size=1)
    return driver


def by_turns(driver: WindowDriver) -> None:
    end = driver.window.end_offset
    driver.acknowledge((0, end - 1, [RELEASE, ACCEPT] * (end // 2)))


def one_by_one(driver: WindowDriver) -> None:
    driver.acknowledge(*((offset, offset, ACCEPT) for offset in range(0, driver.window.end_offset, 2)))


def renew_by_turns(driver: WindowDriver) -> None:
    driver.now_ms += 1
    driver.acknowledge((0, driver.window.end_offset - 1, [RENEW, ACCEPT] * (driver.window.end_offset // 2)))


def deliver_again(driver: WindowDriver) -> None:
    by_turns(driver)
    driver.fetch("b")


def end_locks(driver: WindowDriver) -> None:
    renew_by_turns(driver)
    driver.wait(LIMITS.record_lock_duration_ms)


@pytest.mark.parametrize("make", [one_batch, batches_of_one])
@pytest.mark.parametrize("action", [by_turns, one_by_one, renew_by_turns, deliver_again, end_locks])
def test_four_times_the_records_cost_four_times_as_much(
    make: Callable[[int], WindowDriver], action: Callable[[WindowDriver], None]
) -> None:
    few, many = make(FEW), make(MANY)
    cost = operations_of(lambda: action(few))
    assert operations_of(lambda: action(many)) < GROWTH_MAX * cost
