"""One connection of a client as a pure state machine: packets in, actions out.

It knows the standard: which packet may come when, what answers it, keep alive, topic aliases, receive maximum. It has
no sockets, accounts or Kafka: whoever has these does the actions, in order, and tells it what came of a login.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple

from moldau.gateway.mqtt.limits import MqttLimits
from moldau.gateway.mqtt.packets import (
    PINGRESP_BYTES,
    V3_1_1,
    V5,
    Ack,
    Connack,
    Connect,
    Disconnect,
    Malformed,
    Packet,
    Pingreq,
    Publish,
    Subscribe,
    Unsubscribe,
    Will,
    encode,
)
from moldau.gateway.mqtt.properties import NO_PROPERTIES, PacketType, Properties
from moldau.gateway.mqtt.reasons import Reason, connack_return_code

RECEIVE_MAXIMUM: Final = 65_535
"""What counts if a CONNECT does not say it."""
KEEP_ALIVE_FACTOR: Final = 1.5
"""The standard's."""
_IN_CONNACK: Final = {Reason.SERVER_SHUTTING_DOWN: Reason.SERVER_UNAVAILABLE}
_IN_DISCONNECT: Final = {Reason.BAD_USER_NAME_OR_PASSWORD: Reason.NOT_AUTHORIZED}
"""Reasons that the packet cannot have, and the nearest that it can."""


class State(Enum):
    NEW = "new"
    LOGGING_IN = "logging in"
    CONNECTED = "connected"
    CLOSED = "closed"


class LogIn(NamedTuple):
    """Find out who it is; then call `accept` or `end`."""

    connect: Connect


class Append(NamedTuple):
    """Append these messages, and acknowledge those with QoS 1, in order."""

    publishes: list[Publish]


class Change(NamedTuple):
    """Change the subscriptions, and answer."""

    packet: Subscribe | Unsubscribe


class Acknowledged(NamedTuple):
    packet_ids: list[int]


class Send(NamedTuple):
    data: bytes


class End(NamedTuple):
    """Write this and close the connection."""

    data: bytes
    reason: Reason | None
    """None: the client said good-bye."""
    what: str = ""
    will: Will | None = None
    """It is due, if its delay allows."""


Action = LogIn | Append | Change | Acknowledged | Send | End


