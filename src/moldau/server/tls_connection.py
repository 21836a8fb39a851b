"""A connection with TLS, on a non-blocking `ssl.SSLSocket`: a handshake, then a `SocketConnection` whose bytes are
encrypted.

What OpenSSL demands, and no transport hides here:

- A send that did not get through is repeated with the same bytes, or with more behind them: the head of the queue is
  never cut before it was sent.
- Decrypted bytes may be left in OpenSSL, where the selector does not see them: `pending()` is asked.
- A send may have to wait for readability, and a receive for writability (key updates of TLS 1.3).

Records are read from the page cache and encrypted here; `sendfile` would send them in the clear.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import ClassVar, Final, NamedTuple, Protocol

from moldau.base.counters import AUTHENTICATION_FAILED, CLOSED_MALFORMED, CLOSED_NOT_AUTHENTICATED
from moldau.base.errors import MalformedData
from moldau.base.limits import (
    SCRATCH_BYTES,
    TLS_SEND_BYTES,
    TLS_TURN_BYTES,
)
from moldau.base.loop_watch import LONG_CALL_S
from moldau.log.reading import Slice
from moldau.platforms import page_cache
from moldau.security.principals import Principal
from moldau.security.tls.context import handshake_fault
from moldau.security.tls.mapping_rules import NoRuleApplies
from moldau.security.tls.renewal import NoContextYet
from moldau.server.conversation import ConnectionBudget, Conversation, Reply
from moldau.server.handshakes import Handshakes, Step
from moldau.server.socket_connection import SocketConnection
from moldau.wire.codec import Outgoing

HANDSHAKE_RECORD: Final = b"\x16"
"""The first byte of every TLS connection."""
READS_PER_TURN_MAX: Final = TLS_TURN_BYTES // SCRATCH_BYTES
GATHERED_PIECES_MAX: Final = 64
"""Pieces that are encrypted together: records of each partition are read from a file of their own."""

Answer = Callable[[memoryview], Reply]


class ServerTls(Protocol):
    @property
    def server(self) -> ssl.SSLContext:
        """The context of connections that begin now. Raise NoContextYet."""
        ...

    def principal(self, certificate: bytes | None) -> Principal:
        """Return who a client with this certificate is. Raise NoRuleApplies or MalformedData if nobody."""
        ...


class ServerHandshake(NamedTuple):
    """What a connection needs until it is established."""

    tls: ServerTls
    handshakes: Handshakes
    session: Callable[[Principal], Answer]
    """Returns the function that answers the requests of a principal."""
    on_established: Callable[[SocketConnection, Answer], None]


class TlsConnection(SocketConnection):
    TURN_BYTES: ClassVar = TLS_TURN_BYTES
    TURN_PIECES: ClassVar = TLS_TURN_BYTES // TLS_SEND_BYTES

    __slots__ = (
        "_frame_bytes_max",
        "_handshake",
        "_is_established",
        "_receive_wants_write",
        "_send_wants_read",
        "_step",
        "_timeout",
    )
    _socket: ssl.SSLSocket

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        peer: str,
        scratch: memoryview,
        handshake: ServerHandshake,
        frame_bytes_max: int,
        budget: ConnectionBudget,
        on_close: Callable[[SocketConnection, str], None],
    ) -> None:
        self._handshake = handshake
        self._frame_bytes_max = frame_bytes_max
        self._budget = budget
        self._is_established = False
        self._step: Step | None = None
        """The step of the handshake that waits for a thread or runs in one, which then uses the socket alone."""
        self._send_wants_read = self._receive_wants_write = False
        super().__init__(loop, sock, peer, scratch, _answer_before_handshake, frame_bytes_max, budget, on_close)
        self._receive = self._receive_decrypted
        loop.add_reader(self._fd, self._on_first_bytes)
        self._timeout = loop.call_later(budget.limits.authentication_ms_max / 1000, self._on_handshake_timeout)

    def close(self, reason: str = "", closed_by: str = CLOSED_MALFORMED) -> None:
        if self._closed:
            return
        self._timeout.cancel()
        self._loop.remove_reader(self._fd)
        self._loop.remove_writer(self._fd)
        if self._is_established:
            with suppress(OSError, ValueError):  # tell the client, if the socket takes it; its answer is not awaited
                self._socket.unwrap()
        super().close(reason, closed_by)
        # Break the reference cycles; don't leave them to the garbage collector.
        self._receive = self._socket.recv_into
        self._step = None

    def _close_socket(self) -> None:
        """Close the socket, after the step of the handshake that uses it."""
        step = self._step
        if step is None or step.cancel():
            super()._close_socket()
        else:
            step.add_done_callback(partial(_close_after_step, self._socket))

    # --- the handshake ------------------------------------------------------------------------------------------

    def _on_first_bytes(self) -> None:
        """Make the TLS objects only for a client that speaks TLS: one that only tries the port, or does not know about
        TLS, costs nothing."""
        try:
            first = socket.socket.recv(self._socket, 1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            first = b""
        if not first:
            self.close()
        elif first != HANDSHAKE_RECORD:
            self.close("it does not use TLS; this listener does", AUTHENTICATION_FAILED)
        else:
            self._loop.remove_reader(self._fd)
            try:
                self._socket = self._handshake.tls.server.wrap_socket(
                    self._socket, server_side=True, do_handshake_on_connect=False
                )
            except NoContextYet as closed:
                self.close(str(closed), CLOSED_NOT_AUTHENTICATED)
                return
            except OSError:  # the client is gone
                self.close()
                return
            self._shake_hands()

    def _shake_hands(self) -> None:
        self._step = self._handshake.handshakes.run(self._socket.do_handshake, self._on_step)

    def _on_handshake_ready(self) -> None:
        self._loop.remove_reader(self._fd)
        self._loop.remove_writer(self._fd)
        self._shake_hands()

    def _on_step(self, step: Step) -> None:
        if step is not self._step:
            return  # the connection was closed meanwhile
        self._step = None
        if self._stopped:
            return
        error = step.exception()
        if error is None:
            self._establish()
        elif isinstance(error, ssl.SSLWantReadError):
            self._loop.add_reader(self._fd, self._on_handshake_ready)
        elif isinstance(error, ssl.SSLWantWriteError):
            self._loop.add_writer(self._fd, self._on_handshake_ready)
        elif isinstance(error, ssl.SSLEOFError | ConnectionError):
            self.close("it ended the TLS handshake", AUTHENTICATION_FAILED)
        elif isinstance(error, OSError):
            self.close(f"TLS handshake failed: {_tls_fault(error)}", AUTHENTICATION_FAILED)
        else:
            raise error

    def _establish(self) -> None:
        self._timeout.cancel()
        self.last_active = monotonic()
        self._is_established = True
        try:
            principal = self._handshake.tls.principal(self._socket.getpeercert(binary_form=True))
        except (NoRuleApplies, MalformedData) as error:
            self.close(str(error), AUTHENTICATION_FAILED)
            return
        answer = self._handshake.session(principal)
        self._conversation = Conversation(answer, self._flush, self._frame_bytes_max, self._budget)
        self._handshake.on_established(self, answer)
        self._await_readable()

    def _on_handshake_timeout(self) -> None:
        seconds = self._budget.limits.authentication_ms_max / 1000
        self.close(f"no TLS handshake within {seconds:g} s", CLOSED_NOT_AUTHENTICATED)

    # --- receiving ----------------------------------------------------------------------------------------------

    def _on_readable(self) -> None:
        began_s = monotonic()
        self._receive_all()
        took_s = monotonic() - began_s
        if took_s > LONG_CALL_S:
            super()._note_long_read(took_s)

    def _note_long_read(self, took_s: float) -> None:
        """`_on_readable` notes the sum."""

    def _receive_all(self) -> None:
        if self._send_wants_read:
            self._send_wants_read = False
            self._pump()
            if not self._out:
                self._flush()
            if self._closed:
                return
            if not self._reading:
                self._ignore_readable()
        for _ in range(READS_PER_TURN_MAX):
            if not self._reading:
                return
            super()._on_readable()
            if not self._socket.pending():
                return
        self._loop.call_soon(self._on_pending)

    def _on_pending(self) -> None:
        """Continue with bytes that are decrypted already."""
        if self._reading and self._socket.pending():
            self._on_readable()

    def _await_readable(self) -> None:
        super()._await_readable()
        if self._is_established and self._socket.pending():
            self._loop.call_soon(self._on_pending)

    def _ignore_readable(self) -> None:
        if self._closed or not self._send_wants_read:
            super()._ignore_readable()

    def _receive_decrypted(self, buffer: memoryview) -> int:
        """Receive all that has arrived: one call of OpenSSL returns at most one record. Requests that are read together
        are answered together."""
        count, size = 0, len(buffer)
        is_blocked = False
        try:
            while count < size:
                received = self._socket.recv_into(buffer[count:] if count else buffer)
                if not received:
                    break
                count += received
        except ssl.SSLWantReadError:
            is_blocked = True
        except ssl.SSLWantWriteError:
            is_blocked = self._receive_wants_write = True
            self._await_writable()
        if is_blocked and not count:
            raise BlockingIOError
        return count

    def _receive_fault(self, error: OSError) -> str:
        return f"TLS: {_tls_fault(error)}" if _is_fault_of_tls(error) else ""

    # --- sending ------------------------------------------------------------------------------------------------

    def _on_writable(self) -> None:
        super()._on_writable()
        if self._receive_wants_write and not self._closed:
            self._receive_wants_write = False
            if not self._out:
                self._stop_writing()
            self._receive_all()

    def _await_writable(self) -> None:
        if not self._send_wants_read or self._receive_wants_write:
            super()._await_writable()

    def _stop_writing(self) -> None:
        if self._closed or not self._receive_wants_write:
            super()._stop_writing()

    def _send_head(self) -> int:
        head = self._gather()
        piece = head[:TLS_SEND_BYTES]
        try:
            sent = self._socket.send(piece)
        except ssl.SSLWantWriteError:
            raise BlockingIOError from None
        except ssl.SSLWantReadError:
            self._send_wants_read = True
            super()._await_readable()
            self._stop_writing()
            raise BlockingIOError from None
        if sent < len(head):
            self._out[0] = head[sent:]
        else:
            self._out.popleft()
        return sent

    def _gather(self) -> memoryview:
        """Put bytes at the head of the queue, as many as one call encrypts: the present head, and behind it replies
        and records that can be read at once."""
        out = self._out
        head = out[0]
        if not isinstance(head, Slice) and (len(head) >= TLS_SEND_BYTES or len(out) == 1):
            return memoryview(head)
        pieces: list[Outgoing | memoryview | bytes] = []
        size = 0
        while out and size < TLS_SEND_BYTES and len(pieces) < GATHERED_PIECES_MAX:
            head = out[0]
            if isinstance(head, Slice):
                if pieces and not (head.is_hot or head.position < self._cached_to or _is_cached(head)):
                    break
                pieces.append(self._read_records(head, TLS_SEND_BYTES - size))
            else:
                pieces.append(head)
                out.popleft()
            size += len(pieces[-1])
        gathered = memoryview(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        out.appendleft(gathered)
        return gathered

    def _read_records(self, records: Slice, size_max: int) -> bytes:
        """Read the start of a slice at the head of the queue and leave the rest there."""
        if not records.is_hot and records.position < self._cached_to:
            size_max = min(size_max, self._cached_to - records.position)  # what follows may be on the disk only
        data = os.pread(records.file.fileno(), min(records.length, size_max), records.position)
        if not data:
            raise OSError(f"a segment of {self.peer}'s fetch ended before its slice did")
        size = len(data)
        if size == records.length:
            self._out.popleft()
            self._cached_to = 0
        else:
            self._out[0] = Slice(records.file, records.position + size, records.length - size, records.is_hot)
        return data

    def _send_fault(self, error: OSError) -> str:
        if isinstance(error, ssl.SSLError):
            return self._receive_fault(error)
        return super()._send_fault(error)


def _is_cached(records: Slice) -> bool:
    length = min(records.length, TLS_SEND_BYTES)
    return page_cache.is_cached(records.file.fileno(), records.position, length)


def _is_fault_of_tls(error: OSError) -> bool:
    """Whether the client sent something wrong, rather than just left."""
    return isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError)


def _tls_fault(error: OSError) -> str:
    return handshake_fault(error) if isinstance(error, ssl.SSLError) else error.strerror or type(error).__name__


def _close_after_step(sock: socket.socket, _: Step) -> None:
    """Called in the thread of the step."""
    sock.close()


def _answer_before_handshake(frame: memoryview) -> Reply:
    raise AssertionError("a request before the TLS handshake")
