"""controller_mutation_rate: clients that share a quota share a token bucket; above it, new versions of a request are
refused and old ones are paused."""

from __future__ import annotations

import tracemalloc

import pytest

from moldau.base.errors import ErrorCode, KafkaError
from moldau.security.principals import Client, Principal
from moldau.security.quotas import mutations
from moldau.security.quotas.entities import CONTROLLER_MUTATION_RATE, entity
from moldau.security.quotas.mutations import MutationLimits, MutationQuota
from moldau.server.apis import declared_handlers
from moldau.wire.apis import ApiKey

BURST_SECONDS = 11
ANN = Client(Principal("User", "ann"), "app")
ANNS_QUOTA = {entity(user="ann"): {CONTROLLER_MUTATION_RATE: 2.0}}
STRICT, LENIENT = True, False


def quota(
    limits: MutationLimits, is_strict: bool = STRICT, now_ms: int = 0, client: Client | None = ANN
) -> MutationQuota:
    found = limits.quota(ANNS_QUOTA, client, is_strict, now_ms)
    assert found is not None
    return found


def test_a_new_version_is_refused_while_the_bucket_is_overdrawn() -> None:
    limits = MutationLimits(BURST_SECONDS)
    first = quota(limits)
    first.charge(22 + 4)
    assert first.pause_ms == 0, "a burst may overdraw the bucket once"
    second = quota(limits)
    with pytest.raises(KafkaError) as refused:
        second.charge(1)
    assert refused.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert second.pause_ms == 2000
    late = quota(limits, now_ms=2000)
    late.charge(1)
    assert late.pause_ms == 0


def test_a_refused_request_costs_no_tokens() -> None:
    limits = MutationLimits(BURST_SECONDS)
    quota(limits).charge(22 + 2)
    for _ in range(100):
        with pytest.raises(KafkaError):
            quota(limits).charge(1000)
    quota(limits, now_ms=1000).charge(1)


def test_an_old_version_is_served_and_paused() -> None:
    limits = MutationLimits(BURST_SECONDS)
    for expected_ms in (0, 11_000, 22_000):
        served = quota(limits, LENIENT)
        served.charge(22)
        assert served.pause_ms == expected_ms


@pytest.mark.parametrize("client", [Client(Principal("User", "bob"), "app"), None], ids=["no quota", "a broker"])
def test_clients_without_a_quota_are_not_counted(client: Client | None) -> None:
    assert MutationLimits(BURST_SECONDS).quota(ANNS_QUOTA, client, STRICT, 0) is None


def test_strict_versions_are_those_of_kip_599() -> None:
    strict_from = {each.api: each.mutation_error_from for each in declared_handlers() if each.mutation_error_from}
    assert strict_from == {ApiKey.CREATE_TOPICS: 6, ApiKey.DELETE_TOPICS: 5, ApiKey.CREATE_PARTITIONS: 3}


def test_ever_new_client_ids_use_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutations, "BUCKETS_MAX", 10)
    limits = MutationLimits(BURST_SECONDS)
    each = {entity(client_id=None): {CONTROLLER_MUTATION_RATE: 1.0}}
    for number in range(100):
        made = limits.quota(each, ANN._replace(client_id=str(number)), STRICT, 0)
        assert made is not None
        made.charge(100)
    assert len(limits._buckets) == 10
    last = limits.quota(each, ANN._replace(client_id="99"), STRICT, 0)
    assert last is not None
    with pytest.raises(KafkaError):
        last.charge(1)


def test_long_client_ids_are_not_kept() -> None:
    limits = MutationLimits(BURST_SECONDS)
    each = {entity(client_id=None): {CONTROLLER_MUTATION_RATE: 1.0}}
    tracemalloc.start()
    try:
        for number in range(100):
            limits.quota(each, ANN._replace(client_id=f"{number:030000}"), STRICT, 0)
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept_bytes < 30_000 * 100 / 10
    assert len(limits._buckets) == 100
