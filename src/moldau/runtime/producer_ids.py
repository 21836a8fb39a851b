"""Producer ids at hand: a block from the controller, given out one by one, and the next block asked for in time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from moldau.base.later import Later


class ProducerIds:
    def __init__(self, allocate: Callable[[], Later[range]]) -> None:
        self._allocate = allocate
        self._block = range(0)
        self._waiting: deque[Later[int]] = deque()
        self._is_asked = False

    def next(self) -> Later[int]:
        """An id nobody else has or ever had. What keeps the controller from granting any is raised."""
        if not self._block and not self._is_asked:
            self._ask()
        answer: Later[int] = Later()
        self._waiting.append(answer)
        self._give()
        return answer

    def _ask(self) -> None:
        promise = self._allocate()
        self._is_asked = True
        promise.then(self._arrived)

    def _arrived(self, block: range) -> None:
        self._is_asked = False
        self._block = block
        self._give()
        if self._waiting and not self._is_asked:
            self._ask()

    def _give(self) -> None:
        while self._waiting and self._block:
            given, self._block = self._block[0], self._block[1:]
            self._waiting.popleft().complete(given)
