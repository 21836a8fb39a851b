"""The metrics that clients have pushed, as many as fit into a limit: the last values of each client."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from moldau.base.ids import Uuid
from moldau.telemetry.otlp import Point
from moldau.telemetry.subscriptions import ClientIdentity

SERIES_MAX: Final = 20_000
"""Values of all clients. The client that pushed longest ago is forgotten first."""
CHARACTERS_MAX: Final = 16_000_000
"""Of the names and labels of these values, as a scrape has them: 800 for each. Those of ordinary clients have 200."""
INTERVALS_KEPT: Final = 3
"""A client that does not push for so many intervals is gone, and so are its values."""


@dataclass(frozen=True, slots=True)
class ReceivedMetrics:
    identity: ClientIdentity
    points: Sequence[Point]
    expires_at_ms: int
    characters: int
    """Of the text of all values."""


def characters_of(points: Sequence[Point]) -> int:
    """Return how many characters the names and labels of the values have."""
    return sum(len(point.name) + sum(len(key) + len(value) for key, value in point.labels) for point in points)


class ReceivedByClient:
    def __init__(self) -> None:
        self._clients: OrderedDict[Uuid, ReceivedMetrics] = OrderedDict()
        self._series = self._characters = 0
        self.pushes = 0
        self.refused = 0
        """Pushes that could not be read."""

    def note(
        self,
        id: Uuid,
        identity: ClientIdentity,
        points: Sequence[Point],
        characters: int,
        interval_ms: int,
        now_ms: int,
    ) -> None:
        """Replace the values of a client. `characters` is what `characters_of` returns for them, which takes its
        time."""
        self.pushes += 1
        self.forget(id)
        if points:
            characters += len(points) * sum(map(len, identity))  # labels of each of them
            expires_at_ms = now_ms + INTERVALS_KEPT * interval_ms
            self._clients[id] = ReceivedMetrics(identity, points, expires_at_ms, characters)
            self._series += len(points)
            self._characters += characters
        while self._series > SERIES_MAX or self._characters > CHARACTERS_MAX:
            self.forget(next(iter(self._clients)))

    def forget(self, id: Uuid) -> None:
        old = self._clients.pop(id, None)
        if old is not None:
            self._series -= len(old.points)
            self._characters -= old.characters

    def live(self, now_ms: int) -> Iterator[ReceivedMetrics]:
        """Yield the values of all clients that still push; forget those of the others."""
        for id, each in list(self._clients.items()):
            if now_ms > each.expires_at_ms:
                self.forget(id)
            else:
                yield each
