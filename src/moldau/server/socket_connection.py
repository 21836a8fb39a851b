"""A plaintext connection on a raw socket: reads into a buffer that all connections share, writes replies and sends
records from their files with `sendfile`. The protocol is in `Conversation`; `tls_connection` receives and sends
encrypted bytes instead.

asyncio's transports do not let their socket be used for `sendfile`; callbacks on the raw socket are as fast as the
fastest transport (docs/decisions/003-raw-sockets.md).
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import ClassVar

from moldau.base.counters import CLOSED_MALFORMED, CLOSED_MEMORY, READING_PAUSED
from moldau.base.errors import MalformedData
from moldau.base.limits import SEND_FILE_BYTES, SEND_TURN_BYTES, SEND_TURN_PIECES, UNSENT_PIECES_MAX
from moldau.base.loop_watch import LONG_CALL_S, LOOP_WATCH
from moldau.log.reading import Slice
from moldau.platforms import page_cache
from moldau.platforms.file_sending import SEND_MORE, is_peer_gone, send_file
from moldau.server.conversation import ConnectionBudget, Conversation, OutOfMemory, Reply
from moldau.server.unsent import Unsent, join_head, unsent_bytes
from moldau.wire.codec import NoReply, Outgoing


class SocketConnection:
    TURN_BYTES: ClassVar = SEND_TURN_BYTES
    TURN_PIECES: ClassVar = SEND_TURN_PIECES

    __slots__ = (
        "_budget", "_cached_to", "_closed", "_conversation", "_fd", "_fetching", "_loop", "_muted", "_on_close",
        "_out", "_reading", "_receive", "_scratch", "_socket", "_stopped", "_unsent", "_writing", "blocked_since",
        "closed_by", "last_active", "peer", "reading_since", "sent_since",
    )  # fmt: skip

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        peer: str,
        scratch: memoryview,
        answer: Callable[[memoryview], Reply],
        frame_bytes_max: int,
        budget: ConnectionBudget,
        on_close: Callable[[SocketConnection, str], None],
    ) -> None:
        self._loop = loop
        self._socket = sock
        self._fd = sock.fileno()
        self._receive: Callable[[memoryview], int] = sock.recv_into
        """Receives bytes; 0 at the end. Raises BlockingIOError if there are none yet."""
        self.peer = peer
        self._scratch = scratch
        self._budget = budget
        self._on_close = on_close
        self._out: deque[Unsent] = deque()
        self._writing = self._fetching = self._closed = self._stopped = False
        self._muted: asyncio.TimerHandle | None = None
        """While set, no requests are read: the client is above its quota."""
        self._cached_to = 0
        """Up to which position of the file at the head of the queue the records are in the page cache."""
        self._unsent = 0
        """Bytes of responses that the client has not read, as the budget counts them."""
        self.blocked_since: float | None = None
        self.sent_since = 0
        self.closed_by = CLOSED_MALFORMED  # the counter for the reason
        self._conversation = Conversation(answer, self._flush, frame_bytes_max, budget)
        self.last_active = loop.time()
        self._reading = True
        self.reading_since: float | None = self.last_active
        self._await_readable()

    @property
    def is_answered(self) -> bool:
        """Whether every request that was read has been answered and every byte of the replies sent."""
        return not self._out and self._conversation.is_answered

    @property
    def is_waiting_for_us(self) -> bool:
        """Whether a reply is pending and not ready: the client is not to blame if that takes long."""
        return not (self._out or self._conversation.is_answered)

    @property
    def is_idle(self) -> bool:
        return self._conversation.is_idle and not self._out

    def limit_frames(self, bytes_max: int, trusted_bytes: int, is_stranger: bool) -> None:
        """Limit the requests from now on: see Conversation."""
        self._conversation.limit_frames(bytes_max, trusted_bytes, is_stranger)

    def stop_reading(self) -> None:
        """Read no more requests; those that were read are still answered."""
        self._stopped = True
        if self._reading:
            self._reading, self.reading_since = False, None
            self._ignore_readable()

    @property
    def arriving(self) -> tuple[int, int] | None:
        return self._conversation.arriving

    def close(self, reason: str = "", closed_by: str = CLOSED_MALFORMED) -> None:
        """Close the connection. A reason is logged and counted; it means that the other side was at fault."""
        if self._closed:
            return
        self._closed = True
        self.closed_by = closed_by
        self._hold_unsent(0)
        if self._muted is not None:
            self._muted.cancel()
        self.stop_reading()
        self._stop_writing()
        self._conversation.close()
        self._out.clear()
        self._close_socket()
        self._on_close(self, reason)

    # --- how bytes are received and sent: TLS does these in its own way -----------------------------------------

    def _close_socket(self) -> None:
        self._socket.close()

    def _send_head(self) -> int:
        """Send some of the head of the queue, bytes together with those that follow them directly, and remove what was
        sent; return its size."""
        out = self._out
        head = out[0]
        if isinstance(head, Slice):
            return self._send_file(head)
        if len(out) > 1 and not isinstance(out[1], Slice):
            head = join_head(out)
        sent = self._socket.send(head, SEND_MORE if len(out) > 1 else 0)
        if sent == len(head):
            out.popleft()
        else:
            out[0] = memoryview(head)[sent:]
        return sent

    def _receive_fault(self, error: OSError) -> str:
        return ""  # nothing to log: it means that the client is gone

    def _send_fault(self, error: OSError) -> str:
        """Return what to log of an error in sending: nothing if it only means that the client is gone."""
        return "" if is_peer_gone(error) else str(error)

    # --- receiving ----------------------------------------------------------------------------------------------

    def _on_readable(self) -> None:
        """Called by the loop. Requests are handled here, so a call that takes long is noted with its API."""
        self.last_active = began_s = monotonic()
        conversation = self._conversation
        room = None if conversation.incomplete is None else conversation.room()
        try:
            count = self._receive(self._scratch if room is None else room)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.close(self._receive_fault(error))
            return
        if not count:
            self.close()
            return
        try:
            if room is None:
                reply = conversation.feed_single(self._scratch[:count])
            else:
                room.release()
                conversation.filled(count)
                reply = None
        except MalformedData as error:
            self._refuse(error)
        else:
            if reply is None:
                self._flush()
            elif not self._closed:
                self._send_reply(reply)
        took_s = monotonic() - began_s
        if took_s > LONG_CALL_S:
            self._note_long_read(took_s)

    def _send_reply(self, reply: Outgoing) -> None:
        """Send the only reply that is ready."""
        if reply and not (self._out or self._muted or reply.slices or reply.pause_ms):
            self._out.append(reply)
            self._pump()
            if self._out:
                self._pace()
        else:
            self._queue(reply)
            self._flush()

    def _note_long_read(self, took_s: float) -> None:
        LOOP_WATCH.note(f"{LOOP_WATCH.api} from {self.peer}", took_s)

    def _refuse(self, error: MalformedData) -> None:
        """Close the connection because of the bytes that were read; replies that are ready are sent first."""
        self.stop_reading()
        while (reply := self._conversation.next_reply()) is not None:
            self._queue(reply)
        if not (self._writing or self._fetching):
            self._pump()
        self.close(str(error), error.closed_by if isinstance(error, OutOfMemory) else CLOSED_MALFORMED)

    def _flush(self) -> None:
        """Send the replies that are ready, continue with requests that were held back for them, then resume or pause
        reading."""
        conversation, out = self._conversation, self._out
        while not self._closed:
            while conversation.pending and (reply := conversation.next_reply()) is not None:
                if reply and not reply.slices and not reply.pause_ms:
                    out.append(reply)
                else:
                    self._queue(reply)
            if out and not self._writing and not self._fetching:
                self._pump()
            if not conversation.held or self._muted:
                if self._reading and not (out or self._muted or (conversation.pending and conversation.is_full)):
                    return  # there is nothing to pause or resume, as after nearly all requests
                break
            if conversation.is_full or (out and self._is_slow()):
                self._budget.counters.add(READING_PAUSED)
                break
            if conversation.is_turn_over:
                conversation.is_turn_over = False
                self._loop.call_soon(self._flush)
                break
            if not self._resume():
                break
        self._pace()

    def _resume(self) -> bool:
        try:
            return self._conversation.resume()
        except MalformedData as error:
            self._refuse(error)
            return False

    def _pace(self) -> None:
        """Pause reading from a client that does not read its replies."""
        if self._closed:
            return
        conversation, is_slow = self._conversation, self._out and self._is_slow()
        should_read = not (is_slow or self._stopped or self._muted or conversation.held or conversation.is_full)
        if should_read == self._reading:
            return
        self._reading = should_read
        self.reading_since = self._loop.time() if should_read else None
        if should_read:
            self._await_readable()
            return
        if not conversation.held:
            self._budget.counters.add(READING_PAUSED)
        self._ignore_readable()

    def _await_readable(self) -> None:
        self._loop.add_reader(self._fd, self._on_readable)

    def _ignore_readable(self) -> None:
        self._loop.remove_reader(self._fd)

    def _is_slow(self) -> bool:
        """Whether so much waits to be sent that no more should be added."""
        return len(self._out) > UNSENT_PIECES_MAX or unsent_bytes(self._out) > self._budget.limits.unsent_bytes_max

    def _hold_unsent(self, size: int) -> None:
        """Tell the budget how much waits for a slow client; close the connection if all together read too little."""
        if size == self._unsent:
            return
        is_too_much = self._budget.hold_unsent(self._unsent, size)
        self._unsent = size
        if is_too_much:
            self.close("the memory for responses that clients do not read is used up", CLOSED_MEMORY)

    def _mute(self, pause_ms: int) -> None:
        """Read no requests for this time, counted from now or from the end of a pause that is longer."""
        until_s = self._loop.time() + pause_ms / 1000
        if self._muted is not None:
            until_s = max(until_s, self._muted.when())
            self._muted.cancel()
        self._muted = self._loop.call_at(until_s, self._unmute)

    def _unmute(self) -> None:
        self._muted = None
        self.last_active = self._loop.time()
        self._flush()

    # --- sending ------------------------------------------------------------------------------------------------

    def _queue(self, reply: Outgoing) -> None:
        if reply.pause_ms:
            self._mute(reply.pause_ms)
        elif not (reply or isinstance(reply, NoReply)):
            if not (self._writing or self._fetching):
                self._pump()  # the replies before it
            self.close(reply.refusal)
            return
        view, start = memoryview(reply), 0
        for position, records in reply.slices:
            if position > start:
                self._out.append(view[start:position])
            self._out.append(records)
            start = position
        if start < len(view):
            self._out.append(view[start:])

    def _write(self) -> None:  # called by the loop
        began_s = monotonic()
        self._on_writable()
        took_s = monotonic() - began_s
        if took_s > LONG_CALL_S:
            LOOP_WATCH.note(f"sending to {self.peer}", took_s)

    def _on_writable(self) -> None:
        self.last_active = self._loop.time()
        self._pump()
        if not self._out:
            self._flush()

    def _pump(self) -> None:
        """Send from the queue until the socket takes no more or a limit of this turn (bytes, pieces) is reached."""
        left, pieces_left = self.TURN_BYTES, self.TURN_PIECES
        out = self._out
        try:
            while out:
                if left <= 0 or pieces_left <= 0:
                    self._await_writable()
                    return
                head = out[0]
                if isinstance(head, Slice) and not (head.is_hot or self._is_cached(head)):
                    return
                left, pieces_left = left - self._send_head(), pieces_left - 1
        except (BlockingIOError, InterruptedError):
            self._on_blocked(self.TURN_BYTES - left)
            return
        except OSError as error:
            self.close(self._send_fault(error))
            return
        if self.blocked_since is not None:
            self.blocked_since = None
            self._hold_unsent(0)
        if self._writing:
            self._stop_writing()

    def _on_blocked(self, sent: int) -> None:
        """Called when the socket takes no more: the client reads slower than we send."""
        if self.blocked_since is None:
            self.blocked_since = self._loop.time()
            self.sent_since = 0
        else:
            self.sent_since += sent
        self._await_writable()
        self._hold_unsent(unsent_bytes(self._out))

    def _send_file(self, head: Slice) -> int:
        cached = head.length if head.is_hot else self._cached_to - head.position
        sent = send_file(self._fd, head.file.fileno(), head.position, min(head.length, SEND_FILE_BYTES, cached))
        if not sent:
            raise OSError(f"a segment of {self.peer}'s fetch ended before its slice did")
        if sent == head.length:
            self._out.popleft()
            self._cached_to = 0
        else:
            self._out[0] = Slice(head.file, head.position + sent, head.length - sent, head.is_hot)
        return sent

    def _await_writable(self) -> None:
        if not self._writing:
            self._writing = True
            self._loop.add_writer(self._fd, self._write)

    def _stop_writing(self) -> None:
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._fd)

    def _is_cached(self, records: Slice) -> bool:
        """Whether the next records are in the page cache; if not, a thread reads them and then sending continues."""
        if records.position < self._cached_to:
            return True
        fd = records.file.fileno()
        chunk = min(records.length, SEND_FILE_BYTES)
        self._cached_to = records.position + chunk
        if page_cache.is_cached(fd, records.position, chunk):
            return True
        self._stop_writing()
        self._fetching = True
        fetching = self._loop.run_in_executor(None, page_cache.fetch, fd, records.position, chunk)
        fetching.add_done_callback(self._on_cached)
        return False

    def _on_cached(self, done: asyncio.Future[None]) -> None:
        self._fetching = False
        if (error := done.exception()) is not None:
            self.close(str(error))
        elif not self._closed:
            self._on_writable()
