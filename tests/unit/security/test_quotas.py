"""Client quotas: which one holds, how rates are measured, and that a client that pauses as requested keeps to it."""

from __future__ import annotations

import tracemalloc

import pytest

from moldau.security.quotas import limits as limits_module
from moldau.security.quotas.entities import (
    CLIENT_ID_LENGTH_MAX,
    CONSUMER_BYTE_RATE,
    PRODUCER_BYTE_RATE,
    Quotas,
    entity,
    find_quota,
    short_client_id,
)
from moldau.security.quotas.limits import IDLE_MS, ClientLimits
from moldau.security.quotas.rates import PAUSE_MS_MAX, Rate, TokenBucket, Window

LEVELS = [
    (entity(user="ann", client_id="app"), ("ann", "app")),
    (entity(user="ann", client_id=None), ("ann", "app")),
    (entity(user="ann"), ("ann", None)),
    (entity(user=None, client_id="app"), ("ann", "app")),
    (entity(user=None, client_id=None), ("ann", "app")),
    (entity(user=None), ("ann", None)),
    (entity(client_id="app"), (None, "app")),
    (entity(client_id=None), (None, "app")),
]
"""Entities from the most specific on, and which clients share the limit of each with app of ann: those of the same user
and client id; None stands for any."""


@pytest.mark.parametrize("first", range(len(LEVELS)))
def test_the_most_specific_quota_holds(first: int) -> None:
    quotas = {level: {PRODUCER_BYTE_RATE: float(index)} for index, (level, _) in enumerate(LEVELS) if index >= first}
    quota = find_quota(quotas, PRODUCER_BYTE_RATE, "ann", "app")
    assert quota == (float(first), LEVELS[first][1])


def test_a_key_that_a_level_lacks_is_looked_for_at_the_next() -> None:
    quotas: Quotas = {LEVELS[0][0]: {CONSUMER_BYTE_RATE: 1.0}, LEVELS[5][0]: {PRODUCER_BYTE_RATE: 2.0}}
    assert find_quota(quotas, PRODUCER_BYTE_RATE, "ann", "app") == (2.0, ("ann", None))
    assert find_quota(quotas, CONSUMER_BYTE_RATE, "bob", "app") is None


def test_a_first_burst_is_spread_over_ten_seconds() -> None:
    rate = Rate(Window())
    rate.record(1000, 0)
    assert rate.pause_ms(100, 0) == 0, "1000 in ten seconds"
    rate.record(500, 0)
    assert rate.pause_ms(100, 0) == 5000, "1500 at 100 a second take 15 seconds, ten are given"


def test_a_negative_record_cancels_an_earlier_one() -> None:
    rate = Rate(Window())
    rate.record(5000, 0)
    rate.record(-5000, 0)
    assert rate.pause_ms(100, 0) == 0


def test_old_samples_are_forgotten() -> None:
    rate = Rate(Window())
    rate.record(5000, 0)
    assert rate.pause_ms(100, 10_999) > 0
    assert rate.pause_ms(100, 11_000) == 0


@pytest.mark.parametrize("size", [1, 50, 700])
def test_a_client_that_pauses_as_requested_reaches_and_keeps_its_limit(size: int) -> None:
    rate, limit, now_ms, total = Rate(Window()), 500, 0, 0
    while now_ms < 600_000:
        rate.record(size, now_ms)
        total += size
        now_ms += max(1, rate.pause_ms(limit, now_ms))
    assert limit * 0.95 <= total / (now_ms / 1000) <= limit * 1.05


def test_a_client_without_a_quota_is_not_measured() -> None:
    limits = ClientLimits(Window())
    assert not limits.is_limited(PRODUCER_BYTE_RATE)
    limits.set_quotas({entity(user="ann"): {PRODUCER_BYTE_RATE: 100.0}})
    assert limits.is_limited(PRODUCER_BYTE_RATE)
    assert not limits.is_limited(CONSUMER_BYTE_RATE)
    assert limits.record(PRODUCER_BYTE_RATE, "bob", "app", 1e9, 0) == 0
    assert limits.record(PRODUCER_BYTE_RATE, "ann", "app", 2000, 0) == 10_000


def test_all_client_ids_of_a_user_share_its_quota() -> None:
    limits = ClientLimits(Window())
    limits.set_quotas({entity(user="ann"): {PRODUCER_BYTE_RATE: 100.0}})
    assert limits.record(PRODUCER_BYTE_RATE, "ann", "one", 1000, 0) == 0
    assert limits.record(PRODUCER_BYTE_RATE, "ann", "two", 1000, 0) == 10_000


