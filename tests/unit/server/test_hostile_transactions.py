"""Hostile clients of the transaction coordinator, and of those who carry out what it decides.

After every siege producers of both versions must be served, no transaction may be left that nobody ends, nobody may
wait in vain, and nothing may have grown.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from besieged import Sent
from besieged_transactions import Transacting, TransactionalPoison, is_refused

from moldau.base.limits import TRANSACTION_REQUEST_BYTES_MAX
from moldau.wire.apis import ApiKey

RANDOM_REQUESTS = 600
SILENCE_MS = 35_000
TRANSACTIONAL = (
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.END_TXN,
    ApiKey.WRITE_TXN_MARKERS,
    ApiKey.LIST_TRANSACTIONS,
    ApiKey.DESCRIBE_TRANSACTIONS,
    ApiKey.PRODUCE,
)


@pytest.fixture(params=[1, 3], ids=["alone", "three"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Transacting]:
    found = Transacting(request.param)
    yield found
    found.is_well()


@pytest.fixture
def alone() -> Iterator[Transacting]:
    found = Transacting(1)
    yield found
    found.is_well()


@pytest.mark.parametrize("api", TRANSACTIONAL, ids=lambda api: api.name.lower())
def test_random_requests_are_answered_and_leave_nothing_open(cluster: Transacting, api: ApiKey) -> None:
    known = {name: cluster.init(name) for name in ("tx", "other", "third")}
    poison = TransactionalPoison(cluster, api, known)
    versions = cluster.besieged.routers[9001].served()[api]
    sent: list[Sent] = []
    for number, (request, version) in enumerate(poison.requests(api, versions, RANDOM_REQUESTS)):
        node = 1 + number % len(cluster.besieged.nodes)
        sent.append(cluster.post(request, api, version, node))
        if number % 20 == 0:
            cluster.besieged.timers.advance(1)
    cluster.besieged.timers.advance(SILENCE_MS)
    assert not [each for each in sent if each.is_waiting]
    refused = [each for each in sent if is_refused(each.outcome)]
    if api is not ApiKey.PRODUCE:
        assert all(each.size > TRANSACTION_REQUEST_BYTES_MAX for each in refused), "all but the longest can be read"
