"""From the journals of all clients, and from what is in the topics at the end, to the anomalies.

Topics with plain records are checked by `chaos_history`. Here are transactions, compacted topics and groups. It knows
nothing of Moldau: only what clients asked for, what they were told, and what they read.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from chaos_history import History, Place, Read, Value, anomalies, decode, duplicates, inconsistent_offsets
from chaos_journal import Event

Where = tuple[str, int]
"""Topic and partition."""
Logs = Mapping[Where, list[Read]]
"""All that can be read in the end."""
NEVER = {"_AUTO_OFFSET_RESET", "_FATAL"}
"""A position was lost, and a fatal error as a consumer's poll returns it."""


@dataclass
class Transaction:
    records: list[tuple[Where, Value]] = field(default_factory=list)
    outcome: str = "never asked for"
    """As the client knows it: `committed`, `aborted`, `not committed`, `never asked for`, or `unknown`."""


@dataclass
class Writes:
    """What producers sent and what they were told."""

    sent: dict[Where, set[Value]] = field(default_factory=lambda: defaultdict(set))
    acked: list[tuple[Where, Value, int | None]] = field(default_factory=list)
    """With the offset, if the client was told it."""
    keys: dict[tuple[Where, Value], str] = field(default_factory=dict)
    failed: list[tuple[Where, Value, str]] = field(default_factory=list)
    transactions: dict[str, Transaction] = field(default_factory=dict)
    fatal: list[str] = field(default_factory=list)

    def add(self, events: Iterable[Event]) -> None:
        """Add what one process did."""
        producer = 0
        for event in events:
            producer = event.get("starts", producer)
            for topic, partition, number, key in event.get("sent", ()):
                self._send((topic, partition), Value(producer, number), key, event.get("txn"))
            for topic, partition, number, offset in event.get("acked", ()):
                self.acked.append(((topic, partition), Value(producer, number), offset))
            if "failed" in event:
                topic, partition, number, error = event["failed"]
                self.failed.append(((topic, partition), Value(producer, number), error))
            if "ends" in event:
                self.transactions[event["ends"]].outcome = "unknown" if event["commit"] else "not committed"
            if "outcome" in event:
                self.transactions[event["txn"]].outcome = event["outcome"]
            if event.get("fatal") and "error" in event:
                self.fatal.append(f"{event['error']}: {event['text']}")

    def _send(self, where: Where, value: Value, key: str | None, transaction: str | None) -> None:
        self.sent[where].add(value)
        if key is not None:
            self.keys[where, value] = key
        if transaction is not None:
            self.transactions.setdefault(transaction, Transaction()).records.append((where, value))


def history_of(topic: str, writes: Writes, logs: Logs, polls: Mapping[str, list[Event]]) -> History:
    """Return the history of one topic; `polls` has the events of each reader that keeps its own position."""
    history = History()
    for (name, partition), values in writes.sent.items():
        if name == topic:
            history.sent[partition] |= values
    for (name, partition), reads in logs.items():
        if name == topic:
            history.final[partition] = list(reads)
    for reader, events in polls.items():
        history.polls[reader] = [read for event in events for read in reads_of(event, topic)]
    return history


def reads_of(event: Event, topic: str) -> Iterator[Read]:
    for name, partition, offset, value in event.get("reads", ()):
        if name == topic:
            yield Read(Place(partition, offset), decode(value.encode()))


def plain_anomalies(
    topic: str, writes: Writes, logs: Logs, polls: Mapping[str, list[Event]], shared: Iterable[Event]
) -> list[str]:
    """Idempotent producers: each acknowledged record once, at its offset; each other at most once; all in order."""
    history = history_of(topic, writes, logs, polls)
    history.shared = [read for event in shared for read in reads_of(event, topic)]
    found = list(_acknowledge(history, topic, writes.acked))
    return [f"{topic}: {text}" for text in (*found, *anomalies(history))]


def _acknowledge(history: History, topic: str, acked: Iterable[tuple[Where, Value, int | None]]) -> Iterator[str]:
    for (name, partition), value, offset in acked:
        if name == topic and offset is None:
            history.acknowledge_somewhere(partition, value)
        elif name == topic and offset is not None:
            place = Place(partition, offset)
            before = history.acked.setdefault(place, value)
            if before != value:
                yield f"inconsistent offsets: {place} was acknowledged for {before} and for {value}"


