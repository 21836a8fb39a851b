"""What transactional clients asked for and were promised, remembered for ever; and what must come of it.

An acknowledged commit is readable, all of it; of an acknowledged abort, or of what nobody ever asked to commit,
nothing is. Of a commit of which nobody heard, all or nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum

from transactions_ledger import Part, TransactionalLedger


class Fate(Enum):
    """As its producer knows it."""

    OPEN = "never ended by its producer"
    DOUBTFUL = "asked to be committed, and nobody heard what came of it"
    COMMITTED = "acknowledged as committed"
    ABORTED = "acknowledged as aborted"
    REFUSED = "refused to be committed"


@dataclass(slots=True, eq=False)
class Written:
    """A transaction as its producer sees it."""

    name: str
    fate: Fate = Fate.OPEN
    is_commit_asked: bool = False
    values: dict[str, list[bytes]] = field(default_factory=dict)
    """What was sent to each partition, by the partition's name."""


class Book:
    def __init__(self, complain: Callable[[str], None]) -> None:
        self._complain = complain
        self.transactions: dict[str, Written] = {}

    def begin(self, name: str) -> Written:
        written = self.transactions[name] = Written(name)
        return written

    def count(self, fate: Fate) -> int:
        return sum(each.fate is fate for each in self.transactions.values())

    # --- while it goes on -----------------------------------------------------------------------------------------

    def was_read(self, who: str, where: str, value: bytes) -> None:
        """Somebody who reads only what is committed was given this."""
        written = self._of(value)
        if written is None:
            return
        if not written.is_commit_asked:
            self._complain(f"{who} is given {value!r} of {where}: it was {written.fate.value}")
        elif written.fate in (Fate.ABORTED, Fate.REFUSED):
            self._complain(f"{who} is given {value!r} of {where} although it was {written.fate.value}")

    def _of(self, value: bytes) -> Written | None:
        return self.transactions.get(value.decode().partition("/")[0])

    # --- at the end -----------------------------------------------------------------------------------------------

    def judge(self, ledgers: Iterable[TransactionalLedger]) -> None:
        """All logs are complete, and every transaction in them has ended."""
        found: dict[str, dict[str, Part]] = {}
        for ledger in ledgers:
            for part in () if ledger.is_internal else ledger.parts:
                if part.values and (written := self._of(part.values[0])) is not None:
                    self._note(found.setdefault(written.name, {}), ledger.name, part)
        for written in self.transactions.values():
            self._judge(written, found.get(written.name, {}))

    def _note(self, parts: dict[str, Part], where: str, part: Part) -> None:
        if where in parts:
            self._complain(f"{where} has {part.values[0]!r} at {part.first_offset}, in another transaction than before")
        parts[where] = part

    def _judge(self, written: Written, parts: dict[str, Part]) -> None:
        committed = {where: part.values for where, part in parts.items() if part.is_committed}
        if committed and not written.is_commit_asked:
            self._complain(f"{written.name} is committed in {sorted(committed)}: it was {written.fate.value}")
        elif written.fate is Fate.COMMITTED and committed != written.values:
            self._complain(f"{written.name} was {written.fate.value}, but {_missing(written, committed)}")
        elif written.fate is Fate.DOUBTFUL and committed and committed != written.values:
            self._complain(f"{written.name} is torn: {_missing(written, committed)}")
        elif written.fate in (Fate.ABORTED, Fate.REFUSED) and committed:
            self._complain(f"{written.name} is committed in {sorted(committed)} although it was {written.fate.value}")


def _missing(written: Written, committed: dict[str, list[bytes]]) -> str:
    for where, values in written.values.items():
        if committed.get(where) != values:
            return f"{where} has {committed.get(where, [])} of it where {values} were written"
    return f"it has more than was written: {sorted(committed)}"
