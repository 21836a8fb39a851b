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


def an_end_is_told_before_it_is_committed(patch: Patch) -> None:
    from moldau.runtime.coordinators.shard import Shard

    def replacement(self: Shard, outcome: Any) -> Any:
        for waiting, response in outcome.answers:
            waiting.complete(response)
        return outcome.response

    patch.setattr(Shard, "_respond_when_committed", replacement)


def who_comes_back_leaves_its_transaction_open(patch: Patch) -> None:
    original = initializing.initialize

    def lax(transaction: Any, *rest: Any) -> Any:
        if transaction.state is State.ONGOING:
            transaction = replace(transaction, state=State.COMPLETE_ABORT, partitions=frozenset())
        return original(transaction, *rest)

    patch.setattr(initializing, "initialize", lax)


def old_producers_are_not_fenced(patch: Patch) -> None:
    for module in (adding, ending):
        patch.setattr(module, "check_producer", lambda *_: None)


def nobody_loses_patience(patch: Patch) -> None:
    patch.setattr(Transactions, "_watch", lambda *_: None)


def a_new_coordinator_does_not_go_on_with_what_was_decided(patch: Patch) -> None:
    patch.setattr(Transactions, "_resume", lambda *_: None)


def markers_wait_for_topics_that_are_gone(patch: Patch) -> None:
    original = MarkerSender._enqueue

    def stubborn(self: MarkerSender, sending: Any, partitions: Iterable[TopicPartition]) -> None:
        known, gone = [], []
        for each in partitions:
            (known if each.topic in self._current.image.topics else gone).append(each)
        self._retry(sending, gone)
        original(self, sending, known)

    patch.setattr(MarkerSender, "_enqueue", stubborn)


def a_topic_that_is_gone_takes_all_markers_with_it(patch: Patch) -> None:
    original = MarkerSender._enqueue

    def replacement(self: MarkerSender, sending: Any, partitions: Iterable[TopicPartition]) -> None:
        is_whole = all(each.topic in self._current.image.topics for each in sending.unwritten)
        if not is_whole:
            sending.unwritten.clear()
        original(self, sending, partitions if is_whole else [])

    patch.setattr(MarkerSender, "_enqueue", replacement)


def who_has_used_up_all_epochs_begins_anew_under_the_same_id(patch: Patch) -> None:
    original = initializing.initialize

    def thrifty(transaction: Any, *rest: Any) -> Any:
        return replace(original(transaction, *rest), producer_id=transaction.producer_id)

    patch.setattr(initializing, "initialize", thrifty)


def an_id_that_was_followed_by_another_is_not_fenced(patch: Patch) -> None:
    def lax(transaction: Any, producer: Any) -> None:
        if producer.producer_id == transaction.producer_id:
            check_producer(transaction, producer)

    for module in (adding, ending):
        patch.setattr(module, "check_producer", lax)


# --- partitions ---------------------------------------------------------------------------------------------------


def a_marker_counts_before_the_in_sync_replicas_have_it(patch: Patch) -> None:
    original = WriteTxnMarkers._write

    def replacement(self: WriteTxnMarkers, marker: Any, name: Any) -> Any:
        original(self, marker, name)
        return ErrorCode.NONE

    patch.setattr(WriteTxnMarkers, "_write", replacement)


def nothing_is_verified(patch: Patch) -> None:
    patch.setattr(TransactionGate, "verify", lambda *_: None)
    patch.setattr(Verifications, "check", lambda *_: None)


def open_transactions_do_not_hold_readers_up(patch: Patch) -> None:
    patch.setattr(Log, "last_stable_offset", lambda self, high_watermark: high_watermark)


def nobody_is_told_what_was_aborted(patch: Patch) -> None:
    patch.setattr(Log, "aborted_in", lambda *_: ())


def what_was_aborted_from_below_the_start_on_is_not_told(patch: Patch) -> None:
    original = Log.aborted_in

    def short(self: Log, *rest: Any) -> Any:
        return [each for each in original(self, *rest) if each.first_offset >= self.start_offset]

    patch.setattr(Log, "aborted_in", short)


