"""Who is told of changes of a partition: consumers of the high watermark, followers of the log end offset.

Watchers are fetch sessions, also while no fetch of theirs waits: the next one looks only at what has changed. And a
view's partition watches that of its source.
"""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

Watched = TypeVar("Watched")
Watched_contra = TypeVar("Watched_contra", contravariant=True)


class Watcher(Protocol[Watched_contra]):
    """A session or a view. If a fetch waits there, new data wakes it."""

    def high_watermark_moved(self, partition: Watched_contra, size: int) -> None:
        """Consumers can read `size` bytes more; 0 if the number is unknown."""
        ...

    def readable(self, partition: Watched_contra, size: int) -> None:
        """`size` bytes more can be read; 0 if another change may end the wait."""
        ...

    def metadata_changed(self, partition: Watched_contra) -> None:
        """The follower's next response has news of this partition; it need not be sent sooner."""
        ...


class Watchers(Generic[Watched]):
    """The watchers of one partition. A watcher may remove itself while it is called."""

    __slots__ = ("consumers", "followers")

    def __init__(self) -> None:
        self.consumers: dict[Watcher[Watched], None] = {}
        self.followers: dict[Watcher[Watched], None] = {}

    def remove(self, watcher: Watcher[Watched]) -> None:
        self.consumers.pop(watcher, None)
        self.followers.pop(watcher, None)

    def clear(self) -> None:
        self.consumers.clear()
        self.followers.clear()

    def high_watermark_moved(self, partition: Watched, size: int) -> None:
        for watcher in list(self.consumers):
            watcher.high_watermark_moved(partition, size)
        for watcher in self.followers:
            watcher.metadata_changed(partition)

    def readable(self, partition: Watched, size: int) -> None:
        self.readable_by_consumers(partition, size)
        self.readable_by_followers(partition, size)

    def readable_by_consumers(self, partition: Watched, size: int) -> None:
        for watcher in list(self.consumers):
            watcher.readable(partition, size)

    def readable_by_followers(self, partition: Watched, size: int) -> None:
        for watcher in list(self.followers):
            watcher.readable(partition, size)