def test_a_default_quota_applies_to_each_user_separately() -> None:
    limits = ClientLimits(Window())
    limits.set_quotas({entity(user=None): {PRODUCER_BYTE_RATE: 100.0}})
    assert limits.record(PRODUCER_BYTE_RATE, "ann", "app", 1000, 0) == 0
    assert limits.record(PRODUCER_BYTE_RATE, "bob", "app", 1000, 0) == 0


def test_a_changed_quota_takes_effect_at_once_and_keeps_the_rate() -> None:
    limits = ClientLimits(Window())
    limits.set_quotas({entity(user="ann"): {PRODUCER_BYTE_RATE: 1000.0}})
    assert limits.record(PRODUCER_BYTE_RATE, "ann", "app", 2000, 0) == 0
    limits.set_quotas({entity(user="ann"): {PRODUCER_BYTE_RATE: 100.0}})
    assert limits.record(PRODUCER_BYTE_RATE, "ann", "app", 0, 0) == 10_000


def test_ever_new_clients_use_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits_module, "RATES_MAX", 10)
    limits = ClientLimits(Window())
    limits.set_quotas({entity(client_id=None): {PRODUCER_BYTE_RATE: 100.0}})
    for number in range(100):
        limits.record(PRODUCER_BYTE_RATE, "ann", f"app-{number}", 2000, number)
    assert len(limits._rates[PRODUCER_BYTE_RATE]) <= 10
    assert len(limits._found) <= 10
    assert limits.record(PRODUCER_BYTE_RATE, "ann", "app-99", 0, 100) > 0, "the most recent are remembered"
    limits.forget_idle(IDLE_MS + 200)
    assert not limits._rates[PRODUCER_BYTE_RATE]


def test_long_client_ids_are_not_kept_and_still_differ() -> None:
    limits = ClientLimits(Window())
    named = f"{7:030000}"
    quotas: Quotas = {
        entity(client_id=None): {PRODUCER_BYTE_RATE: 100.0},
        entity(client_id=named): {PRODUCER_BYTE_RATE: 1_000_000.0},
    }
    limits.set_quotas(quotas)
    tracemalloc.start()
    try:
        pauses = [limits.record(PRODUCER_BYTE_RATE, "ann", f"{number:030000}", 2000, 0) for number in range(100)]
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept_bytes < 30_000 * 100 / 10
    assert pauses == [10_000 if number != 7 else 0 for number in range(100)]
    assert limits.record(PRODUCER_BYTE_RATE, "ann", f"{1:030000}", 2000, 0) == 30_000


def test_a_shortened_client_id_is_never_that_of_another_client() -> None:
    long = "c" * (CLIENT_ID_LENGTH_MAX + 1)
    assert short_client_id("c" * CLIENT_ID_LENGTH_MAX) == "c" * CLIENT_ID_LENGTH_MAX
    assert len({short_client_id(each) for each in (long, long + "c", short_client_id(long))}) == 3
    assert len(short_client_id("\ud800" * 32_000)) < 400


def test_an_overdrawn_bucket_is_in_debt_until_it_is_refilled() -> None:
    bucket = TokenBucket(11)
    assert bucket.debt_ms(1.0, 0) == 0
    bucket.take(14, 1.0, 0)
    assert bucket.debt_ms(1.0, 0) == 3000
    assert bucket.debt_ms(1.0, 2999) == 1
    assert bucket.debt_ms(1.0, 3000) == 0
    assert bucket.debt_ms(1.0, 1_000_000) == 0
    bucket.take(11, 1.0, 1_000_000)
    assert bucket.debt_ms(1.0, 1_000_000) == 0, "a full bucket has eleven seconds of tokens"


@pytest.mark.parametrize("limit", [1e-308, 1e-6, 1.0])
def test_a_pause_fits_into_a_response_however_small_the_limit_is(limit: float) -> None:
    rate = Rate(Window())
    rate.record(1e12, 0)
    assert 1 <= rate.pause_ms(limit, 1) <= PAUSE_MS_MAX
    bucket = TokenBucket(11.0)
    bucket.take(1e9, limit, 0)
    assert 1 <= bucket.debt_ms(limit, 1) <= PAUSE_MS_MAX
