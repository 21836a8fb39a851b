"""What is under way to one client: the packets to write, those that it has not acknowledged, and those that wait.

Pure. QoS 0 goes out at once. With QoS 1 at most `window` messages are unacknowledged; further ones wait.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from moldau.gateway.mqtt.messages import Message
from moldau.gateway.mqtt.session import Mark

PACKET_ID_MAX: Final = 65_535
OVERHEAD_BYTES: Final = 200
"""Of a message that waits, beside its name, payload and properties."""


class _Waiting(NamedTuple):
    message: Message
    retain: bool
    identifiers: tuple[int, ...]
    mark: Mark | None


class Outbox:
    __slots__ = (
        "_in_flight",
        "_last_id",
        "_packet_bytes_max",
        "_reserved",
        "_version",
        "_waiting",
        "_window",
        "_written",
        "again",
        "bytes_written",
        "messages",
        "waiting_bytes",
    )

    def __init__(self, version: int, window: int, packet_bytes_max: int | None, again: dict[Mark, int]) -> None:
        self._version = version
        self._window = window
        self._packet_bytes_max = packet_bytes_max
        """What the client takes; larger packets are left out, as the standard says."""
        self.again = again
        """Packet identifiers of messages that an earlier connection of the session did not acknowledge."""
        self._reserved = frozenset(again.values())
        self._in_flight: dict[int, Mark | None] = {}
        self._waiting: deque[_Waiting] = deque()
        self._written: list[bytes] = []
        self._last_id = 0
        self.waiting_bytes = 0
        self.bytes_written = 0
        """Of what `take` has not taken yet."""
        self.messages = 0
        """Written so far."""

    @property
    def pending_bytes(self) -> int:
        """Of all that has not gone to the connection yet."""
        return self.waiting_bytes + self.bytes_written

    def add(
        self, message: Message, qos: int, retain: bool, identifiers: tuple[int, ...], mark: Mark | None, now_ms: int
    ) -> None:
        if qos == 0:
            if not message.has_expired(now_ms):
                head, tail = message.parts(self._version, 0, retain, identifiers, now_ms)
                self._write(head, b"", tail)
            return
        if mark is not None:
            mark.progress.sent(mark.partition, mark.offset)
        if self._waiting or len(self._in_flight) >= self._window:
            self._waiting.append(_Waiting(message, retain, identifiers, mark))
            self.waiting_bytes += OVERHEAD_BYTES + message.size
        else:
            self._send(message, retain, identifiers, mark, now_ms)

    def acknowledge(self, packet_id: int, now_ms: int) -> bool:
        """Take an acknowledgement, and send what waited for it; return whether the packet identifier is in use."""
        if packet_id not in self._in_flight:
            return False
        mark = self._in_flight.pop(packet_id)
        if mark is not None:
            mark.progress.acknowledged(mark.partition, mark.offset)
        while self._waiting and len(self._in_flight) < self._window:
            message, retain, identifiers, mark = self._waiting.popleft()
            self.waiting_bytes -= OVERHEAD_BYTES + message.size
            self._send(message, retain, identifiers, mark, now_ms)
        return True

    def take(self) -> list[bytes]:
        """Return what is to be written to the client, in pieces."""
        written, self._written = self._written, []
        self.bytes_written = 0
        return written

    def unacknowledged(self) -> dict[Mark, int]:
        """Return the packet identifiers of messages that a later connection of the session must get again."""
        return self.again | {mark: number for number, mark in self._in_flight.items() if mark is not None}

    def _send(
        self, message: Message, retain: bool, identifiers: tuple[int, ...], mark: Mark | None, now_ms: int
    ) -> None:
        known = self.again.pop(mark, 0) if mark is not None and self.again else 0
        if message.has_expired(now_ms):
            self._give_up(mark)
            return
        head, tail = message.parts(self._version, 1, retain, identifiers, now_ms)
        if known:
            head = bytes((head[0] | 8,)) + head[1:]
        packet_id = known or self._next_id()
        if self._write(head, packet_id.to_bytes(2, "big"), tail):
            self._in_flight[packet_id] = mark
        else:
            self._give_up(mark)

    def _give_up(self, mark: Mark | None) -> None:
        if mark is not None:
            mark.progress.acknowledged(mark.partition, mark.offset)

    def _write(self, head: bytes, packet_id: bytes, tail: bytes) -> bool:
        size = len(head) + len(packet_id) + len(tail)
        if self._packet_bytes_max is not None and size > self._packet_bytes_max:
            return False
        if len(tail) < 1024:
            self._written.append(head + packet_id + tail)
        else:
            self._written += (head + packet_id, tail)
        self.bytes_written += size
        self.messages += 1
        return True

    def _next_id(self) -> int:
        while True:
            self._last_id = self._last_id % PACKET_ID_MAX + 1
            if self._last_id not in self._in_flight and self._last_id not in self._reserved:
                return self._last_id
