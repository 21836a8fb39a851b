"""Defects in transactions and compaction that are injected to check that the simulation notices them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.coordinator.group.groups import Groups
from moldau.coordinator.transaction import adding, ending, initializing
from moldau.coordinator.transaction.transaction import State, check_producer
from moldau.coordinator.transaction.transactions import Transactions
from moldau.log.cleaning import clean
from moldau.log.cleaning.compaction_rules import CompactionRules
from moldau.log.cleaning.key_map import KeyMap
from moldau.log.cleaning.transactions import TransactionTracker
from moldau.log.log import Log
from moldau.log.producers import Producers
from moldau.replica.partition import Partition
from moldau.replica.verification import Verifications
from moldau.runtime.cleaning import choice as log_cleaner_choice
from moldau.runtime.cleaning import cleaner as log_cleaner
from moldau.runtime.coordinators.marker_sender import MarkerSender
from moldau.runtime.coordinators.transaction_gate import TransactionGate
from moldau.server.handlers.transactions.write_markers import WriteTxnMarkers
from moldau.wire.records import decode_records

Patch = pytest.MonkeyPatch
Defect = Callable[[Patch], None]


# --- the coordinator ----------------------------------------------------------------------------------------------


def end_txn_is_acknowledged_before_it_is_committed(patch: Patch) -> None:
    from moldau.runtime.coordinators.shard import Shard

    def replacement(self: Shard, outcome: Any) -> Any:
        for waiting, response in outcome.answers:
            waiting.complete(response)
        return outcome.response

    patch.setattr(Shard, "_respond_when_committed", replacement)


def init_producer_id_leaves_the_transaction_open(patch: Patch) -> None:
    original = initializing.initialize

    def replacement(transaction: Any, *rest: Any) -> Any:
        if transaction.state is State.ONGOING:
            transaction = replace(transaction, state=State.COMPLETE_ABORT, partitions=frozenset())
        return original(transaction, *rest)

    patch.setattr(initializing, "initialize", replacement)


def old_producers_are_not_fenced(patch: Patch) -> None:
    for module in (adding, ending):
        patch.setattr(module, "check_producer", lambda *_: None)


def open_transactions_never_time_out(patch: Patch) -> None:
    patch.setattr(Transactions, "_watch", lambda *_: None)


def a_new_coordinator_does_not_complete_decided_transactions(patch: Patch) -> None:
    patch.setattr(Transactions, "_resume", lambda *_: None)


def markers_wait_for_deleted_topics(patch: Patch) -> None:
    original = MarkerSender._enqueue

    def replacement(self: MarkerSender, sending: Any, partitions: Iterable[TopicPartition]) -> None:
        known, gone = [], []
        for each in partitions:
            (known if each.topic in self._current.image.topics else gone).append(each)
        self._retry(sending, gone)
        original(self, sending, known)

    patch.setattr(MarkerSender, "_enqueue", replacement)


def a_deleted_topic_drops_all_markers(patch: Patch) -> None:
    original = MarkerSender._enqueue

    def replacement(self: MarkerSender, sending: Any, partitions: Iterable[TopicPartition]) -> None:
        is_whole = all(each.topic in self._current.image.topics for each in sending.unwritten)
        if not is_whole:
            sending.unwritten.clear()
        original(self, sending, partitions if is_whole else [])

    patch.setattr(MarkerSender, "_enqueue", replacement)


def a_producer_id_is_kept_after_its_last_epoch(patch: Patch) -> None:
    original = initializing.initialize

    def replacement(transaction: Any, *rest: Any) -> Any:
        return replace(original(transaction, *rest), producer_id=transaction.producer_id)

    patch.setattr(initializing, "initialize", replacement)


def a_replaced_producer_id_is_not_fenced(patch: Patch) -> None:
    def replacement(transaction: Any, producer: Any) -> None:
        if producer.producer_id == transaction.producer_id:
            check_producer(transaction, producer)

    for module in (adding, ending):
        patch.setattr(module, "check_producer", replacement)


# --- partitions ---------------------------------------------------------------------------------------------------


def a_marker_takes_effect_before_the_in_sync_replicas_have_it(patch: Patch) -> None:
    original = WriteTxnMarkers._write

    def replacement(self: WriteTxnMarkers, marker: Any, name: Any) -> Any:
        original(self, marker, name)
        return ErrorCode.NONE

    patch.setattr(WriteTxnMarkers, "_write", replacement)


def nothing_is_verified(patch: Patch) -> None:
    patch.setattr(TransactionGate, "verify", lambda *_: None)
    patch.setattr(Verifications, "check", lambda *_: None)


def the_last_stable_offset_ignores_open_transactions(patch: Patch) -> None:
    patch.setattr(Log, "last_stable_offset", lambda self, high_watermark: high_watermark)


def the_list_of_aborted_transactions_is_empty(patch: Patch) -> None:
    patch.setattr(Log, "aborted_in", lambda *_: ())


def aborted_transactions_from_below_the_log_start_are_not_listed(patch: Patch) -> None:
    original = Log.aborted_in

    def replacement(self: Log, *rest: Any) -> Any:
        return [each for each in original(self, *rest) if each.first_offset >= self.start_offset]

    patch.setattr(Log, "aborted_in", replacement)


def the_last_stable_offset_ignores_transactions_from_below_the_log_start(patch: Patch) -> None:
    original = Producers.first_unstable_offset

    def replacement(self: Log, high_watermark: int) -> int:
        unstable = original(self.producers, high_watermark)
        is_ours = unstable is not None and unstable >= self.start_offset
        return min(unstable, high_watermark) if is_ours and unstable is not None else high_watermark

    patch.setattr(Log, "last_stable_offset", replacement)


# --- offsets ------------------------------------------------------------------------------------------------------


def transactional_offsets_take_effect_before_the_marker(patch: Patch) -> None:
    patch.setattr(Groups, "apply_transactional", lambda self, _, record: self.apply(record))


def aborted_offsets_take_effect(patch: Patch) -> None:
    original = Groups.end_transaction
    patch.setattr(Groups, "end_transaction", lambda self, producer_id, _: original(self, producer_id, True))


# --- compaction ---------------------------------------------------------------------------------------------------


def the_first_record_of_a_key_is_kept(patch: Patch) -> None:
    original = KeyMap.put

    def replacement(self: KeyMap, keys: Any, offsets: Any) -> None:
        is_new = self.last_offsets(keys) < 0
        original(self, keys.select(is_new), offsets[is_new])

    patch.setattr(KeyMap, "put", replacement)


def tombstones_are_removed_at_once(patch: Patch) -> None:
    patch.setattr(CompactionRules, "horizon_ms", lambda self: self._job.now_ms)


def records_past_the_last_stable_offset_are_cleaned(patch: Patch) -> None:
    original = log_cleaner_choice.dirty_log

    def replacement(partition: Partition, now_ms: int) -> Any:
        patch_here = pytest.MonkeyPatch()
        with patch_here.context() as here:
            here.setattr(Partition, "last_stable_offset", property(lambda self: self.log.end_offset))
            return original(partition, now_ms)

    patch.setattr(log_cleaner, "dirty_log", replacement)


def aborted_records_replace_committed_ones(patch: Patch) -> None:
    patch.setattr(TransactionTracker, "on_data_batch", lambda *_: False)


def aborted_tombstones_delete_records(patch: Patch) -> None:
    original = clean._batches_with_keys

    def replacement(piece: Any, first_dirty_offset: int, transactions: TransactionTracker) -> Any:
        has_keys = original(piece, first_dirty_offset, transactions)
        is_data = (piece.last_offsets >= first_dirty_offset) & ~piece.is_control
        for index in (is_data & ~has_keys).nonzero()[0].tolist():
            has_keys[index] = all(record.value is None for record in decode_records(piece.batch(index)))
        return has_keys

    patch.setattr(clean, "_batches_with_keys", replacement)


TRANSACTION_DEFECTS: dict[Defect, int] = {
    end_txn_is_acknowledged_before_it_is_committed: 6,
    init_producer_id_leaves_the_transaction_open: 0,
    old_producers_are_not_fenced: 0,
    open_transactions_never_time_out: 0,
    a_new_coordinator_does_not_complete_decided_transactions: 0,
    a_marker_takes_effect_before_the_in_sync_replicas_have_it: 1,
    markers_wait_for_deleted_topics: 10,
    a_deleted_topic_drops_all_markers: 10,
    a_producer_id_is_kept_after_its_last_epoch: 18,
    a_replaced_producer_id_is_not_fenced: 14,
    nothing_is_verified: 0,
    the_last_stable_offset_ignores_open_transactions: 0,
    the_list_of_aborted_transactions_is_empty: 0,
    aborted_transactions_from_below_the_log_start_are_not_listed: 2,
    the_last_stable_offset_ignores_transactions_from_below_the_log_start: 2,
    transactional_offsets_take_effect_before_the_marker: 0,
    aborted_offsets_take_effect: 0,
}
COMPACTION_DEFECTS: dict[Defect, int] = {
    the_first_record_of_a_key_is_kept: 5,
    tombstones_are_removed_at_once: 0,
    records_past_the_last_stable_offset_are_cleaned: 0,
    aborted_records_replace_committed_ones: 0,
    aborted_tombstones_delete_records: 13,
}
"""Each defect with a seed that is known to show it soon."""
TRANSACTION_DEFECTS_SHOWN_SOON: list[Defect] = [
    init_producer_id_leaves_the_transaction_open,
    old_producers_are_not_fenced,
    a_deleted_topic_drops_all_markers,
    nothing_is_verified,
    the_last_stable_offset_ignores_open_transactions,
    the_list_of_aborted_transactions_is_empty,
    the_last_stable_offset_ignores_transactions_from_below_the_log_start,
]
"""Those that `make test` tries: their seeds show them in less than a second."""
COMPACTION_DEFECTS_SHOWN_SOON: list[Defect] = [
    tombstones_are_removed_at_once,
    records_past_the_last_stable_offset_are_cleaned,
    aborted_records_replace_committed_ones,
]
"""Those that `make test` tries: their seeds show them in less than a second."""