class Conversation:
    __slots__ = (
        "_aliases",
        "_connect",
        "_early",
        "_limits",
        "_seen_at_s",
        "_timeout_s",
        "_will",
        "session_expiry_s",
        "state",
        "unanswered",
        "version",
    )

    def __init__(self, limits: MqttLimits, now_s: float) -> None:
        self._limits = limits
        self.state = State.NEW
        self.version = V3_1_1
        self.unanswered = 0
        """PUBLISH packets with QoS 1 that have no PUBACK yet."""
        self.session_expiry_s = 0
        self._connect: Connect | None = None
        self._will: Will | None = None
        self._aliases: dict[int, str] | None = None
        self._early: list[Packet | Malformed] = []
        """What came before the login was over."""
        self._seen_at_s = now_s
        self._timeout_s: float | None = limits.connect_timeout_s

    # --- time -------------------------------------------------------------------------------------------------------

    def deadline_s(self) -> float | None:
        """When to call `expire`; it may be later by then."""
        return None if self._timeout_s is None else self._seen_at_s + self._timeout_s

    def not_read(self, now_s: float) -> None:
        """The socket is not read now, so the client cannot be blamed for its silence."""
        if self.state is State.CONNECTED:
            self._seen_at_s = now_s

    def expire(self, now_s: float) -> list[Action]:
        deadline_s = self.deadline_s()
        if deadline_s is None or now_s < deadline_s or self.state is State.CLOSED:
            return []
        if self.state is State.CONNECTED:
            return self.end(Reason.KEEP_ALIVE_TIMEOUT, "nothing came within one and a half times the keep alive")
        return self.end(Reason.UNSPECIFIED_ERROR, "no login within the time for it")

    # --- packets ----------------------------------------------------------------------------------------------------

    def receive(self, packets: Sequence[Packet | Malformed], now_s: float) -> list[Action]:
        if self.state is State.CONNECTED:
            self._seen_at_s = now_s
        actions: list[Action] = []
        publishes: list[Publish] = []
        for packet in packets:
            if self.state is not State.CONNECTED:
                actions += self._before_login(packet)
                continue
            if type(packet) is Publish:
                problem = self._add_publish(packet, publishes)
                if problem is None:
                    continue
                more = self.end(*problem)
            else:
                more = self._receive_other(packet)
            if publishes:
                actions.append(Append(publishes))
                publishes = []
            actions += more
        if publishes:
            actions.append(Append(publishes))
        return actions

    def _before_login(self, packet: Packet | Malformed) -> list[Action]:
        if self.state is State.LOGGING_IN:
            self._early.append(packet)
        elif self.state is State.NEW:
            if isinstance(packet, Malformed):
                return self.end(packet.reason, packet.what)
            assert isinstance(packet, Connect), "the reader lets nothing else through"
            return self._receive_connect(packet)
        return []

    def _receive_connect(self, packet: Connect) -> list[Action]:
        self.version = packet.version
        self._connect = packet
        problem = self._problem_of(packet)
        if problem is not None:
            return self.end(*problem)
        self.state = State.LOGGING_IN
        return [LogIn(packet)]

    def _problem_of(self, packet: Connect) -> tuple[Reason, str] | None:
        if packet.properties.authentication_method is not None:
            return Reason.BAD_AUTHENTICATION_METHOD, "there is no extended authentication: use user name and password"
        if not packet.client_id and packet.version == V3_1_1 and not packet.clean_start:
            return Reason.CLIENT_IDENTIFIER_NOT_VALID, "a session that stays needs a client identifier"
        if len(packet.client_id.encode()) > self._limits.client_id_bytes_max:
            return Reason.CLIENT_IDENTIFIER_NOT_VALID, "the client identifier is too long"
        if packet.will is not None and packet.will.qos == 2:
            return Reason.QOS_NOT_SUPPORTED, "a will with QoS 2"
        if packet.user is not None and not packet.password:
            return Reason.BAD_USER_NAME_OR_PASSWORD, "a user name without a password"
        return None

    def _add_publish(self, packet: Publish, publishes: list[Publish]) -> tuple[Reason, str] | None:
        if packet.qos:
            if packet.qos == 2:
                return Reason.QOS_NOT_SUPPORTED, "a PUBLISH with QoS 2"
            self.unanswered += 1
            if self.unanswered > self._limits.publishes_in_flight_max and self.version == V5:
                return Reason.RECEIVE_MAXIMUM_EXCEEDED, "more PUBLISH packets than the receive maximum"
        if packet.properties is not NO_PROPERTIES:
            if packet.properties.subscription_identifiers:
                return Reason.PROTOCOL_ERROR, "a PUBLISH of a client with a subscription identifier"
            alias = packet.properties.topic_alias
            if alias is not None:
                topic = self._resolve(packet.topic, alias)
                if topic is None:
                    return Reason.TOPIC_ALIAS_INVALID, "a topic alias that is unknown or out of range"
                packet = packet._replace(topic=topic)
        publishes.append(packet)
        return None

    def _resolve(self, topic: str, alias: int) -> str | None:
        if not 1 <= alias <= self._limits.topic_aliases_max:
            return None
        if self._aliases is None:
            self._aliases = {}
        if topic:
            self._aliases[alias] = topic
        return self._aliases.get(alias)

    def _receive_other(self, packet: Packet | Malformed) -> list[Action]:
        match packet:
            case Pingreq():
                return [Send(PINGRESP_BYTES)]
            case Ack(PacketType.PUBACK, packet_id):
                return [Acknowledged([packet_id])]
            case Ack(PacketType.PUBREL, packet_id):
                # Of a message with QoS 2 that this server never took.
                answer = Ack(PacketType.PUBCOMP, packet_id, Reason.PACKET_IDENTIFIER_NOT_FOUND)
                return [Send(encode(answer, self.version))]
            case Subscribe() | Unsubscribe():
                return [Change(packet)]
            case Disconnect():
                return self._receive_disconnect(packet)
            case Malformed(reason, what):
                return self.end(reason, what)
            case _:
                return self.end(Reason.PROTOCOL_ERROR, f"a {type(packet).__name__} that a client may not send now")

    def _receive_disconnect(self, packet: Disconnect) -> list[Action]:
        expiry_s = packet.properties.session_expiry_s
        if expiry_s is not None:
            if expiry_s and not self.session_expiry_s:
                return self.end(Reason.PROTOCOL_ERROR, "a DISCONNECT that makes a session persistent")
            self.session_expiry_s = min(expiry_s, self._limits.session_expiry_s_max)
        will = None if packet.reason == Reason.SUCCESS else self._will
        self._close()
        return [End(b"", None, will=will)]

    # --- what the server says ---------------------------------------------------------------------------------------

    def expiry_s(self) -> int:
        """Return how long the session stays when the client is away."""
        assert self._connect is not None
        if self.version == V3_1_1:
            return 0 if self._connect.clean_start else self._limits.session_expiry_s_max
        return min(self._connect.properties.session_expiry_s or 0, self._limits.session_expiry_s_max)

    def accept(self, is_present: bool, expiry_s: int, assigned_client_id: str | None, now_s: float) -> list[Action]:
        """The client is who it says: answer, and go on with what it has sent meanwhile."""
        connect = self._connect
        assert connect is not None, "it has not asked"
        assert self.state is State.LOGGING_IN
        self.state = State.CONNECTED
        self._will = connect.will
        self.session_expiry_s = expiry_s
        keep_alive_s = connect.keep_alive_s
        properties = NO_PROPERTIES
        if self.version == V5:
            limits = self._limits
            keep_alive_s = min(keep_alive_s or limits.keep_alive_s_max, limits.keep_alive_s_max)
            asked_expiry_s = connect.properties.session_expiry_s or 0
            properties = Properties(
                receive_maximum=min(limits.publishes_in_flight_max, RECEIVE_MAXIMUM),
                maximum_qos=1,
                maximum_packet_size=limits.packet_bytes_max,
                topic_alias_maximum=limits.topic_aliases_max,
                shared_subscription_available=0,
                session_expiry_s=expiry_s if expiry_s != asked_expiry_s else None,
                server_keep_alive_s=keep_alive_s if keep_alive_s != connect.keep_alive_s else None,
                assigned_client_id=assigned_client_id,
            )
        self._timeout_s = KEEP_ALIVE_FACTOR * keep_alive_s if keep_alive_s else None
        early, self._early = self._early, []
        answer = Send(encode(Connack(is_present, Reason.SUCCESS, properties), self.version))
        return [answer, *self.receive(early, now_s)]

    def delivery_window(self) -> int:
        """Return how many messages with QoS 1 may be on their way to the client."""
        assert self._connect is not None
        asked = self._connect.properties.receive_maximum or RECEIVE_MAXIMUM
        return min(asked, self._limits.deliveries_in_flight_max)

    def client_packet_bytes_max(self) -> int | None:
        assert self._connect is not None
        return self._connect.properties.maximum_packet_size

    def forget_connect(self) -> None:
        """The CONNECT is no longer needed: a quiet connection has no use for its password."""
        self._connect = None

    def answered(self, count: int) -> None:
        self.unanswered -= count

    def end(self, reason: Reason, what: str) -> list[Action]:
        """End the connection from this side; the client is told why, where there are words for it."""
        if self.state is State.CLOSED:
            return []
        will, data = self._will, self._last_words(reason)
        self._close()
        return [End(data, reason, what, will)]

    def lost(self) -> Will | None:
        """The connection is gone; return the will."""
        will = self._will
        self._close()
        return will

    def _last_words(self, reason: Reason) -> bytes:
        if self.state is State.CONNECTED:
            said = _IN_DISCONNECT.get(reason, reason)
            return encode(Disconnect(said), V5) if self.version == V5 else b""
        if self._connect is None:
            # Not even the version is known; a client of a future one may understand this.
            unknown = reason is Reason.UNSUPPORTED_PROTOCOL_VERSION
            return encode(Connack(False, 1), V3_1_1) if unknown else b""
        if self.version == V5:
            return encode(Connack(False, _IN_CONNACK.get(reason, reason)), V5)
        code = connack_return_code(reason)
        return b"" if code is None else encode(Connack(False, code), V3_1_1)

    def _close(self) -> None:
        self.state = State.CLOSED
        self._will = self._aliases = None
        self._early = []