def transaction_anomalies(
    topics: Iterable[str], writes: Writes, committed: Logs, everything: Logs, polls: Mapping[str, list[Event]]
) -> Iterator[str]:
    """Transactions are there as a whole or not at all; `committed` is what read_committed consumers find."""
    counts = Counter((where, read.value) for where, reads in committed.items() for read in reads)
    for name, transaction in writes.transactions.items():
        yield from _torn(name, transaction, counts)
    of_commits = {
        record for each in writes.transactions.values() if each.outcome == "committed" for record in each.records
    }
    for topic in topics:
        history = history_of(topic, writes, committed, polls)
        acked = [each for each in writes.acked if (each[0], each[1]) in of_commits]
        found = [*_acknowledge(history, topic, acked), *anomalies(history)]
        uncommitted_too = history_of(topic, writes, everything, {})
        found += [*duplicates(uncommitted_too), *inconsistent_offsets(uncommitted_too)]
        yield from (f"{topic}: {text}" for text in found)


def _torn(name: str, transaction: Transaction, counts: Counter[tuple[Where, Value]]) -> Iterator[str]:
    present = [record for record in transaction.records if counts[record]]
    absent = [record for record in transaction.records if not counts[record]]
    what = f"transaction {name} ({transaction.outcome})"
    if transaction.outcome == "committed" and absent:
        kind = "torn transaction" if present else "lost transaction"
        yield f"{kind}: {what} lacks {len(absent)} of {len(transaction.records)} records, such as {absent[0]}"
    elif transaction.outcome == "unknown" and present and absent:
        yield f"torn transaction: {what} has {present[0]} and lacks {absent[0]}"
    elif transaction.outcome not in ("committed", "unknown") and present:
        yield f"aborted read: {what} has {len(present)} of {len(transaction.records)} records, such as {present[0]}"


def table_anomalies(topic: str, writes: Writes, logs: Logs) -> Iterator[str]:
    """A compacted topic: each key has the last value that was acknowledged, or one that was sent later."""
    order = {value: number for number, (_, value) in enumerate(writes.keys)}
    wanted: dict[tuple[Where, str], Value] = {}
    for where, value, _ in writes.acked:
        if where[0] == topic:
            before = wanted.get((where, key := writes.keys[where, value]))
            if before is None or order[value] > order[before]:
                wanted[where, key] = value
    found: dict[tuple[Where, str], Value] = {}
    for where, reads in logs.items():
        for place, value in reads if where[0] == topic else ():
            if (where, value) not in writes.keys:
                yield f"{topic}: phantom: {value} at {place}, which no producer sent"
                continue
            before = found.get((where, key := writes.keys[where, value]))
            if before is not None and order[before] >= order[value]:
                yield f"{topic}: out of order: {value} at {place} of key {key} comes after {before}"
            found[where, key] = value
    for (where, key), value in wanted.items():
        if (last := found.get((where, key))) is None or order[last] < order[value]:
            yield f"{topic}: lost write: key {key} of {where} has {last}, but {value} was acknowledged"


Member = tuple[str, int]
"""A client's name, and which of its starts."""


