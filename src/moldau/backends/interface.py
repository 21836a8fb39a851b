"""What a backend is: a class with `open`, `write` and `close`, and the errors by which it says what became of rows.

    class Prints:
        def open(self) -> None: ...
        def write(self, rows: Sequence[Row]) -> None:
            for row in rows:
                print(row.key, row.values)
        def close(self) -> None: ...

`write` returns when the backend has all rows. It raises Refused for rows that the backend will never take, Retry if
another attempt may help, Away if nobody is there; or it returns a Failed for each row that is not taken. Any other
OSError is like Retry, any other exception fails the query. One object is used by one thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(slots=True)
class Row:
    """One row on its way to a backend."""

    key: str
    """The same whenever this row is sent again, and no other row's: by it the backend can recognise a repetition."""
    values: Mapping[str, Any]
    """The parts that the sink names (body, subject, …), or the columns of the view for a class of the user."""
    headers: Mapping[str, str] | None = None
    memory: Any = None
    """For the backend: kept from one attempt to the next in the same process."""


class Refused(ValueError):
    """The backend will never take this: the rows become dead letters. The message is the reason, in one line."""


class Retry(Exception):
    """The backend did not take it now. `after_s` is the pause that it asks for."""

    def __init__(self, reason: str, after_s: float | None = None) -> None:
        super().__init__(reason)
        self.after_s = after_s


class Away(Retry):
    """The backend takes nothing from anybody: nobody listens, or it asks all to wait. Does not count against a row."""


class Misconfigured(Exception):
    """No attempt can help before the settings change, such as a wrong password: the query fails."""


@dataclass(frozen=True, slots=True)
class Failed:
    """A row, by its index among those of `write`, that was not taken although others were."""

    index: int
    error: Refused | Retry | OSError


class Backend(Protocol):
    def open(self) -> None:
        """Called once, before the first `write`. May connect; errors are like those of `write`."""

    def write(self, rows: Sequence[Row]) -> Iterable[Failed] | None:
        """Hand over the rows; see the module."""

    def close(self) -> None:
        """Called once, also after errors."""


class BackendSource(Protocol):
    """What a source is: partitions, each read from a position. A position is any JSON value but null."""

    def partitions(self) -> Sequence[str]:
        """Return the names of the partitions that there are now."""

    def read(self, partition: str, start: Any) -> Iterator[tuple[Mapping[str, Any], Any]]:
        """Yield the rows after the position `start` (None: from the beginning) in their order, each with its position,
        and end at the last one that is there now. Read again from the same position, it yields the same rows."""
