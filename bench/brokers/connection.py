"""The raw client: one blocking socket, prebuilt frames out, replies into one buffer. No work per record.

It does as little as Python can, so that a workload waits for the broker and not for the client; yet it checks the error
code of every reply. It has no workloads, only the loops that they are made of.
"""

from __future__ import annotations

import selectors
import socket
import struct
import time
from collections.abc import Sequence
from typing import Self

from bench.brokers.frames import (
    FETCH_REPLY_HEAD,
    FETCH_REPLY_PARTITION,
    SIZE_BYTES,
    FetchFrame,
    ProduceFrame,
)

TIMEOUT_S = 60
BUFFER_BYTES = 64 << 10
NO_ERROR = b"\0\0"
NOT_YET = frozenset({b"\0\3", b"\0\5", b"\0\6"})
"""Unknown topic, no leader, not the leader: temporary errors of a new partition."""


class BrokerRefused(Exception):
    """The broker answered with an error, or not at all: the measurement is invalid."""


class Connection:
    """A blocking socket. The timeout is the kernel's: Python's own would turn every call into two system calls."""

    def __init__(self, address: str, buffer_bytes: int = BUFFER_BYTES) -> None:
        host, _, port = address.rpartition(":")
        self.address = address
        self.socket = socket.create_connection((host, int(port)), TIMEOUT_S)
        self.socket.settimeout(None)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", TIMEOUT_S, 0))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = memoryview(bytearray(buffer_bytes))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def ask(self, frame: bytes | bytearray) -> memoryview:
        """Send one request; return its whole reply without the size."""
        self.socket.sendall(frame)
        self.receive_exactly(SIZE_BYTES)
        size = int.from_bytes(self.buffer[:SIZE_BYTES], "big")
        if size > len(self.buffer):
            self.buffer = memoryview(bytearray(size))
        self.receive_exactly(size)
        return self.buffer[:size]

    def receive_reply(self) -> memoryview:
        """Return the whole reply to the only request in flight, without the size; mostly in one system call."""
        received_bytes = self.receive_some(0)
        while received_bytes < SIZE_BYTES or received_bytes < (
            whole := SIZE_BYTES + int.from_bytes(self.buffer[:SIZE_BYTES], "big")
        ):
            if received_bytes == len(self.buffer):
                self.buffer = memoryview(bytearray(self.buffer) + bytes(whole))
            received_bytes = self.receive_some(received_bytes)
        return self.buffer[SIZE_BYTES:received_bytes]

    def receive_exactly(self, size: int) -> None:
        if self.socket.recv_into(self.buffer, size, socket.MSG_WAITALL) != size:
            raise BrokerRefused(f"{self.address} closed the connection")

    def receive_some(self, received_bytes: int) -> int:
        """Append received bytes behind the first `received_bytes` of the buffer; return the new total."""
        received = self.socket.recv_into(self.buffer[received_bytes:])
        if not received:
            raise BrokerRefused(f"{self.address} closed the connection")
        return received_bytes + received


class Producing:
    """One frame sent over and over with a number of requests in flight."""

    def __init__(self, connection: Connection, frame: ProduceFrame, in_flight: int) -> None:
        self.connection = connection
        self._frame = frame
        self._in_flight = in_flight
        self._train = memoryview(frame.data * in_flight)
        self._size = (frame.reply_bytes - SIZE_BYTES).to_bytes(SIZE_BYTES, "big")
        self._held = self._to_send = self._to_come = 0

    def wait_until_writable(self) -> None:
        """Send the batch until it is accepted: the leader of a new topic may not know its role yet."""
        deadline = time.perf_counter() + TIMEOUT_S
        while True:
            reply = self.connection.ask(self._frame.data)
            error = bytes(reply[self._frame.error_at - SIZE_BYTES :][:2])
            if error not in NOT_YET or time.perf_counter() > deadline:
                return self._check(error)

    def run(self, requests: int) -> None:
        self.begin(requests)
        while self._to_come:
            self.advance()

    def begin(self, requests: int) -> None:
        self._to_send = self._to_come = requests
        self._send(self._in_flight)

    def advance(self) -> bool:
        """Take the replies that have arrived and send as many requests; return whether more are expected."""
        frame, buffer = self._frame, self.connection.buffer
        self._held = self.connection.receive_some(self._held)
        replies, rest = divmod(self._held, frame.reply_bytes)
        for start in range(0, replies * frame.reply_bytes, frame.reply_bytes):
            if buffer[start : start + SIZE_BYTES] != self._size:
                raise BrokerRefused(f"{self.connection.address}: a produce reply has the wrong size")
            self._check(buffer[start + frame.error_at : start + frame.error_at + 2])
        buffer[:rest] = buffer[self._held - rest : self._held]
        self._held = rest
        self._to_come -= replies
        self._send(replies)
        return self._to_come > 0

    def _send(self, requests: int) -> None:
        requests = min(requests, self._to_send)
        self._to_send -= requests
        if requests:
            self.connection.socket.sendall(self._train[: requests * len(self._frame.data)])

    def _check(self, error: bytes | memoryview) -> None:
        if error != NO_ERROR:
            raise BrokerRefused(
                f"{self.connection.address}: produce: error {int.from_bytes(error, 'big', signed=True)}"
            )