def transactions_from_below_the_start_on_do_not_hold_readers_up(patch: Patch) -> None:
    original = Producers.first_unstable_offset

    def stable(self: Log, high_watermark: int) -> int:
        unstable = original(self.producers, high_watermark)
        is_ours = unstable is not None and unstable >= self.start_offset
        return min(unstable, high_watermark) if is_ours and unstable is not None else high_watermark

    patch.setattr(Log, "last_stable_offset", stable)


# --- offsets ------------------------------------------------------------------------------------------------------


def offsets_count_before_the_marker(patch: Patch) -> None:
    patch.setattr(Groups, "apply_transactional", lambda self, _, record: self.apply(record))


def aborted_offsets_count(patch: Patch) -> None:
    original = Groups.end_transaction
    patch.setattr(Groups, "end_transaction", lambda self, producer_id, _: original(self, producer_id, True))


# --- compaction ---------------------------------------------------------------------------------------------------


def the_first_of_a_key_is_kept(patch: Patch) -> None:
    original = KeyMap.put

    def first_only(self: KeyMap, keys: Any, offsets: Any) -> None:
        is_new = self.last_offsets(keys) < 0
        original(self, keys.cut(is_new), offsets[is_new])

    patch.setattr(KeyMap, "put", first_only)


def tombstones_go_at_once(patch: Patch) -> None:
    patch.setattr(CompactionRules, "horizon_ms", lambda self: self._job.now_ms)


def what_is_not_decided_is_cleaned(patch: Patch) -> None:
    original = log_cleaner_choice.dirty_log

    def eager(partition: Partition, now_ms: int) -> Any:
        patch_here = pytest.MonkeyPatch()
        with patch_here.context() as here:
            here.setattr(Partition, "last_stable_offset", property(lambda self: self.log.end_offset))
            return original(partition, now_ms)

    patch.setattr(log_cleaner, "dirty_log", eager)


def what_was_aborted_takes_the_place_of_what_was_not(patch: Patch) -> None:
    patch.setattr(TransactionTracker, "on_data_batch", lambda *_: False)


def aborted_tombstones_delete(patch: Patch) -> None:
    original = clean._batches_with_keys

    def with_aborted_tombstones(piece: Any, first_dirty_offset: int, transactions: TransactionTracker) -> Any:
        has_keys = original(piece, first_dirty_offset, transactions)
        is_data = (piece.last_offsets >= first_dirty_offset) & ~piece.is_control
        for index in (is_data & ~has_keys).nonzero()[0].tolist():
            has_keys[index] = all(record.value is None for record in decode_records(piece.batch(index)))
        return has_keys

    patch.setattr(clean, "_batches_with_keys", with_aborted_tombstones)


TRANSACTION_DEFECTS: dict[Defect, int] = {
    an_end_is_told_before_it_is_committed: 1,
    who_comes_back_leaves_its_transaction_open: 0,
    old_producers_are_not_fenced: 0,
    nobody_loses_patience: 0,
    a_new_coordinator_does_not_go_on_with_what_was_decided: 0,
    a_marker_counts_before_the_in_sync_replicas_have_it: 0,
    markers_wait_for_topics_that_are_gone: 7,
    a_topic_that_is_gone_takes_all_markers_with_it: 10,
    who_has_used_up_all_epochs_begins_anew_under_the_same_id: 18,
    an_id_that_was_followed_by_another_is_not_fenced: 11,
    nothing_is_verified: 0,
    open_transactions_do_not_hold_readers_up: 0,
    nobody_is_told_what_was_aborted: 0,
    what_was_aborted_from_below_the_start_on_is_not_told: 2,
    transactions_from_below_the_start_on_do_not_hold_readers_up: 2,
    offsets_count_before_the_marker: 0,
    aborted_offsets_count: 0,
}
COMPACTION_DEFECTS: dict[Defect, int] = {
    the_first_of_a_key_is_kept: 5,
    tombstones_go_at_once: 0,
    what_is_not_decided_is_cleaned: 0,
    what_was_aborted_takes_the_place_of_what_was_not: 0,
    aborted_tombstones_delete: 13,
}
"""Each defect with a seed that is known to show it soon."""
