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
INTERVALS_KEPT: Final = 3
"""A client that does not push for so many intervals is gone, and so are its values."""


@dataclass(frozen=True, slots=True)
class ReceivedMetrics:
    identity: ClientIdentity
    points: Sequence[Point]
    expires_at_ms: int


class ReceivedByClient:
    def __init__(self) -> None:
        self._clients: OrderedDict[Uuid, ReceivedMetrics] = OrderedDict()
        self._series = 0
        self.pushes = 0
        self.refused = 0
        """Pushes that could not be read."""

    def note(self, id: Uuid, identity: ClientIdentity, points: Sequence[Point], interval_ms: int, now_ms: int) -> None:
        """Replace the values of a client."""
        self.pushes += 1
        self.forget(id)
        if points:
            self._clients[id] = ReceivedMetrics(identity, points, now_ms + INTERVALS_KEPT * interval_ms)
            self._series += len(points)
        while self._series > SERIES_MAX:
            self.forget(next(iter(self._clients)))

    def forget(self, id: Uuid) -> None:
        old = self._clients.pop(id, None)
        if old is not None:
            self._series -= len(old.points)

    def live(self, now_ms: int) -> Iterator[ReceivedMetrics]:
        """Yield the values of all clients that still push; forget those of the others."""
        for id, each in list(self._clients.items()):
            if now_ms > each.expires_at_ms:
                self.forget(id)
            else:
                yield each