class Exchanging:
    """Frames of one length sent in a cycle with a number of requests in flight; all replies are equal.

    So any number of replies is compared as one piece of memory.
    """

    def __init__(self, connection: Connection, frames: Sequence[bytes], reply: bytes, in_flight: int) -> None:
        self.connection = connection
        self._frame_bytes = len(frames[0])
        assert all(len(frame) == self._frame_bytes for frame in frames)
        self._count = len(frames)
        circles = -(-in_flight // len(frames)) + 1  # any slice of at most `in_flight` frames is contiguous
        self._train = memoryview(b"".join(frames) * circles)
        self._reply_bytes = len(reply)
        self._replies = memoryview(reply * (len(connection.buffer) // len(reply)))
        self._in_flight = in_flight
        self._next = self._held = self._to_send = self._to_come = 0

    def begin(self, requests: int) -> None:
        self._to_send = self._to_come = requests
        self._send(self._in_flight)

    def advance(self) -> bool:
        """Take the replies that have arrived and send as many requests; return whether more are expected."""
        buffer = self.connection.buffer
        self._held = self.connection.receive_some(self._held)
        replies, rest = divmod(self._held, self._reply_bytes)
        if buffer[: self._held - rest] != self._replies[: self._held - rest]:
            raise BrokerRefused(f"{self.connection.address}: unexpected reply: {bytes(buffer[:64])!r}")
        buffer[:rest] = buffer[self._held - rest : self._held]
        self._held = rest
        self._to_come -= replies
        self._send(replies)
        return self._to_come > 0

    def _send(self, requests: int) -> None:
        requests = min(requests, self._to_send)
        self._to_send -= requests
        if requests:
            start = self._next * self._frame_bytes
            self.connection.socket.sendall(self._train[start : start + requests * self._frame_bytes])
            self._next = (self._next + requests) % self._count


def all_together(workers: Sequence[Producing | Exchanging], requests: int) -> None:
    """Send `requests` over each connection; one thread serves whichever has replies."""
    with selectors.DefaultSelector() as ready:
        for worker in workers:
            ready.register(worker.connection.socket, selectors.EVENT_READ, worker)
            worker.begin(requests)
        while ready.get_map():
            for key, _ in ready.select(TIMEOUT_S):
                if not key.data.advance():
                    ready.unregister(key.fileobj)


class Fetching:
    """Reads one partition in a cycle, one request at a time, as a consumer does.

    All batches of the partition are equal, so the next offset follows from the number of bytes received. With a session
    (KIP-227) the frame is the incremental one and its epoch is counted up from 1.
    """

    def __init__(self, connection: Connection, frame: FetchFrame, topic: str, batch: tuple[int, int]) -> None:
        self._connection = connection
        self._frame = frame
        self._partition_at = FETCH_REPLY_HEAD.size + 2 + len(topic)
        self._batch_records, self._batch_bytes = batch
        self._offset = 0
        self._session_id = self._session_epoch = 0

    def open_session(self, full: FetchFrame) -> None:
        """Name all partitions once; later requests send only changes. Return when responses have no other partition
        than that of the frame: a broker opens new partitions after their topic is created, and reports each."""
        _, _, error, session_id, _ = FETCH_REPLY_HEAD.unpack_from(self._connection.ask(full.data))
        if error or not session_id:
            raise BrokerRefused(f"{self._connection.address}: no fetch session: error {error}")
        self._session_id = session_id
        deadline = time.monotonic() + TIMEOUT_S
        while FETCH_REPLY_HEAD.unpack_from(self._ask())[-1] != 1:
            if time.monotonic() > deadline:
                raise BrokerRefused(f"{self._connection.address}: the partitions of a fetch session are not opened")

    def fetch(self) -> int:
        """Send one request; return the size of the received records."""
        reply = self._ask()
        _, _, error, _, topics = FETCH_REPLY_HEAD.unpack_from(reply)
        if error or topics != 1:
            raise BrokerRefused(f"{self._connection.address}: fetch: error {error}, {topics} topics")
        size: int
        _, _, error, high_watermark, _, _, _, _, size = FETCH_REPLY_PARTITION.unpack_from(reply, self._partition_at)
        if error or size < self._batch_bytes:
            raise BrokerRefused(f"{self._connection.address}: fetch at {self._offset}: error {error}, {size} bytes")
        self._offset += size // self._batch_bytes * self._batch_records
        if self._offset >= high_watermark:
            self._offset = 0
        return size

    def _ask(self) -> memoryview:
        frame = self._frame
        if self._session_id:
            self._session_epoch += 1
            struct.pack_into(">ii", frame.data, frame.session_at, self._session_id, self._session_epoch)
        struct.pack_into(">q", frame.data, frame.offset_at, self._offset)
        return self._connection.ask(frame.data)

    def fetch_bytes(self, total: int) -> int:
        """Fetch until `total` bytes have arrived; return the actual number."""
        done = 0
        while done < total:
            done += self.fetch()
        return done
