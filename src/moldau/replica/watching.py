"""How a partition tells who waits for it: consumers as far as the high watermark goes, followers of all there is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from moldau.replica.partition import Partition


class Watcher(Protocol):
    """A fetch that wants to know of new data."""

    def high_watermark_moved(self, partition: Partition, size: int) -> None:
        """The high watermark has moved by so many bytes; with 0 nobody has counted them."""
        ...

    def readable(self, partition: Partition, size: int) -> None:
        """A follower can read so many bytes more; with 0 something else happened."""
        ...

    def metadata_changed(self, partition: Partition) -> None:
        """A follower's next answer has something to tell of this partition; it need not come sooner for that."""
        ...
