"""What transactional clients requested and what was acknowledged, and the checks of the result.

All records of an acknowledged commit are readable; none of an acknowledged abort, or of a transaction that no
producer asked to commit; all or none of a commit without a response.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from moldau.base.ids import Uuid
from transactions.ledger import Part, TransactionalLedger

Values = dict[str, list[bytes]]


class Fate(Enum):
    """The outcome of a transaction, as its producer knows it."""

    OPEN = "never ended by its producer"
    DOUBTFUL = "committed without a response"
    COMMITTED = "acknowledged as committed"
    ABORTED = "acknowledged as aborted"
    REFUSED = "refused a commit"


@dataclass(slots=True, eq=False)
class Written:
    """A transaction as its producer sees it."""

    name: str
    fate: Fate = Fate.OPEN
    is_commit_asked: bool = False
    values: Values = field(default_factory=dict)
    """The values sent to each partition, by the partition's name."""
    fleeting: dict[str, Uuid | None] = field(default_factory=dict)
    """For partitions of topics that may be deleted and recreated: the topic id to which the values were sent, or None
    if they were sent by name."""

    @property
    def transactional_id(self) -> str:
        return self.name.rsplit(".", 2)[0]


class History:
    def __init__(self, complain: Callable[[str], None]) -> None:
        self._complain = complain
        self.transactions: dict[str, Written] = {}

    def begin(self, name: str) -> Written:
        written = self.transactions[name] = Written(name)
        return written

    def count(self, fate: Fate) -> int:
        return sum(each.fate is fate for each in self.transactions.values())

    # --- during the run -------------------------------------------------------------------------------------------

    def was_read(self, who: str, where: str, value: bytes) -> None:
        """Check a value that a read_committed consumer got."""
        written = self._of(value)
        if written is None:
            return
        if not written.is_commit_asked or written.fate in (Fate.ABORTED, Fate.REFUSED):
            self._complain(f"{who} reads {value!r} in {where} although its transaction was {written.fate.value}")

    def _of(self, value: bytes) -> Written | None:
        return self.transactions.get(value.decode().partition("/")[0])

    # --- at the end -----------------------------------------------------------------------------------------------

    def judge(self, ledgers: Mapping[tuple[Uuid, int], TransactionalLedger]) -> None:
        """Check all transactions; all logs are complete, and deleted topics are left out."""
        found: dict[str, dict[str, Part]] = {}
        topic_ids = {ledger.name: topic_id for (topic_id, _), ledger in ledgers.items()}
        for ledger in ledgers.values():
            if ledger.is_internal:
                continue
            self._judge_producers(ledger)
            for part in ledger.parts:
                if part.values and (written := self._of(part.values[0])) is not None:
                    self._note(found.setdefault(written.name, {}), ledger.name, part)
        for written in self.transactions.values():
            parts = found.get(written.name, {})
            self._judge(written, parts, _to_be_found(written, parts, topic_ids))

    def _judge_producers(self, ledger: TransactionalLedger) -> None:
        """Check that a producer id that was replaced by another writes nothing any more."""
        followed: dict[str, list[int]] = {}
        for part in ledger.parts:
            if not part.values or (written := self._of(part.values[0])) is None:
                continue
            ids = followed.setdefault(written.transactional_id, [])
            if part.producer_id in ids[:-1]:
                self._complain(
                    f"{ledger.name} has {part.values[0]!r} of producer {part.producer_id} at {part.first_offset}, "
                    f"{ids[-1]} had replaced it"
                )
            if part.producer_id not in ids:
                ids.append(part.producer_id)

    def _note(self, parts: dict[str, Part], where: str, part: Part) -> None:
        if where in parts:
            self._complain(f"{where} has {part.values[0]!r} at {part.first_offset}, in another transaction than before")
        parts[where] = part

    def _judge(self, written: Written, parts: dict[str, Part], values: Values) -> None:
        """Check one transaction; `values` is what must be there if it is committed."""
        committed = {where: part.values for where, part in parts.items() if part.is_committed}
        if committed and not written.is_commit_asked:
            self._complain(f"{written.name} is committed in {sorted(committed)} although it was {written.fate.value}")
        elif written.fate is Fate.COMMITTED and committed != values:
            self._complain(f"{written.name} was {written.fate.value}, but {_missing(values, committed)}")
        elif written.fate is Fate.DOUBTFUL and committed and committed != values:
            self._complain(f"{written.name} is committed in part: {_missing(values, committed)}")
        elif written.fate in (Fate.ABORTED, Fate.REFUSED) and committed:
            self._complain(f"{written.name} is committed in {sorted(committed)} although it was {written.fate.value}")


def _to_be_found(written: Written, parts: dict[str, Part], topic_ids: dict[str, Uuid]) -> Values:
    """Return the values without those of deleted topics. Of values sent by name, only the last ones may be there: then
    these are expected."""
    values = dict(written.values)
    for where, topic_id in written.fleeting.items():
        found = parts[where].values if where in parts else []
        is_gone = not found if topic_id is None else topic_ids.get(where) != topic_id
        if is_gone:
            del values[where]
        elif topic_id is None and values[where][-len(found) :] == found:
            values[where] = found
    return values


def _missing(wanted: Values, committed: Values) -> str:
    for where, values in wanted.items():
        if committed.get(where) != values:
            return f"{where} has {committed.get(where, [])} of it where {values} were written"
    return f"it has more than was written: {sorted(committed)}"
