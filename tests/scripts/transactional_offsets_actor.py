"""Runs scripts about transactional offsets, with the commands of `ClassicGroupsActor` and these:

    txn-commit p t-0=5 u-0=6 as=A generation=n id=… instance=i metadata=n version=5
                                            TxnOffsetCommit by producer p, for member A or without a member
    end p commit, end p abort               the marker of its transaction is written
    fetch t-0 u-0, fetch t-0 stable         OffsetFetch of these, or of all; with `stable`, require_stable

Producers get their ids in the order in which they are named.
"""

from __future__ import annotations

from classic_groups_actor import ClassicGroupsActor
from script import Command, error_name

from moldau.base.steps import TurnItems, finish
from moldau.coordinator.machine import Client
from moldau.wire.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from moldau.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)


class TransactionalOffsetsActor(ClassicGroupsActor):
    def __init__(self) -> None:
        super().__init__()
        self._producers: dict[str, int] = {}

    def _txn_commit(self, command: Command) -> None:
        producer_id = self._producers.setdefault(command.words[0], len(self._producers))
        name = command.values.get("as", "")
        metadata = "m" * command.number("metadata", 0)
        places = [(*where.split("-"), int(offset)) for where, offset in command.values.items() if "-" in where]
        topics = [
            TxnOffsetCommitRequestTopic(topic, [TxnOffsetCommitRequestPartition(int(index), offset, -1, metadata)])
            for topic, index, offset in places
        ]
        generation = command.number("generation", self._generations.get(name, -1))
        member_id = command.values.get("id", self._ids.get(name, name))
        who = (generation, member_id, command.values.get("instance"))
        request = TxnOffsetCommitRequest("x", "g", producer_id, 0, *who, topics)
        client = Client("x", "/here", command.number("version", 5))
        self._ask(
            "txn-commit",
            lambda: self._groups.offsets.transactional_commit(request, client),
            lambda _, answer: ", ".join(
                error_name(each.error_code) for topic in answer.topics for each in topic.partitions
            ),
        )

    def _end(self, command: Command) -> None:
        producer_id = self._producers.setdefault(command.words[0], len(self._producers))
        committed = command.words[1] == "commit"
        self._log.append(lambda groups: groups.end_transaction(producer_id, committed))
        self._groups.end_transaction(producer_id, committed)

    def _fetch(self, command: Command) -> str:
        places = [word.split("-") for word in command.words if "-" in word]
        named = [OffsetFetchRequestTopics(name=topic, partition_indexes=[int(index)]) for topic, index in places]
        request = OffsetFetchRequestGroup("g", topics=named or None)
        client, require_stable = Client("x", "/here", 8), "stable" in command.words
        response = finish(self._groups.offsets.fetch(request, client, TurnItems(1), require_stable))
        found = [
            f"{topic.name}-{each.partition_index}"
            + (f"={each.committed_offset}" if not each.error_code else f": {error_name(each.error_code)}")
            for topic in response.topics
            for each in topic.partitions
        ]
        return "\n".join(found) or "nothing"
