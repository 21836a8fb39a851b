"""Matches new topics with the patterns of all consumer groups of this node, in turns of the loop."""

from __future__ import annotations

from moldau.base.steps import Steps, TurnItems
from moldau.base.turns import CHARACTERS_A_TURN
from moldau.coordinator.group.groups import Groups
from moldau.metadata.apply import Changes
from moldau.runtime.coordinators.shards import Shards


class NewTopics:
    def __init__(self, shards: Shards[Groups]) -> None:
        self._shards = shards
        self._seen: set[str] = set()
        """The names of all topics that were new once: a new leader of a partition, for example, changes no match."""
        self._unmatched: dict[str, None] = {}
        """The names of new topics, in their order, that wait until earlier ones are matched."""
        self._is_matching = False

    def on_changes(self, changes: Changes) -> None:
        """Begin to match new topics, or let them wait while others are matched."""
        self._seen.difference_update(topic.name for topic in changes.removed)
        new = [name for name in changes.topics if name not in self._seen]
        self._seen.update(new)
        self._unmatched.update(dict.fromkeys(new))
        if self._unmatched and not self._is_matching:
            self._shards.run(self._match_all())

    def _match_all(self) -> Steps[None]:
        turn = TurnItems(CHARACTERS_A_TURN)
        self._is_matching = True
        try:
            while self._unmatched:
                names, self._unmatched = list(self._unmatched), {}
                # A shard that is loaded later has no pattern yet, and matches each with all topics.
                for groups in self._shards.ready_machines():
                    yield from groups.consumer.match_new_topics(names, turn)
        finally:
            self._is_matching = False
