"""Parts of the simulation of transactions: how clients find coordinators, and the check of producer ids."""

from __future__ import annotations

from random import Random

from cluster.scripted import Ask
from transactions.client import GROUP, TransactionalClient
from transactions.state import StateLedger
from transactions.world import TransactionsWorld

from moldau.base.errors import ErrorCode, KafkaError

GONE_NODE = 99


class PausingClient(TransactionalClient):
    """Counts its pauses."""

    pauses = 0

    def pause_after(self, failures: int) -> Ask:
        self.pauses += 1
        return super().pause_after(failures)


def test_a_client_that_finds_no_coordinator_in_place_of_one_that_is_gone_pauses() -> None:
    client = PausingClient(TransactionsWorld(seed=0), "client", [], Random(0))
    client._coordinators[GROUP, "g"] = GONE_NODE
    script = client.coordinator_of(GROUP, "g")
    next(script)
    script.send(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    assert client.pauses == 1


def test_a_producer_id_that_returns_is_reported_with_the_one_that_replaced_it() -> None:
    complaints: list[str] = []
    ledger = StateLedger("__transaction_state-0", complaints.append, {}, lambda transactional_id: None)
    for producer_id in (1, 2, 3, 3):
        ledger._note("t", producer_id)
    assert complaints == []
    ledger._note("t", 1)
    assert complaints == ["t is producer 1 again, which 2 had replaced"]
