"""The aborted transactions of one segment, in `<base offset>.txnindex`. The file exists only if there are any.

A transaction is listed in the segment that holds its abort marker. 34 bytes an entry, big-endian:

    int16  version, 0
    int64  producer id
    int64  first offset of the transaction
    int64  offset of its abort marker
    int64  last stable offset just after the marker: every transaction that began below it has ended
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable
from typing import Final, NamedTuple

from moldau.log.files import Files, write_all

ENTRY: Final = struct.Struct(">hqqqq")
ENTRY_BYTES: Final = ENTRY.size
VERSION: Final = 0


class AbortedTxn(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TxnIndex:
    __slots__ = ("_files", "_transactions", "_unsynced", "_unwritten", "_written", "path")

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self.path = path
        self._transactions: list[AbortedTxn] | None = None
        """All of them, once the file has been read."""
        self._unwritten: list[AbortedTxn] = []
        self._written = 0
        """How many are in the file."""
        self._unsynced: list[str] = []

    def transactions(self) -> list[AbortedTxn]:
        """All aborted transactions of the segment, in marker order. An incomplete last entry is ignored."""
        if self._transactions is None:
            content = self._files.read(self.path) or b""
            whole = len(content) - len(content) % ENTRY_BYTES
            written = [AbortedTxn(*entry[1:]) for entry in ENTRY.iter_unpack(content[:whole])]
            self._written = len(written)
            self._transactions = written + self._unwritten
        return self._transactions

    def append(self, transaction: AbortedTxn) -> None:
        """Add a transaction. If StorageFault is raised, it is added but not written: `write` tries again."""
        known = self._transactions
        if known is not None:
            assert not known or known[-1].last_offset < transaction.last_offset, "markers come in order"
            known.append(transaction)
        self._unwritten.append(transaction)
        self.write()

    def write(self) -> None:
        """Write the transactions that are not in the file yet. Called before a flush and a roll."""
        if self._unwritten:
            self.transactions()  # to know where the file ends
            self._unsynced = [self.path]
            entries = b"".join(ENTRY.pack(VERSION, *transaction) for transaction in self._unwritten)
            write_all(self._files.open(self.path, create=True), entries, self._written * ENTRY_BYTES)
            self._written += len(self._unwritten)
            self._unwritten = []

    def take_unsynced(self) -> list[str]:
        """Return the path if the file was written since the last call, so that a flush can sync it."""
        paths, self._unsynced = self._unsynced, []
        return paths

    def replace(self, transactions: Iterable[AbortedTxn]) -> None:
        """Replace the file's content by what recovery found in the log."""
        entries = list(transactions)
        if not entries:
            self._files.unlink(self.path)
        else:
            file = self._files.open(self.path, create=True)
            file.truncate(0)
            write_all(file, b"".join(ENTRY.pack(VERSION, *transaction) for transaction in entries), 0)
            self._unsynced = [self.path]
        self._transactions, self._unwritten = entries, []
        self._written = len(entries)

    def truncate(self, offset: int) -> None:
        """Remove the transactions with a marker at `offset` or beyond. If StorageFault is raised, none is removed."""
        known = self.transactions()
        entries = [transaction for transaction in known if transaction.last_offset < offset]
        if len(entries) == len(known):
            return
        # Entries that stay are not written again: without space for that, they would be lost.
        written = min(len(entries), self._written)
        if written:
            self._files.open(self.path).truncate(written * ENTRY_BYTES)
            self._unsynced = [self.path]
        else:
            self._files.unlink(self.path)
        self._transactions, self._written, self._unwritten = entries, written, entries[written:]

    def overlapping(self, offset: int, up_to: int) -> list[AbortedTxn]:
        """Aborted transactions with a record in offset..up_to-1, as far as this segment knows them."""
        known = self.transactions()
        found = []
        for place in range(bisect_left(known, offset, key=_last_offset), len(known)):
            transaction = known[place]
            if transaction.first_offset < up_to:
                found.append(transaction)
            if transaction.last_stable_offset >= up_to:
                break
        return found

    def lists_all_begun_before(self, up_to: int) -> bool:
        """Whether no later segment can list a transaction that began before `up_to`."""
        known = self.transactions()
        return bool(known) and known[-1].last_stable_offset >= up_to

    def release(self) -> None:
        """Drop the entries of the file from memory. An empty list is kept, so that the file need not be looked for
        again."""
        if self._transactions and not self._unwritten:
            self._transactions = None


def _last_offset(transaction: AbortedTxn) -> int:
    return transaction.last_offset
