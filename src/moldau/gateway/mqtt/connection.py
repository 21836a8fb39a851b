"""One client's connection: bytes to packets to actions, and the work that they ask for, in order.

Reading is never waited for: what a client sends becomes work in a queue, which one task does, started when there is
work and gone when there is none. So all PUBLISH packets that came meanwhile are appended together. While too much is in
the queue, the socket is not read.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import ssl
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, cast

from moldau.base.errors import ErrorCode, KafkaError
from moldau.gateway.mqtt.conversation import (
    Acknowledged,
    Action,
    Append,
    Change,
    Conversation,
    End,
    LogIn,
    Send,
    State,
)
from moldau.gateway.mqtt.credentials import credentials_of
from moldau.gateway.mqtt.outbox import Outbox
from moldau.gateway.mqtt.packets import V5, Ack, Connect, PacketReader, Publish, Subscribe, Unsubscribe, Will, encode
from moldau.gateway.mqtt.properties import PacketType, size_of
from moldau.gateway.mqtt.reasons import Reason, puback_reason, reason_of
from moldau.gateway.mqtt.session import Session, session_key
from moldau.gateway.mqtt.shared import Shared
from moldau.gateway.mqtt.subscribing import Gone, Subscriptions
from moldau.gateway.mqtt.topics import Refusal
from moldau.gateway.ports import Account

log = logging.getLogger(__name__)

WRITE_HIGH_BYTES: Final = 256 << 10
CLOSE_S: Final = 5.0
"""How long a client has to take the last bytes; then the connection is cut."""
PUBACK_FIRST_BYTES: Final = b"\x40\x02"

_OF_LOGIN: Final = {
    ErrorCode.SASL_AUTHENTICATION_FAILED: Reason.BAD_USER_NAME_OR_PASSWORD,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: Reason.NOT_AUTHORIZED,
}


class _Resume:
    """Work: go on with the subscriptions of the session."""


Work = list[Publish] | Subscribe | Unsubscribe | _Resume


class Connection(asyncio.Protocol):
    __slots__ = (
        "_account",
        "_held_bytes",
        "_is_left",
        "_is_paused",
        "_is_write_paused",
        "_queue",
        "_queued_bytes",
        "_queued_publishes",
        "_reader",
        "_shared",
        "_timer",
        "_transport",
        "_worker",
        "conversation",
        "session",
        "subscriptions",
    )

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._reader = PacketReader(shared.limits.packet_bytes_max, shared.limits.control_bytes_max)
        self.conversation = Conversation(shared.limits, shared.now_s())
        self.session: Session | None = None
        self.subscriptions: Subscriptions | None = None
        self._account: Account | None = None
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._worker: asyncio.Task[None] | None = None
        self._queue: deque[Work] | None = None
        self._queued_publishes = 0
        self._queued_bytes = 0
        self._held_bytes = 0
        self._is_paused = False
        self._is_write_paused = False
        self._is_left = False

    # --- asyncio ----------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's do not inherit from asyncio's
        self._transport = transport
        if not self._shared.add(self):
            self._is_left = True
            self.conversation.lost()
            transport.abort()
            return
        transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
        self._set_timer()

    def data_received(self, data: bytes) -> None:
        if self.conversation.state is State.CLOSED:
            return
        counters, reader = self._shared.counters, self._reader
        counters.bytes_in += len(data)
        packets = reader.feed(data)
        if reader.held_bytes != self._held_bytes:
            counters.held_bytes += reader.held_bytes - self._held_bytes
            self._held_bytes = reader.held_bytes
            if counters.held_bytes > self._shared.limits.held_bytes_max:
                self.end(Reason.QUOTA_EXCEEDED, "too many bytes of incomplete packets in all")
                return
        if packets:
            self._do(self.conversation.receive(packets, self._shared.now_s()))

    def pause_writing(self) -> None:
        self._is_write_paused = True

    def resume_writing(self) -> None:
        self._is_write_paused = False
        if self.subscriptions is not None:
            self.subscriptions.written()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave(self.conversation.lost())
        if self._timer is not None:
            self._timer.cancel()
        self._shared.counters.held_bytes -= self._held_bytes
        self._held_bytes = 0
        self._shared.remove(self)
        self._transport = None

    # --- actions ----------------------------------------------------------------------------------------------------

    def end(self, reason: Reason, what: str) -> None:
        """End the connection from this side."""
        self._do(self.conversation.end(reason, what))

    def note_positions(self) -> None:
        if self.subscriptions is not None:
            self.subscriptions.note_positions()

    def _do(self, actions: Sequence[Action]) -> None:
        for action in actions:
            match action:
                case Append(publishes):
                    self._add_publishes(publishes)
                case Acknowledged(packet_ids):
                    if self.subscriptions is not None:
                        self.subscriptions.acknowledge(packet_ids)
                case Send(data):
                    self._write([data])
                case Change(packet):
                    self._add_work(packet)
                case LogIn(connect):
                    self._pause_reading()
                    self._shared.start(self._log_in(connect), "mqtt login")
                case End():
                    self._finish(action)

    def _write(self, pieces: list[bytes]) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._shared.counters.bytes_out += sum(map(len, pieces))
            self._transport.write(pieces[0] if len(pieces) == 1 else b"".join(pieces))

    def _waiting_bytes(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def _finish(self, action: End) -> None:
        transport = self._transport
        if action.reason is not None:
            kind = "login" if self.session is None else "connection"
            self._shared.counters.refuse(f"{kind}: {action.reason.words}")
            log.info("mqtt: a connection ends: %s (%s)", action.what, action.reason.words)
        if transport is not None:
            if action.data:
                self._write([action.data])
            transport.close()
            asyncio.get_running_loop().call_later(CLOSE_S, transport.abort)
        self._leave(action.will)

    def _leave(self, will: Will | None) -> None:
        """Give up the session; once."""
        if self._is_left:
            return
        self._is_left = True
        session, account = self.session, self._account
        if session is None or account is None:
            return
        session.expiry_s = self.conversation.session_expiry_s if self._shared.holds(self) else session.expiry_s
        if self.subscriptions is not None and (tails := self.subscriptions.detach()):
            self._shared.start(self.subscriptions.release(tails), "mqtt end of subscriptions")
        self._shared.leave(self, session, account, will)

    # --- time -------------------------------------------------------------------------------------------------------

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline_s = self.conversation.deadline_s()
        if deadline_s is not None and self.conversation.state is not State.CLOSED:
            self._timer = asyncio.get_running_loop().call_at(deadline_s, self._check_time)

    def _check_time(self) -> None:
        self._timer = None
        if self._is_paused:
            self.conversation.not_read(self._shared.now_s())
        self._do(self.conversation.expire(self._shared.now_s()))
        self._set_timer()

    # --- login ------------------------------------------------------------------------------------------------------

    async def _log_in(self, connect: Connect) -> None:
        problem = None if connect.will is None else self._shared.rules.place(connect.will.topic)
        if isinstance(problem, Refusal):
            self.end(problem.reason, "the topic name of the will cannot be used")
            return
        try:
            credentials = credentials_of(connect.user, connect.password, self._certificate())
            account = await self._shared.accounts.account(credentials)
        except KafkaError as error:
            reason = _OF_LOGIN.get(error.code, Reason.SERVER_UNAVAILABLE)
            self.end(reason, f"the login failed: {error.code.name}")
            return
        except Exception:
            log.exception("mqtt: internal error in a login")
            self.end(Reason.IMPLEMENTATION_SPECIFIC_ERROR, "internal error")
            return
        if self.conversation.state is State.LOGGING_IN:
            self._accept(connect, account)

    def _certificate(self) -> bytes | None:
        tls = self._transport.get_extra_info("ssl_object") if self._transport is not None else None
        return tls.getpeercert(binary_form=True) if isinstance(tls, ssl.SSLObject) else None

    def _accept(self, connect: Connect, account: Account) -> None:
        conversation, shared = self.conversation, self._shared
        client_id = connect.client_id or secrets.token_hex(8)
        key = session_key(account.user, client_id)
        begun = shared.begin(key, connect.clean_start, conversation.expiry_s(), self)
        session = self.session = begun.session
        self._account = account
        if begun.taken_from is not None:
            begun.taken_from.end(Reason.SESSION_TAKEN_OVER, "another connection has the same client identifier")
        outbox = Outbox(
            conversation.version, conversation.delivery_window(), conversation.client_packet_bytes_max(), session.again
        )
        session.again = {}
        self.subscriptions = shared.subscriptions(self, session, account, outbox, self._write, self._waiting_bytes)
        assigned = None if connect.client_id else client_id
        actions = conversation.accept(begun.is_present, session.expiry_s, assigned, shared.now_s())
        conversation.forget_connect()
        self._set_timer()
        self._queue = deque()
        if session.subscriptions:
            self._add_work(_Resume())
        self._resume_reading()
        self._do(actions)

    # --- work -------------------------------------------------------------------------------------------------------

    def _add_publishes(self, publishes: list[Publish]) -> None:
        assert self._queue is not None
        counters = self._shared.counters
        self._queued_publishes += len(publishes)
        size = _size(publishes)
        self._queued_bytes += size
        counters.queued_bytes += size
        last = self._queue[-1] if self._queue else None
        if isinstance(last, list):
            last += publishes
        else:
            self._add_work(publishes)
        limits = self._shared.limits
        if (
            self._queued_publishes >= limits.publishes_in_flight_max
            or self._queued_bytes >= limits.publish_bytes_in_flight_max
            or counters.queued_bytes >= limits.publish_bytes_in_all_max
        ):
            self._pause_reading()

    def _add_work(self, work: Work) -> None:
        assert self._queue is not None
        self._queue.append(work)
        if len(self._queue) > self._shared.limits.publishes_in_flight_max:
            self._pause_reading()
        if self._worker is None:
            self._worker = self._shared.start(self._work(self._queue), "mqtt work")

    async def _work(self, queue: deque[Work]) -> None:
        try:
            while queue:
                with suppress(Gone):  # what the client has published is appended all the same
                    await self._do_work(queue.popleft())
                self._check_pause()
        except KafkaError as error:
            self.end(reason_of(error.code), f"a subscription cannot go on: {error.code.name}")
        except Exception:
            log.exception("mqtt: internal error in a connection")
            self.end(Reason.IMPLEMENTATION_SPECIFIC_ERROR, "internal error")
        finally:
            self._worker = None
            queue.clear()
            self._shared.counters.queued_bytes -= self._queued_bytes
            self._queued_bytes = 0

    async def _do_work(self, work: Work) -> None:
        subscriptions = self.subscriptions
        assert subscriptions is not None
        if isinstance(work, list):
            await self._publish(work)
        elif self._is_left:
            return
        elif isinstance(work, Subscribe):
            answer, wanted = await subscriptions.subscribe(work)
            self._write([encode(answer, self.conversation.version)])
            for subscription in wanted:
                await subscriptions.send_retained(subscription)
        elif isinstance(work, Unsubscribe):
            self._write([encode(await subscriptions.unsubscribe(work), self.conversation.version)])
        else:
            await subscriptions.resume()

    async def _publish(self, publishes: list[Publish]) -> None:
        assert self._account is not None
        assert self.subscriptions is not None
        shared, version = self._shared, self.conversation.version
        sender = self.subscriptions.sender
        outcome = await shared.publisher.publish(self._account, publishes, sender, shared.now_ms())
        answers = bytearray()
        count = 0
        failed: Reason | None = None
        for publish, reason in zip(publishes, outcome, strict=True):
            if publish.qos:
                count += 1
                if reason is Reason.SUCCESS:
                    answers += PUBACK_FIRST_BYTES
                    answers += publish.packet_id.to_bytes(2, "big")
                elif version == V5:
                    answers += encode(Ack(PacketType.PUBACK, publish.packet_id, puback_reason(reason)), version)
                else:
                    failed = reason
                    break
        self.conversation.answered(count)
        self._queued_publishes -= len(publishes)
        size = _size(publishes)
        self._queued_bytes -= size
        shared.counters.queued_bytes -= size
        if answers:
            self._write([bytes(answers)])
        if failed is not None:
            self.end(failed, "a message was refused, and MQTT 3.1.1 has no words for it")

    def _pause_reading(self) -> None:
        if not self._is_paused and self._transport is not None and not self._transport.is_closing():
            self._is_paused = True
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._is_paused and self._transport is not None and not self._transport.is_closing():
            self._is_paused = False
            self._transport.resume_reading()

    def _check_pause(self) -> None:
        limits = self._shared.limits
        if (
            self._is_paused
            and self._queue is not None
            and len(self._queue) <= limits.publishes_in_flight_max // 2
            and self._queued_publishes <= limits.publishes_in_flight_max // 2
            and self._queued_bytes <= limits.publish_bytes_in_flight_max // 2
            and (not self._queue or self._shared.counters.queued_bytes < limits.publish_bytes_in_all_max)
        ):
            self._resume_reading()


def _size(publishes: Sequence[Publish]) -> int:
    return sum(len(each.topic) + len(each.payload) + size_of(each.properties) for each in publishes)