class GroupCheck:
    """What the members of one group did, in the order of time. Nobody skips a record; a partition's new owner begins
    where a commit was acknowledged, or later; and nobody goes back otherwise.

    A commit without an answer may have been made, also after a later one that was acknowledged: until a partition gets
    another owner, its new one may begin there too. And librdkafka has a defect: if a member gets a partition for the
    second time, it may first return a few old records from its queue, and then jump to where it has to begin.
    """

    def __init__(self, name: str, logs: Logs) -> None:
        self._name = name
        self._offsets = {where: [read.place.offset for read in reads] for where, reads in logs.items()}
        self._indexes = {where: {each: i for i, each in enumerate(found)} for where, found in self._offsets.items()}
        self._next_unread: Counter[Where] = Counter()
        """Index of the first record that nobody in the group has read."""
        self._position: dict[tuple[Member, Where], int] = {}
        """Index of the record that the member read last."""
        self._floor: dict[tuple[Member, Where], int] = {}
        """The offset at which a new owner has to begin at least, if it has not begun there yet."""
        self._had: Counter[tuple[Member, Where]] = Counter()
        """How often a member got a partition."""
        self._left_at: dict[tuple[Member, Where], int] = {}
        """Index of the next record of a member that lost a partition, if it had read any."""
        self._owner: dict[Where, Member] = {}
        self._committed: dict[Where, int] = {}
        self._doubtful: dict[Where, set[int]] = defaultdict(set)
        self.found: list[str] = []
        self.rebalances = self.reads = self.commits = 0
        self.stale = 0
        """How often librdkafka returned old records."""

    def add(self, member: Member, event: Event) -> None:
        self.rebalances += "assigned" in event
        self.reads += len(event.get("reads", ()))
        self.commits += "committed" in event
        for topic, partition in event.get("assigned", ()):
            self._assign(member, (topic, partition))
        for topic, partition in event.get("revoked", ()):
            self._leave(member, (topic, partition))
        for topic, partition, offset, _ in event.get("reads", ()):
            self._read(member, (topic, partition), offset)
        for topic, partition, offset in event.get("asks", ()):
            if self._owner.get((topic, partition)) == member:
                self._doubtful[topic, partition].add(offset)
        for topic, partition, offset in event.get("committed", ()):
            self._commit(member, (topic, partition), offset)

    def _assign(self, member: Member, where: Where) -> None:
        self._leave(member, where)
        self._owner[where] = member
        self._had[member, where] += 1
        self._floor[member, where] = self._least(where)

    def _leave(self, member: Member, where: Where) -> None:
        floor, last = self._floor.pop((member, where), None), self._position.pop((member, where), None)
        if floor is not None and last is not None:
            self.stale += 1  # it read only old records, as it seems
        if last is not None:
            self._left_at[member, where] = last + 1

    def _least(self, where: Where) -> int:
        return min([self._committed.get(where, 0), *self._doubtful[where]])

    def _commit(self, member: Member, where: Where, offset: int) -> None:
        self._doubtful[where].discard(offset)
        if self._owner.get(where) != member:  # the answer was late
            offset = max(offset, self._committed.get(where, 0))
        self._committed[where] = offset

    def _read(self, member: Member, where: Where, offset: int) -> None:
        index = self._indexes.get(where, {}).get(offset)
        if index is None:
            self._note(member, where, f"read {offset}, where nothing is at the end")
            return
        last = self._position.get((member, where))
        if (member, where) in self._floor:
            self._begin(member, where, index, last)
        elif last is not None and index != last + 1:
            self._jump(member, where, last, index)
        if index > self._next_unread[where]:
            unread = self._offsets[where][self._next_unread[where]]
            self._note(member, where, f"skipped records: it read {offset}, but nobody read {unread}")
        self._position[member, where] = index
        self._next_unread[where] = max(self._next_unread[where], index + 1)

    def _begin(self, member: Member, where: Where, index: int, last: int | None) -> None:
        """One of the first records after an assignment: it may be an old one, which was fetched before."""
        offset, floor = self._offsets[where][index], self._floor[member, where]
        follows = index == (self._left_at.get((member, where), index) if last is None else last + 1)
        if offset < floor and self._had[member, where] > 1 and follows:
            return
        if offset < floor or (last is not None and follows):  # no old record, or the new ones begin where they end
            self._note(member, where, f"went back: it began at {offset} or before, although {floor} was committed")
        elif last is not None:
            self.stale += 1
        elif self._owner.get(where) == member:
            self._committed[where] = offset
            self._doubtful[where].clear()
        del self._floor[member, where]

    def _jump(self, member: Member, where: Where, last: int, index: int) -> None:
        jump = f"from {self._offsets[where][last]} to {self._offsets[where][index]}"
        if index <= last:
            self._note(member, where, f"went back {jump} on its own")
        elif self._had[member, where] > 1 and index <= self._next_unread[where]:
            self.stale += 1
        else:
            self._note(member, where, f"skipped records {jump}")

    def end(self, committed: Mapping[Where, int]) -> list[str]:
        """Return all anomalies; `committed` is what the group has committed in the end."""
        for member, where in list(self._position):
            self._leave(member, where)
        for where, offsets in self._offsets.items():
            if (unread := self._next_unread[where]) < len(offsets):
                self.found.append(f"unseen: group {self._name} never read {offsets[unread]} of {where} and later ones")
            if committed.get(where, 0) < self._least(where):
                least, is_at = self._least(where), committed.get(where)
                self.found.append(f"lost commit: group {self._name} has {is_at} of {where}, but {least} was committed")
        return self.found

    def _note(self, member: Member, where: Where, text: str) -> None:
        self.found.append(f"group {self._name}: {member[0]} in {where}: {text}")


def check_group(name: str, logs: Logs, events: Iterable[tuple[Member, Event]]) -> GroupCheck:
    """Check the events of all members, in the order of time."""
    check = GroupCheck(name, logs)
    for member, event in events:
        check.add(member, event)
    return check


def error_anomalies(name: str, events: Iterable[Event]) -> Iterator[str]:
    """Errors that no client may get, whatever happens to nodes."""
    for event in events:
        if "error" in event and (event["fatal"] or event["error"] in NEVER):
            yield f"client error: {name} got {event['error']}: {event['text']}"
        if "crashed" in event:
            yield f"client error: {name} crashed: {event['crashed']}"
